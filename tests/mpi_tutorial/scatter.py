"""One object for each rank, and one row for each."""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
size, rank = comm.Get_size(), comm.Get_rank()

squares = [(i + 1) ** 2 for i in range(size)] if rank == 0 else None
square = comm.scatter(squares, root=0)

rows = None
if rank == 0:
    rows = np.empty([size, 50], dtype="i")
    rows.T[:, :] = range(size)
row = np.empty(50, dtype="i")
comm.Scatter(rows, row, root=0)
print(rank, square, set(row.tolist()))
