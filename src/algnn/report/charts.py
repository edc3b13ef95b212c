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
from algnn.report.labels import (
    label_ends,
    label_points,
    margin_for,
    round_ticks,
    set_ticks,
    short,
    text_width,
)
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
    lines = {name: _band(looks[name], runs.stages) for name, runs in cells.items()}
    return _over_sessions(lines, "AP (%) so far", top=100)


def novelty(cells: Cells, looks: Looks) -> Figure:
    """AUROC of novelty after each session, mean and 95% band, of runs that measured it."""
    lines = {
        name: _band(looks[name], [outcome.novelty_aurocs for outcome in runs.outcome])
        for name, runs in cells.items()
    }
    figure = _over_sessions(lines, "AUROC of novelty", top=1)
    figure.axes[0].axhline(0.5, **DOTS)  # chance
    return figure


def growth(cells: Cells, looks: Looks, what: str) -> Figure:
    """Learn ``"seconds"`` so far, or ``"bytes"`` kept, after each session."""
    lines = {}
    for name, runs in cells.items():
        rows = [
            np.cumsum(o.learn_seconds) if what == "seconds" else np.array(o.retained_bytes, float)
            for o in runs.outcome
        ]
        band = _band(looks[name], rows)
        # there is no zero on a logarithmic axis
        least = 1e-4 if what == "seconds" else 1.0
        lines[name] = band._replace(mean=np.maximum(band.mean, least), half=None)
    if what == "seconds":
        return _over_sessions(lines, "learn time so far (s)", write=_seconds)
    return _over_sessions(lines, "kept between sessions", write=_size)


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
    label_points(axes, [(short(name), x, ap.mean) for name, (x, ap) in points.items()])
    return figure


def times(cells: Cells, looks: Looks) -> Figure:
    """Learn seconds of each method as bars, of runs that had the machine to themselves."""
    found = {name: summarise(runs.learn_seconds) for name, runs in cells.items()}
    means = [value.mean for value in found.values()]
    log = max(means) > 30 * max(min(means), 1e-4)
    rows = [(name, looks[name], [(value, "")]) for name, value in found.items()]
    return _bars(rows, "time to learn all sessions (s)", three, log=log)


def steps(cells: Mapping[str, Mapping[int, pd.DataFrame]], looks: Looks) -> Figure:
    """Final AP of each method at each step as bars."""
    rows = [
        (name, looks[name], [(summarise(runs.ap), f"{step}: ") for step, runs in found.items()])
        for name, found in cells.items()
    ]
    return _bars(rows, "AP (%) at the end; before each value, the step", "{:.1f}".format, 100.0)


def matrices(cells: Cells, columns: int, width: float) -> Figure:
    """The accuracy matrix of each method, mean over seeds, in a grid of small heat maps."""
    sessions = max(len(runs.stages.iloc[0]) for runs in cells.values())
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
    for x, text, side in ((142, "0", "left"), (72, "50", "center"), (2, "100 %", "right")):
        axes.text(width - x, 31, text, ha=side, color=SOFT)
    for i, (name, runs) in enumerate(cells.items()):
        x, y = left + (i % columns) * (panel + gap), head + (i // columns) * pitch + LINE
        axes.text(x, y - 5, short(name), va="baseline", ha="left")
        mean = np.mean([outcome.matrix for outcome in runs.outcome], axis=0)
        _matrix(axes, mean, x, y, panel, named=i % columns == 0)
    return figure


def matrix_columns(sessions: int) -> tuple[int, int]:
    """How many matrices stand side by side on a narrow page and on a wide one."""
    return (3, 5) if 4 < sessions <= NUMBERED else (3, 6)


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
        axes.text(x + cell * (i + 0.5), y + cell * (t + 0.5), f"{matrix[t, i]:.0f}", ha="center",
                  va="center_baseline", color=_on(COLOURS(matrix[t, i] / 100)))  # fmt: skip


def _on(colour: Sequence[float]) -> str:
    """Black or white, whichever has the higher contrast with a colour."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    light = float(np.dot(linear, (0.2126, 0.7152, 0.0722)))
    return "#000000" if (light + 0.05) / 0.05 > 1.05 / (light + 0.05) else "#ffffff"


def _frame(axes: Any, x: str, y: str) -> None:
    """A grid, and the names of the axes in level text: y above the axes, x below them."""
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(x, labelpad=3)
    width, height = axes.figure.get_size_inches() * 72
    axes.figure.text(4 / width, 1 - 4 / height, y, va="top", ha="left", color=SOFT)


def _lines(
    lines: Mapping[str, Line],
    x_name: str,
    y_name: str,
    top: float | None = None,
    write: Callable[[float], str] = str,
) -> tuple[Figure, Any]:
    """Lines with their names at the right; y from 0 to `top`, or logarithmic where that is None."""
    names = [short(name) for name in lines]
    ticks = [(top or 0) * share for share in (0, 0.25, 0.5, 0.75, 1)]
    low, high, left = 0.0, top or 0.0, 36.0
    if top is None:
        low, high = _bounds([v for line in lines.values() for v in line.mean])
        ticks = round_ticks(low, high)
        left = 10 + max(text_width(write(tick)) for tick in ticks)
    # high enough for all names below each other
    tall = max(330.0, 24 + LINE * len(names))
    figure, axes = canvas(NARROW, tall, left=left, right=margin_for(names))
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
    label_ends(axes, ends)
    return figure, axes


def _over_sessions(lines: Mapping[str, Line], y_name: str, **more: Any) -> Figure:
    figure, axes = _lines(lines, "after session", y_name, **more)
    last = max(len(line.mean) for line in lines.values()) - 1
    axes.set_xlim(-0.5 if last == 0 else 0, max(last, 0.5))
    axes.set_xticks(range(0, last + 1, max(1, ceil(last / 6))))
    return figure


def _band(style: Style, rows: Any) -> Line:
    """Mean and 95% interval at each session; no interval for a single run."""
    found = [summarise(column) for column in np.array(list(rows), dtype=float).T]
    mean, half = [s.mean for s in found], [s.ci95 for s in found]
    known = None if None in half else np.array(half, dtype=float)
    return Line(style, np.arange(len(mean)), np.array(mean), known)


def _bounds(values: Sequence[float], room: float = 1.12) -> tuple[float, float]:
    """Limits of a logarithmic axis."""
    low, high = min(values), max(values)
    return (low / room, high * room) if high / low > room else (low / 1.6, high * 1.6)


def _bars(
    rows: Sequence[tuple[str, Style, Sequence[tuple[Summary, str]]]],
    title: str,
    write: Callable[[float], str],
    most: float | None = None,
    log: bool = False,
) -> Figure:
    """Rows of bars, each row named at its left, each bar with its value at its right."""
    single = all(len(bars) == 1 for _, _, bars in rows)
    pitch, space = (ROW, 0.0) if single else (LINE + 0.6, 7.0)
    names, values = (
        [short(name) for name, _, _ in rows],
        [v for _, _, bars in rows for v, _ in bars],
    )
    texts = [prefix + write(value.mean) for _, _, bars in rows for value, prefix in bars]
    total = sum(pitch * len(bars) + space for _, _, bars in rows)
    left, right = (max(map(text_width, found)) + 12 for found in (names, texts))
    figure, axes = canvas(NARROW, total + 74, left=left, right=right, top=28, bottom=28)
    high = most or max(v.mean + (v.ci95 or 0) for v in values) * (1.2 if log else 1.05) or 1.0
    low = max(min(v.mean for v in values), 1e-4) / 1.6 if log else 0.0
    axes.set_xscale("log" if log else "linear")
    axes.set_xlim(low, high)
    axes.set_ylim(total, 0)
    top, middles = 0.0, []
    for _, style, bars in rows:
        for i, (value, prefix) in enumerate(bars):
            shade = 0.42 if len(bars) == 1 else 0.5 - 0.38 * i / (len(bars) - 1)
            middle = top + pitch * (i + 0.5)
            _bar(axes, value, middle, pitch * 0.72, style, shade)
            end = max(min(value.mean + (value.ci95 or 0), high), low)
            axes.annotate(prefix + write(value.mean), (end, middle), (5, 0),
                          textcoords="offset points", va="center_baseline",
                          annotation_clip=False)  # fmt: skip
        middles.append(top + pitch * len(bars) / 2)
        top += pitch * len(bars) + space
    _frame(axes, "", title + ", logarithmic" * log)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x")
    axes.spines["left"].set_visible(True)
    axes.spines["bottom"].set_visible(False)
    axes.set_yticks(middles, names)
    axes.tick_params(axis="y", colors=INK, pad=5)
    axes.tick_params(axis="x", length=0)
    if log:
        set_ticks(axes.xaxis, round_ticks(low, high), _seconds)
    else:
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    return figure


def _bar(
    axes: Any, value: Summary, middle: float, thick: float, style: Style, shade: float
) -> None:
    start = axes.get_xlim()[0] if axes.get_xscale() == "log" else 0.0
    long = max(value.mean, start) - start
    # the shade and the hatch are two bars: a pattern takes its colour from the edge
    axes.barh(middle, long, thick, start, color=to_rgba(style.colour, shade), linewidth=0)
    axes.barh(middle, long, thick, start, color="none", edgecolor=style.colour,
              hatch=style.hatch or None, linewidth=0.9)  # fmt: skip
    if value.ci95:
        ends = [max(value.mean - value.ci95, start), value.mean + value.ci95]
        axes.plot(ends, [middle] * 2, color=INK, linewidth=1.1, solid_capstyle="butt")


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:.4f}".rstrip("0")


def _size(value: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= scale:
            return f"{value / scale:g} {unit}"
    return f"{value:g} B"
