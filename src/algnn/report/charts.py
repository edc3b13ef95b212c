"""The figures of a report: what is drawn, from which runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from algnn.bench.metrics import Summary, summarise
from algnn.report.drawing import (
    INK,
    LINE,
    NARROW,
    SOFT,
    canvas,
    label_ends,
    label_points,
    line,
    log_axis,
    margin_for,
    marker,
    name_axes,
    round_ticks,
    short,
    text_width,
)
from algnn.report.evidence import Result
from algnn.report.sheet import three
from algnn.report.styles import SERIES, Style

Cells = Mapping[str, Sequence[Result]]
Styles = Mapping[str, Style]
COLOURS = colormaps["viridis"]
NUMBERED = 6  # up to so many sessions a cell of a matrix has room for its number
MARKED = 12  # up to so many sessions every one has a marker
ROW = 22.0  # of a chart of bars
INSIDE = 1.12  # room around the data on a logarithmic axis
SCARCE = 0.01  # a smaller share of the nodes than this is no point of a curve


def stages(cells: Cells, styles: Styles) -> Figure:
    """AP after each session, mean and 95% band over seeds, a line for each method.

    Parameters
    ----------
    cells : dict
        Runs of each method, which differ in their seed only.
    styles : dict
        Each method's style.

    Returns
    -------
    Figure

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> from algnn.report.styles import STYLES
    >>> len(stages({"gem": gather([example(method="gem")]).runs}, STYLES).axes[0].lines)
    1
    """
    means = {name: _band([run.stages for run in runs]) for name, runs in cells.items()}
    figure, axes = _over_sessions(cells, "AP (%) so far")
    axes.set_ylim(0, 100)
    axes.set_yticks([0, 25, 50, 75, 100])
    for name, (mean, half) in means.items():
        x = np.arange(len(mean))
        if half is not None:
            low, high = np.clip(mean - half, 0, 100), np.clip(mean + half, 0, 100)
            colour = styles[name].colour
            axes.fill_between(x, low, high, color=colour, alpha=0.1, linewidth=0, zorder=1)
        line(axes, x, mean, styles[name], markevery=_marked(cells, name))
    label_ends(axes, [(short(n), styles[n], float(m[-1])) for n, (m, _) in means.items()])
    return figure


def novelty(cells: Cells, styles: Styles) -> Figure:
    """AUROC of novelty after each session, mean and 95% band, a line for each method.

    Parameters
    ----------
    cells, styles : dict
        As for `stages`; only runs that measured it.

    Returns
    -------
    Figure

    Examples
    --------
    >>> from algnn.report.evidence import example, gather, measured
    >>> from algnn.report.styles import STYLES
    >>> run = gather([measured(example(method="gem"))]).runs
    >>> novelty({"gem": run}, STYLES).axes[0].lines[1].get_ydata()
    array([0.8])
    """
    means = {
        name: _band([run.record.outcome.novelty_aurocs for run in runs])
        for name, runs in cells.items()
    }
    figure, axes = _over_sessions(cells, "AUROC of novelty", count=_longest(means))
    axes.set_ylim(0, 1)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.axhline(0.5, color=SOFT, linewidth=0.9, linestyle=(0, (2, 3)))  # chance
    for name, (mean, half) in means.items():
        x = np.arange(len(mean))
        if half is not None:
            low, high = np.clip(mean - half, 0, 1), np.clip(mean + half, 0, 1)
            colour = styles[name].colour
            axes.fill_between(x, low, high, color=colour, alpha=0.1, linewidth=0, zorder=1)
        line(axes, x, mean, styles[name], markevery=_marked(cells, name))
    label_ends(axes, [(short(n), styles[n], float(m[-1])) for n, (m, _) in means.items()])
    return figure


def reliability(cells: Cells, styles: Styles) -> Figure:
    """Accuracy against the largest probability after the last session, a line for each method.

    Parameters
    ----------
    cells, styles : dict
        As for `stages`; only runs that measured it.

    Returns
    -------
    Figure

    Examples
    --------
    >>> from algnn.report.evidence import example, gather, measured
    >>> from algnn.report.styles import STYLES
    >>> run = gather([measured(example(method="gem"))]).runs
    >>> reliability({"gem": run}, STYLES).axes[0].lines[1].get_xydata()
    array([[0.75, 0.7 ]])
    """
    names = [short(name) for name in cells]
    figure, axes = canvas(NARROW, _tall_enough(names), left=36, right=margin_for(names))
    for limits in (axes.set_xlim, axes.set_ylim):
        limits(0, 1)
    for ticks in (axes.set_xticks, axes.set_yticks):
        ticks([0, 0.25, 0.5, 0.75, 1])
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    name_axes(axes, "largest probability", "accuracy")
    axes.plot([0, 1], [0, 1], color=SOFT, linewidth=0.9, linestyle=(0, (2, 3)))  # as it should be
    ends = []
    for name, runs in cells.items():
        found = [run.record.outcome.reliability for run in runs]
        bins = np.sum([one for one in found if one is not None], axis=0)
        # a bin of a few nodes says more about them than about the method
        bins = bins[bins[:, 0] >= max(1.0, SCARCE * bins[:, 0].sum())]
        line(axes, bins[:, 1] / bins[:, 0], bins[:, 2] / bins[:, 0], styles[name])
        ends.append((short(name), styles[name], float(bins[-1, 2] / bins[-1, 0])))
    label_ends(axes, ends)
    return figure


def growth(cells: Cells, styles: Styles, what: str) -> Figure:
    """Learn seconds so far, or bytes kept, after each session, a line for each method.

    Parameters
    ----------
    cells, styles : dict
        As for `stages`.
    what : str
        ``"seconds"`` or ``"bytes"``.

    Returns
    -------
    Figure

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> from algnn.report.styles import STYLES
    >>> axes = growth({"gem": gather([example(method="gem")]).runs}, STYLES, "bytes").axes[0]
    >>> axes.lines[0].get_ydata()
    array([800., 880.])
    """
    means = {}
    for name, runs in cells.items():
        outcomes = [run.record.outcome for run in runs]
        values = (
            [np.cumsum(o.learn_seconds) for o in outcomes]
            if what == "seconds"
            else [np.array(o.retained_bytes, dtype=float) for o in outcomes]
        )
        # on a logarithmic axis there is no nought
        means[name] = np.maximum(np.mean(values, axis=0), 1e-4 if what == "seconds" else 1.0)
    low, high = _bounds([v for mean in means.values() for v in (mean.min(), mean.max())])
    write = _seconds if what == "seconds" else _size
    title = "learn time so far (s)" if what == "seconds" else "kept between sessions"
    widest = max(text_width(write(tick)) for tick in round_ticks(low, high))
    figure, axes = _over_sessions(cells, title, left=widest + 10)
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    log_axis(axes.yaxis, low, high, write)
    for name, mean in means.items():
        x = np.arange(len(mean))
        line(axes, x, mean, styles[name], markevery=_marked(cells, name))
    label_ends(axes, [(short(n), styles[n], float(mean[-1])) for n, mean in means.items()])
    return figure


def tradeoff(cells: Cells, styles: Styles) -> Figure:
    """Final AP against learn seconds, a point for each method, with 95% intervals of AP.

    Parameters
    ----------
    cells, styles : dict
        As for `stages`; only runs that had the machine to themselves.

    Returns
    -------
    Figure

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> from algnn.report.styles import STYLES
    >>> figure = tradeoff({"gem": gather([example(method="gem")]).runs}, STYLES)
    >>> [text.get_text() for text in figure.texts]
    ['AP (%)', 'gem']
    """
    figure, axes = canvas(NARROW, 330, left=34, right=16)
    points = {
        name: (summarise(max(r.learn, 1e-4) for r in runs).mean, summarise(r.ap for r in runs))
        for name, runs in cells.items()
    }
    seconds = [x for x, _ in points.values()]
    low, high = _bounds(seconds, 1.35)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(0, 118)  # names find room above the best
    axes.set_yticks([0, 25, 50, 75, 100])
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    log_axis(axes.xaxis, low, high, _seconds)
    name_axes(axes, "time to learn all sessions (s, logarithmic)", "AP (%)")
    for name, (x, ap) in points.items():
        style = styles[name]
        if ap.ci95 is not None:
            ends = np.clip([ap.mean - ap.ci95, ap.mean + ap.ci95], 0, 100)
            axes.plot([x, x], ends, color=style.colour, linewidth=1.2, alpha=0.55, zorder=2)
        larger = {**marker(style), "markersize": marker(style)["markersize"] * 1.4}
        axes.plot([x], [ap.mean], linestyle="none", zorder=4, clip_on=False, **larger)
    label_points(axes, [(short(name), x, ap.mean) for name, (x, ap) in points.items()])
    return figure


def times(cells: Cells, styles: Styles) -> Figure:
    """Learn seconds of each method as bars.

    Parameters
    ----------
    cells, styles : dict
        As for `tradeoff`.

    Returns
    -------
    Figure

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> from algnn.report.styles import STYLES
    >>> figure = times({"gem": gather([example(method="gem")]).runs}, STYLES)
    >>> figure.axes[0].texts[0].get_text()
    '0.600'
    """
    rows = [
        (name, [(summarise(r.learn for r in runs), "", styles[name])])
        for name, runs in cells.items()
    ]
    largest = max(bars[0][0].mean for _, bars in rows)
    smallest = min(bars[0][0].mean for _, bars in rows)
    log = largest > 30 * max(smallest, 1e-4)
    return _bars(rows, "time to learn all sessions (s)", three, log=log)


def steps(cells: Mapping[str, Mapping[int, Sequence[Result]]], styles: Styles) -> Figure:
    """Final AP of each method at each step as bars.

    Parameters
    ----------
    cells : dict
        Of each method, runs of each step.
    styles : dict
        Each method's style.

    Returns
    -------
    Figure

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> from algnn.report.styles import STYLES
    >>> runs = gather([example(method="gem")]).runs
    >>> figure = steps({"gem": {1: runs, 5: runs}}, STYLES)
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['1: 65.0', '5: 65.0']
    """
    rows = [
        (name, [(summarise(r.ap for r in runs), f"{step}: ", styles[name])
                for step, runs in by_step.items()])
        for name, by_step in cells.items()
    ]  # fmt: skip
    return _bars(rows, "AP (%) at the end; before each value, the step", "{:.1f}".format, 100.0)


def sensitivity(
    points: Mapping[str, Mapping[Any, Sequence[Result]]], usual: Mapping[str, Any], name: str
) -> Figure:
    """Final AP against one setting, a line for each graph.

    Parameters
    ----------
    points : dict
        Of each graph, runs by the setting's value, ascending.
    usual : dict
        The method's own value for a graph, which gets a ring.
    name : str
        What to call the setting.

    Returns
    -------
    Figure

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> runs = gather([example()]).runs
    >>> figure = sensitivity({"digits": {64: runs, 128: runs}}, {"digits": 128}, "width")
    >>> len(figure.axes[0].lines)
    2
    """
    looks = {graph: SERIES[i % len(SERIES)] for i, graph in enumerate(points)}
    figure, axes = canvas(
        NARROW, _tall_enough(points), left=34, right=margin_for([short(g) for g in points])
    )
    values = [float(value) for found in points.values() for value in found]
    low, high = _bounds(values)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(0, 100)
    axes.set_yticks([0, 25, 50, 75, 100])
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    _value_ticks(axes, sorted(set(values)))
    name_axes(axes, f"{name} (logarithmic)", "AP (%)")
    ends = []
    for graph, found in points.items():
        each = [summarise(run.ap for run in runs) for runs in found.values()]
        mean, half = np.array([[s.mean, s.ci95 or 0.0] for s in each]).T
        x = [float(value) for value in found]
        style = looks[graph]
        axes.fill_between(x, np.clip(mean - half, 0, 100), np.clip(mean + half, 0, 100),
                          color=style.colour, alpha=0.1, linewidth=0)  # fmt: skip
        line(axes, x, list(mean), style)
        if graph in usual and usual[graph] in found:
            at = list(found).index(usual[graph])
            ring = {"marker": "o", "markersize": 13, "markerfacecolor": "none"}
            edge = {"markeredgecolor": INK, "markeredgewidth": 1.1}
            axes.plot([x[at]], [mean[at]], zorder=6, clip_on=False, **ring, **edge)
        ends.append((short(graph), style, float(mean[-1])))
    label_ends(axes, ends)
    return figure


def matrices(cells: Cells, columns: int, width: float) -> Figure:
    """The accuracy matrix of each method, mean over seeds, as a grid of small heat maps.

    Parameters
    ----------
    cells : dict
        As for `stages`.
    columns : int
        Of the grid.
    width : float
        Of the figure, in pixels.

    Returns
    -------
    Figure

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> figure = matrices({"gem": gather([example(method="gem")]).runs}, 3, 420)
    >>> figure.axes[0].images[1].get_array().filled(0)
    array([[90.,  0.],
           [80., 50.]])
    """
    count = max(len(runs[0].matrix) for runs in cells.values())
    left, gap, head, foot = 10 + text_width(str(count - 1)), 16.0, 62.0, 18.0
    panel = (width - left - 6 - gap * (columns - 1)) / columns
    rows = ceil(len(cells) / columns)
    height = head + rows * (panel + foot + LINE + 8)
    # one pair of axes over the whole figure, in pixels: a pair for each matrix takes seconds
    figure, axes = canvas(width, height, 0, 0, 0, 0)
    axes.set_axis_off()
    axes.set_autoscale_on(False)
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    _scale(axes, width)
    for i, (name, runs) in enumerate(cells.items()):
        x = left + (i % columns) * (panel + gap)
        y = head + (i // columns) * (panel + foot + LINE + 8) + LINE
        axes.text(x, y - 5, short(name), va="baseline", ha="left")
        mean = np.mean([run.matrix for run in runs], axis=0)
        _matrix(axes, mean, x, y, panel, named=i % columns == 0)
    return figure


def matrix_columns(sessions: int) -> tuple[int, int]:
    """How many matrices stand side by side on a narrow page and on a wide one.

    Parameters
    ----------
    sessions : int

    Returns
    -------
    int, int

    Examples
    --------
    >>> matrix_columns(4), matrix_columns(6), matrix_columns(36)
    ((3, 6), (3, 5), (3, 6))
    """
    return (3, 5) if 4 < sessions <= NUMBERED else (3, 6)


def _matrix(axes: Any, matrix: Any, x: float, y: float, panel: float, named: bool) -> None:
    count = len(matrix)
    cell = panel / count
    box = (x, x + panel, y + panel, y)
    axes.imshow(matrix, cmap=COLOURS, vmin=0, vmax=100, extent=box, aspect="auto")
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
    """Black or white, whichever stands out more against a colour."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    light = float(np.dot(linear, (0.2126, 0.7152, 0.0722)))
    return "#000000" if (light + 0.05) / 0.05 > 1.05 / (light + 0.05) else "#ffffff"


def _scale(axes: Any, width: float) -> None:
    """What the colours mean, above the matrices, with the names of rows and columns."""
    axes.text(2, 14, "row: after session", color=SOFT, ha="left")
    axes.text(2, 31, "column: tested on session", color=SOFT, ha="left")
    left, right = width - 142, width - 2
    shades = np.linspace(0, 100, 64)[None]
    axes.imshow(shades, cmap=COLOURS, vmin=0, vmax=100, extent=(left, right, 16, 5), aspect="auto")
    for x, text, side in ((left, "0", "left"), ((left + right) / 2, "50", "center"),
                          (right, "100 %", "right")):  # fmt: skip
        axes.text(x, 31, text, ha=side, color=SOFT)


def _value_ticks(axes: Any, values: Sequence[float]) -> None:
    """The values themselves as ticks; some are left out where they would touch."""
    texts = [f"{value:g}" for value in values]
    width = axes.get_position().width * NARROW
    every = ceil(len(texts) * (max(map(text_width, texts)) + 8) / width)
    axes.xaxis.set_major_locator(FixedLocator(values[::every]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _longest(means: Mapping[str, tuple[Any, Any]]) -> int:
    return max(len(mean) for mean, _ in means.values())


def _over_sessions(
    cells: Cells, title: str, left: float = 36, count: int | None = None
) -> tuple[Figure, Any]:
    names = [short(name) for name in cells]
    figure, axes = canvas(NARROW, _tall_enough(names), left=left, right=margin_for(names))
    last = (count or max(len(runs[0].stages) for runs in cells.values())) - 1
    axes.set_xlim(-0.5 if last == 0 else 0, max(last, 0.5))
    every = max(1, ceil(last / 6))
    axes.set_xticks(range(0, last + 1, every))
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    name_axes(axes, "after session", title)
    return figure, axes


def _tall_enough(names: Sequence[str] | Mapping[str, Any]) -> float:
    """Room for a name below each other for all lines."""
    return max(330.0, 24 + LINE * len(names))


def _marked(cells: Cells, name: str) -> Any:
    """Every session, or some of many: each method others, so that markers do not meet."""
    count = len(cells[name][0].stages)
    if count <= MARKED:
        return None
    every = ceil(count / 6)
    return (list(cells).index(name) % every, every)


def _band(rows: Sequence[Any]) -> tuple[Any, Any]:
    """Mean and half the width of the 95% interval of each column; None for a single row."""
    table = np.array(rows, dtype=float)
    if len(table) == 1:
        return table[0], None
    found = [summarise(column) for column in table.T]
    return table.mean(axis=0), np.array([summary.ci95 for summary in found], dtype=float)


def _bounds(values: Sequence[float], room: float = INSIDE) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low / room, high * room) if high / low > room else (low / 1.6, high * 1.6)


def _bars(
    rows: Sequence[tuple[str, Sequence[tuple[Summary, str, Style]]]],
    title: str,
    write: Callable[[float], str],
    most: float | None = None,
    log: bool = False,
) -> Figure:
    """Rows of bars, each row named at its left, each bar with its value at its right."""
    pitch = ROW if all(len(bars) == 1 for _, bars in rows) else LINE + 0.6
    tops, total = [], 0.0
    for _, bars in rows:
        tops.append(total)
        total += pitch * len(bars) + (0 if pitch == ROW else 7)
    names = [short(name) for name, _ in rows]
    texts = [prefix + write(value.mean) for _, bars in rows for value, prefix, _ in bars]
    right = max(map(text_width, texts)) + 12
    left = max(map(text_width, names)) + 12
    figure, axes = canvas(NARROW, total + 74, left=left, right=right, top=28, bottom=28)
    ends = [v.mean + (v.ci95 or 0) for _, bars in rows for v, _, _ in bars]
    lows = [v.mean for _, bars in rows for v, _, _ in bars]
    high = most or max(ends) * (1.05 if not log else 1.2) or 1.0
    low = max(min(lows), 1e-4) / 1.6 if log else 0.0
    axes.set_xscale("log" if log else "linear")
    axes.set_xlim(low, high)
    axes.set_ylim(total, 0)
    for (_, bars), top in zip(rows, tops, strict=True):
        for i, (value, prefix, style) in enumerate(bars):
            shade = 0.42 if len(bars) == 1 else 0.5 - 0.38 * i / (len(bars) - 1)
            _bar(axes, value, top + pitch * (i + 0.5), pitch, style, shade)
            end = max(min(value.mean + (value.ci95 or 0), high), low)
            axes.annotate(prefix + write(value.mean), (end, top + pitch * (i + 0.5)), (5, 0),
                          textcoords="offset points", va="center_baseline",
                          annotation_clip=False)  # fmt: skip
    middles = [top + pitch * len(bars) / 2 for (_, bars), top in zip(rows, tops, strict=True)]
    axes.set_yticks(middles, names)
    axes.tick_params(axis="y", colors=INK, pad=5)
    axes.tick_params(axis="x", length=0)
    axes.spines["bottom"].set_visible(False)
    axes.grid(axis="x")
    if log:
        log_axis(axes.xaxis, low, high, _seconds)
    else:
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    name_axes(axes, "", title + (", logarithmic" if log else ""))
    return figure


def _bar(
    axes: Any, value: Summary, middle: float, pitch: float, style: Style, shade: float
) -> None:
    from matplotlib.colors import to_rgba

    start = axes.get_xlim()[0] if axes.get_xscale() == "log" else 0.0
    end = max(value.mean, start)
    colour, thick = style.colour, pitch * 0.72
    # the shade and the hatch are two bars: a pattern takes its colour from the edge
    axes.barh(middle, end - start, thick, start, color=to_rgba(colour, shade), linewidth=0)
    axes.barh(middle, end - start, thick, start, color="none", edgecolor=colour,
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
