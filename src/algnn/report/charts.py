"""The pictures of a Markdown report: lines, points and bars, drawn from runs with matplotlib.

`cells` holds the runs of each method, which differ in their seed only; `looks` each method's style.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from algnn.bench.runs import summarise
from algnn.report import labels
from algnn.report.labels import round_ticks, set_ticks, short, text_width
from algnn.report.style import INK, LINE, NARROW, SERIES, SOFT, Style

Cells = Mapping[str, pd.DataFrame]
Looks = Mapping[str, Style]
MARKED = 15  # up to so many points every one has a marker


class Line(NamedTuple):
    """A line of a chart: its style, and at each x a mean and half a 95% interval."""

    style: Style
    x: Any
    mean: Any
    half: Any = None


def canvas(
    width: float, height: float, left: float = 36, right: float = 10, top: float = 26,
    bottom: float = 47,
) -> tuple[Figure, Any]:  # fmt: skip
    """A figure with one pair of axes; its size and the margins around the axes are in pixels."""
    # a Figure of its own: pyplot and the user's choice of backend are not touched
    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    box = (left / width, bottom / height, (width - left - right) / width)
    return figure, figure.add_axes((*box, (height - top - bottom) / height))


def stages(cells: Cells, looks: Looks) -> Figure:
    """AP after each session, mean and 95% band over seeds."""
    lines = {}
    for method, runs in cells.items():
        found = [summarise(column) for column in zip(*runs.stages, strict=True)]
        mean = np.array([s.mean for s in found])
        half = np.array([s.ci95 for s in found], dtype=float) if len(runs) > 1 else None
        lines[method] = Line(looks[method], np.arange(len(mean)), mean, half)
    figure, axes = _lines(lines, "after session", "AP (%) so far")
    last = max(len(line.mean) for line in lines.values()) - 1
    axes.set_xlim(-0.5 if last == 0 else 0, max(last, 0.5))
    axes.set_xticks(range(0, last + 1, max(1, ceil(last / 6))))
    return figure


def sensitivity(
    points: Mapping[str, Mapping[Any, pd.DataFrame]], usual: Mapping[str, Any], name: str
) -> Figure:
    """Final AP against one setting, a line for each graph, with a ring at its usual value."""
    lines = {}
    for i, (graph, found) in enumerate(points.items()):
        each = [summarise(runs.ap) for runs in found.values()]
        mean, half = np.array([[s.mean, s.ci95 or 0.0] for s in each]).T
        lines[graph] = Line(SERIES[i % len(SERIES)], [float(v) for v in found], mean, half)
    figure, axes = _lines(lines, f"{name} (logarithmic)", "AP (%)")
    values = sorted({value for line in lines.values() for value in line.x})
    axes.set_xscale("log")
    axes.set_xlim(*_bounds(values))
    # the values themselves are the ticks; some are left out where they would touch
    widest = max(text_width(f"{value:g}") for value in values) + 8
    every = ceil(len(values) * widest / (axes.get_position().width * NARROW))
    set_ticks(axes.xaxis, values[::every], "{:g}".format)
    ring: Any = {"marker": "o", "markersize": 13, "markerfacecolor": "none", "zorder": 6}
    ring |= {"markeredgecolor": INK, "markeredgewidth": 1.1, "clip_on": False}
    for graph, line in lines.items():
        if graph in usual and usual[graph] in points[graph]:
            at = list(points[graph]).index(usual[graph])
            axes.plot([line.x[at]], [line.mean[at]], **ring)
    return figure


def tradeoff(cells: Cells, looks: Looks) -> Figure:
    """Final AP against learn seconds, of runs that had the machine to themselves."""
    figure, axes = canvas(NARROW, 330, left=34, right=16)
    points = {
        name: (summarise(runs.learn_seconds.clip(lower=1e-4)).mean, summarise(runs.ap))
        for name, runs in cells.items()
    }
    low, high = _bounds([x for x, _ in points.values()], 1.35)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    set_ticks(axes.xaxis, round_ticks(low, high), _seconds)
    axes.set_ylim(0, 118)  # names find room above the best
    axes.set_yticks([0, 25, 50, 75, 100])
    _frame(axes, "time to learn all sessions (s, logarithmic)", "AP (%)")
    for name, (x, ap) in points.items():
        marks = looks[name].marks
        if ap.ci95 is not None:
            ends = np.clip([ap.mean - ap.ci95, ap.mean + ap.ci95], 0, 100)
            colour = looks[name].colour
            axes.plot([x, x], ends, color=colour, linewidth=1.2, alpha=0.55, zorder=2)
        larger = {**marks, "markersize": marks["markersize"] * 1.4}
        axes.plot([x], [ap.mean], linestyle="none", zorder=4, clip_on=False, **larger)
    labels.at_points(axes, [(short(name), x, ap.mean) for name, (x, ap) in points.items()])
    return figure


def steps(cells: Mapping[str, Mapping[int, pd.DataFrame]], looks: Looks) -> Figure:
    """Final AP of each method at each step as bars, with the step and the value beside each."""
    rows = {
        name: {step: summarise(runs.ap) for step, runs in found.items()}
        for name, found in cells.items()
    }
    pitch, space = LINE + 0.6, 7.0
    texts = [f"{s}: {v.mean:.1f}" for bars in rows.values() for s, v in bars.items()]
    total = pitch * len(texts) + space * len(rows)
    left, right = (max(map(text_width, found)) + 12 for found in (map(short, rows), texts))
    figure, axes = canvas(NARROW, total + 74, left=left, right=right, top=28, bottom=28)
    axes.set_xlim(0, 100)
    axes.set_ylim(total, 0)
    top, middles = 0.0, []
    for name, bars in rows.items():
        middles.append(top + pitch * len(bars) / 2)
        for i, (step, value) in enumerate(bars.items()):
            shade = 0.5 - 0.38 * i / max(len(bars) - 1, 1)
            middle, half, colour = top + pitch / 2, value.ci95 or 0.0, looks[name].colour
            box = (middle, value.mean, pitch * 0.72)
            # the shade and the hatch are two bars: a pattern takes its colour from the edge
            axes.barh(*box, color=to_rgba(colour, shade), linewidth=0)
            hatch = looks[name].hatch or None
            axes.barh(*box, color="none", edgecolor=colour, hatch=hatch, linewidth=0.9)
            if half:
                ends = [max(value.mean - half, 0), value.mean + half]
                axes.plot(ends, [middle] * 2, color=INK, linewidth=1.1, solid_capstyle="butt")
            end = min(value.mean + half, 100)
            axes.annotate(f"{step}: {value.mean:.1f}", (end, middle), (5, 0), va="center_baseline",
                          textcoords="offset points", annotation_clip=False)  # fmt: skip
            top += pitch
        top += space
    _frame(axes, "", "AP (%) at the end; before each value, the step", grid="x")
    axes.spines["bottom"].set_visible(False)
    axes.set_yticks(middles, [short(name) for name in rows])
    axes.tick_params(axis="y", colors=INK, pad=5)
    axes.tick_params(axis="x", length=0)
    axes.locator_params(axis="x", nbins=4)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    return figure


def _frame(axes: Any, x: str, y: str, grid: str = "y") -> None:
    """A grid, and the names of the axes in level text: y above the axes, x below them."""
    axes.grid(axis=grid)
    axes.spines["left"].set_visible(grid == "x")
    axes.set_xlabel(x, labelpad=3)
    width, height = axes.figure.get_size_inches() * 72
    axes.figure.text(4 / width, 1 - 4 / height, y, va="top", ha="left", color=SOFT)


def _lines(lines: Mapping[str, Line], x_name: str, y_name: str) -> tuple[Figure, Any]:
    """Lines between 0 and 100 with their names at the right."""
    names = [short(name) for name in lines]
    # high enough for all names below each other
    tall = max(330.0, 24 + LINE * len(names))
    figure, axes = canvas(NARROW, tall, right=labels.margin_for(names))
    axes.set_yticks([0, 25, 50, 75, 100])
    axes.set_ylim(0, 100)
    _frame(axes, x_name, y_name)
    for i, (style, x, mean, half) in enumerate(lines.values()):
        if half is not None:
            band = np.clip(mean - half, 0, 100), np.clip(mean + half, 0, 100)
            axes.fill_between(x, *band, color=style.colour, alpha=0.1, linewidth=0, zorder=1)
        # of many sessions, each method marks others, so that markers do not meet
        every = ceil(len(x) / 6)
        marked = (i % every, every) if len(x) > MARKED else None
        axes.plot(x, mean, markevery=marked, **style.strokes)
    ends = [(short(name), line.style, float(line.mean[-1])) for name, line in lines.items()]
    labels.at_ends(axes, ends)
    return figure, axes


def _bounds(values: Sequence[float], room: float = 1.12) -> tuple[float, float]:
    """Limits of a logarithmic axis."""
    low, high = min(values), max(values)
    return (low / room, high * room) if high / low > room else (low / 1.6, high * 1.6)


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:.4f}".rstrip("0")
