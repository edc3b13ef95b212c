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
from algnn.report import charts
from algnn.report.commands import commands
from algnn.report.data import Study
from algnn.report.style import Style, drawing
from algnn.report.table import WORDS, Chart, slug, three

Looks = Mapping[str, Style]
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


def of_graph(study: Study, graph: str, looks: Looks) -> tuple[Chart, ...]:
    """AP session by session and against time, at step 1, on the graph's main hardware."""
    hardware = study.main_hardware(graph)
    every = {
        name: study.cell(hardware, graph, 1, name) for name in study.methods(hardware, graph, 1)
    }
    alone = {name: runs[runs.alone] for name, runs in every.items() if runs.alone.any()}
    made = commands(pd.concat(every.values()))
    found = []
    for key, cells, draw in (
        ("stages", every, charts.stages),
        ("tradeoff", alone, charts.tradeoff),
    ):
        if cells:
            values = {name: summarise(runs.ap).mean for name, runs in cells.items()}
            words = _words(key, values, three, hardware, graph=graph)
            found.append(Chart(f"{key}-{slug(graph)}", *words, partial(draw, cells, looks), made))
    return tuple(found)


def by_step(study: Study, hardware: str, graph: str, looks: Looks) -> Chart:
    """Final AP at each number of classes per session."""
    cells = {
        name: {step: runs for step in study.steps(graph, hardware)
               if len(runs := study.cell(hardware, graph, step, name))}
        for name in study.methods(hardware, graph)
    }  # fmt: skip
    ap = {
        f"{name}, step {step}": summarise(runs.ap).mean
        for name, found in cells.items()
        for step, runs in found.items()
    }
    words = _words("steps", ap, three, hardware, graph=graph)
    made = commands(study.select(hardware=hardware, dataset=graph))
    return Chart(f"steps-{slug(graph)}", *words, partial(charts.steps, cells, looks), made)


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
    kind: str, values: Mapping[str, float], write: Callable[[float], str], hardware: str, **of: str
) -> tuple[str, str, str]:
    """Title, caption, and in words for those who cannot see it the highest and lowest values."""
    title, caption, alt = (WORDS["figures"][kind][part].format(**of) for part in WORDING)
    names = sorted(values, key=lambda name: -values[name])
    shown = names if len(names) <= 6 else [*names[:3], *names[-2:]]
    each = [f"{name} {write(values[name])}" for name in shown]
    if len(shown) < len(names):
        each.insert(3, f"{len(names) - 5} others between")
    return title, f"{caption} {hardware}.", f"{alt}: {'; '.join(each)}."
