"""The command line: where it is, and running it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FOREBAY = Path(sys.executable).with_name("forebay")


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs `forebay` with these arguments."""
    return subprocess.run(
        [FOREBAY, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )


def run(*arguments: object, code: int = 0, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs `forebay`, which is to end with this exit status."""
    done = subprocess.run(
        [FOREBAY, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False, **options
    )
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    return done


def told(*arguments: object, code: int = 0) -> Any:
    """What `forebay --json` prints."""
    return json.loads(run(*arguments, "--json", code=code).stdout)
