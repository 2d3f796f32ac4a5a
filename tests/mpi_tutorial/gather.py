"""An object of each rank, and a row of each, at one."""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
size, rank = comm.Get_size(), comm.Get_rank()

squares = comm.gather((rank + 1) ** 2, root=0)

row = np.full(50, rank, dtype="i")
rows = np.empty([size, 50], dtype="i") if rank == 0 else None
comm.Gather(row, rows, root=0)
if rank == 0:
    print(squares, rows.sum(axis=1).tolist())
else:
    print(rank, squares, rows)
