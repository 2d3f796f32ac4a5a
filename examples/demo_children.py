# SPDX-License-Identifier: Apache-2.0
"""Starts the demo's processes, and leaves nothing of them behind.

MPI gives each rank a session of its own, servers go on when `forebay up` has returned, and MPICH leaves a
file in /dev/shm when it is killed. So neither process groups nor parents tell what is ours. A mark in the
environment does: whatever a child starts inherits it.
"""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

MARK = "FOREBAY_DEMO"
SHARED = "/dev/shm/"


class Children:
    """The processes that `start` started, and all that they started in turn."""

    def __init__(self, mark, environment):
        self.mark = mark  # a path of the demo's own, so that two demos never mistake each other
        self.environment = os.environ | environment
        self.shared = set()
        self.started = []

    def start(self, part, log, *words):
        with log.open("wb") as file:
            child = subprocess.Popen(
                [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self.environment | {MARK: f"{self.mark}/{part}"},
                start_new_session=True,  # Ctrl-C is for the demo to hear, which then ends them in order
            )
        self.started.append(child)
        return child

    def living(self, part=""):
        mark = f"{MARK}={self.mark}/{part}".encode()
        return {pid for pid in processes() if any(word.startswith(mark) for word in environment_of(pid))}

    def note_shared(self, part=""):
        """Remembers which files in /dev/shm the living use: once they are dead nobody could tell."""
        for pid in self.living(part):
            self.shared |= shared_files_of(pid)

    def end(self, part=""):
        """Ends the living of a part, or of all, and removes what they leave in /dev/shm."""
        frozen = self.freeze(part)
        self.note_shared(part)
        # From the leaves up, so that parents can still bury their children: mpiexec its ranks.
        parents = {parent_of(pid) for pid in frozen}
        for pid in frozen - parents:
            send(pid, signal.SIGKILL)
        for pid in frozen & parents:
            send(pid, signal.SIGTERM)
            send(pid, signal.SIGCONT)
        if not self.is_over(part, seconds=3):
            for pid in self.freeze(part):
                send(pid, signal.SIGKILL)
            self.is_over(part, seconds=3)
        in_use = {path for pid in self.living() for path in shared_files_of(pid)}
        for path in self.shared - in_use:
            Path(path).unlink(missing_ok=True)

    def freeze(self, part):
        """What is frozen starts nothing and creates no file; a round may find a child of the one before."""
        frozen = set()
        while new := self.living(part) - frozen:
            for pid in new:
                send(pid, signal.SIGSTOP)
            frozen |= new
        return frozen

    def is_over(self, part, seconds):
        deadline = time.monotonic() + seconds
        while self.living(part):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        for child in self.started:
            child.poll()
        return True


def send(pid, number):
    with contextlib.suppress(ProcessLookupError):  # it ended by itself
        os.kill(pid, number)


def processes():
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def parent_of(pid):
    try:
        # The name in parentheses may itself hold anything.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None  # it ended by itself


def environment_of(pid):
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []  # gone, or another user's


def shared_files_of(pid):
    """The files in /dev/shm that a process has open or mapped, those aside that have no name any more."""
    try:
        found = {line.partition("/")[2] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()}
        found = {f"/{name}" for name in found}
        found |= {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    except OSError:
        return set()
    return {name for name in found if name.startswith(SHARED) and not name.endswith(" (deleted)")}
