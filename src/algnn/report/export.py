"""A report as HTML, Markdown, LaTeX and CSV, and its files on disk; names of any kind stay text.

The page needs nothing but itself: no network, no files beside it.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from algnn.bench.runs import Summary
from algnn.files import write_atomically
from algnn.progress import counted
from algnn.report.board import board
from algnn.report.build import Report, build
from algnn.report.data import Study
from algnn.report.style import HUES, INKS
from algnn.report.table import NOTHING, NUMBERS, PLAIN, WORDS, Both, Chart, Row, Table, number

TEX: dict[str, str] = WORDS["latex"]
RUN_COLUMNS = (
    *("dataset", "method", "step", "seed", "main", "differs", "machine", "device", "jobs"),
    *("base", "edges", "order", "sessions", "ap", "af", "macro", "micro", "base_accuracy"),
    *("learn_seconds", "selection_seconds", "predict_seconds", "retained_bytes"),
    *("ece", "novelty_auroc", "started", "code", "versions", "settings", "sha256"),
)


def write(study: Study, folder: str | os.PathLike[str]) -> Path:
    """Write the page, ``index.html``, into a folder, whole or not at all; returns its path."""
    path = Path(folder) / "index.html"
    write_atomically(path, page(build(study)).encode())
    return path


def write_markdown(study: Study, path: str | os.PathLike[str]) -> Path:
    """Write a report as one Markdown document with its pictures in a folder of that name."""
    from algnn.report.charts import render

    target = Path(path)
    report = build(study, pictures=True)
    for chart in counted("pictures", report.all(Chart)):
        write_atomically(target.with_suffix("") / f"{chart.key}.png", render(chart))
    # percent-encoded, as a link needs it
    write_atomically(target, markdown(report, quote(os.fsencode(target.stem))).encode())
    return target


def write_latex(study: Study, path: str | os.PathLike[str]) -> Path:
    """Write the tables of a report as one LaTeX file."""
    write_atomically(Path(path), latex(build(study)).encode())
    return Path(path)


def write_csv(study: Study, folder: str | os.PathLike[str]) -> Path:
    """Write every run, ``runs.csv``, and each table as CSV into a folder."""
    for table in build(study).all(Table):
        write_atomically(Path(folder) / f"{table.key}.csv", table_csv(table).encode())
    write_atomically(Path(folder) / "runs.csv", runs_csv(study).encode())
    return Path(folder)


def page(report: Report) -> str:
    """A report as HTML."""
    data = json.dumps(board(report.study), separators=(",", ":"), allow_nan=False)
    return _filled(
        "page.html",
        report=report,
        **{"hues": HUES, "inks": INKS, "numbers": NUMBERS},
        # nothing in it may end the element that holds it
        data=Markup(data.replace("<", "\\u003c")),
        style=Markup(_source("page.css")),
        script=Markup(_source("page.js") + _source("fold.js")),
    )


def _filled(template: str, **values: Any) -> str:
    tidy: Any = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    if template.endswith(".tex"):  # in which braces have a meaning
        kinds = {"block": ("<%", "%>"), "variable": ("<<", ">>"), "comment": ("<#", "#>")}
        for kind, (start, end) in kinds.items():
            tidy |= {f"{kind}_start_string": start, f"{kind}_end_string": end}
    html = template.endswith(".html")
    environment = Environment(loader=FunctionLoader(_source), autoescape=html, **tidy)
    environment.filters.update(prose=prose, cells=cells, plain=printable, fenced=_fenced)
    environment.filters.update(md=_md, md_prose=_md_prose, md_cells=_md_cells)
    environment.filters.update(tex=_tex, tex_prose=_tex_prose, tex_cells=_tex_cells)
    return environment.get_template(template).render(**values)


def printable(text: str) -> str:
    """A text without characters that no document can hold."""
    return "".join(c if c.isprintable() or c.isspace() else "�" for c in text)


def prose(text: str) -> Markup:
    """The report's own sentences: code between backticks, stress between stars, subscripts."""
    parts = re.split(r"`([^`]*)`", escape(printable(text)))
    for i, part in enumerate(parts):
        said = re.sub(r"\*([a-z]+)\*", r"<em>\1</em>", part)
        said = re.sub(r"\b([A-Z])_([A-Za-z])\b", r"\1<sub>\2</sub>", said)
        parts[i] = f"<code>{part}</code>" if i % 2 else said
    return Markup("".join(parts))


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
        # empty cells go last
        key = value or "" if isinstance(value, str | None) else f"{number(value):.7g}"
        found.append({**cell, "empty": text == NOTHING, "key": key})
    return found


def _source(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def markdown(report: Report, pictures: str = "figures") -> str:
    """A report as Markdown; `pictures` is the folder of its figures, as the document sees it."""
    return _filled("page.md", report=report, pictures=pictures, numbers=NUMBERS)


def _md_cells(table: Table, row: Row) -> Iterator[str]:
    for i, (column, text) in enumerate(zip(table.columns, table.texts(row), strict=True)):
        code = column.kind in ("name", "formula") and PLAIN.fullmatch(text)
        text = f"`{text}`" if code else _md(text)
        yield f"**{text}**" if i in row.best else f"*{text}*" if i == 0 and row.apart else text


def _fenced(commands: Sequence[str]) -> str:
    """Commands as a block of code, whatever backticks they hold."""
    body = "\n".join(commands)
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", body)), default=0))
    return f"{fence}sh\n{body}\n{fence}"


def _md(text: str) -> str:
    """Text without meaning in Markdown."""
    escaped = escape(re.sub(r"\s+", " ", printable(text)), quote=False)
    escaped = re.sub(r"([\\`*\[\]|~$])", r"\\\1", escaped)
    # an underline within a word is no mark
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", escaped)


def _md_prose(text: str) -> str:
    """The report's own sentences, in which backticks and stars mark code and stress."""
    parts = re.split(r"(`[^`]*`|\*[a-z]+\*)", text)
    return "".join(part if i % 2 else _md(part) for i, part in enumerate(parts))


def latex(report: Report) -> str:
    r"""The tables of a report in ASCII, to ``\input`` where booktabs and graphicx are loaded."""
    return _filled("page.tex", tables=report.all(Table), numbers=NUMBERS)


def _tex_cells(table: Table, row: Row) -> Iterator[str]:
    for i, (column, text) in enumerate(zip(table.columns, table.texts(row), strict=True)):
        if column.kind == "formula" and text != NOTHING:
            yield "$" + text.replace("O(", r"\mathcal{O}(", 1).replace("k̄", r"\bar{k}") + "$"
        else:
            yield rf"\textbf{{{_tex(text)}}}" if i in row.best else _tex(text)


def _tex(text: str) -> str:
    """Text that compiles; a letter that plain LaTeX cannot set is named by its number."""
    return "".join(
        TEX.get(c, c if c.isascii() else rf"\texttt{{U+{ord(c):04X}}}")
        for c in " ".join(printable(text).split())
    )


def _tex_prose(text: str) -> str:
    return _tex(re.sub(r"`([^`]*)`|\*([a-z]+)\*", r"\1\2", text.replace("k̄", "k")))


def table_csv(table: Table) -> str:
    """A table as CSV: means, then half their intervals; AP, then micro and the verdict's mark."""
    columns: dict[str, list[Any]] = {}
    more = {"ci95": "±95%", "micro": "micro", "mark": "verdict"}
    for i, column in enumerate(table.columns):
        values = [row.values[i] for row in table.rows]
        columns[column.name] = [v.mean if isinstance(v, Summary | Both) else v for v in values]
        for part, name in more.items():
            if any(hasattr(value, part) for value in values):
                columns[f"{column.name} {name}"] = [getattr(value, part, None) for value in values]
    return str(pd.DataFrame(columns, dtype=object).to_csv(index=False, lineterminator="\n"))


def runs_csv(study: Study) -> str:
    """Every run in a line of CSV."""
    runs = study.runs
    as_json = partial(json.dumps, sort_keys=True, ensure_ascii=False)
    found = runs.assign(
        jobs=pd.Series([machine.get("jobs") for machine in runs.machine], dtype=object),
        machine=runs.hardware,
        sessions=runs.stages.map(len),
        retained_bytes=runs.retained_bytes.astype("int64"),
        versions=runs.versions.map(as_json),
        settings=runs.settings.map(as_json),
    )
    return str(found[list(RUN_COLUMNS)].to_csv(index=False, lineterminator="\n"))
