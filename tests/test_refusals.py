"""What a machine refuses: it works all the same, or the error names the limit and what to do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from support.commands import FOREBAY
from support.processes import is_alive
from support.waiting import wait_until

import forebay


def limited(own_place: Path, limit: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Starts a group under a limit of the shell's, for a second, and tells what became of it."""
    group = own_place / "group.json"
    command = f'ulimit {limit}; exec "{FOREBAY}" up --group "{group}" --timeout 10 {" ".join(arguments)}'
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)


LIMITS = {
    "the size of files": ("-f 1024", "ulimit -f"),
    "open files": ("-n 12", "ulimit -n"),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_is_named(own_place: Path, limit: str) -> None:
    """The servers do not come up, and the command says which limit it is."""
    given, named = LIMITS[limit]
    done = limited(own_place, given, "-n", "1", "--budget", "4G")
    assert done.returncode == 1, done
    assert named in done.stderr, done.stderr


@pytest.mark.parametrize("given", ["-f 40000", "-v 400000"])
def test_a_limit_that_a_server_meets_while_it_runs(own_place: Path, transport: str, given: str) -> None:
    """Memory for blocks that it may not have: the put fails and names the limit; the server lives."""
    group = own_place / "group.json"
    command = f'ulimit {given}; exec "{FOREBAY}" up -n 1 --group "{group}" --budget 400M'
    subprocess.run(["bash", "-c", command], check=True, capture_output=True, timeout=60)
    try:
        (server,) = forebay.Admin(group=group).status()["servers"]
        with forebay.Space(group=group, timeout=20, transport=transport) as space:
            for step in range(2):
                if "-v" in given and transport == "shm":
                    space.put(
                        "large", np.ones(1 << 20), step=step
                    )  # the server shows memory that it need not map
                    continue
                with pytest.raises(forebay.Error, match=f"ulimit {given[:2]}"):
                    space.put("large", np.ones(1 << 20), step=step)
        assert is_alive(server["pid"])
        assert forebay.Admin(group=group).status()["servers"][0]["pid"] == server["pid"]
    finally:
        subprocess.run([FOREBAY, "down", "--group", str(group)], check=True, capture_output=True, timeout=60)
    wait_until(lambda: not is_alive(server["pid"]))


@pytest.mark.parametrize("given", ["0.0.0.0", "::", "127.0.1.1 0.0.0.0"])
def test_an_address_that_stands_for_all_is_refused(own_place: Path, given: str) -> None:
    done = subprocess.run(
        [FOREBAY, "serve", "--group", own_place / "group.json", "--bind", given],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "--advertise" in done.stderr
    assert "ip -brief" in done.stderr
