"""A report as one page that needs nothing but itself: no network, no files beside it."""

from __future__ import annotations

import json
import re
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from algnn.report.board import board
from algnn.report.build import Report
from algnn.report.style import HUES, INKS
from algnn.report.table import NOTHING, NUMBERS, Row, Table, Value, number


def page(report: Report) -> str:
    """A report as HTML."""
    tidy: Any = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    environment = Environment(loader=FunctionLoader(_source), autoescape=True, **tidy)
    environment.filters.update(prose=prose, cells=cells, plain=printable)
    data = json.dumps(board(report.study, report.styles), separators=(",", ":"), allow_nan=False)
    return environment.get_template("page.html").render(
        report=report,
        **{"hues": HUES, "inks": INKS, "numbers": NUMBERS},
        # nothing in it may end the element that holds it
        data=Markup(data.replace("<", "\\u003c")),
        style=Markup(_source("page.css")),
        script=Markup(_source("page.js") + _source("fold.js")),
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


def _key(value: Value) -> str:
    """What a cell is sorted by; empty cells go last."""
    if isinstance(value, str) or value is None:
        return value or ""
    return f"{number(value):.10g}"


@cache
def _source(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")
