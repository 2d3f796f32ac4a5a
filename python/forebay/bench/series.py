# SPDX-License-Identifier: Apache-2.0
"""`for` and `until` on random series: 10,000 subscriptions on one stream, and what promtool says of the same series."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.bench import forebay_side
from forebay.bench.errors import BenchError, WrongData
from forebay.bench.harness import Report, within

# For how many minutes a condition must hold, and for how many it must not hold to end an episode.
_HOLDS = (0, 1, 2, 3, 5)
_ENDS = (0, 1, 2, 4)
_RULES = [(hold, end) for hold in _HOLDS for end in _ENDS]
# How many series promtool is given at once.
_TOGETHER = 1000
_PATIENCE = 300.0


def series(options: argparse.Namespace, report: Report) -> None:
    """How many of them differ, at any step. What is missing counts as what does not hold, as in Prometheus."""
    count, steps = (40, 12) if options.quick else (10_000, 40)
    promtool = shutil.which("promtool")
    if promtool is None:
        report.note("not measured beside promtool: it is not installed (Debian's package prometheus)")
        return
    random = np.random.default_rng(29)
    values = (random.random((steps, count)) < random.random(count)).astype(np.float64)
    values[random.random((steps, count)) < 0.05] = np.nan
    began = time.monotonic()
    fired = _watched(values, report)
    seconds = time.monotonic() - began
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as scratch:
        _check_that_it_notices(promtool, Path(scratch), values, fired)
        differ = sum(
            not _agrees(promtool, Path(scratch), values[:, first:last], fired[:, first:last], first)
            for first, last in _parts(count)
        )
    report.value(
        f"for and until, {count} series of {steps}",
        differ,
        "differ",
        against=f"promtool, in {len(_parts(count))} parts, of which so many differ",
        bar=within(0),
        n=count * steps,
        more={"events": int(fired.sum()), "seconds": seconds},
    )


def _text(number: int) -> str:
    hold, end = _RULES[number % len(_RULES)]
    text = f"max(U[{number}]) > 0.5" + (f" for {hold} time" if hold else "")
    return text + (f" until not (max(U[{number}]) > 0.5) for {end} time" if end else "")


def _watched(values: NDArray[np.float64], report: Report) -> NDArray[np.bool_]:
    """At which steps each subscription has an event, by its counter after each step."""
    steps, count = values.shape
    forebay = forebay_side.package()
    with forebay_side.local_group(servers=1) as group, ExitStack() as stack:
        producer = stack.enter_context(forebay.Producer("series", group=group.path, timeout=60.0))
        producer.array("U", dtype="f8", shape=(count,))
        made = [
            stack.enter_context(
                forebay.subscribe(
                    _text(number), stream="series", name=f"{number:06d}", missing="reset", group=group.path
                )
            )
            for number in range(count)
        ]
        for one in made[:: max(1, count // 8)]:
            one.wait_active()
        report.measuring(f"{count} subscriptions")
        admin = stack.enter_context(forebay.Admin(group=group.path))
        events = np.zeros((steps + 1, count), np.int64)
        for number in range(steps):
            with producer.step(number, time=float(number)) as step:
                step.put("U", values[number], offset=(0,))
            events[number + 1] = _counted(admin, number, count)
        return np.diff(events, axis=0) > 0


def _counted(admin: Any, step: int, count: int) -> NDArray[np.int64]:
    deadline = time.monotonic() + _PATIENCE
    while True:
        told = admin.subscriptions()
        if len(told) == count and all(one["last_step"] == step for one in told):
            return np.array([one["events"] for one in sorted(told, key=lambda one: one["name"])])
        if time.monotonic() > deadline:
            raise BenchError(f"step {step} was not evaluated by all")
        time.sleep(0.05)


def _parts(count: int) -> list[tuple[int, int]]:
    return [(first, min(first + _TOGETHER, count)) for first in range(0, count, _TOGETHER)]


def _agrees(
    promtool: str, scratch: Path, values: NDArray[np.float64], fired: NDArray[np.bool_], first: int
) -> bool:
    """Whether promtool finds just these alerts firing."""
    steps, count = values.shape
    rules = ["groups:", "- name: all", "  interval: 1m", "  rules:"]
    for rule, (hold, end) in enumerate(_RULES):
        rules += [f"  - alert: r{rule}", f'    expr: m{{r="{rule}"}} > 0.5', f"    for: {hold}m"]
        rules += [f"    keep_firing_for: {end}m"] if end else []
    (scratch / "rules.yml").write_text("\n".join(rules) + "\n")
    shown = {0.0: "0", 1.0: "1"}
    tests = [
        "rule_files: [rules.yml]",
        "evaluation_interval: 1m",
        "tests:",
        "- interval: 1m",
        "  input_series:",
    ]
    for index in range(count):
        number = first + index
        told = " ".join(shown.get(value, "stale") for value in values[:, index].tolist())
        tests += [
            f"""  - series: 'm{{r="{number % len(_RULES)}", i="{number}"}}'""",
            f"    values: '{told}'",
        ]
    tests += ["  alert_rule_test:"]
    for step in range(steps):
        for rule in range(len(_RULES)):
            firing = [
                first + index
                for index in range(count)
                if fired[step, index] and (first + index) % len(_RULES) == rule
            ]
            tests += [
                f"  - eval_time: {step}m",
                f"    alertname: r{rule}",
                "    exp_alerts:" + ("" if firing else " []"),
            ]
            tests += [f"    - exp_labels: {{r: '{rule}', i: '{number}'}}" for number in firing]
    (scratch / "tests.yml").write_text("\n".join(tests) + "\n")
    done = subprocess.run(
        [promtool, "test", "rules", "tests.yml"], cwd=scratch, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise BenchError(f"promtool: {done.stderr[-2000:]}")
    return done.returncode == 0


def _check_that_it_notices(
    promtool: str, scratch: Path, values: NDArray[np.float64], fired: NDArray[np.bool_]
) -> None:
    """One event too many is noticed."""
    few = slice(0, 20)
    spoilt = fired[:, few].copy()
    spoilt[-1, 3] = not spoilt[-1, 3]
    if _agrees(promtool, scratch, values[:, few], spoilt, 0):
        raise WrongData("promtool notices no wrong event")
