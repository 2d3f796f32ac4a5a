"""An object goes from one rank to another, and waits nowhere."""

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank = comm.Get_rank()

if rank == 0:
    settings = {"alpha": 0.25, "names": ["U", "V"], "steps": 100}
    comm.send(settings, dest=1, tag=17)
elif rank == 1:
    settings = comm.recv(source=0, tag=17)
    print(rank, sorted(settings), settings["names"])
