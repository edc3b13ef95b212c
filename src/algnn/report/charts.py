"""The pictures of a Markdown report: what each shows, in words, and how matplotlib draws it."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import ceil, isnan
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from PIL import Image
from sklearn.isotonic import isotonic_regression

from algnn.bench.runs import Summary, summarise
from algnn.bench.significance import Ranking, rank
from algnn.report.board import standings
from algnn.report.commands import commands
from algnn.report.data import DEFAULT, FOCUS, Study
from algnn.report.style import INK, LINE, NARROW, RULE, SERIES, SOFT, Style, drawing, styles
from algnn.report.table import WORDS, Chart, count, three

Points = Mapping[str, Mapping[Any, pd.DataFrame]]  # for each graph, runs by the value of a setting
LETTER = 8.3  # width of a letter in pixels, with some to spare
SHOWN = 10  # lines of the best methods in a figure


def render(chart: Chart) -> bytes:
    """A picture as a small PNG; the same chart gives the same bytes."""
    with drawing():
        figure = chart.draw()
        figure.set_dpi(900 / figure.get_size_inches()[0])
        surface: Any = FigureCanvasAgg(figure)
        surface.draw()
    picture = Image.fromarray(np.asarray(surface.buffer_rgba())).convert("RGB")
    file = io.BytesIO()
    # few colours, and a palette holds them
    method = Image.Quantize.FASTOCTREE
    picture.quantize(256, method, dither=Image.Dither.NONE).save(file, "png", compress_level=9)
    return file.getvalue()


def of_ranks(study: Study) -> tuple[Chart, ...]:
    """Mean ranks with the critical difference, of methods that ran on every graph compared."""
    found, graphs = standings(study)
    names = list(found["rank"].dropna().index)
    if len(names) < 3 or len(graphs) < 3:
        return ()
    means = study.means["ap"].loc[names, graphs].T.rename_axis("dataset")
    ranking = rank(means.reset_index().melt("dataset", var_name="method", value_name="ap"))
    test = WORDS["figures"]["ranks"]["test"].format(p=ranking.p_value)
    of = {"graphs": count(len(graphs), "graph"), "methods": len(names),
          "test": "" if isnan(ranking.p_value) else test,  # all rank alike
          "critical": ranking.critical_difference}  # fmt: skip
    words = _words("ranks", (-ranking.average).to_dict(), lambda value: f"{-value:.1f}", "", **of)
    return (Chart("ranks", *words, partial(ranks, ranking)),)


def of_graph(study: Study, graph: str) -> Chart:
    """AP session by session at step 1, on the graph's main hardware: a dozen of the methods."""
    hardware = study.main_hardware(graph)
    every = {n: study.cell(hardware, graph, 1, n) for n in study.methods(hardware, graph, 1)}
    values = {name: summarise(runs.ap).mean for name, runs in every.items()}
    best = sorted(values, key=lambda name: -values[name])[:SHOWN]
    shown = {name: runs for name, runs in every.items() if name in {*best, DEFAULT, FOCUS, "bare"}}
    some = WORDS["figures"]["stages"]["some"].format(count=len(every), shown=len(best))
    words = _words("stages", values, three, hardware, graph=graph,
                   some=some if len(shown) < len(every) else "")  # fmt: skip
    draw = partial(stages, shown, styles(study.runs.method))
    return Chart(f"stages-{graph}", *words, draw, commands(pd.concat(shown.values())))


def of_sweeps(study: Study, name: str) -> Iterator[Chart]:
    """Final AP against one setting, for each method and hardware that it was changed on."""
    series, symbol = study.sweeps[name], {"gamma": "γ"}.get(name, name)
    for method, hardware in dict.fromkeys((m, h) for _, m, h in series):
        points = {g: runs for (g, m, h), runs in series.items() if (m, h) == (method, hardware)}
        cells = {graph: study.cell(hardware, graph, 1, method) for graph in points}
        usual = {g: runs.settings.iloc[0].get(name) for g, runs in cells.items() if len(runs)}
        best = {g: max(of, key=lambda value: of[value].ap.mean()) for g, of in points.items()}
        key = f"sensitivity-{name}-{method}-{study.number(hardware)}"
        words = _words("sensitivity", best, "{:g}".format, hardware, method=method, symbol=symbol)
        draw = partial(sensitivity, points, usual, symbol)
        yield Chart(key, *words, draw, commands(study.runs[study.runs.swept == name]))


def _words(
    kind: str, values: Mapping[str, float], write: Callable[[float], str], hardware: str, **of: Any
) -> tuple[str, str, str]:
    """Title, caption, and in words for those who cannot see it the highest and lowest values."""
    words = WORDS["figures"][kind]
    title, caption, alt = (words[part].format(**of) for part in ("title", "caption", "alt"))
    names = sorted(values, key=lambda name: -values[name])
    shown = names if len(names) <= 6 else [*names[:3], *names[-2:]]
    each = [f"{name} {write(values[name])}" for name in shown]
    if len(shown) < len(names):
        each.insert(3, f"{len(names) - 5} others between")
    return title, f"{caption} {hardware}." if hardware else caption, f"{alt}: {'; '.join(each)}."


class Line(NamedTuple):
    """A line of a chart: its style, and what there is at each x."""

    style: Style
    x: Sequence[float]
    each: Sequence[Summary]


def canvas(width: float, height: float, margins: Sequence[float]) -> tuple[Figure, Any]:
    """A figure with one pair of axes, in pixels; margins are left, right, top and bottom."""
    left, right, top, bottom = margins
    # a Figure of its own: pyplot and the user's choice of backend are not touched
    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    box = (left / width, bottom / height, (width - left - right) / width)
    return figure, figure.add_axes((*box, (height - top - bottom) / height))


def stages(cells: Mapping[str, pd.DataFrame], looks: Mapping[str, Style]) -> Figure:
    """AP after each session, mean and 95% band over seeds."""
    lines = {}
    for method, runs in cells.items():
        found = [summarise(column) for column in zip(*runs.stages, strict=True)]
        lines[method] = Line(looks[method], range(len(found)), found)
    figure, axes = _lines(lines, "after session", "AP (%) so far")
    last = max(len(line.x) for line in lines.values()) - 1
    axes.set_xlim(-0.5 if last == 0 else 0, max(last, 0.5))
    axes.set_xticks(range(0, last + 1, max(1, ceil(last / 6))))
    return figure


def sensitivity(points: Points, usual: Mapping[str, Any], name: str) -> Figure:
    """Final AP against one setting, a line for each graph, with a ring at its usual value."""
    lines = {}
    for i, (graph, found) in enumerate(points.items()):
        each = [summarise(runs.ap) for runs in found.values()]
        lines[graph] = Line(SERIES[i % len(SERIES)], [float(v) for v in found], each)
    figure, axes = _lines(lines, f"{name} (logarithmic)", "AP (%)")
    values = sorted({value for line in lines.values() for value in line.x})
    axes.set_xscale("log")
    room = 1.12 if values[-1] / values[0] > 1.12 else 1.6
    axes.set_xlim(values[0] / room, values[-1] * room)
    # the values themselves are the ticks; some are left out where they would touch
    widest = LETTER * max(len(f"{value:g}") for value in values) + 8
    every = ceil(len(values) * widest / (axes.get_position().width * NARROW))
    axes.xaxis.set_major_locator(FixedLocator(values[::every]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ring: Any = {"marker": "o", "markersize": 13, "markerfacecolor": "none", "zorder": 6}
    ring |= {"markeredgecolor": INK, "markeredgewidth": 1.1, "clip_on": False}
    for graph, line in lines.items():
        if usual.get(graph) in points[graph]:
            at = list(points[graph]).index(usual[graph])
            axes.plot([line.x[at]], [line.each[at].mean], **ring)
    return figure


def ranks(ranking: Ranking) -> Figure:
    """Methods by mean rank on one line; a bar joins those that are not told apart."""
    average, groups = ranking.average, ranking.cliques()
    names = list(average.index)
    half, last = ceil(len(names) / 2), len(names)
    top = 0.45 * (len(groups) + 1)  # bars below the axis, then names, half of them on each side
    room = LETTER * max(len(f"{short(name)} 88.8") for name in names) + 14
    figure, axes = canvas(2 * NARROW, LINE * (top + half + 4), (room, room, 4, 4))
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


def _lines(lines: Mapping[str, Line], x_name: str, y_name: str) -> tuple[Figure, Any]:
    """Lines between 0 and 100 with their names at the right."""
    names = [short(name) for name in lines]
    tall = max(330.0, 24 + LINE * len(names))  # for all names below each other
    right = 40 + LETTER * max(map(len, names))
    wide = max(NARROW, 270 + right)
    figure, axes = canvas(wide, tall, (36, right, 26, 47))
    axes.set_yticks([0, 25, 50, 75, 100])
    axes.set_ylim(0, 100)
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    # names of axes in level text: y above the axes, x below them
    axes.set_xlabel(x_name, labelpad=3)
    figure.text(4 / wide, 1 - 4 / tall, y_name, va="top", ha="left", color=SOFT)
    for i, (style, x, each) in enumerate(lines.values()):
        mean, half = np.array([[s.mean, s.ci95 or 0.0] for s in each]).T
        band = np.clip(mean - half, 0, 100), np.clip(mean + half, 0, 100)
        axes.fill_between(x, *band, color=style.colour, alpha=0.1, linewidth=0, zorder=1)
        # of more than 15 sessions each method marks others, so that markers do not meet
        every = ceil(len(x) / 6)
        marked = (i % every, every) if len(x) > 15 else None
        axes.plot(x, mean, markevery=marked, **style.strokes)
    # at the right end of each line its name, by a leader and a sample
    last = {n: axes.transData.transform((1.0, of.each[-1].mean))[1] for n, of in lines.items()}
    rising = sorted(last, key=last.__getitem__, reverse=True)[::-1]
    spots = spread([last[name] for name in rising], LINE, LINE / 2 + 1, tall - LINE / 2 - 1)
    for name, spot in zip(rising, spots, strict=True):
        style, start = lines[name].style, min(max(last[name], 0), tall)
        ends = [(wide - right + dx) / wide for dx in (7, 17, 23, 29, 34)]
        leader: Any = {"color": RULE, "linewidth": 0.9, "solid_capstyle": "butt"}
        figure.add_artist(Line2D(ends[:2], [start / tall, spot / tall], **leader))
        sample = {**style.strokes, "linestyle": "-", "markevery": [1], "zorder": 2}
        figure.add_artist(Line2D(ends[1:4], [spot / tall] * 3, **sample))
        figure.text(ends[4], spot / tall, short(name), va="center_baseline", ha="left")
    return figure, axes


def short(name: str, most: int = 20) -> str:
    """A name that a figure has room for; a user's learner ``module:Class`` goes by its class."""
    text = "".join(c if c.isprintable() else " " for c in name.rpartition(":")[2] or name).strip()
    return text if len(text) <= most else text[: most - 1] + "…"


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions nearest to those wanted (ascending), a gap apart; `high` yields before `low`."""
    # without the gaps it is a regression by a function that never falls
    gaps = gap * np.arange(len(wanted))
    level = np.minimum(isotonic_regression(np.asarray(wanted) - gaps), high - gaps[-1])
    return [float(spot) for spot in np.maximum(level, low) + gaps]
