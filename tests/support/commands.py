"""The command line: where it is, and running it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOREBAY = Path(sys.executable).with_name("forebay")


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs `forebay` with these arguments."""
    return subprocess.run(
        [FOREBAY, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
