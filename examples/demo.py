# SPDX-License-Identifier: Apache-2.0
"""The main job, start to end, on this machine: `make demo`.

A group of two servers starts.  Gray-Scott on four MPI ranks hands over its steps, each held by two servers.
A pipeline draws the servers' blocks into one picture every ten steps.  While the simulation runs a third server
joins, a reader attaches, takes a plane and leaves, and one of the first two servers is killed.
Whatever happens, nothing is left running (demo_children.py).
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import forebay
from demo_children import Children

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
SERVERS = 2
REPLICAS = 2
EVERY = 10
NOTICED = 2 * EVERY  # steps within which the simulation notices that a server has come or gone
SUB_STEPS = 9
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DemoError(Exception):
    """What failed, and where to read more."""


class Stopped(BaseException):
    """A signal that asks us to end."""


def main():
    parser = argparse.ArgumentParser(prog="demo", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--steps", type=int, default=300, help="steps of the simulation (%(default)s)")
    parser.add_argument("--shape", default="80x72x96", help="grid points, ZxYxX (%(default)s)")
    parser.add_argument("--ranks", type=int, default=4, help="MPI ranks of the simulation (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="directory (%(default)s)")
    options = parser.parse_args()
    if options.steps < 2 * EVERY:
        parser.error(f"--steps: at least {2 * EVERY}, so that there is something to draw and to read")

    for number in STOPS:
        signal.signal(number, stop)
    demo = Demo(options)
    try:
        demo.run()
        return 0
    except DemoError as error:
        print(f"\ndemo: {error}", file=sys.stderr)
        return 1
    except Stopped as stopped:
        number = stopped.args[0]
        print(f"\ndemo: stopped by {signal.Signals(number).name}", file=sys.stderr)
        return 128 + number
    finally:
        demo.clean_up()


def stop(number, _frame):
    # From here on an impatient second Ctrl-C must not leave anything behind.
    for each in STOPS:
        signal.signal(each, signal.SIG_IGN)
    raise Stopped(number)


class Demo:
    def __init__(self, options):
        self.options = options
        self.wanted = options.steps // EVERY
        self.output = options.output.resolve()
        self.logs = self.output / "log"
        self.private = Path(tempfile.mkdtemp(prefix="forebay-demo-"))
        self.group = self.private / "group.json"
        self.group_is = "down"
        self.children = Children(self.private, {"FOREBAY_GROUP": str(self.group)})

    def run(self):
        for name in ("forebay", "mpiexec", "grayscott", "grayscott-plain"):
            if not (BIN / name).exists():
                raise DemoError(f"{BIN / name} is missing; `make build` makes it")
        self.logs.mkdir(parents=True, exist_ok=True)
        for old in self.pictures():
            old.unlink()

        plain = self.simulate("grayscott-plain", "without Forebay")

        self.group_is = "starting"
        self.forebay("up", "-n", str(SERVERS))
        self.group_is = "up"
        config = {"output": str(self.output)}
        pipeline = f"{HERE}/pipelines/grayscott.py:Reaction"
        self.forebay("pipeline", "create", "pictures", pipeline, "--config", json.dumps(config))
        reader, servers = Reader(self.group, self.options), Servers(self)
        staged = self.simulate("grayscott", "with Forebay", reader, servers)
        self.await_pictures()
        reader.join(timeout=10)
        self.forebay("down")
        self.group_is = "down"

        if not reader.found:
            raise DemoError(f"the reader got no plane: {reader.error or 'none came'}")
        if plain["fingerprint"] != staged["fingerprint"]:
            raise DemoError("with Forebay the simulation computed something else than without")
        if staged["forebay_errors"]:
            raise DemoError(
                f"{staged['forebay_errors']} calls of Forebay failed; see {self.logs}/grayscott.log"
            )
        if servers.error:
            raise DemoError(f"the servers did not come and go as they should: {servers.error}")
        print(table(plain, staged, reader.found, self.pictures(), servers))

    def simulate(self, program, label, reader=None, servers=None):
        """Runs the simulation to its end and returns its report."""
        steps, report, log = (
            self.options.steps,
            self.private / f"{program}.json",
            self.logs / f"{program}.log",
        )
        words = ["-n", self.options.ranks, BIN / program, "--shape", self.options.shape, "--steps", steps]
        words += ["--sub-steps", SUB_STEPS, "--json", report, "--progress", "--replicas", REPLICAS]
        child = self.children.start("simulation", log, BIN / "mpiexec", *words)
        bar = Bar(label)
        code, done = None, 0
        while code is None:
            time.sleep(0.1)
            if done == 0:
                self.children.note_shared("simulation")
            code, done = child.poll(), steps_done(log)
            if reader and reader.state == "" and 2 * done >= steps:
                reader.start()
            text = f"step {done}/{steps}"
            if servers:
                servers.go_on(done)
            if reader:
                state = f"{servers.state}  {reader.state}"
                text += f"  pictures {len(self.pictures())}/{self.wanted}  {state}"
            bar.show(done / steps, text)
        bar.end()
        if code != 0:
            raise DemoError(f"{program} ended with code {code}; its output is in {log}")
        return json.loads(report.read_text())

    def await_pictures(self):
        """The simulation does not wait for pictures, so the last ones may still be on their way."""
        if len(self.pictures()) >= self.wanted:
            return
        patience = 30
        bar = Bar("last pictures")
        seen, since = -1, time.monotonic()
        while seen < self.wanted:
            if (count := len(self.pictures())) > seen:
                seen, since = count, time.monotonic()
            if time.monotonic() - since > patience:
                bar.end()
                status = self.logs / "forebay-status.log"
                self.forebay("status", check=False)
                raise DemoError(f"{seen} of {self.wanted} pictures came; the group's state is in {status}")
            bar.show(seen / self.wanted, f"pictures {seen}/{self.wanted}")
            time.sleep(0.1)
        bar.end()

    def pictures(self):
        return sorted(self.output.glob("surface-*.png"))

    def forebay(self, *words, check=True):
        log = self.logs / f"forebay-{words[0]}.log"
        child = self.children.start("group", log, BIN / "forebay", *words, "--group", self.group)
        try:
            result = f"ended with code {child.wait(timeout=60)}"
        except subprocess.TimeoutExpired:
            result = "hangs"
        if check and child.returncode != 0:
            last = log.read_text(errors="replace").strip().rpartition("\n")[2]
            raise DemoError(f"forebay {words[0]} {result}: {last}\nIts output is in {log}")

    def clean_up(self):
        for number in STOPS:
            signal.signal(number, signal.SIG_IGN)
        self.children.end("simulation")
        try:
            if self.group_is != "down":
                # What never came up quite need not go down well.
                self.forebay("down", check=self.group_is == "up")
        except DemoError as error:
            print(f"demo: {error}", file=sys.stderr)
        finally:
            self.children.end()
            shutil.rmtree(self.private, ignore_errors=True)


def steps_done(log):
    """The simulation says "step N" as it goes; its last line may still be half written."""
    lines = log.read_bytes().split(b"\n")[:-1]
    return max(
        (int(line[5:]) for line in lines if line.startswith(b"step ") and line[5:].isdigit()), default=0
    )


class Servers:
    """One more joins when a third of the steps are done, and the first one is killed after two thirds."""

    def __init__(self, demo):
        self.demo = demo
        self.state = f"{SERVERS} servers"
        self.error = None
        self.joining = None
        # Steps between which the simulation could notice something of each.
        self.joined = self.died = None

    def story(self):
        joined = f"; one more joined at step {self.joined[0]}" if self.joined else ""
        died = f", the first one was killed at step {self.died[0]}" if self.died else ""
        return f"{SERVERS}{joined}{died}"

    def go_on(self, done):
        steps = self.demo.options.steps
        try:
            if self.joining is None and 3 * done >= steps:
                log = self.demo.logs / "forebay-add.log"
                words = [BIN / "forebay", "add", "1", "--group", self.demo.group]
                self.joining = self.demo.children.start("group", log, *words)
                self.joined = (done, steps)
            elif self.joining is not None and self.joined[1] == steps and self.joining.poll() is not None:
                if self.joining.returncode != 0:
                    self.error = f"no server joined; see {self.demo.logs}/forebay-add.log"
                self.joined = (self.joined[0], min(max(done + 1, self.joined[0] + NOTICED), steps))
                self.state = f"{SERVERS + 1} servers"
            elif self.died is None and 3 * done >= 2 * steps:
                servers = forebay.Admin(group=str(self.demo.group)).status()["servers"]
                os.kill(servers[0]["pid"], signal.SIGKILL)
                self.died = (done, min(done + NOTICED, steps))
                self.state = f"{SERVERS} servers, one killed"
        except (forebay.Error, OSError) as error:
            self.error = self.error or error


class Reader(threading.Thread):
    """Attaches to the running simulation, takes one plane, and leaves."""

    def __init__(self, group, options):
        super().__init__(daemon=True)
        self.group = str(group)
        self.middle = int(options.shape.split("x")[2]) // 2
        self.state = ""
        self.found = self.error = None

    def start(self):
        self.state = "reader attached"
        super().start()

    def run(self):
        try:
            with forebay.Consumer(
                "grayscott", fields={"U": forebay.every(EVERY)}, group=self.group
            ) as viewer:
                step = next(iter(viewer))
                plane = step["U"][:, :, self.middle]
                self.found = (step.number, plane.shape, plane.min(), plane.max())
        except Exception as error:  # a thread has nobody to raise it to
            self.error = error
        self.state = "reader left"


# ---- what the user sees ---------------------------------------------------------------------


class Bar:
    """One line that is drawn anew on a terminal; elsewhere a line for every fifth."""

    def __init__(self, label):
        self.label = label
        self.terminal = sys.stdout.isatty()
        self.fifths = -1

    def show(self, fraction, text):
        filled = round(24 * fraction)
        if self.terminal:
            line = f"\r{self.label:16}[{'#' * filled}{'-' * (24 - filled)}] {text}"
            print(f"{line:80}", end="", flush=True)
        elif int(5 * fraction) > self.fifths:
            self.fifths = int(5 * fraction)
            print(f"{self.label:16}{fraction:4.0%}  {text}".rstrip(), flush=True)

    def end(self):
        if self.terminal:
            print()


def table(plain, staged, found, pictures, servers):
    def ms(report, part, what):
        return f"{1e3 * report[part][what]:.2f} ms"

    def slowest(report, part, between):
        if between is None:
            return "-"  # the simulation was over before
        first, last = between
        return f"{1e3 * max(report[part][first:last]):.2f} ms"

    def per_staged_step(report):
        # The others cost next to nothing.
        return f"{1e3 * sum(report['staging_seconds']) / (report['steps'] // EVERY):.2f} ms"

    size = " x ".join(str(extent) for extent in staged["shape"])
    number, shape, low, high = found
    folder = os.path.relpath(pictures[0].parent)
    rows = [
        ("simulation", f"{staged['steps']} steps of {size} points on {staged['ranks']} ranks"),
        ("cores", f"{len(os.sched_getaffinity(0))}, for ranks, servers, pictures and reader together"),
        ("bytes staged", f"{staged['staged_bytes'] / 1e6:.0f} MB: U and V of every {EVERY}th step"),
        ("servers", servers.story()),
        (
            "reader",
            f"took U in a plane of {shape[0]} x {shape[1]} at step {number}: values from {low:.3f} to {high:.3f}",
        ),
        ("pictures", f"{len(pictures)}: {folder}/{pictures[0].name} to {pictures[-1].name}"),
        ("", ""),
        ("time per step", f"{'without Forebay':>18}{'with Forebay':>18}"),
        ("  in Forebay", f"{'-':>18}{ms(staged, 'staging', 'mean'):>18}"),
        ("  all, mean", f"{ms(plain, 'step', 'mean'):>18}{ms(staged, 'step', 'mean'):>18}"),
        ("  all, median", f"{ms(plain, 'step', 'p50'):>18}{ms(staged, 'step', 'p50'):>18}"),
        ("  all, slowest", f"{ms(plain, 'step', 'max'):>18}{ms(staged, 'step', 'max'):>18}"),
        ("in Forebay, of a step that is staged", ""),
        ("  mean", f"{'-':>18}{per_staged_step(staged):>18}"),
        ("  slowest", f"{'-':>18}{slowest(staged, 'staging_seconds', (0, staged['steps'])):>18}"),
        ("  as one joined", f"{'-':>18}{slowest(staged, 'staging_seconds', servers.joined):>18}"),
        ("  as one died", f"{'-':>18}{slowest(staged, 'staging_seconds', servers.died):>18}"),
    ]
    lines = [f"  {name:16}{what}".rstrip() for name, what in rows]
    note = "\n".join(
        [
            "  With Forebay the same cores drew the pictures while the simulation ran: that is what",
            "  the other time went to. 'in Forebay' is what handing over the data, of which a second server",
            "  holds a copy, took: of all steps in the mean, and of those at which something is staged.",
        ]
    )
    return "\n".join(["", *lines, "", note])


if __name__ == "__main__":
    sys.exit(main())
