# SPDX-License-Identifier: Apache-2.0
"""Numbers and marks that calls take and give, named as in MPI."""

from __future__ import annotations

from typing import Final

ANY_SOURCE: Final = -1
"""In the place of a source: of any rank."""
ANY_TAG: Final = -1
"""In the place of a tag: with any tag."""
PROC_NULL: Final = -2
"""In the place of a rank: nobody. What is sent there is gone, and nothing comes from there."""
ROOT: Final = -3
UNDEFINED: Final = -32766
"""No number: of a rank that is in no part, or of a request that there is not."""
TAG_UB: Final = 2**63 - 1
"""The highest tag."""

SUCCESS: Final = 0
# What a program may set a Status's error to: what fails here is raised.
ERR_BUFFER: Final = 1
ERR_COUNT: Final = 2
ERR_TYPE: Final = 3
ERR_TAG: Final = 4
ERR_COMM: Final = 5
ERR_RANK: Final = 6
ERR_ROOT: Final = 7
ERR_OP: Final = 9
ERR_ARG: Final = 12
ERR_TRUNCATE: Final = 14
ERR_OTHER: Final = 15
IDENT: Final = 0
"""The same communicator."""
CONGRUENT: Final = 1
"""The same ranks, in the same order, of another communicator."""
SIMILAR: Final = 2
"""The same ranks in another order."""
UNEQUAL: Final = 3
"""Other ranks."""

THREAD_SINGLE: Final = 0
THREAD_FUNNELED: Final = 1
THREAD_SERIALIZED: Final = 2
THREAD_MULTIPLE: Final = 3


class InPlace:
    """In the place of what is sent: it stands where the result is to be."""

    def __repr__(self) -> str:
        return "MPI.IN_PLACE"

    def __reduce__(self) -> str:
        return "IN_PLACE"


IN_PLACE: Final = InPlace()
BOTTOM: Final = None
"""In the place of a buffer: no memory."""
