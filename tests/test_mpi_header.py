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


READS = r"""
#include "forebay_mpi.h"
#define OK(call)                                                       \
    do {                                                               \
        if ((call) != FB_OK) {                                         \
            fprintf(stderr, "%s: %s\n", #call, fb_error_mpi());        \
            MPI_Abort(MPI_COMM_WORLD, 1);                              \
        }                                                              \
    } while (0)
int main(int argc, char **argv) {
    fb_consumer_options reads = FB_CONSUMER_OPTIONS_INIT;
    fb_producer_options writes = FB_PRODUCER_OPTIONS_INIT;
    fb_consumer *reader;
    fb_producer *sim;
    fb_step *step;
    fb_view view = FB_VIEW_INIT;
    fb_block block = FB_BLOCK_INIT;
    fb_field field = FB_FIELD_INIT;
    int rank, size;
    uint64_t count, zero = 0, shape, one = 1, offset, length;
    double value, sum = 0, total;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    reads.stream = "nobody's";
    reads.timeout = 0.5;
    reads.assign = "nearest";
    if (fb_consumer_open_mpi(&reads, MPI_COMM_WORLD, &reader) != FB_INVALID || reader) return 2;
    reads.stream = writes.stream = "s";
    reads.timeout = 20;
    reads.assign = "round-robin";
    OK(fb_consumer_open_mpi(&reads, MPI_COMM_WORLD, &reader));
    OK(fb_producer_open_mpi(&writes, MPI_COMM_WORLD, &sim));
    shape = (uint64_t)size;
    field.name = "U";
    field.dtype = FB_F64;
    field.ndim = 1;
    field.shape = &shape;
    OK(fb_array(sim, &field));
    OK(fb_producer_begin(sim, 0, 0));
    value = rank + 1;
    offset = (uint64_t)rank;
    block.field = "U";
    block.dtype = FB_F64;
    block.ndim = 1;
    block.offset = &offset;
    block.shape = &one;
    block.data = &value;
    OK(fb_put(sim, &block));
    OK(fb_producer_end(sim));
    OK(fb_consumer_next(reader, -1, &step));
    OK(fb_step_mine_count(step, "U", &count));
    if (count != 1) return 3;
    OK(fb_step_mine(step, "U", zero, &view));
    sum = *(const double *)view.data;
    length = view.offset[0];
    if (length != (uint64_t)rank) return 4;
    MPI_Reduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%g\n", total);
    OK(fb_step_release(step));
    OK(fb_producer_close(sim));
    OK(fb_consumer_close(reader));
    MPI_Finalize();
    return 0;
}
"""


def test_a_parallel_reader_in_c(one: forebay.LocalGroup, own_place: Path) -> None:
    """It is opened by a communicator, and each rank reads the block that is its own."""
    mpicc, mpiexec = (Path(sys.prefix, "bin", name) for name in ("mpicc", "mpiexec"))
    if not mpicc.exists():
        pytest.skip(f"there is no {mpicc}: run `make build`")
    (own_place / "reads.c").write_text(READS)
    command = [str(mpicc), "-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}", "reads.c"]
    command += [f"-L{LIBRARIES}", "-lforebay", f"-Wl,-rpath,{LIBRARIES}", "-o", "reads"]
    subprocess.run(command, cwd=own_place, check=True, timeout=60)
    environment = {**os.environ, "FOREBAY_GROUP": one.path}
    run = [str(mpiexec), "-n", "3", str(own_place / "reads")]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "6\n"), done.stderr
