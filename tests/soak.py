"""A simulation, readers and pipelines run while servers are killed, stopped, added and removed, about one each second.

Every byte that is read is compared with what was put; every step has to come, whole, and once; all memory is given back in the
end. Copies (`replicas=2`) are awaited between two deaths, as the guarantee says. A server that is stopped wakes before it is
given up, or after. Beside the simulation, whose steps live for a moment, an archive keeps steps and arrays of the space for
more than a minute, which are read again and again. Ends with status 1 if anything was lost.

    make soak                                   ten minutes
    make soak ARGS="--minutes 1 --seed 7"       shorter, and what happens in the order of this seed
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from support.arrays import cut, reference
from support.groups import is_given_back
from support.waiting import wait_until

import forebay

ROWS, COLUMNS = 96, 200
RANKS = 3
SMALL = 4  # elements of a rank's small block: it travels in a message
SERVERS_MIN, SERVERS_MAX = 3, 6
STREAM, DRIVEN = "sim", "driven"
PATIENCE = 60.0  # seconds: nothing here may wait for longer
AHEAD = 300  # steps: how far before the end the ranks are told of it
APART = 100  # steps: how far ranks drift apart; those of a simulation exchange something in each step
KEPT = 20  # steps and arrays that the archive keeps
ARCHIVED = 4.0  # seconds between two of them
SILENCE = 10.0  # seconds after which the servers give up one that stands still
LONG = 0.1  # seconds: steps that take longer are told one by one

PIPELINE = """
import forebay

class Sum(forebay.Pipeline):
    fields = {"U": forebay.every(5)}

    def execute(self, step, comm):
        own = step.blocks("U")
        total = comm.allreduce(sum(float(block.data.sum()) for block in own))
        count = comm.allreduce(len(own))
        if comm.rank == 0:
            with open(self.config["out"], "a") as out:
                print(step.number, count, repr(total), file=out, flush=True)

class SumEach(Sum):
    fields = {"U": forebay.every(1)}
"""


def small(rank: int, number: int) -> np.ndarray[Any, Any]:
    return np.full(SMALL, number * 10.0 + rank)


class Checks:
    """What a reader has compared."""

    def __init__(self) -> None:
        self.steps = self.blocks = self.bytes = 0
        self.wrong: list[str] = []

    def complain(self, what: str) -> None:
        """Something is wrong, now: the time stands in the servers' log too."""
        self.wrong.append(f"{datetime.now(UTC):%H:%M:%S.%f} {what}")

    def compare(self, what: str, found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
        self.bytes += found.nbytes
        if not np.array_equal(found, expected):
            self.complain(what)

    def step(self, step: forebay.Step) -> None:
        """Compares all of a step."""
        try:
            self._step(step)
        except forebay.Error as error:
            self.complain(f"step {step.number}: {error}")

    def _step(self, step: forebay.Step) -> None:
        number = step.number
        if step.torn:
            self.complain(f"step {number} is torn")
            return
        whole = reference((ROWS, COLUMNS), "f8", number)
        for block in step.blocks("U"):
            begin = block.offset[0]
            self.compare(f"step {number}, rows {begin}", block.data, whole[begin : begin + len(block.data)])
            self.blocks += 1
        self.compare(f"step {number}, U", step["U"][...], whole)
        parts = np.concatenate([small(rank, number) for rank in range(RANKS)])
        self.compare(f"step {number}, small", step["small"][...], parts)
        self.steps += 1

    def tell(self) -> None:
        told = {"steps": self.steps, "blocks": self.blocks, "bytes": self.bytes, "wrong": self.wrong[:20]}
        print(json.dumps(told), flush=True)


# ---- what the processes do ------------------------------------------------------------------------


def positions(path: str) -> Any:
    """The step at which each rank is, shared by them."""
    return np.memmap(path + ".ranks", dtype="i8", mode="r+", shape=RANKS)


def run_rank(path: str, rank: int) -> None:
    """Puts steps until it is told at which one to end; tells how long they took."""
    last = sys.maxsize

    def listen() -> None:
        nonlocal last
        last = int(sys.stdin.readline())

    threading.Thread(target=listen, daemon=True).start()
    begin, end = cut(ROWS, RANKS)[rank]
    half = (begin + end) // 2
    took: list[float] = []
    long: list[tuple[float, float]] = []
    number = 0
    at = positions(path)
    with forebay.Producer(
        STREAM,
        rank=rank,
        size=RANKS,
        group=path,
        replicas=2,
        policy="block",
        on_loss="fail",
        timeout=PATIENCE,
    ) as sim:
        sim.array("U", dtype="f8", shape=(ROWS, COLUMNS))
        sim.array("small", dtype="f8", shape=(RANKS * SMALL,))
        print("open", flush=True)
        while number < last:
            at[rank] = number
            slowest = number - APART
            wait_until(lambda slowest=slowest: at.min() >= slowest, timeout=PATIENCE, what="the slowest rank")
            whole = reference((ROWS, COLUMNS), "f8", number)
            started = time.monotonic()
            with sim.step(number) as step:
                step.put("U", whole[begin:half], offset=(begin, 0), number=0)
                room = step.alloc("U", shape=(end - half, COLUMNS), offset=(half, 0), number=1)
                if room is not None:
                    room[...] = whole[half:end]
                    step.commit(room)
                step.put("small", small(rank, number), offset=(rank * SMALL,))
            took.append(time.monotonic() - started)
            if took[-1] > LONG:
                long.append((started, took[-1]))
            number += 1
            if number % 50 == 0:
                print(number, flush=True)
            time.sleep(0.01)
        at[rank] = last
    told = {"steps": number, "took": statistics.median(took), "long": long, "lost": str(sim.lost or "")}
    print(json.dumps(told), flush=True)


def run_driver(path: str) -> None:
    """Drives a pipeline, step by step, until its input ends."""
    over = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    number = 0
    with forebay.PipelineHandle(
        "driven", group=path, replicas=2, on_loss="fail", timeout=PATIENCE
    ) as pipeline:
        pipeline.array("U", dtype="f8", shape=(ROWS, COLUMNS))
        while not over.is_set():
            pipeline.activate(number)
            pipeline.stage("U", reference((ROWS, COLUMNS), "f8", number))
            if not pipeline.execute(number):
                raise RuntimeError(f"step {number} of the driven pipeline did not run")
            pipeline.deactivate(number)
            number += 1
            print(number, flush=True)
            time.sleep(0.05)
    print(json.dumps({"steps": number, "lost": str(pipeline.lost or "")}), flush=True)


def run_archive(path: str) -> None:
    """Keeps some steps and arrays of the space for long, and compares all of them, until its input ends."""
    over, checks, number = threading.Event(), Checks(), 0

    def listen() -> None:
        sys.stdin.readline()
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    options: dict[str, Any] = {"group": path, "timeout": PATIENCE}
    with (
        forebay.Producer("archive", replicas=2, keep=KEPT, on_loss="fail", **options) as sim,
        forebay.Space(replicas=2, **options) as space,
    ):
        sim.array("U", dtype="f8", shape=(ROWS, COLUMNS))
        print("open", flush=True)
        while not over.wait(ARCHIVED):
            with sim.step(number) as step:
                step.put("U", reference((ROWS, COLUMNS), "f8", number))
            sim.flush()
            space.put("archive", reference((ROWS, COLUMNS), "f8", number), step=number)
            number += 1
            if number > KEPT:
                space.remove("archive", step=number - KEPT - 1)
            kept = range(max(0, number - KEPT), number)
            # A stream may keep one more for a moment.
            with forebay.Consumer("archive", start=(sim.run, kept[0]), **options) as reader:
                for expected in kept:
                    with reader.next() as step:
                        if step.number != expected or step.torn:
                            checks.complain(
                                f"archive: step {step.number} came, torn: {step.torn}, not {expected}"
                            )
                        whole = reference((ROWS, COLUMNS), "f8", step.number)
                        checks.compare(f"archive: step {step.number}", step["U"][...], whole)
                    whole = reference((ROWS, COLUMNS), "f8", expected)
                    checks.compare(f"space: {expected}", space.get("archive", step=expected), whole)
                    checks.blocks += 2
        for left in range(max(0, number - KEPT), number):
            space.remove("archive", step=left)
    # Another run, which keeps nothing, takes the place of what is kept.
    with forebay.Producer("archive", **options):
        pass
    checks.tell()


def run_steady(path: str, transport: str) -> None:
    """Reads every step, and compares it."""
    checks, expected = Checks(), 0
    with forebay.Consumer(STREAM, group=path, transport=transport, timeout=PATIENCE) as reader:
        print("open", flush=True)
        for step in reader:
            if step.number != expected or step.missed:
                checks.complain(f"step {step.number} came instead of {expected}, missed {step.missed}")
            expected = step.number + 1
            checks.step(step)
    checks.tell()


def run_holder(path: str, transport: str) -> None:
    """Holds arrays of every tenth step for as long as thirty others, and compares them then."""
    checks = Checks()
    held: list[tuple[int, int, Any]] = []
    with forebay.Consumer(STREAM, group=path, transport=transport, timeout=PATIENCE) as reader:
        print("open", flush=True)
        for step in reader:
            checks.steps += 1
            if step.number % 10 == 0:
                held.extend((step.number, block.offset[0], block.data) for block in step.blocks("U"))
            while held and held[0][0] + 30 < step.number:
                number, begin, data = held.pop(0)
                whole = reference((ROWS, COLUMNS), "f8", number)
                checks.compare(f"held step {number}, rows {begin}", data, whole[begin : begin + len(data)])
                checks.blocks += 1
                del data
        held.clear()
    checks.tell()


def run_visitor(path: str, transport: str) -> None:
    """Attaches, reads some steps and goes, again and again."""
    checks, chance, over = Checks(), random.Random(7), False
    print("open", flush=True)
    while not over:
        with forebay.Consumer(STREAM, group=path, transport=transport, timeout=PATIENCE) as reader:
            before = None
            for _ in range(chance.randint(1, 30)):
                found = next_or_over(reader, path)
                if found is None:
                    over = True
                    break
                step = found
                if before is not None and step.number != before + 1:
                    checks.complain(f"step {step.number} came after {before}")
                before = step.number
                checks.step(step)
                step.release()
        over = over or os.path.exists(path + ".over")
    checks.tell()


def next_or_over(reader: forebay.Consumer, path: str) -> forebay.Step | None:
    """The next step; `None` at the end, of which nobody tells a reader that attached after it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return reader.next(timeout=2)
        except forebay.Ended:
            return None
        except forebay.Timeout:
            if os.path.exists(path + ".over"):
                return None
            if time.monotonic() > deadline:
                raise


ROLES: dict[str, Callable[..., None]] = {
    "rank": lambda path, rank: run_rank(path, int(rank)),
    "driver": run_driver,
    "archive": run_archive,
    "steady": run_steady,
    "holder": run_holder,
    "visitor": run_visitor,
}

# ---- what happens to them -------------------------------------------------------------------------


class Process:
    """One of them. Its last line says how it went."""

    def __init__(self, name: str, *arguments: object) -> None:
        self.name = name
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, __file__, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.listens = threading.Thread(target=self._listen)
        self.listens.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def say(self, line: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.close()

    def at(self) -> int:
        """The step that a rank has reached."""
        return int(self.lines[-1]) if self.lines and self.lines[-1].isdigit() else 0

    def end(self) -> dict[str, Any]:
        code = self.process.wait(PATIENCE * 2)
        self.listens.join()
        if code != 0 or not self.lines:
            return {"wrong": [f"{self.name} ended with {code}"]}
        told: dict[str, Any] = json.loads(self.lines[-1])
        return told

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.listens.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


class Chaos:
    """What befalls the servers of a group."""

    def __init__(self, group: forebay.LocalGroup, seed: int, stops: float) -> None:
        self.group = group
        self.stops = stops
        self.admin = forebay.Admin(group=group.path, timeout=20)
        self.chance = random.Random(seed)
        self.counts = {"killed": 0, "stopped": 0, "given_up": 0, "added": 0, "removed": 0}
        self.log: list[str] = []
        # When a server stood still, and for a while after.
        self.still: list[tuple[float, float]] = []

    def is_safe(self) -> bool:
        """Whether all that is acknowledged has its copies: one more death loses nothing."""
        servers = self.admin.status()["servers"]
        living = [server for server in servers if "error" not in server]
        lacking = sum(server.get("steps_lacking_copies", 0) for server in living)
        return len(living) == len(servers) and not lacking

    def happen(self) -> None:
        # One that was just killed may be a member still.
        servers = [server for server in self.admin.status()["servers"] if "error" not in server]
        choices = []
        if len(servers) < SERVERS_MAX:
            choices += ["added"] * (3 if len(servers) <= SERVERS_MIN else 1)
        if len(servers) > SERVERS_MIN:
            choices += ["killed", "killed", "removed"]
        what = self.chance.choice(choices)
        if len(servers) > SERVERS_MIN and self.chance.random() < self.stops:
            what = "stopped"
        victim = self.chance.choice(servers)
        self.log.append(f"{what} {victim['server'] if what != 'added' else ''}")
        if what == "added":
            self.group.add_servers()
        elif what == "removed":
            self.admin.remove_server(victim["server"])
        else:
            wait_until(self.is_safe, timeout=PATIENCE, what="copies of all that is acknowledged")
            if what == "killed":
                os.kill(victim["pid"], signal.SIGKILL)
            else:
                self.stop(victim)
        self.counts[what] += 1

    def stop(self, victim: dict[str, Any]) -> None:
        """A server stands still, and wakes: before the others give it up, or after. Then it joins again."""
        began, pid = time.monotonic(), victim["pid"]
        impatient = forebay.Admin(group=self.group.path, timeout=1)

        def members(key: str) -> list[Any]:
            return [server.get(key) for server in impatient.status()["servers"]]

        os.kill(pid, signal.SIGSTOP)
        try:
            if self.chance.random() < 0.5:
                time.sleep(self.chance.uniform(0.1, SILENCE / 2))
            else:
                wait_until(
                    lambda: victim["server"] not in members("server"),
                    timeout=PATIENCE,
                    what="the others to give up a server that stands still",
                )
                self.counts["given_up"] += 1
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: pid in members("pid"), timeout=PATIENCE, what="a server that woke to be a member")
        self.still.append((began, time.monotonic() + 1))

    def stood_still(self, step: tuple[float, float]) -> bool:
        """Whether a server stood still while a step was taken, or just before."""
        began, took = step
        return any(began < until and began + took > since for since, until in self.still)


@contextlib.contextmanager
def processes(path: str) -> Iterator[tuple[list[Process], list[Process], Process, Process]]:
    """The ranks, the readers, who drives a pipeline, of which there must be one, and the archive."""
    readers = [
        Process("the reader", "steady", path, "auto"),
        Process("the reader over TCP", "steady", path, "tcp"),
        Process("the reader that holds arrays", "holder", path, "auto"),
        Process("the reader that comes and goes", "visitor", path, "auto"),
    ]
    ranks: list[Process] = []
    driver = Process("who drives a pipeline", "driver", path)
    archive = Process("the archive", "archive", path)
    try:
        for reader in readers:
            wait_until(lambda reader=reader: reader.lines, what=f"{reader.name} to attach")
        ranks += [Process(f"rank {rank}", "rank", path, rank) for rank in range(RANKS)]
        wait_until(lambda: driver.lines, what="the first step that is driven")
        yield ranks, readers, driver, archive
    finally:
        for process in [*ranks, *readers, driver, archive]:
            process.close()


def soak(
    seconds: float,
    seed: int,
    log: Path | None = None,
    say: Callable[[str], None] = print,
    *,
    stops: float = 0.1,
) -> dict[str, Any]:
    """Runs all of it; what was found. `stops`: the share of events that stop a server, which can take seconds each."""
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        group = stack.enter_context(forebay.local(servers=4, budget_bytes=256 << 20))
        chaos = Chaos(group, seed, stops)
        (place / "sum.py").write_text(PIPELINE)
        sums = {"sum": place / "sums", "driven": place / "driven"}
        for name, code, stream in (("sum", "Sum", STREAM), ("driven", "SumEach", DRIVEN)):
            config = {"out": str(sums[name])}
            driven = stream == DRIVEN
            chaos.admin.create_pipeline(
                name, f"{place}/sum.py:{code}", stream=stream, config=config, driven=driven
            )
        np.zeros(RANKS, dtype="i8").tofile(group.path + ".ranks")
        ranks, readers, driver, archive = stack.enter_context(processes(group.path))
        every = [*ranks, *readers, driver, archive]
        wait_until(lambda: all(rank.at() for rank in ranks), what="the first steps")
        started = time.monotonic()
        end, tell_at = started + seconds, started + 60
        problems: list[str] = []
        while time.monotonic() < end and not problems:
            event = time.monotonic()
            try:
                chaos.happen()
            except (forebay.Error, AssertionError) as error:
                problems.append(f"{chaos.log[-1:]}: {error}")
            problems += [
                f"{process.name} has ended" for process in every if process.process.poll() is not None
            ]
            if time.monotonic() > tell_at:
                tell_at += 60
                say(f"{(time.monotonic() - started) / 60:.0f} min: step {ranks[0].at()}, {chaos.counts}")
            time.sleep(max(0.0, min(end, event + 1) - time.monotonic()))
        took = time.monotonic() - started
        last = max(rank.at() for rank in ranks) + AHEAD
        for process in [*ranks, driver, archive]:
            with contextlib.suppress(OSError):
                process.say(last)
        told_ranks = [rank.end() for rank in ranks]
        told_driver, told_archive = driver.end(), archive.end()
        Path(group.path + ".over").touch()
        told_readers = [reader.end() for reader in readers]
        os.unlink(group.path + ".over")
        for name in sums:
            chaos.admin.destroy_pipeline(name)
        try:
            wait_until(lambda: is_given_back(group))
        except AssertionError:
            problems.append(f"memory is not given back after all have gone: {what_is_held(chaos.admin)}")
        for told, process in zip([*told_ranks, *told_readers, told_driver, told_archive], every, strict=True):
            problems += [f"{process.name}: {problem}" for problem in told.get("wrong", [])]
            problems += [f"{process.name}: {told['lost']}"] if told.get("lost") else []
        for told, reader in zip(told_readers[:2], readers, strict=False):
            if told.get("steps") != last:
                problems.append(f"{reader.name} saw {told.get('steps')} steps of {last}")
        ran = {name: set(check_sums(name, out, problems)) for name, out in sums.items()}
        if ran["driven"] != set(range(told_driver.get("steps", 0))):
            problems.append(f"{len(ran['driven'])} of {told_driver.get('steps')} driven steps ran")
        if log:
            log.write_text(group.output())
        long = [(began, took) for told in told_ranks for began, took in told.get("long", [])]
        usual = [took for began, took in long if not chaos.stood_still((began, took))]
        return {
            "minutes": round(took / 60, 2),
            "seed": seed,
            **chaos.counts,
            "steps": last,
            "blocks_compared": sum(told.get("blocks", 0) for told in told_readers),
            "bytes_compared": sum(told.get("bytes", 0) for told in told_readers),
            "archived_compared": told_archive.get("blocks", 0),
            "pipeline_steps": len(ran["sum"]),
            "driven_steps": len(ran["driven"]),
            "median_step_ms": round(1e3 * max(told.get("took", 0) for told in told_ranks), 2),
            "steps_over_100_ms": len(usual),
            "longest_step_ms": round(1e3 * max(usual, default=0), 1),
            "longest_step_at_a_stop_ms": round(1e3 * max((took for _, took in long), default=0), 1),
            "problems": problems,
        }


def what_is_held(admin: forebay.Admin) -> str:
    """What is still staged, and where."""
    status = admin.status()
    keys = ("server", "staged_bytes", "blocks", "backup_steps", "connections")
    servers = [{key: server.get(key) for key in keys} for server in status["servers"]]
    return json.dumps({"servers": servers, "streams": status["streams"], "last": status["epoch"]})


def check_sums(name: str, out: Path, problems: list[str]) -> Iterator[int]:
    """The steps that a pipeline ran; complains where it saw anything else than what was put."""
    for line in out.read_text().splitlines() if out.exists() else []:
        number, count, total = line.split()
        expected = float(reference((ROWS, COLUMNS), "f8", int(number)).sum())
        if not np.isclose(float(total), expected, rtol=1e-12):
            problems.append(
                f"pipeline '{name}' summed {total} of {count} blocks at step {number}, not {expected}"
            )
        yield int(number)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument(
        "--stops", type=float, default=0.1, help="the share of events that stop a server (0.1)"
    )
    parser.add_argument("--log", type=Path, help="where the servers' output goes")
    given = parser.parse_args()
    found = soak(given.minutes * 60, given.seed, given.log, stops=given.stops)
    problems = found.pop("problems")
    for name, value in found.items():
        print(
            f"{name.replace('_', ' '):26} {value:,}"
            if isinstance(value, int)
            else f"{name.replace('_', ' '):26} {value}"
        )
    print(f"{'losses':26} {len(problems)}")
    for problem in problems[:40]:
        print(f"  {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in ROLES:
        ROLES[sys.argv[1]](*sys.argv[2:])
    else:
        sys.exit(main())
