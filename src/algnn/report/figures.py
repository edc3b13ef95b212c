"""The figures of a report: what each shows, in words and as SVG and PNG."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from algnn.bench.runs import summarise
from algnn.report import charts
from algnn.report.commands import commands
from algnn.report.data import Study
from algnn.report.style import HUES, INKS, WIDE, Style, drawing
from algnn.report.table import WORDS, size, slug, three

Looks = Mapping[str, Style]
Cells = Mapping[str, pd.DataFrame]
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
    commands: tuple[str, ...] = ()
    brief: bool = True
    number: str = ""


@dataclass(frozen=True)
class Drawn:
    """A figure as elements of a page (for every width, or narrow and wide ones) and as files."""

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
            width, height = (_rounded(72 * side) for side in figure.get_size_inches())
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
    return re.sub(r'\s([\w:-]+)="([^"]*)"', lambda found: _attribute(found[1], found[2], ids), body)


def _attribute(name: str, value: str, ids: Mapping[str, str]) -> str:
    """An attribute with short numbers, named colours and this figure's ids."""
    name = name.removeprefix("xlink:")
    if name == "id":
        value = ids.get(value, value)
    elif name == "href":
        value = f"#{ids.get(value[1:], value[1:])}" if value[:1] == "#" else "".join(value.split())
    elif name in ("d", "transform", "x", "y"):
        value = " ".join(re.sub(r"-?\d+\.\d+", lambda found: _rounded(found[0]), value).split())
    else:
        value = re.sub(
            r"url\(#([\w-]+)\)", lambda found: f"url(#{ids.get(found[1], found[1])})", value
        )
        value = re.sub(r"\s*font-family:[^;]*;|\s*stroke-dashoffset: 0;", "", value)
        value = re.sub(r"#[0-9a-f]{6}\b", lambda found: NAMES.get(found[0], found[0]), value)
    return f' {name}="{value}"'


def _rounded(number: Any) -> str:
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


# what a document without room for all figures shows of a graph
BRIEF = ("stages", "tradeoff")
WORDING = ("title", "caption", "alt")


class Kind(NamedTuple):
    """A kind of figure of one graph: the runs it needs, the value its words name, its chart."""

    needs: str
    of: str
    draw: Callable[..., Figure]
    wide: Callable[..., Figure] | None = None


KINDS = {
    "stages": Kind("", "ap", charts.stages),
    "tradeoff": Kind("alone", "ap", charts.tradeoff),
    "matrices": Kind("", "ap", charts.matrices, partial(charts.matrices, width=WIDE)),
    "seconds": Kind("alone", "learn_seconds", charts.seconds),
    "kept": Kind("", "retained_bytes", charts.kept),
    "times": Kind("alone", "learn_seconds", charts.times),
    "novelty": Kind("novelty_auroc", "novelty_auroc", charts.novelty),
    "reliability": Kind("ece", "ece", charts.reliability),
}


def of_graph(study: Study, graph: str, looks: Looks) -> tuple[Chart, ...]:
    """All figures of one graph at step 1, from the hardware with the most runs on it."""
    hardware = study.main_hardware(graph, 1)
    names = study.methods(hardware, graph, 1)
    every = {name: study.cell(hardware, graph, 1, name) for name in names}
    made = commands(pd.concat(every.values()))
    found = []
    for key, (needs, of, draw, wide) in KINDS.items():
        cells = _having(every, needs)
        if not cells:
            continue
        values = {name: summarise(runs[of]).mean for name, runs in cells.items()}
        words = _words(key, values, size if key == "kept" else three, hardware, graph=graph)
        one, other = partial(draw, cells, looks), wide and partial(wide, cells, looks)
        found.append(Chart(f"{key}-{slug(graph)}", *words, one, other, made, key in BRIEF))
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
    return Chart(f"steps-{slug(graph)}", *words, partial(charts.steps, cells, looks), None, made)


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
    return Chart(key, *words, draw, None, commands(study.swept(name)))


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


def _having(cells: Cells, needs: str) -> dict[str, pd.DataFrame]:
    """The runs that were alone, or that have this figure."""
    found = {}
    for name, runs in cells.items():
        kept = runs if not needs else runs[runs.alone if needs == "alone" else runs[needs].notna()]
        if len(kept):
            found[name] = kept
    return found
