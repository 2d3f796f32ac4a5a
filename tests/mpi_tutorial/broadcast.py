"""One rank's object, and its array, on all ranks."""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank = comm.Get_rank()

shape = {"nx": 12, "ny": (3, 4)} if rank == 0 else None
shape = comm.bcast(shape, root=0)

field = np.arange(shape["nx"], dtype="d") if rank == 0 else np.empty(shape["nx"])
comm.Bcast(field, root=0)
print(rank, shape, field.sum())
