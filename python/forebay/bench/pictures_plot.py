# SPDX-License-Identifier: Apache-2.0
"""The figures that `bench pictures --plot` draws: the experiments of the Colza paper at the size of this machine."""

from __future__ import annotations

import os
from typing import Any

from forebay.bench.measured import Measured

_COLORS = {
    "Forebay": "#1f6fb4",
    "MPICH": "#d9822b",
    "Open MPI": "#8a8a8a",
}
# The averages of figure 4 of the paper, in seconds, for any number of nodes.
_PAPER = {"restart": 16.0, "elastic": 5.0}


def plot(path: str, measured: Measured) -> None:
    """Draws what was measured; the places of what was not stay empty."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(12, 8.4), layout="constrained")
    _resizes(axes[0][0], measured)
    _pipeline(axes[0][1], measured, "mandelbulb", "Mandelbulb: as many blocks as processes (their figure 5)")
    _pipeline(axes[1][0], measured, "grayscott", "Gray-Scott: the same data for all (their figure 6)")
    _joins(axes[1][1], measured)
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
        one.set_visible(one.has_data())
    figure.savefig(path, dpi=100)


def _resizes(axes: Any, measured: Measured) -> None:
    if not measured.elastic:
        return
    axes.set(
        title="One more server (their figure 4)",
        xlabel="servers before and after",
        ylabel="s until a picture in which it drew",
    )
    names = [f"{size} to {size + 1}" for size in measured.elastic]
    places = range(len(names))
    axes.bar(
        [x - 0.2 for x in places],
        measured.restart.values(),
        0.4,
        color="#8a8a8a",
        label="the group restarted",
    )
    axes.bar(
        [x + 0.2 for x in places], measured.elastic.values(), 0.4, color="#1f6fb4", label="a server joins"
    )
    axes.plot(
        [x + 0.2 for x in places],
        measured.gaps.values(),
        "o",
        color="#0b2f4f",
        label="without any picture meanwhile",
    )
    for what, style in (("restart", ":"), ("elastic", "--")):
        axes.axhline(_PAPER[what], color="#b33", linestyle=style, linewidth=1)
        axes.text(
            -0.45,
            _PAPER[what] * 1.06,
            f"Colza, {what}: {_PAPER[what]:g} s on average",
            color="#b33",
            fontsize="small",
        )
    axes.set_yscale("log")
    axes.set_ylim(0.05, 150)
    axes.set_xticks(list(places), names)
    axes.legend(fontsize="small", loc="upper right")


def _pipeline(axes: Any, measured: Measured, stream: str, title: str) -> None:
    cores = len(os.sched_getaffinity(0))
    axes.set(title=title, xlabel=f"processes, on {cores} cores", ylabel="ms for a step")
    every = measured.pipelines.get(stream, {})
    width = 0.8 / (2 * max(len(every), 1))
    for number, (name, times) in enumerate(every.items()):
        # Both of a pair were measured in turn, in the same processes.
        middle = 2 * number + 1 - len(every)
        sides = (
            (-0.5, 0, _COLORS[name], f"mpi4py, {name}"),
            (0.5, 1, _COLORS["Forebay"], "Forebay beside it"),
        )
        for aside, which, color, label in sides:
            places = [x + (middle + aside) * width for x in range(len(times))]
            heights = [1e3 * pair[which] for pair in times.values()]
            axes.bar(places, heights, 0.9 * width, color=color, label=label)
        axes.set_xticks(range(len(times)), [str(ranks) for ranks in times])
    if every:
        axes.set_ylim(0, 1.3 * axes.get_ylim()[1])  # the legend stands above
        axes.legend(fontsize="small", loc="upper left", ncols=2)


def _joins(axes: Any, measured: Measured) -> None:
    if not measured.joins:
        return
    axes.set(
        title="Calls of a simulation while a server joins (their figure 9)",
        xlabel="s since the begin",
        ylabel="ms",
        yscale="log",
    )
    steps = measured.joins
    colors = {"execute": "#1f6fb4", "stage": "#d9822b", "activate": "#4a9a4a", "deactivate": "#8a8a8a"}
    for name, color in colors.items():
        axes.plot(
            [step["began"] for step in steps],
            [1e3 * step[name] for step in steps],
            ".-",
            color=color,
            label=name,
            linewidth=1,
            markersize=4,
        )
    if measured.asked is not None:
        joined = next((step["began"] for step in steps if step["workers"] > steps[0]["workers"]), None)
        axes.axvspan(
            measured.asked, joined, color="#1f6fb4", alpha=0.12, label="a server starts and warms up"
        )
    axes.set_ylim(0.01, 5000)
    axes.legend(fontsize="small", loc="upper right", ncols=2)
