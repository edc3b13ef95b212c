"""The figures of a report: what each shows, in words and as SVG and PNG."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from algnn.bench.runs import summarise
from algnn.report import charts
from algnn.report.commands import commands
from algnn.report.data import Study
from algnn.report.style import HUES, INKS, NARROW, WIDE, Style, drawing
from algnn.report.table import size, slug, three

Looks = Mapping[str, Style]
NAMES = {value[0]: f"var(--{name})" for name, value in INKS.items()}
NAMES |= {value[0]: f"var(--hue-{name})" for name, value in HUES.items()}


@dataclass(frozen=True)
class Chart:
    """A figure before it is drawn: its file's name, number, heading, and itself in words (`alt`).

    `draw_wide` gives another layout for wide pages; `brief` figures are part of short documents.
    """

    key: str
    title: str
    caption: str
    alt: str
    draw: Callable[[], Figure]
    draw_wide: Callable[[], Figure] | None = None
    brief: bool = False
    commands: tuple[str, ...] = ()
    number: str = ""


@dataclass(frozen=True)
class Drawn:
    """A figure as elements of a page, for every width or for narrow and wide pages, and as files."""

    inline: tuple[str, ...]
    svg: bytes
    png: bytes


def render(chart: Chart) -> Drawn:
    """Draw a chart in all its forms; the same chart gives the same bytes."""
    with drawing():
        figures = [draw() for draw in (chart.draw, chart.draw_wide) if draw is not None]
        texts = [svg(figure) for figure in figures]
        names = ["every"] if len(figures) == 1 else ["narrow", "wide"]
        elements = []
        for figure, text, name in zip(figures, texts, names, strict=True):
            width, height = (f"{72 * side:.4g}" for side in figure.get_size_inches())
            # hidden: the figure's own label says what it shows
            elements.append(
                f'<svg viewBox="0 0 {width} {height}" class="{name}" width="{width}"'
                f' height="{height}" aria-hidden="true" focusable="false">'
                f"{inline(text, f'{chart.key}-{name}')}</svg>"
            )
        return Drawn(tuple(elements), texts[-1].encode(), _png(figures[-1]))


def svg(figure: Figure) -> str:
    """A figure as a file of SVG."""
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue().decode()


def inline(text: str, prefix: str) -> str:
    """What stands inside the root of an SVG file, for a page: own ids, the page's colours."""
    body = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    body = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.S)
    body = re.sub(r'<g id="[^"]*">', "<g>", body)
    body = re.sub(r"(?<=>)\s+|\s+(?=<)", "", body)
    ids = {old: f"{prefix}-{i}" for i, old in enumerate(re.findall(r' id="([^"]*)"', body))}
    return re.sub(r'\s([\w:-]+)="([^"]*)"', lambda found: _attribute(*found.groups(), ids), body)


def _attribute(name: str, value: str, ids: Mapping[str, str]) -> str:
    """An attribute with short numbers, named colours and this figure's ids."""
    name = name.removeprefix("xlink:")
    if name == "id":
        value = ids.get(value, value)
    elif name == "href":
        value = f"#{ids.get(value[1:], value)}" if value[:1] == "#" else "".join(value.split())
    elif name in ("d", "transform", "x", "y"):
        value = " ".join(re.sub(r"-?\d+\.\d+", lambda found: _rounded(found[0]), value).split())
    else:
        value = re.sub(r"url\(#([\w-]+)\)", lambda found: f"url(#{ids[found[1]]})", value)
        value = re.sub(r"\s*font-family:[^;]*;|\s*stroke-dashoffset: 0;", "", value)
        value = re.sub(r"#[0-9a-f]{6}\b", lambda found: NAMES.get(found[0], found[0]), value)
    return f' {name}="{value}"'


def _rounded(number: str) -> str:
    return f"{float(number):.2f}".rstrip("0").rstrip(".")


def _png(figure: Figure) -> bytes:
    """A small file: a figure has few colours, and a palette holds them."""
    width = figure.get_size_inches()[0] * 72
    figure.set_dpi(72 * (900 if width < 600 else 1260) / width)
    figure.set_facecolor("white")
    surface: Any = FigureCanvasAgg(figure)
    surface.draw()
    picture = Image.fromarray(np.asarray(surface.buffer_rgba())).convert("RGB")
    file = io.BytesIO()
    method = Image.Quantize.FASTOCTREE
    picture.quantize(256, method, dither=Image.Dither.NONE).save(file, "png", compress_level=9)
    return file.getvalue()


def of_graph(study: Study, graph: str, looks: Looks) -> Iterator[Chart]:
    """All figures of one graph at step 1, from the hardware with the most runs on it."""
    hardware = study.main_hardware(graph, 1)
    names = study.methods(hardware, graph, 1)
    cells = {name: study.cell(hardware, graph, 1, name) for name in names}
    made = commands(pd.concat(cells.values()))
    for kind, title, caption, alt, draw, *wide in (
        *_of_accuracy(cells, looks, graph),
        *_of_cost(cells, looks, graph),
        *_of_trust(cells, looks, graph),
    ):
        yield Chart(
            f"{kind}-{slug(graph)}",
            f"{title}: {graph}",
            f"{caption}. {hardware}.",
            alt,
            draw,
            *wide,
            brief=kind in ("stages", "tradeoff"),
            commands=made,
        )


Parts = Iterator[tuple[Any, ...]]
Cells = Mapping[str, pd.DataFrame]


def _of_accuracy(cells: Cells, looks: Looks, graph: str) -> Parts:
    ap = _means(cells, "ap")
    clocked = _where(cells, lambda runs: runs.alone)
    banded = any(len(runs) > 1 for runs in cells.values())
    yield (
        "stages",
        "AP session by session",
        "Average performance over the sessions so far"
        + ", with the 95% interval as a band" * banded,
        _said(f"Lines of AP after each session on {graph}; at the end", ap),
        lambda: charts.stages(cells, looks),
    )
    if clocked:
        yield (
            "tradeoff",
            "AP against time",
            "Up and to the left is better"
            + "; the line through a point is its 95% interval" * banded,
            _said(f"Points of final AP against learn seconds on {graph}; AP", ap),
            lambda: charts.tradeoff(clocked, looks),
        )
    sessions = max(len(runs.stages.iloc[0]) for runs in cells.values())
    narrow, wide = charts.matrix_columns(sessions)
    yield (
        "matrices",
        "Accuracy matrices",
        "Accuracy (%) on the test nodes of each session (column) after each session (row); a"
        " column that darkens downwards is a session that is being forgotten",
        _said(f"Heat maps of accuracy by session on {graph}; mean of the last row", ap),
        lambda: charts.matrices(cells, narrow, NARROW),
        lambda: charts.matrices(cells, wide, WIDE),
    )


def _of_cost(cells: Cells, looks: Looks, graph: str) -> Parts:
    clocked = _where(cells, lambda runs: runs.alone)
    seconds = _means(clocked, "learn_seconds")
    banded = any(len(runs) > 1 for runs in cells.values())
    if clocked:
        yield (
            "seconds",
            "Time so far",
            "Learn seconds added up over sessions, on a logarithmic axis",
            _said(f"Lines of learn seconds so far on {graph}; at the end", seconds),
            lambda: charts.growth(clocked, looks, "seconds"),
        )
    kept = _means(cells, "retained_bytes")
    yield (
        "kept",
        "Kept between sessions",
        "Bytes as each learner reports them, on a logarithmic axis",
        _said(f"Lines of bytes kept after each session on {graph}; at the end", kept, size),
        lambda: charts.growth(cells, looks, "bytes"),
    )
    if clocked:
        yield (
            "times",
            "Time to learn",
            "Seconds inside `fit` and `partial_fit`, all sessions"
            + "; the line is the 95% interval" * banded,
            _said(f"Bars of learn seconds on {graph}", seconds),
            lambda: charts.times(clocked, looks),
        )


def _of_trust(cells: Cells, looks: Looks, graph: str) -> Parts:
    """Calibration and novelty, of the runs that measured them."""
    told = _where(cells, lambda runs: runs.novelty_auroc.notna())
    sure = _where(cells, lambda runs: runs.ece.notna())
    banded = any(len(runs) > 1 for runs in cells.values())
    if told:
        yield (
            "novelty",
            "Detecting new classes",
            "AUROC of novelty after each session: test nodes of the next session's classes against"
            " those of seen classes; dotted, chance" + ". The band is the 95% interval" * banded,
            _said(
                f"Lines of AUROC of novelty after each session on {graph}; mean",
                _means(told, "novelty_auroc"),
            ),
            lambda: charts.novelty(told, looks),
        )
    if sure:
        yield (
            "reliability",
            "Reliability diagram",
            "Accuracy of predictions by their confidence (the largest probability), in bins, after"
            " the last session; a calibrated method lies on the dotted line",
            _said(
                f"Lines of accuracy against the largest probability on {graph}; calibration error",
                _means(sure, "ece"),
            ),
            lambda: charts.reliability(sure, looks),
        )


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
    return Chart(
        f"steps-{slug(graph)}",
        f"Final AP by step: {graph}",
        "A bar for each step, the palest for the largest; the line is the 95% interval."
        f" {hardware}.",
        _said(f"Bars of final AP on {graph} for each method and step", ap),
        lambda: charts.steps(cells, looks),
        brief=True,
        commands=commands(study.select(hardware=hardware, dataset=graph)),
    )


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
    best = {g: max(p, key=lambda v, p=p: summarise(p[v].ap).mean) for g, p in points.items()}
    runs = study.runs
    return Chart(
        f"sensitivity-{name}-{slug(method)}-{study.number(hardware)}",
        f"{method}: final AP against {symbol}",
        f"Mean and 95% band; a ring marks the method's own value for the graph. {hardware}.",
        _said(f"Lines of final AP of {method} against {symbol}; highest at", best, "{:g}".format),
        lambda: charts.sensitivity(points, usual, symbol),
        brief=True,
        commands=commands(runs[(runs.swept == name) & (runs.step == 1)]),
    )


def _where(cells: Cells, keep: Callable[[pd.DataFrame], Any]) -> dict[str, pd.DataFrame]:
    found = {name: runs[keep(runs)] for name, runs in cells.items()}
    return {name: runs for name, runs in found.items() if len(runs)}


def _means(cells: Cells, of: str) -> dict[str, float]:
    return {name: summarise(runs[of]).mean for name, runs in cells.items()}


def _said(what: str, values: Mapping[str, float], write: Callable[[float], str] = three) -> str:
    """A figure in words: the highest and the lowest of its values."""
    names = sorted(values, key=lambda name: -values[name])
    shown = names if len(names) <= 6 else [*names[:3], *names[-2:]]
    words = [f"{name} {write(values[name])}" for name in shown]
    if len(shown) < len(names):
        words.insert(3, f"{len(names) - 5} others between")
    return f"{what}: {'; '.join(words)}."
