# SPDX-License-Identifier: Apache-2.0
"""Where the command `forebay` is."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from forebay._errors import Unreachable


def command_path() -> str:
    """The command `forebay`: beside this Python, or on the path."""
    beside = Path(sys.executable).with_name("forebay")
    found = str(beside) if beside.exists() else shutil.which("forebay")
    if found is None:
        raise Unreachable("the command forebay is neither beside this Python nor on the path: install it")
    return found
