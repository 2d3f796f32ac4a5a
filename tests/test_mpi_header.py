"""forebay_mpi.h: what it says is said in every file of a program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.native import LIBRARIES, ROOT

import forebay

OPENS = r"""
#include "forebay_mpi.h"
int opens(const char *stream);
int opens(const char *stream) {
    fb_producer_options options = FB_PRODUCER_OPTIONS_INIT;
    fb_producer *producer;
    options.stream = stream;
    const int result = fb_producer_open_mpi(&options, MPI_COMM_WORLD, &producer);
    if (result == FB_OK) fb_producer_close(producer);
    return result;
}
"""
TELLS = r"""
#include "forebay_mpi.h"
int opens(const char *stream);
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    printf("%s\n", fb_result_name(opens("good")));
    printf("%s\n", fb_result_name(opens("")));
    printf("%s\n", fb_error_mpi());
    MPI_Finalize();
    return 0;
}
"""


def test_an_error_is_told_in_every_file(one: forebay.LocalGroup, own_place: Path) -> None:
    """The producer is opened in one file, and what went wrong is asked for in another."""
    mpicc = Path(sys.prefix, "bin", "mpicc")
    if not mpicc.exists():
        pytest.skip(f"there is no {mpicc}: run `make build`")
    place = own_place / "program"
    place.mkdir()
    (place / "opens.c").write_text(OPENS)
    (place / "tells.c").write_text(TELLS)
    command = [str(mpicc), "-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}"]
    command += ["opens.c", "tells.c", f"-L{LIBRARIES}", "-lforebay", f"-Wl,-rpath,{LIBRARIES}", "-o", "tells"]
    environment = {**os.environ, "TMPDIR": str(place), "FOREBAY_GROUP": one.path}
    subprocess.run(command, cwd=place, env=environment, check=True, timeout=60)
    done = subprocess.run(
        [str(place / "tells")], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    good, bad, text = done.stdout.splitlines()
    assert (good, bad) == ("FB_OK", "FB_INVALID")
    assert text.startswith("rank 0: fb_producer_open: ")
    assert "1 to 255" in text
