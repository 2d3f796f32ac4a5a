"""In the place of mpi4py, for its own tests: they run on Forebay's communicators."""

import sys
from types import SimpleNamespace

from forebay import MPI

sys.modules["mpi4py.MPI"] = MPI
__path__: list[str] = []
rc = SimpleNamespace(errors="exception", threads=True, thread_level="multiple", initialize=True)
