"""Looking at streams from the command line: ls, get, watch, wait, top, and the status again and again."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from support.commands import FOREBAY, run, told
from support.groups import (
    pid_of_server,
    server_numbers,
    stream_coordinated_by,
    stream_status,
)
from support.processes import is_pausing
from support.sessions import consumer, open_ranks, producer
from support.waiting import wait_until

import forebay

SHAPE = (4, 6)


def values(number: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.arange(24.0).reshape(SHAPE) / 8 + number


@contextmanager
def kept(group: forebay.LocalGroup, stream: str = "grayscott", **options: Any) -> Iterator[forebay.Producer]:
    """A run of one rank that keeps 20 steps: 40 to 59."""
    with producer(group, stream, keep=20, **options) as sim:
        sim.attr("dt", 0.5)
        sim.array("U", dtype="f8", shape=SHAPE, dims=("y", "x"), units="mol")
        sim.attr("long_name", "concentration", field="U")
        sim.array("V", dtype="i4", shape=(3,), every=10)
        for number in range(60):
            put(sim, number)
        wait_until(lambda: (stream_status(group, stream) or {}).get("latest") == 59)
        yield sim


def put(sim: forebay.Producer, number: int) -> None:
    with sim.step(number, time=number / 4) as step:
        step.put("U", values(number))
        if number % 10 == 0:
            step.put("V", np.array([number, -number, 7], "i4"))


def test_a_long_list_tells_bytes_held_steps_and_extremes(two: forebay.LocalGroup) -> None:
    with kept(two):
        text = run("ls", "-l", "grayscott", "--group", two.path).stdout.splitlines()
        assert text[0].startswith("grayscott (running since ")
        assert text[1] == "20 steps held, 3.8 KiB, 0 readers; below, step 59"
        assert text[2].split() == [
            "FIELD",
            "DTYPE",
            "SHAPE",
            "EVERY",
            "UNITS",
            "BYTES",
            "BLOCKS",
            "MIN",
            "MAX",
        ]
        row = text[3].replace("(4, 6)", "4x6").split()
        assert row == ["U", "float64", "4x6", "1", "mol", "192", "B", "1", "59", "61.875"]
        # Not offered at this step.
        assert text[4].split() == ["V", "int32", "(3)", "10", "-", "-", "-", "-"]
        told_of = told("ls", "-l", "grayscott", "--group", two.path)
        assert told_of["held"] == {"steps": 20, "bytes": 20 * 192 + 2 * 12, "blocks": 22}
        assert told_of["fields"][0]["latest"] == {"bytes": 192, "blocks": 1, "min": 59.0, "max": 61.875}
        assert told_of["fields"][1]["latest"] is None
        short = run("ls", "-l", "--group", two.path).stdout.splitlines()
        assert short[1].split()[:4] == ["grayscott", "running", "20", "59"]


def test_attributes_times_and_blocks(two: forebay.LocalGroup) -> None:
    with open_ranks(two, "grayscott", 2, keep=3) as ranks:
        for sim in ranks:
            sim.array("U", dtype="f8", shape=(4, 6))
            sim.attr("dt", 0.5)
        for number in (7, 8):
            for rank, sim in enumerate(ranks):
                with sim.step(number, time=number / 4) as step:
                    step.put("U", values(number)[:, 3 * rank : 3 * rank + 3], offset=(0, 3 * rank))
        wait_until(lambda: (stream_status(two, "grayscott") or {}).get("latest") == 8)
        assert "dt" not in run("ls", "grayscott", "--group", two.path).stdout
        text = run("ls", "-a", "-t", "-D", "grayscott", "--group", two.path).stdout
        assert "  dt = 0.5\n" in text
        told_of = told("ls", "-t", "-D", "grayscott", "--group", two.path)
        assert [(step["step"], step["time"], step["bytes"]) for step in told_of["held_steps"]] == [
            (7, 1.75, 192),
            (8, 2.0, 192),
        ]
        blocks = told_of["blocks"]
        assert [(block["rank"], block["offset"], block["shape"], block["bytes"]) for block in blocks] == [
            (0, [0, 0], [4, 3], 96),
            (1, [0, 3], [4, 3], 96),
        ]
        assert [(block["min"], block["max"]) for block in blocks] == [(8.0, 10.5), (8.375, 10.875)]
        assert {block["server"] for block in blocks} <= {0, 1}
        assert "[0:4, 3:6]" in text


def test_what_a_dead_server_held_is_shown_as_lost(two: forebay.LocalGroup) -> None:
    dead, other = server_numbers(two)
    name = stream_coordinated_by(two, other)
    with open_ranks(two, name, 2, keep=3) as ranks:
        for sim in ranks:
            sim.array("U", dtype="f8", shape=(800,))
        for rank, sim in enumerate(ranks):
            with sim.step(0) as step:
                step.put("U", np.ones(400), offset=(400 * rank,))
        wait_until(lambda: (stream_status(two, name) or {}).get("latest") == 0)
        shown = ("ls", "-t", name, "--group", two.path)
        assert [step["lost"] for step in told(*shown)["held_steps"]] == [False]
        os.kill(pid_of_server(two, dead), signal.SIGKILL)
        wait_until(lambda: dead not in server_numbers(two))
        assert [step["lost"] for step in told(*shown)["held_steps"]] == [True]
        assert run(*shown).stdout.splitlines()[-1].split()[-1] == "lost"
        assert "below, step 0, of which a part is lost" in run("ls", "-l", name, "--group", two.path).stdout
        assert [block["rank"] for block in told("ls", "-D", name, "--group", two.path)["blocks"]] == [0, 1]


def test_ranks_that_give_different_times(one: forebay.LocalGroup) -> None:
    """Readers are told what the first of those ranks says that say something, whichever ends first."""
    with consumer(one) as reader, open_ranks(one, "s", 3) as ranks:
        for sim in ranks:
            sim.array("U", dtype="f8", ndim=1)
        for number, order in enumerate([(0, 1, 2), (2, 1, 0), (1, 2, 0)]):
            for rank in order:
                with ranks[rank].step(number, time=None if rank == 0 else rank * 10.0) as step:
                    step.put("U", np.ones(4))
            with reader.next() as found:
                assert found.time == 10.0


def test_names_are_chosen_by_patterns(one: forebay.LocalGroup) -> None:
    with producer(one, "gray/scott") as sim, producer(one, "other") as other:
        for of in (sim, other):
            of.array("U", dtype="f8", shape=(2,))
            of.array("V2", dtype="f8", shape=(2,))
        assert [stream["name"] for stream in told("ls", "gray*", "--group", one.path)] == ["gray/scott"]
        (found,) = told("ls", "*scott/V?", "--group", one.path)
        assert [field["name"] for field in found["fields"]] == ["V2"]
        both = run("ls", "*/U", "--group", one.path).stdout
        assert both.count("U  ") == 2
        assert "V2" not in both
        assert [field["name"] for field in told("ls", "gray/scott", "--group", one.path)] == ["U", "V2"]
        assert "gray/scott, other" in told("ls", "nosuch*", "--group", one.path, code=1)["text"]
        assert told("ls", "[", "--group", one.path, code=1)["error"] == "Invalid"


def test_what_is_held_is_looked_at_without_a_word_to_the_simulation(two: forebay.LocalGroup) -> None:
    """Nothing is demanded for those who look: the simulation goes on unwatched."""
    with producer(two, "s") as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        with consumer(two, "s") as reader:
            put_one(sim, 0)
            held = reader.next()
            reader.close()
            with consumer(two, "s", start="held") as looking:
                step = looking.next()
                assert step.number == 0
                np.testing.assert_array_equal(step["U"][...], values(0))
                step.release()
                # What the reader wanted ends with one of the next steps.
                numbers = itertools.count(1)
                wait_until(lambda: not is_demanded(sim, next(numbers)))
                assert list(looking) == []
            held.release()
        with consumer(two, "s", start="held") as looking:
            assert list(looking) == []
    with consumer(two, "s", start="held") as looking:
        assert list(looking) == []


def is_demanded(sim: forebay.Producer, number: int) -> bool:
    with sim.step(number) as step:
        return step.demanded("U")


def put_one(sim: forebay.Producer, number: int) -> None:
    with sim.step(number) as step:
        step.put("U", values(number))


def test_the_newest_of_what_is_held(two: forebay.LocalGroup) -> None:
    with kept(two), consumer(two, "grayscott", start="held", take="latest") as looking:
        step = looking.next()
        assert step.number == 59
        step.release()
        with pytest.raises(forebay.Ended, match="held no more steps"):
            looking.next()


def test_a_field_is_written_as_numpy_reads_it(two: forebay.LocalGroup, own_place: Path) -> None:
    """The latest step by default, one that is named, or several."""
    with kept(two):
        asked = ["get", "grayscott", "U", "--group", two.path]
        csv = run(*asked, "--format", "csv").stdout.splitlines()
        np.testing.assert_array_equal(np.loadtxt(csv, delimiter=","), values(59))
        csv = run(*asked, "--format", "csv", "--region", "0,:", "--step", "45").stdout.splitlines()
        np.testing.assert_array_equal(np.loadtxt(csv, delimiter=","), values(45)[0])
        csv = run(*asked, "--format", "csv", "--step", "40:50").stdout.splitlines()
        expected = np.concatenate([values(number) for number in range(40, 50)])
        np.testing.assert_array_equal(np.loadtxt(csv, delimiter=","), expected)
        for name in ("u.npy", "u.npz", "u.csv", "u.json", "u.raw", "u.txt"):
            run(*asked, "-o", own_place / name)
        np.testing.assert_array_equal(np.load(own_place / "u.npy"), values(59))
        with np.load(own_place / "u.npz") as found:
            np.testing.assert_array_equal(found["U"], values(59))
            assert (found["step"], found["time"]) == (59, 59 / 4)
        np.testing.assert_array_equal(np.loadtxt(own_place / "u.csv", delimiter=","), values(59))
        assert json.loads((own_place / "u.json").read_text())["values"] == values(59).ravel().tolist()
        assert (own_place / "u.raw").read_bytes() == values(59).tobytes()
        np.testing.assert_array_equal(np.loadtxt(own_place / "u.txt", skiprows=1), values(59))

        run("get", "grayscott", "U", "V", "--step", "::", "-o", own_place / "both.npz", "--group", two.path)
        with np.load(own_place / "both.npz") as found:
            # Those that have both.
            np.testing.assert_array_equal(found["step"], [40, 50])
            np.testing.assert_array_equal(found["U"], [values(40), values(50)])
            np.testing.assert_array_equal(found["V"], [[40, -40, 7], [50, -50, 7]])
        some = run(*asked, "--step", "41:50:4", "--format", "npy", "-o", own_place / "some")
        assert some.stdout.splitlines()[0] == f"step 41: [4, 6] of float64 in {own_place / 'some'}"
        np.testing.assert_array_equal(np.load(own_place / "some"), [values(41), values(45), values(49)])


def test_what_cannot_be_read_is_told(two: forebay.LocalGroup, own_place: Path) -> None:
    with kept(two):
        asked = ["get", "grayscott", "U", "--group", two.path]
        error = told(*asked, "--step", "3:9", code=1)
        assert (error["error"], "go from 40 to 59" in error["text"]) == ("NotFound", True)
        error = told(*asked, "--step", "3", code=1)
        assert "is 40" in error["text"]
        error = told(*asked, "--step", "1000", "--timeout", "300ms", code=1)
        assert error["error"] == "Timeout"
        assert "step 1000 of stream 'grayscott'" in error["text"]
        assert "59" in error["text"]
        error = told("get", "grayscott", "U", "V", "--format", "npy", "--group", two.path, code=1)
        assert (error["error"], "npz" in error["text"]) == ("Invalid", True)
        error = told("get", "grayscott", "W", "--group", two.path, code=1)
        assert "it has U, V" in error["text"]
        run(*asked, "--step", "5:1:0", code=2)
        run(*asked, "-o", own_place / "no" / "such.npy", code=1)


def test_a_line_a_step(two: forebay.LocalGroup) -> None:
    """Numbers, times and extremes, as NumPy has them; it ends with the run."""
    with producer(two, "grayscott") as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        sim.array("V", dtype="i4", shape=(3,), every=10)
        watch = subprocess.Popen(
            [FOREBAY, "watch", "grayscott", "U", "--json", "--group", two.path],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with watch:
            wait_until(lambda: (stream_status(two, "grayscott") or {}).get("attached") == 1)
            for number in range(3):
                put(sim, number)
            sim.close()
            out, err = watch.communicate(timeout=30)
            assert watch.returncode == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert "has ended" in err
    for line in lines:
        expected = values(line["step"])
        found = line["fields"]["U"]
        assert (line["time"], line["bytes"], line["missed"]) == (line["step"] / 4, 192, 0)
        assert (found["min"], found["max"], found["count"]) == (expected.min(), expected.max(), 24)
        assert found["mean"] == pytest.approx(expected.mean(), rel=1e-12)
        assert list(line["fields"]) == ["U"]


def test_a_line_is_short(two: forebay.LocalGroup) -> None:
    """Of all fields that have an order, if none is named."""
    with producer(two, "grayscott") as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        sim.array("W", dtype="c16", shape=(2,))
        watch = subprocess.Popen(
            [FOREBAY, "watch", "grayscott", "--count", "1", "--group", two.path],
            stdout=subprocess.PIPE,
            text=True,
        )
        with watch:
            wait_until(lambda: (stream_status(two, "grayscott") or {}).get("attached") == 1)
            with sim.step(0, time=0.5) as step:
                part = values(0)
                part[0, 0] = np.nan
                step.put("U", part)
                step.put("W", np.ones(2, "c16"))
            out, _ = watch.communicate(timeout=30)
    assert out == "step 0  time 0.5  192 B  U min 0.125 max 2.875 mean 1.5 (1 NaN)\n"


def test_a_crash_is_told_by_all_who_look(two: forebay.LocalGroup) -> None:
    program = (
        "import forebay, os, sys\n"
        "sim = forebay.Producer('s', group=sys.argv[1])\n"
        "sim.array('U', dtype='f8', shape=(2,))\n"
        "print('open', flush=True)\n"
        "sys.stdin.readline()\n"
        "os._exit(3)\n"
    )
    sim = subprocess.Popen(
        ["python3", "-c", program, two.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with sim:
        assert sim.stdout is not None
        assert sim.stdin is not None
        assert sim.stdout.readline() == "open\n"
        looking = [
            subprocess.Popen(
                [FOREBAY, *command, "--json", "--group", two.path], stdout=subprocess.PIPE, text=True
            )
            for command in (["watch", "s"], ["wait", "s", "--ended"], ["wait", "s", "--step", "5"])
        ]
        wait_until(lambda: (stream_status(two, "s") or {}).get("attached") == 1)
        # Both that wait have asked: the run that is over then is the one that they wait for.
        for one in looking[1:]:
            wait_until(partial(is_pausing, one.pid))
        sim.stdin.write("\n")
        sim.stdin.flush()
        for one in looking:
            with one:
                out, _ = one.communicate(timeout=30)
                assert one.returncode == 1
                (line,) = out.splitlines()
                error = json.loads(line)
                assert error["error"] == "Crashed"
                assert "crashed" in error["text"]


def waiting(group: forebay.LocalGroup, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [FOREBAY, "wait", *arguments, "--group", group.path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
def test_a_script_waits_for_a_step(two: forebay.LocalGroup, watched: bool) -> None:
    """It goes on when that step is over, and not before; also where nobody reads and no step is closed."""
    with producer(two, "s", keep=5 if watched else 0) as sim:
        sim.array("U", dtype="f8", shape=SHAPE)
        with waiting(two, "s", "--step", "50", "--timeout", "30s") as wait:
            for number in range(50):
                put_one(sim, number)
            with sim.step(50) as step:
                step.put("U", values(50))
                assert wait.poll() is None
            put_one(sim, 51)
            out, err = wait.communicate(timeout=30)
            assert (wait.returncode, err) == (0, "")
            assert out.startswith("running since")
        # It is so already.
        run("wait", "s", "--step", "50", "--group", two.path)
        error = told("wait", "s", "--step", "99", "--timeout", "200ms", "--group", two.path, code=1)
        assert error["error"] == "Timeout"
        assert "step 99 of stream 's' was not closed within 200ms: it is running since" in error["text"]
        assert "--timeout" in error["text"]
        # One that will not come.
        with waiting(two, "s", "--step", "99") as wait, waiting(two, "s", "--ended") as end:
            # Both have asked once: a run that was over before is not the one that is waited for.
            for one in (wait, end):
                wait_until(partial(is_pausing, one.pid))
            sim.close()
            assert "finished at step 51" in wait.communicate(timeout=30)[1]
            assert wait.returncode == 1
            assert end.communicate(timeout=30)[0].startswith("finished since")
            assert end.returncode == 0
    error = told("wait", "s", "--step", "99", "--timeout", "200ms", "--group", two.path, code=1)
    assert "its latest run is finished since" in error["text"]
    assert "no other has begun" in error["text"]


def test_a_script_waits_for_readers(one: forebay.LocalGroup) -> None:
    with waiting(one, "s", "--readers", "2") as wait, consumer(one, "s"):
        wait_until(lambda: (stream_status(one, "s") or {}).get("attached") == 1)
        assert wait.poll() is None
        with consumer(one, "s"):
            assert wait.communicate(timeout=30)[0] == "it has 2\n"
            assert wait.returncode == 0
    for usage in (["s"], ["s", "--ended", "--step", "4"], ["--ended"], ["s", "--step", "x"]):
        run("wait", *usage, "--group", one.path, code=2)


class Terminal:
    """A command on a terminal of its own, which is killed at the end of a `with` if it still runs."""

    def __init__(self, *arguments: object, columns: int = 100, rows: int = 30) -> None:
        self.controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(terminal)
        self.terminal = terminal
        self.process = subprocess.Popen(
            [FOREBAY, *map(str, arguments)], stdin=terminal, stdout=terminal, stderr=terminal
        )
        self.text = ""

    def until(self, wanted: str, timeout: float = 20.0) -> str:
        """What it shows, until this is part of it."""
        deadline = time.monotonic() + timeout
        while wanted not in self.text:
            left = deadline - time.monotonic()
            assert left > 0, self.text
            if select.select([self.controller], [], [], left)[0]:
                self.text += os.read(self.controller, 65536).decode()
        shown, self.text = self.text, ""
        return shown

    def press(self, keys: str) -> None:
        os.write(self.controller, keys.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)
        os.close(self.controller)

    def ended(self) -> None:
        """It ends well, and leaves the terminal as it was."""
        assert self.process.wait(20) == 0
        assert termios.tcgetattr(self.terminal) == self.before


def test_top_has_keys(two: forebay.LocalGroup) -> None:
    with kept(two), producer(two, "a stream with a name that is as long as can be"):
        with Terminal("top", "--every", "50ms", "--group", two.path) as top:
            shown = top.until("r: turn around, q: end)")
            assert "\x1b[?1049h" in shown
            shown = top.until("sorted by rate") + top.until("a stream with")
            top.press("s")
            top.until("sorted by bytes held")
            top.press("sss")
            top.until("sorted by rate")
            top.press("q")
            top.until("\x1b[?1049l")
            top.ended()
        plain = run("top", "--count", "2", "--every", "10ms", "--group", two.path).stdout.splitlines()
        assert len([line for line in plain if line.startswith("grayscott: running, step 59")]) == 2
        (line,) = run("top", "--count", "1", "--json", "--group", two.path).stdout.splitlines()
        assert len(json.loads(line)["streams"]) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_leaves_the_terminal_as_it_was(two: forebay.LocalGroup, number: signal.Signals) -> None:
    with Terminal("top", "--every", "1m", "--group", two.path) as top:
        top.until("q: end)")
        top.process.send_signal(number)
        top.until("\x1b[?1049l")
        top.ended()


def test_watch_waits_for_a_step_no_longer_than_it_is_told(two: forebay.LocalGroup) -> None:
    """The run lives, and makes a pause."""
    with kept(two):
        late = run("watch", "grayscott", "--timeout", "100ms", "--group", two.path, code=1)
    assert "has come within 0.1 s" in late.stderr


def test_a_file_is_kept_that_nothing_takes_the_place_of(two: forebay.LocalGroup, own_place: Path) -> None:
    """Steps of several shapes are no array; and a range of one step is one of several."""
    place = own_place / "kept.npz"
    place.write_text("mine")
    with producer(two, keep=2) as sim:
        for number in range(2):
            sim.array("U", dtype="f8", shape=(2 + number,))
            with sim.step(number) as step:
                step.put("U", np.zeros(2 + number))
        sim.flush()
        ranged = told("get", "s", "U", "--step", "1:2", "--group", two.path)
        assert [array["step"] for array in ranged] == [1]
        refused = run("get", "s", "U", "--step", ":", "-o", place, "--group", two.path, code=1)
        assert "shape" in refused.stderr
        assert place.read_text() == "mine"


def test_the_status_is_shown_again_and_again(two: forebay.LocalGroup) -> None:
    with kept(two) as sim:
        with Terminal("status", "--watch", "50ms", "--group", two.path, columns=60) as terminal:
            shown = terminal.until("at step 59")
            lines = shown.split("\x1b[H\x1b[J")[1].split("\r\n")
            assert lines[0].startswith("SERVER")
            assert max(map(len, lines)) <= 60
            put(sim, 60)
            terminal.until("at step 60")
            terminal.press("\x03")
            terminal.until("\x1b[?1049l")
            terminal.ended()
        piped = subprocess.Popen(
            [FOREBAY, "status", "--watch", "20ms", "--json", "--group", two.path], stdout=subprocess.PIPE
        )
        with piped:
            assert piped.stdout is not None
            for _ in range(3):
                assert json.loads(piped.stdout.readline())["streams"][0]["name"] == "grayscott"
            piped.stdout.close()
            # Nobody reads any more: it ends by itself.
            assert piped.wait(20) == 0


def test_long_arrays_are_shortened_on_a_terminal(one: forebay.LocalGroup) -> None:
    with producer(one, "s", keep=1) as sim:
        sim.array("U", dtype="f8", shape=(60, 50))
        with sim.step(0) as step:
            step.put("U", np.arange(3000.0).reshape(60, 50))
        wait_until(lambda: (stream_status(one, "s") or {}).get("latest") == 0)
        with Terminal("get", "s", "U", "--group", one.path) as terminal:
            shown = terminal.until("--format text prints all 3000 elements)").split("\r\n")
            assert shown[1] == "0.0 1.0 2.0 ... 47.0 48.0 49.0"
            assert shown[4] == "..."
            assert len([line for line in shown if line]) == 9
            terminal.ended()
        with Terminal("get", "s", "U", "--format", "npy", "--group", one.path) as terminal:
            terminal.until("not for a terminal")
            assert terminal.process.wait(20) == 1
        assert len(run("get", "s", "U", "--group", one.path).stdout.splitlines()) == 61


def test_long_names_do_not_break_tables(one: forebay.LocalGroup) -> None:
    name = "a name of a stream that is longer than any column would be " * 2
    with producer(one, name.strip()), producer(one, "b"):
        text = run("status", "--group", one.path).stdout.splitlines()
        header = next(line for line in text if line.startswith("STREAM"))
        rows = [line for line in text if line.startswith(("a name", "b "))]
        assert [row.index(" 0/1 ") if " 0/1 " in row else row.index(" 1/1 ") for row in rows] == [
            header.index("RANKS") + 1
        ] * 2


def test_durations_are_humane(one: forebay.LocalGroup) -> None:
    for good in ("20", "2m", "500ms", "1.5h", "inf"):
        run("status", "--timeout", good, "--group", one.path)
    for bad in ("0", "5x", "soon", ""):
        assert "--timeout" in run("status", "--timeout", bad, "--group", one.path, code=2).stderr


def test_what_looks_ends_with_ctrl_c(one: forebay.LocalGroup) -> None:
    for command in (["wait", "s", "--ended"], ["watch", "s"], ["top"], ["status", "--watch"]):
        looking = subprocess.Popen([FOREBAY, *command, "--group", one.path], stdout=subprocess.DEVNULL)
        with looking:
            wait_until(lambda pid=looking.pid: Path(f"/proc/{pid}/exe").resolve().name == "forebay")
            looking.send_signal(signal.SIGINT)
            assert looking.wait(20) == -signal.SIGINT
