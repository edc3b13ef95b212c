"""The pictures of a Markdown report, drawn from runs with matplotlib.

`cells` holds the runs of each method, which differ in their seed only; `looks` each method's style.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from algnn.bench.runs import summarise
from algnn.bench.significance import Ranking
from algnn.report.style import INK, LINE, NARROW, RULE, SERIES, SOFT, Style

Cells = Mapping[str, pd.DataFrame]
Looks = Mapping[str, Style]
LINE2D: Any = Line2D
MARKED = 15  # up to so many points every one has a marker
LETTER = 8.3  # width of a letter in pixels, with some to spare


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
    widest = LETTER * max(len(f"{value:g}") for value in values) + 8
    every = ceil(len(values) * widest / (axes.get_position().width * NARROW))
    axes.xaxis.set_major_locator(FixedLocator(values[::every]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ring: Any = {"marker": "o", "markersize": 13, "markerfacecolor": "none", "zorder": 6}
    ring |= {"markeredgecolor": INK, "markeredgewidth": 1.1, "clip_on": False}
    for graph, line in lines.items():
        if graph in usual and usual[graph] in points[graph]:
            at = list(points[graph]).index(usual[graph])
            axes.plot([line.x[at]], [line.mean[at]], **ring)
    return figure


def ranks(ranking: Ranking) -> Figure:
    """Methods by mean rank on one line; a bar joins those that are not told apart."""
    average, groups = ranking.average, ranking.cliques()
    names = list(average.index)
    half, last = ceil(len(names) / 2), len(names)
    top = 0.45 * (len(groups) + 1)  # bars below the axis, then names, half of them on each side
    room = LETTER * max(len(f"{short(name)} 88.8") for name in names) + 14
    tall = LINE * (top + half + 4)
    figure, axes = canvas(2 * NARROW, tall, left=room, right=room, top=4, bottom=4)
    axes.set_xlim(1, last)
    axes.set_ylim(top + half + 0.5, -3.5)
    axes.set_axis_off()
    line: Any = {"color": INK, "linewidth": 1.1, "clip_on": False}
    axes.plot([1, last], [0, 0], **line)
    for tick in range(1, last + 1, ceil(last / 20)):
        axes.plot([tick, tick], [0, -0.2], **line)
        axes.text(tick, -0.35, str(tick), ha="center", va="bottom", color=SOFT)
    for place, group in enumerate(groups, start=1):
        ends = [average[group[0]], average[group[-1]]]
        axes.plot(ends, [0.45 * place] * 2, **{**line, "linewidth": 3.4})
    for place, name in enumerate(names):
        left = place < half
        height = top + (place if left else last - 1 - place) + 0.5
        value, edge = average[name], 1 if left else last
        axes.plot([value, value, edge], [0, height, height], **{**line, "color": SOFT})
        words = f"{short(name)} {value:.1f} " if left else f" {value:.1f} {short(name)}"
        axes.text(edge, height, words, ha="right" if left else "left", va="center_baseline")
    axes.plot([1, min(1 + ranking.critical_difference, last)], [-2.4, -2.4], **line)
    words = f"critical difference {ranking.critical_difference:.1f}"
    axes.text(1, -2.6, words, va="bottom", color=SOFT)
    return figure


def _frame(axes: Any, x: str, y: str) -> None:
    """A grid, and the names of the axes in level text: y above the axes, x below them."""
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(x, labelpad=3)
    width, height = axes.figure.get_size_inches() * 72
    axes.figure.text(4 / width, 1 - 4 / height, y, va="top", ha="left", color=SOFT)


def _lines(lines: Mapping[str, Line], x_name: str, y_name: str) -> tuple[Figure, Any]:
    """Lines between 0 and 100 with their names at the right."""
    names = [short(name) for name in lines]
    tall = max(330.0, 24 + LINE * len(names))  # for all names below each other
    right = 40 + LETTER * max(map(len, names))
    figure, axes = canvas(max(NARROW, 270 + right), tall, right=right)
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
    _at_ends(axes, ends)
    return figure, axes


def _bounds(values: Sequence[float], room: float = 1.12) -> tuple[float, float]:
    """Limits of a logarithmic axis."""
    low, high = min(values), max(values)
    return (low / room, high * room) if high / low > room else (low / 1.6, high * 1.6)


def short(name: str, most: int = 20) -> str:
    """A name that a figure has room for; a user's learner ``module:Class`` goes by its class."""
    text = "".join(c if c.isprintable() else " " for c in name.rpartition(":")[2] or name).strip()
    return text if len(text) <= most else text[: most - 1] + "…"


def _at_ends(axes: Any, ends: Sequence[tuple[str, Style, float]]) -> None:
    """Write names at the right ends of lines; each end is a name, a style and the last value."""
    figure = axes.figure
    width, height = figure.get_size_inches() * 72
    right = axes.get_position().x1 * width
    heights = [axes.transData.transform((1.0, value))[1] for _, _, value in ends]
    order = sorted(range(len(ends)), key=lambda i: (heights[i], -i))
    spots = spread([heights[i] for i in order], LINE, LINE / 2 + 1, height - LINE / 2 - 1)
    for i, spot in zip(order, spots, strict=True):
        name, style, _ = ends[i]
        start = min(max(heights[i], 0), height)
        x = [(right + dx) / width for dx in (7, 17, 23, 29, 34)]
        leader = {"color": RULE, "linewidth": 0.9, "solid_capstyle": "butt"}
        figure.add_artist(LINE2D(x[:2], [start / height, spot / height], **leader))
        sample = {"color": style.colour, "linewidth": style.width, "markevery": [1]}
        figure.add_artist(LINE2D(x[1:4], [spot / height] * 3, **sample, **style.marks))
        figure.text(x[4], spot / height, name, va="center_baseline", ha="left")


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions nearest to those wanted (ascending), a gap apart; `high` yields before `low`."""
    # clusters (mean of what the members want, count) of labels that would touch
    clusters: list[tuple[float, int]] = []
    for value in wanted:
        mean, count = value, 1
        while clusters and mean - clusters[-1][0] < gap * (count + clusters[-1][1]) / 2 - 1e-9:
            other, more = clusters.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        clusters.append((mean, count))
    spots = [mean + gap * (i - (count - 1) / 2) for mean, count in clusters for i in range(count)]
    for i in reversed(range(len(spots))):
        spots[i] = min(spots[i], high - gap * (len(spots) - 1 - i))
    for i in range(len(spots)):
        spots[i] = max(spots[i], low + gap * i, *(s + gap for s in spots[i - 1 : i] if i))
    return [float(spot) for spot in spots]
