"""The pictures of a Markdown report: what each shows, in words and as a PNG."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from algnn.bench.runs import summarise
from algnn.bench.significance import rank
from algnn.report import charts
from algnn.report.board import standings
from algnn.report.commands import commands
from algnn.report.data import DEFAULT, FOCUS, Study
from algnn.report.style import Style, drawing
from algnn.report.table import WORDS, Chart, count, slug, three

Looks = Mapping[str, Style]
SHOWN = 10  # lines of the best methods in a figure
WORDING = ("title", "caption", "alt")


def render(chart: Chart) -> bytes:
    """A picture as a small PNG; the same chart gives the same bytes."""
    with drawing():
        figure = chart.draw()
        figure.set_dpi(72 * 900 / (figure.get_size_inches()[0] * 72))
        figure.set_facecolor("white")
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
    names = [name for name, row in found.iterrows() if row["on"] == len(graphs) and row["rank"] > 0]
    if len(names) < 3 or len(graphs) < 3:
        return ()
    means = study.means["ap"].loc[names, graphs].T.rename_axis("dataset")
    ranking = rank(means.reset_index().melt("dataset", var_name="method", value_name="ap"))
    of = {"graphs": count(len(graphs), "graph"), "methods": len(names), "p": ranking.p_value,
          "critical": ranking.critical_difference}  # fmt: skip
    words = _words("ranks", (-ranking.average).to_dict(), lambda value: f"{-value:.1f}", "", **of)
    return (Chart("ranks", *words, partial(charts.ranks, ranking)),)


def of_graph(study: Study, graph: str, looks: Looks) -> Chart:
    """AP session by session at step 1, on the graph's main hardware: a dozen of the methods."""
    hardware = study.main_hardware(graph)
    every = {
        name: study.cell(hardware, graph, 1, name) for name in study.methods(hardware, graph, 1)
    }
    values = {name: summarise(runs.ap).mean for name, runs in every.items()}
    best = sorted(values, key=lambda name: -values[name])[:SHOWN]
    shown = {name: runs for name, runs in every.items() if name in {*best, DEFAULT, FOCUS, "bare"}}
    some = WORDS["figures"]["stages"]["some"].format(count=len(every), shown=len(best))
    words = _words("stages", values, three, hardware, graph=graph,
                   some=some if len(shown) < len(every) else "")  # fmt: skip
    made = commands(pd.concat(shown.values()))
    return Chart(f"stages-{slug(graph)}", *words, partial(charts.stages, shown, looks), made)


def of_sweep(
    study: Study, name: str, method: str, hardware: str, points: Mapping[str, Any]
) -> Chart:
    """Final AP against one setting; `points` holds, for each graph, runs by its value."""
    usual = {
        graph: runs.settings.iloc[0][name]
        for graph in points
        if len(runs := study.cell(hardware, graph, 1, method))
    }
    symbol = {"gamma": "γ"}.get(name, name)
    best = {}
    for graph, found in points.items():
        ap = {summarise(runs.ap).mean: value for value, runs in reversed(found.items())}
        best[graph] = ap[max(ap)]
    key = f"sensitivity-{name}-{slug(method)}-{study.number(hardware)}"
    words = _words("sensitivity", best, "{:g}".format, hardware, method=method, symbol=symbol)
    draw = partial(charts.sensitivity, points, usual, symbol)
    return Chart(key, *words, draw, commands(study.swept(name)))


def _words(
    kind: str, values: Mapping[str, float], write: Callable[[float], str], hardware: str, **of: Any
) -> tuple[str, str, str]:
    """Title, caption, and in words for those who cannot see it the highest and lowest values."""
    title, caption, alt = (WORDS["figures"][kind][part].format(**of) for part in WORDING)
    names = sorted(values, key=lambda name: -values[name])
    shown = names if len(names) <= 6 else [*names[:3], *names[-2:]]
    each = [f"{name} {write(values[name])}" for name in shown]
    if len(shown) < len(names):
        each.insert(3, f"{len(names) - 5} others between")
    return title, f"{caption} {hardware}." if hardware else caption, f"{alt}: {'; '.join(each)}."
