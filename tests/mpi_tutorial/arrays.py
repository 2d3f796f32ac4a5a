"""Arrays go as they lie in memory, with a datatype that is named or found."""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank = comm.Get_rank()

if rank == 0:
    comm.Send([np.arange(500, dtype="i"), MPI.INT], dest=1, tag=1)
    comm.Send(np.linspace(0, 1, 500), dest=1, tag=2)
elif rank == 1:
    numbers, points = np.empty(500, dtype="i"), np.empty(500)
    comm.Recv([numbers, MPI.INT], source=0, tag=1)
    comm.Recv(points, source=0, tag=2)
    print(rank, numbers.sum(), points.sum())
