"""The kinds of charts: lines, points, bars and heat maps, drawn from runs with matplotlib.

`cells` holds the runs of each method, which differ in their seed only; `looks` each method's style.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from algnn.bench.runs import Summary, summarise
from algnn.report import labels
from algnn.report.labels import round_ticks, set_ticks, short, text_width
from algnn.report.style import INK, LINE, NARROW, SERIES, SOFT, Style
from algnn.report.table import three

Cells = Mapping[str, pd.DataFrame]
Looks = Mapping[str, Style]
COLOURS = colormaps["viridis"]
NUMBERED = 6  # up to so many sessions a cell of a matrix has room for its number
MARKED = 15  # up to so many points every one has a marker
ROW = 22.0  # height of a row in a chart of bars
SCARCE = 0.01  # a bin with a smaller share of the nodes is no point of a curve
DOTS: Any = {"color": SOFT, "linewidth": 0.9, "linestyle": (0, (2, 3))}


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
    return _over_sessions(cells, looks, lambda o: o.stagewise, "AP (%) so far", top=100)


def novelty(cells: Cells, looks: Looks) -> Figure:
    """AUROC of novelty after each session, mean and 95% band, of runs that measured it."""
    figure = _over_sessions(cells, looks, lambda o: o.novelty_aurocs, "AUROC of novelty", top=1)
    figure.axes[0].axhline(0.5, **DOTS)  # chance
    return figure


def seconds(cells: Cells, looks: Looks) -> Figure:
    """Learn seconds so far after each session, of runs that had the machine to themselves."""
    name = "learn time so far (s)"
    return _over_sessions(cells, looks, lambda o: np.cumsum(o.learn_seconds), name, write=_seconds)


def kept(cells: Cells, looks: Looks) -> Figure:
    """Bytes kept after each session."""
    name = "kept between sessions"
    return _over_sessions(
        cells, looks, lambda o: np.maximum(o.retained_bytes, 1), name, write=_size
    )


def reliability(cells: Cells, looks: Looks) -> Figure:
    """Accuracy against confidence after the last session, of runs that measured it."""
    lines = {}
    for name, runs in cells.items():
        bins = np.sum([o.reliability for o in runs.outcome if o.reliability is not None], axis=0)
        # a bin of a few nodes says more about them than about the method
        bins = bins[bins[:, 0] >= max(1.0, SCARCE * bins[:, 0].sum())]
        lines[name] = Line(looks[name], bins[:, 1] / bins[:, 0], bins[:, 2] / bins[:, 0])
    figure, axes = _lines(lines, "largest probability", "accuracy", top=1)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.plot([0, 1], [0, 1], **DOTS)  # perfect calibration
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
    figure, axes = _lines(lines, f"{name} (logarithmic)", "AP (%)", top=100)
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


def times(cells: Cells, looks: Looks) -> Figure:
    """Learn seconds of each method as bars, of runs that had the machine to themselves."""
    rows = {name: {"": summarise(runs.learn_seconds)} for name, runs in cells.items()}
    means = [bars[""].mean for bars in rows.values()]
    log = max(means) > 30 * max(min(means), 1e-4)
    return _bars(rows, looks, "time to learn all sessions (s)", three, log=log)


def steps(cells: Mapping[str, Mapping[int, pd.DataFrame]], looks: Looks) -> Figure:
    """Final AP of each method at each step as bars."""
    rows = {
        name: {f"{step}: ": summarise(runs.ap) for step, runs in found.items()}
        for name, found in cells.items()
    }
    title = "AP (%) at the end; before each value, the step"
    return _bars(rows, looks, title, "{:.1f}".format, 100.0)


def matrices(cells: Cells, _: Looks, width: float = NARROW) -> Figure:
    """The accuracy matrix of each method, mean over seeds, in a grid of small heat maps."""
    sessions = max(len(runs.stages.iloc[0]) for runs in cells.values())
    columns = 3 if width == NARROW else 5 if 4 < sessions <= NUMBERED else 6
    left, gap, head, foot = 10 + text_width(str(sessions - 1)), 16.0, 62.0, 18.0
    panel = (width - left - 6 - gap * (columns - 1)) / columns
    pitch = panel + foot + LINE + 8
    height = head + ceil(len(cells) / columns) * pitch
    # one pair of axes over the whole figure, in pixels: a pair for each matrix takes seconds
    figure, axes = canvas(width, height, 0, 0, 0, 0)
    axes.set_axis_off()
    axes.set_autoscale_on(False)
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.text(2, 14, "row: after session", color=SOFT, ha="left")
    axes.text(2, 31, "column: tested on session", color=SOFT, ha="left")
    _heat(axes, np.linspace(0, 100, 64)[None], (width - 142, width - 2, 16, 5))
    for back, text, side in ((142, "0", "left"), (72, "50", "center"), (2, "100 %", "right")):
        axes.text(width - back, 31, text, ha=side, color=SOFT)
    for i, (name, runs) in enumerate(cells.items()):
        x, y = left + (i % columns) * (panel + gap), head + (i // columns) * pitch + LINE
        axes.text(x, y - 5, short(name), va="baseline", ha="left")
        mean = np.mean([outcome.matrix for outcome in runs.outcome], axis=0)
        _matrix(axes, mean, x, y, panel, named=i % columns == 0)
    return figure


def _heat(axes: Any, values: Any, box: tuple[float, float, float, float]) -> None:
    axes.imshow(values, cmap=COLOURS, vmin=0, vmax=100, extent=box, aspect="auto")


def _matrix(axes: Any, matrix: Any, x: float, y: float, panel: float, named: bool) -> None:
    count = len(matrix)
    cell = panel / count
    _heat(axes, matrix, (x, x + panel, y + panel, y))
    for end in sorted({0, count - 1}):
        middle = cell * (end + 0.5)
        axes.text(x + middle, y + panel + 4, str(end), ha="center", va="top", color=SOFT)
        if named:
            axes.text(x - 5, y + middle, str(end), ha="right", va="center_baseline", color=SOFT)
    if count > NUMBERED or cell < 26:
        return
    for t, i in zip(*np.tril_indices(count), strict=True):
        # whichever has the higher contrast with the colour of the cell
        ink = "#000000" if matrix[t, i] > 45 else "#ffffff"
        at = {"x": x + cell * (i + 0.5), "y": y + cell * (t + 0.5)}
        axes.text(s=f"{matrix[t, i]:.0f}", ha="center", va="center_baseline", color=ink, **at)


def _frame(axes: Any, x: str, y: str, grid: str = "y") -> None:
    """A grid, and the names of the axes in level text: y above the axes, x below them."""
    axes.grid(axis=grid)
    axes.spines["left"].set_visible(grid == "x")
    axes.set_xlabel(x, labelpad=3)
    width, height = axes.figure.get_size_inches() * 72
    axes.figure.text(4 / width, 1 - 4 / height, y, va="top", ha="left", color=SOFT)


def _lines(
    lines: Mapping[str, Line], x_name: str, y_name: str, top: float | None = None,
    write: Callable[[float], str] = str,
) -> tuple[Figure, Any]:  # fmt: skip
    """Lines with their names at the right; y from 0 to `top`, or logarithmic where that is None."""
    names = [short(name) for name in lines]
    ticks = [(top or 0) * share for share in (0, 0.25, 0.5, 0.75, 1)]
    low, high, left = 0.0, top or 0.0, 36.0
    if top is None:
        # there is no zero on a logarithmic axis
        lines = {n: line._replace(mean=np.maximum(line.mean, 1e-4)) for n, line in lines.items()}
        low, high = _bounds([v for line in lines.values() for v in line.mean])
        ticks = round_ticks(low, high)
        left = 10 + max(text_width(write(tick)) for tick in ticks)
    # high enough for all names below each other
    tall = max(330.0, 24 + LINE * len(names))
    figure, axes = canvas(NARROW, tall, left=left, right=labels.margin_for(names))
    if top is None:
        axes.set_yscale("log")
        set_ticks(axes.yaxis, ticks, write)
    else:
        axes.set_yticks(ticks)
    axes.set_ylim(low, high)
    _frame(axes, x_name, y_name)
    for i, (style, x, mean, half) in enumerate(lines.values()):
        if half is not None:
            band = np.clip(mean - half, low, high), np.clip(mean + half, low, high)
            axes.fill_between(x, *band, color=style.colour, alpha=0.1, linewidth=0, zorder=1)
        # of many sessions, each method marks others, so that markers do not meet
        every = ceil(len(x) / 6)
        marked = (i % every, every) if len(x) > MARKED else None
        axes.plot(x, mean, markevery=marked, **style.strokes)
    ends = [(short(name), line.style, float(line.mean[-1])) for name, line in lines.items()]
    labels.at_ends(axes, ends)
    return figure, axes


def _over_sessions(
    cells: Cells, looks: Looks, of: Callable[[Any], Any], name: str, **more: Any
) -> Figure:
    """Mean over seeds at each session; on a linear axis, with the 95% interval as a band."""
    lines = {}
    for method, runs in cells.items():
        found = [summarise(column) for column in zip(*map(of, runs.outcome), strict=True)]
        mean = np.array([s.mean for s in found])
        half = np.array([s.ci95 for s in found], dtype=float)
        banded = "top" in more and len(runs) > 1
        lines[method] = Line(looks[method], np.arange(len(mean)), mean, half if banded else None)
    figure, axes = _lines(lines, "after session", name, **more)
    last = max(len(line.mean) for line in lines.values()) - 1
    axes.set_xlim(-0.5 if last == 0 else 0, max(last, 0.5))
    axes.set_xticks(range(0, last + 1, max(1, ceil(last / 6))))
    return figure


def _bounds(values: Sequence[float], room: float = 1.12) -> tuple[float, float]:
    """Limits of a logarithmic axis."""
    low, high = min(values), max(values)
    return (low / room, high * room) if high / low > room else (low / 1.6, high * 1.6)


def _bars(
    rows: Mapping[str, Mapping[str, Summary]], looks: Looks, title: str,
    write: Callable[[float], str], most: float | None = None, log: bool = False,
) -> Figure:  # fmt: skip
    """Rows of bars, each row named at its left; at the right of a bar its prefix and value."""
    single = all(len(bars) == 1 for bars in rows.values())
    pitch, space = (ROW, 0.0) if single else (LINE + 0.6, 7.0)
    values = [value for bars in rows.values() for value in bars.values()]
    texts = [prefix + write(v.mean) for bars in rows.values() for prefix, v in bars.items()]
    total = pitch * len(values) + space * len(rows)
    left, right = (max(map(text_width, found)) + 12 for found in (map(short, rows), texts))
    figure, axes = canvas(NARROW, total + 74, left=left, right=right, top=28, bottom=28)
    high = most or max(v.mean + (v.ci95 or 0) for v in values) * (1.2 if log else 1.05) or 1.0
    low = max(min(v.mean for v in values), 1e-4) / 1.6 if log else 0.0
    axes.set_xscale("log" if log else "linear")
    axes.set_xlim(low, high)
    axes.set_ylim(total, 0)
    top, middles = 0.0, []
    for name, bars in rows.items():
        middles.append(top + pitch * len(bars) / 2)
        for i, (prefix, value) in enumerate(bars.items()):
            shade = 0.42 if len(bars) == 1 else 0.5 - 0.38 * i / (len(bars) - 1)
            middle, half, colour = top + pitch / 2, value.ci95 or 0.0, looks[name].colour
            box = (middle, max(value.mean, low) - low, pitch * 0.72, low)
            # the shade and the hatch are two bars: a pattern takes its colour from the edge
            axes.barh(*box, color=to_rgba(colour, shade), linewidth=0)
            hatch = looks[name].hatch or None
            axes.barh(*box, color="none", edgecolor=colour, hatch=hatch, linewidth=0.9)
            if half:
                ends = [max(value.mean - half, low), value.mean + half]
                axes.plot(ends, [middle] * 2, color=INK, linewidth=1.1, solid_capstyle="butt")
            end = max(min(value.mean + half, high), low)
            axes.annotate(prefix + write(value.mean), (end, middle), (5, 0), va="center_baseline",
                          textcoords="offset points", annotation_clip=False)  # fmt: skip
            top += pitch
        top += space
    _frame(axes, "", title + ", logarithmic" * log, grid="x")
    axes.spines["bottom"].set_visible(False)
    axes.set_yticks(middles, [short(name) for name in rows])
    axes.tick_params(axis="y", colors=INK, pad=5)
    axes.tick_params(axis="x", length=0)
    if log:
        set_ticks(axes.xaxis, round_ticks(low, high), _seconds)
    else:
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    return figure


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:.4f}".rstrip("0")


def _size(value: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= scale:
            return f"{value / scale:g} {unit}"
    return f"{value:g} B"
