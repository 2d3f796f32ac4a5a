"""Arrays whose every element tells where it belongs, and how ranks share them."""

from __future__ import annotations

from typing import Any

import numpy as np


def reference(shape: tuple[int, ...], dtype: Any = "f8", step: int = 0) -> np.ndarray[Any, Any]:
    """A global array in which every element tells its place and step."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    numbers = np.arange(count, dtype=np.int64) * 3 + step * 1001 + 1
    if dtype.kind == "b":
        flat = (numbers * 2654435761) // 65536 % 3 == 0
    elif dtype.kind == "c":
        flat = numbers + 1j * (numbers % 97 + step)
    elif dtype == np.float16:
        flat = numbers % 2039
    elif dtype.itemsize == 1:
        flat = numbers % 127 - (60 if dtype.kind == "i" else 0)
    else:
        flat = numbers % 30011 if dtype.itemsize == 2 else numbers
    return flat.astype(dtype).reshape(shape)


def cut(extent: int, parts: int) -> list[tuple[int, int]]:
    """Cuts an extent into unequal, non-empty parts: (begin, end) of each."""
    weights = np.arange(1, parts + 1) + 1.5
    ends = np.floor(np.cumsum(weights) / weights.sum() * (extent - parts)).astype(int) + np.arange(
        1, parts + 1
    )
    ends[-1] = extent
    begins = [0, *ends[:-1].tolist()]
    return [(int(a), int(b)) for a, b in zip(begins, ends.tolist(), strict=True)]
