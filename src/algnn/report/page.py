"""A report as one page that needs nothing but itself: no network, no files beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from importlib.resources import files
from itertools import groupby
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path as Outline

from algnn.bench.metrics import Summary
from algnn.methods import METHODS
from algnn.report.drawing import Chart, Drawn, marker
from algnn.report.outline import Report
from algnn.report.sheet import NOTHING, Table, Value
from algnn.report.styles import HUES, INKS, Style
from algnn.report.texts import NUMBERS, printable

# outlines as SVG has them, and how many points each takes
LETTERS = {Outline.MOVETO: ("M", 1), Outline.LINETO: ("L", 1), Outline.CURVE3: ("Q", 2),
           Outline.CURVE4: ("C", 3), Outline.CLOSEPOLY: ("Z", 0)}  # fmt: skip


def page(report: Report, drawn: Mapping[str, Drawn]) -> str:
    """A report as HTML.

    Parameters
    ----------
    report : Report
    drawn : dict
        Its figures, by their key.

    Returns
    -------
    str

    Examples
    --------
    >>> from algnn.report.drawing import render
    >>> from algnn.report.evidence import example, gather
    >>> from algnn.report.outline import outline
    >>> report = outline(gather([example()]))
    >>> text = page(report, {chart.key: render(chart) for chart in report.charts()})
    >>> text[:15], "http" in text
    ('<!doctype html>', False)
    """
    environment = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters.update(prose=prose, cells=cells, plain=printable, batches=_batches)
    marks = {name: f"m{i}" for i, name in enumerate(report.styles)}
    return environment.get_template("page.html").render(
        report=report,
        drawn={key: [Markup(svg) for svg in found.inline] for key, found in drawn.items()},
        hues=HUES,
        inks=INKS,
        marks=marks,
        symbols={marks[name]: symbol(style) for name, style in report.styles.items()},
        methods=METHODS,
        numbers=NUMBERS,
        style=Markup(_source("page.css")),
        script=Markup(_source("page.js")),
    )


def prose(text: str) -> Markup:
    """Our own sentences as HTML: code between backticks, stress between stars, subscripts.

    Parameters
    ----------
    text : str

    Returns
    -------
    Markup

    Examples
    --------
    >>> print(prose("`fit` keeps P_b, *once* & <for all>"))
    <code>fit</code> keeps P<sub>b</sub>, <em>once</em> &amp; &lt;for all&gt;
    """
    safe = escape(printable(text))
    safe = re.sub(r"`([^`]*)`", r"<code>\1</code>", safe)
    safe = re.sub(r"\*([a-z]+)\*", r"<em>\1</em>", safe)
    return Markup(re.sub(r"\b([A-Z])_([A-Za-z])\b", r"\1<sub>\2</sub>", safe))


def cells(table: Table, row: Any) -> list[dict[str, Any]]:
    """A row's cells, as the page shows and sorts them.

    Parameters
    ----------
    table : Table
    row : Row

    Returns
    -------
    list of dict
        ``text`` and ``half`` (the interval), ``kind``, ``best``, and ``key`` to sort by.

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> from algnn.report.tables import overview
    >>> table = overview(gather([example()]), "A CPU, 4 cores", "1")
    >>> cells(table, table.rows[0])[1]["key"]
    '65'
    """
    found = []
    for i, (column, value) in enumerate(zip(table.columns, row.values, strict=True)):
        text, _, half = column.write(value).partition(" ± ") if column.kind in NUMBERS else (
            column.write(value), "", ""
        )  # fmt: skip
        shown = printable(text)
        found.append(
            {
                "text": _formula(shown) if column.kind == "formula" else shown,
                "half": half,
                "kind": "number" if column.kind in NUMBERS else column.kind,
                "best": i in row.best,
                "empty": text == NOTHING,
                "key": _key(value),
            }
        )
    return found


def symbol(style: Style) -> Markup:
    """A method's line and marker, 26 by 12 pixels.

    Parameters
    ----------
    style : Style

    Returns
    -------
    Markup
        What stands inside an SVG element.

    Examples
    --------
    >>> from algnn.report.styles import STYLES
    >>> 'stroke-dasharray="6 2.5"' in symbol(STYLES["gem"])
    True
    """
    look = marker(style)
    shape = MarkerStyle(style.marker)
    outline = shape.get_path().transformed(shape.get_transform())
    size = look["markersize"] * 1.25
    colour = f"var(--hue-{style.hue})"
    dashes = f' stroke-dasharray="{" ".join(f"{d:g}" for d in style.dashes)}"' * bool(style.dashes)
    return Markup(
        f'<path d="M0 6H26" stroke="{colour}" stroke-width="{style.width:g}"{dashes}></path>'
        f'<path d="{_outline(outline, size)}" stroke="{colour}"'
        f' stroke-width="{look["markeredgewidth"]:g}"'
        f' fill="{colour if style.filled else "var(--page)"}"></path>'
    )


def _outline(path: Any, size: float) -> str:
    parts = []
    for points, code in path.iter_segments():
        letter, count = LETTERS[code]
        pairs = [(13 + size * points[2 * i], 6 - size * points[2 * i + 1]) for i in range(count)]
        parts.append(letter + " ".join(f"{x:.1f} {y:.1f}" for x, y in pairs))
    return "".join(parts)


def _formula(text: str) -> Markup:
    return Markup(re.sub(r"_([A-Za-z])", r"<sub>\1</sub>", escape(text)))


def _key(value: Value) -> str:
    """What a cell is sorted by; empty goes last."""
    if isinstance(value, Summary):
        return f"{value.mean:.10g}"
    if isinstance(value, str) or value is None:
        return value or ""
    return f"{value:.10g}"


def _batches(items: Iterable[Any]) -> list[tuple[bool, list[Any]]]:
    """Figures that follow each other together, so that they can stand side by side."""
    return [(kind, list(found)) for kind, found in groupby(items, lambda i: isinstance(i, Chart))]


@cache
def _source(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")
