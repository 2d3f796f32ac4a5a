# SPDX-License-Identifier: Apache-2.0
"""The latest pictures, in the space: `forebay pipeline picture` shows them while all runs."""

from __future__ import annotations

import os
import sys

import numpy as np

from forebay._errors import Error
from forebay._space import Space
from forebay.viz.drawing import Drawn

# How long one may take: the next step waits for it.
_TIMEOUT = 5.0


class Latest:
    """Keeps the latest picture of each name and camera in the space, as PNG: `pictures/PIPELINE/PICTURE`, at step 0.

    One that cannot be kept there is told in the pipeline's log, and fails nothing: it was written to its file.
    """

    def __init__(self) -> None:
        self._pipeline = os.environ.get("FOREBAY_PIPELINE")
        self._space: Space | None = None

    def show(self, drawn: Drawn, png: bytes) -> None:
        """Puts it in the place of the one before. Waits until a server has it. Does nothing outside of a pipeline."""
        if self._pipeline is None:
            return
        try:
            if self._space is None:
                self._space = Space(timeout=_TIMEOUT, name=f"pictures of {self._pipeline}")
            name = f"pictures/{self._pipeline}/{drawn.picture.label(drawn.camera)}"
            self._space.put(name, np.frombuffer(png, "u1"), step=0, replace=True)
        except Error as error:
            sys.stderr.write(f"{drawn.file_name} is not in the space: {error}\n")

    def close(self) -> None:
        """Closes the connection. The pictures stay."""
        if self._space is not None:
            self._space.close()
