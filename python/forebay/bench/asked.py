# SPDX-License-Identifier: Apache-2.0
"""What `bench subscribe` asks once: texts, and steps on which they are evaluated, beside NumPy, numexpr and DuckDB."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.bench import forebay_side
from forebay.bench.errors import WrongData
from forebay.bench.harness import MIB, Report, at_least, repetitions_of, under, within
from forebay.bench.samples import Sample, interleave, now_ns, seconds_since

Arrays = dict[str, NDArray[np.float64]]
HUNDRED = (
    "count(sqrt(u**2 + v**2 + w**2) > 3.{:06d}) / size(u) > 0.015625 and max(abs(u)) <= 12.5 or min(v) < -9"
)


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Keeps this thread on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def named(name: str, seconds: Callable[[], float]) -> Callable[[], Sample]:
    """A subject that measures one thing."""
    return lambda: {name: seconds()}


def timed(subject: Callable[[], object]) -> Callable[[], float]:
    """How long it takes."""

    def seconds() -> float:
        began = now_ns()
        subject()
        return seconds_since(began)

    return seconds


def peer(name: str, report: Report) -> Any:
    """Another package, if it is there."""
    if importlib.util.find_spec(name) is None:
        report.note(f"not measured beside {name}: it is not installed (pip install {name})")
        return None
    return importlib.import_module(name)


@contextlib.contextmanager
def held_step(
    group: forebay_side.Group,
    arrays: Arrays,
    *,
    blocks: int = 1,
    stats: bool = False,
    transport: str = "auto",
) -> Iterator[Any]:
    """One step with these arrays, each put as so many blocks, as a reader holds it."""
    forebay = forebay_side.package()
    wanted = {name: forebay.every(1, stats=stats) for name in arrays}
    stream = f"asked-{time.monotonic_ns()}"
    with ExitStack() as stack:
        producer = stack.enter_context(forebay.Producer(stream, group=group.path, timeout=60.0))
        for name, array in arrays.items():
            producer.array(name, dtype="f8", shape=array.shape, dims=("z", "y", "x")[-array.ndim :])
        reader = forebay.Consumer(stream, fields=wanted, group=group.path, timeout=60.0, transport=transport)
        stack.enter_context(reader)
        with producer.step(0) as step:
            for name, array in arrays.items():
                each = array.shape[0] // blocks
                for number in range(blocks):
                    first = number * each
                    step.put(
                        name,
                        array[first : first + each],
                        number=number,
                        offset=(first,) + (0,) * (array.ndim - 1),
                    )
        with reader.next() as held:
            yield held


def normal(*shape: int) -> NDArray[np.float64]:
    """Numbers of a normal distribution."""
    return np.random.default_rng(1).standard_normal(shape)


# ---- texts ----------------------------------------------------------------------------------------


def parse(options: argparse.Namespace, report: Report) -> None:
    """Parsing and checking a text of 100 characters, beside numexpr's validate; and what is refused."""
    core = importlib.import_module("forebay._forebay")
    fields = [(name, "float64", [64, 64, 64]) for name in ("u", "v", "w")]
    numexpr = peer("numexpr", report)
    arrays = {name: np.zeros(4) for name in ("u", "v", "w")}
    turn = iter(range(10**6))

    def ours() -> float:
        text = HUNDRED.format(next(turn))
        return timed(lambda: core.check_expression(text, fields))()

    def theirs() -> float:
        text = "where(sqrt(u**2 + v**2 + w**2) > 3.{:06d}, 1, 0) + where((abs(u) <= 12.5) | (v < -9.5), u*v - w, w/7.25)"
        ours_is_as_long = text.format(next(turn))
        return timed(lambda: numexpr.validate(ours_is_as_long, local_dict=arrays))()

    subjects = [named("ours", ours)] + ([named("numexpr", theirs)] if numexpr else [])
    series = interleave(
        subjects, repetitions=repetitions_of(options.repetitions, options.quick, 301, few=5), warmup=5
    )
    rates = {name: [1 / seconds for seconds in samples] for name, samples in series.items()}
    report.samples(
        f"texts of {len(HUNDRED.format(0))} characters a second",
        rates["ours"],
        "1/s",
        against="numexpr.validate" if numexpr else None,
        base=rates.get("numexpr"),
        bar=at_least(20) if numexpr else None,
    )
    forebay = forebay_side.package()

    def refused(text: str) -> float:
        began = now_ns()
        try:
            core.check_expression(text, fields)
        except forebay.Error:
            return seconds_since(began)
        raise WrongData("a text was taken that is to be refused")

    for name, text in {"1,000 deep": "(" * 1000 + "u", "1 MB": "u + " * 250_000}.items():
        samples = [refused(text) * 1e3 for _ in range(repetitions_of(options.repetitions, options.quick, 31))]
        report.samples(f"refused: {name}", samples, "ms", bar=under(1.0))


# ---- one pass over memory ------------------------------------------------------------------------


def maximum(options: argparse.Namespace, report: Report) -> None:
    """`max(U)`: in this process on one core, and by a server on all of them."""
    planes = 8 if options.quick else 512
    repetitions = repetitions_of(options.repetitions, options.quick, 15)
    size = planes * 256 * 256 * 8
    array = normal(planes, 256, 256)
    with forebay_side.local_group(servers=1, budget=4 * size + 256 * MIB) as group:
        with held_step(group, {"U": array}) as step, one_core():
            view = step["U"].blocks()[0].data
            series = interleave(
                [named("ours", timed(lambda: step.evaluate("max(U)"))), named("numpy", timed(view.max))],
                repetitions=repetitions,
                warmup=2,
            )
            if step.evaluate("max(U)") != view.max():
                raise WrongData("another maximum than NumPy's")
        name = f"{size // MIB} MiB"
        report.rate(
            f"max(U) of {name}",
            size,
            series["ours"],
            against="numpy.max of the same memory, one core",
            base=series["numpy"],
            bar=at_least(0.9),
        )
        with (
            held_step(group, {"U": array}, blocks=4, transport="tcp") as step,
            held_step(group, {"U": array}, blocks=4) as here,
        ):
            halves = [block.data for block in here["U"].blocks()]
            series = interleave(
                [
                    named("ours", timed(lambda: step.evaluate("max(U)"))),
                    named("numpy", timed(lambda: _on_all_cores(halves))),
                ],
                repetitions=repetitions,
                warmup=2,
            )
        report.rate(
            f"max(U) of {name}, by a server",
            size,
            series["ours"],
            against="numpy.max of the same memory on all cores",
            base=series["numpy"],
            bar=at_least(0.9),
        )


def _on_all_cores(parts: list[Any]) -> None:
    """The maximum of each part, by as many threads as there are cores."""
    cores = len(os.sched_getaffinity(0))

    def some(first: int) -> None:
        for part in parts[first::cores]:
            part.max()

    threads = [threading.Thread(target=some, args=(first,)) for first in range(cores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def compound(options: argparse.Namespace, report: Report) -> None:
    """`count(sqrt(u**2 + v**2 + w**2) > 3)` of three fields."""
    planes = 4 if options.quick else 128
    arrays: Arrays = {
        name: np.random.default_rng(seed).standard_normal((planes, 256, 256)) * 1.7
        for seed, name in enumerate("uvw")
    }
    size = 3 * planes * 256 * 256 * 8
    numexpr = peer("numexpr", report)
    with (
        forebay_side.local_group(servers=1, budget=size + 256 * MIB) as group,
        held_step(group, arrays) as step,
        one_core(),
    ):
        u, v, w = (step[name].blocks()[0].data for name in "uvw")
        found = step.evaluate("count(sqrt(u**2 + v**2 + w**2) > 3)")
        if found != np.count_nonzero(np.sqrt(u**2 + v**2 + w**2) > 3):
            raise WrongData("another count than NumPy's")
        subjects = [
            named("ours", timed(lambda: step.evaluate("count(sqrt(u**2 + v**2 + w**2) > 3)"))),
            named("numpy", timed(lambda: np.count_nonzero(np.sqrt(u**2 + v**2 + w**2) > 3))),
        ]
        if numexpr:
            numexpr.set_num_threads(1)
            text = "sum(where(sqrt(u**2 + v**2 + w**2) > 3, 1, 0))"
            names = {"u": u, "v": v, "w": w}
            subjects.append(named("numexpr", timed(lambda: numexpr.evaluate(text, local_dict=names))))
        series = interleave(
            subjects, repetitions=repetitions_of(options.repetitions, options.quick, 11), warmup=1
        )
        case = f"count of a compound, 3 x {size // 3 // MIB} MiB"
        report.rate(case, size, series["ours"], against="numpy", base=series["numpy"], bar=at_least(5))
        if numexpr:
            report.rate(
                case,
                size,
                series["ours"],
                against="numexpr, one thread",
                base=series["numexpr"],
                bar=at_least(2),
            )


# ---- statistics ------------------------------------------------------------------------------------


def tiles(options: argparse.Namespace, report: Report) -> None:
    """`count(U > c)` of which one tile in 512 is undecided."""
    count = 1024 if options.quick else 16384
    flat = np.repeat(np.arange(count, dtype=np.float64) % 7, 8192)
    flat[::3] += 0.25
    first = 8192 * (np.arange(count // 512) * 512 + 100)
    flat[first] = 99.0
    array = flat.reshape(count, 8192)
    size = array.nbytes
    duckdb = peer("duckdb", report)
    text = "count(U > 50)"
    with (
        forebay_side.local_group(servers=1, budget=size + 256 * MIB) as group,
        held_step(group, {"U": array}, blocks=16, stats=True) as step,
        one_core(),
    ):
        expected = count // 512
        if step.evaluate(text) != expected:
            raise WrongData("another count than there are")
        subjects = [named("ours", timed(lambda: step.evaluate(text)))]
        with ExitStack() as stack:
            if duckdb:
                table = stack.enter_context(duckdb.connect())
                table.execute("set threads = 1")
                table.execute("create table t as select column0 as u from flat")

                def query() -> None:
                    if table.execute("select count(*) from t where u > 50").fetchone()[0] != expected:
                        raise WrongData("DuckDB counts others")

                subjects.append(named("duckdb", timed(query)))
            series = interleave(
                subjects, repetitions=repetitions_of(options.repetitions, options.quick, 11), warmup=1
            )
        report.rate(
            f"count(U > c), {size // MIB} MiB, 1/512 undecided",
            size,
            series["ours"],
            against="DuckDB in memory, one thread" if duckdb else None,
            base=series.get("duckdb"),
            bar=at_least(5) if duckdb else None,
        )
    report.value(
        f"share of {size // MIB} MiB that is read",
        100 * _read_of_watched(array) / size,
        "%",
        against="a subscription on count(U > c)",
        bar=within(1),
    )


def _read_of_watched(array: NDArray[np.float64]) -> int:
    """How many bytes the servers read of a step for a subscription, as they count them."""
    forebay = forebay_side.package()
    with (
        forebay_side.local_group(servers=1, budget=array.nbytes + 256 * MIB) as group,
        forebay_side.producer(group, "tiles", array.shape) as producer,
        forebay.subscribe("count(U > 50) > 1e9", stream="tiles", group=group.path) as made,
        forebay.Admin(group=group.path) as admin,
    ):
        made.wait_active()
        with producer.step(0) as step:
            step.put(forebay_side.FIELD, array, offset=(0, 0))
        deadline = time.monotonic() + 60.0
        while True:
            (told,) = admin.subscriptions()
            if told["last_step"] == 0:
                return int(told["read_bytes"])
            if time.monotonic() > deadline:
                raise WrongData("a step was not evaluated")
            time.sleep(0.02)


# ---- exact values --------------------------------------------------------------------------------


def exact(options: argparse.Namespace, report: Report) -> None:
    """`sum` and `var` of hard numbers, whoever holds them; and how long they take."""
    elements = 1 << (14 if options.quick else 20)
    random = np.random.default_rng(5)
    hard = random.standard_normal(elements) * 10.0 ** random.integers(-12, 13, elements)
    hard = hard.reshape(8, -1)
    found = set()
    for servers in (1, 2, 3, 7):
        with (
            forebay_side.local_group(servers=servers) as group,
            held_step(group, {"U": hard}, blocks=8, transport="tcp") as step,
        ):
            found.add((step.evaluate("sum(U)"), step.evaluate("var(U)")))
    exact_sum = math.fsum(hard.reshape(-1))
    total, variance = next(iter(found))
    report.value("different sums and variances, 1, 2, 3, 7 servers", len(found), "count", bar=under(1.5))
    report.value("sum less math.fsum", abs(total - exact_sum) / math.ulp(exact_sum), "ulp", bar=under(1.1))
    relative = abs(variance - float(np.var(hard))) / float(np.var(hard))
    report.value("var less numpy.var", relative, "", bar=under(1e-9))
    planes = 8 if options.quick else 512
    array = normal(planes, 256, 256)
    with (
        forebay_side.local_group(servers=1, budget=array.nbytes + 256 * MIB) as group,
        held_step(group, {"U": array}) as step,
        one_core(),
    ):
        view = step["U"].blocks()[0].data
        series = interleave(
            [
                named("var", timed(lambda: step.evaluate("var(U)"))),
                named("sum", timed(lambda: step.evaluate("sum(U)"))),
                named("numpy var", timed(view.var)),
                named("numpy sum", timed(view.sum)),
            ],
            repetitions=repetitions_of(options.repetitions, options.quick, 9),
            warmup=1,
        )
    size = array.nbytes
    report.rate(
        f"var(U) of {size // MIB} MiB",
        size,
        series["var"],
        against="numpy.var",
        base=series["numpy var"],
        bar=at_least(3),
    )
    report.rate(
        f"sum(U) of {size // MIB} MiB", size, series["sum"], against="numpy.sum", base=series["numpy sum"]
    )


def percentile(options: argparse.Namespace, report: Report) -> None:
    """`percentile(U, 99)` over eight blocks, exactly and approximately."""
    planes = 16 if options.quick else 1024
    array = normal(planes, 256, 256)
    size = array.nbytes
    sketches = peer("datasketches", report)
    with (
        forebay_side.local_group(servers=1, budget=size + 256 * MIB) as group,
        held_step(group, {"U": array}, blocks=8) as step,
        one_core(),
    ):
        flat = array.reshape(-1)
        expected = float(np.percentile(flat, 99))
        if step.evaluate("percentile(U, 99)") != expected:
            raise WrongData("another percentile than NumPy's")
        near = step.evaluate("percentile_approx(U, 99)")
        if abs(near - expected) > 0.01 * abs(expected):
            raise WrongData("an approximate percentile that is off by more than 1 %")
        subjects = [
            named("exact", timed(lambda: step.evaluate("percentile(U, 99)"))),
            named("numpy", timed(lambda: np.percentile(flat, 99))),
            named("approximate", timed(lambda: step.evaluate("percentile_approx(U, 99)"))),
        ]
        if sketches:

            def kll() -> None:
                sketch = sketches.kll_doubles_sketch(200)
                sketch.update(flat)
                sketch.get_quantile(0.99)

            subjects.append(named("kll", timed(kll)))
        series = interleave(
            subjects, repetitions=repetitions_of(options.repetitions, options.quick, 5), warmup=1
        )
    case = f"8 x {size // 8 // MIB} MiB"
    report.rate(
        f"percentile(U, 99), {case}",
        size,
        series["exact"],
        against="numpy.percentile",
        base=series["numpy"],
        bar=at_least(3),
    )
    report.rate(
        f"percentile_approx(U, 99), {case}",
        size,
        series["approximate"],
        against="KLL of datasketches, k = 200" if sketches else None,
        base=series.get("kll"),
        bar=at_least(2) if sketches else None,
    )
