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

from algnn.bench.runs import Summary
from algnn.methods import METHODS
from algnn.report.build import Report
from algnn.report.charts import canvas
from algnn.report.figures import Chart, Drawn, inline, svg
from algnn.report.style import HUES, INKS, Style, drawing
from algnn.report.table import NOTHING, NUMBERS, Row, Table, Value


def page(report: Report, drawn: Mapping[str, Drawn]) -> str:
    """A report as HTML; `drawn` holds its figures by their key."""
    tidy: Any = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    environment = Environment(loader=FunctionLoader(_source), autoescape=True, **tidy)
    environment.filters.update(prose=prose, cells=cells, plain=printable, batches=_batches)
    marks = {name: f"m{i}" for i, name in enumerate(report.styles)}
    return environment.get_template("page.html").render(
        report=report,
        drawn={key: [Markup(element) for element in found.inline] for key, found in drawn.items()},
        symbols={marks[name]: symbol(style, marks[name]) for name, style in report.styles.items()},
        **{"marks": marks, "hues": HUES, "inks": INKS, "methods": METHODS, "numbers": NUMBERS},
        style=Markup(_source("page.css")),
        script=Markup(_source("page.js")),
    )


def printable(text: str) -> str:
    """A text without characters that no document can hold."""
    return "".join(c if c.isprintable() or c.isspace() else "�" for c in text)


def prose(text: str) -> Markup:
    """The report's own sentences: code between backticks, stress between stars, subscripts."""
    safe = escape(printable(text))
    safe = re.sub(r"`([^`]*)`", r"<code>\1</code>", safe)
    safe = re.sub(r"\*([a-z]+)\*", r"<em>\1</em>", safe)
    return Markup(re.sub(r"\b([A-Z])_([A-Za-z])\b", r"\1<sub>\2</sub>", safe))


def cells(table: Table, row: Row) -> list[dict[str, Any]]:
    """A row's cells: text, half an interval, kind, whether it is best, and a key to sort by."""
    found = []
    for i, (column, value) in enumerate(zip(table.columns, row.values, strict=True)):
        numeric = column.kind in NUMBERS
        text = printable(column.write(value))
        shown, _, half = text.partition(" ± ") if numeric else (text, "", "")
        if column.kind == "formula":
            shown = Markup(re.sub(r"_([A-Za-z])", r"<sub>\1</sub>", escape(shown)))
        kind = "number" if numeric else column.kind
        cell = {"text": shown, "half": half, "kind": kind, "best": i in row.best}
        found.append({**cell, "empty": text == NOTHING, "key": _key(value)})
    return found


def symbol(style: Style, prefix: str) -> Markup:
    """A method's line and marker, 26 by 12 pixels; ids begin with the prefix."""
    with drawing():
        figure, axes = canvas(26, 12, 0, 0, 0, 0)
        axes.set_axis_off()
        axes.set_xlim(0, 26)
        axes.set_ylim(0, 12)
        look = {**style.strokes, "markersize": 1.25 * style.marks["markersize"]}
        axes.plot([0, 13, 26], [6, 6, 6], markevery=[1], **look)
        return Markup(inline(svg(figure), prefix))


def _key(value: Value) -> str:
    """What a cell is sorted by; empty cells go last."""
    if isinstance(value, str) or value is None:
        return value or ""
    return f"{value.mean if isinstance(value, Summary) else value:.10g}"


def _batches(items: Iterable[Any]) -> list[tuple[bool, list[Any]]]:
    """Figures that follow each other together, so that they can stand side by side."""
    return [(kind, list(found)) for kind, found in groupby(items, lambda i: isinstance(i, Chart))]


@cache
def _source(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")
