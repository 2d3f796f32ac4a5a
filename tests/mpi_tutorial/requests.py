"""The same, put aside: both do something else meanwhile."""

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank = comm.Get_rank()

if rank == 0:
    request = comm.isend({"first": (1, 2), "second": 2.5}, dest=1, tag=3)
    request.wait()
elif rank == 1:
    request = comm.irecv(source=0, tag=3)
    found = request.wait()
    print(rank, found)
