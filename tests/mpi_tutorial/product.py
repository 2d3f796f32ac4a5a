"""A matrix times a vector, of which each rank has some rows."""

import numpy as np
from mpi4py import MPI


def multiply(comm, rows, mine):
    count, size = len(rows), comm.Get_size()
    vector = np.empty(count * size, dtype="d")
    comm.Allgather([mine, MPI.DOUBLE], [vector, MPI.DOUBLE])
    return rows @ vector


comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
first = 4 * rank
rows = np.fromfunction(lambda i, j: (i + first) * 0.5 + j, (4, 4 * size))
mine = np.arange(first, first + 4, dtype="d")
print(rank, multiply(comm, rows, mine).tolist())
