"""A report as Markdown, LaTeX and CSV; whatever stands in a name stays text."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from algnn.bench.metrics import Summary
from algnn.report.drawing import Chart
from algnn.report.evidence import Study
from algnn.report.outline import Report, Section
from algnn.report.sheet import NOTHING, Column, Row, Table, Value
from algnn.report.tables import differs

NUMBERS = ("count", "points", "point", "share", "seconds", "bytes", "ratio", "setting")
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+-]*")
TEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$",
    "#": r"\#", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "{''}", "`": r"\`{}",
    "±": r"$\pm$", "×": r"$\times$", "–": "--", "−": "$-$", "γ": r"$\gamma$", "²": "$^2$",
    "“": "``", "”": "''", "…": r"\ldots{}", "·": r"$\cdot$", "\u0304": "",
}  # fmt: skip
RUN_COLUMNS = (
    *("dataset", "method", "step", "seed", "main", "differs", "machine", "device", "jobs"),
    *("base", "edges", "order", "sessions", "ap", "af", "macro", "micro", "base_accuracy"),
    *("learn_seconds", "selection_seconds", "predict_seconds", "retained_bytes"),
    *("ece", "novelty_auroc"),
    *("started", "code", "versions", "settings", "sha256"),
)


def markdown(report: Report, pictures: str = "figures", remark: str = "") -> str:
    """A report as Markdown.

    Parameters
    ----------
    report : Report
    pictures : str
        Folder of the figures, as the document sees it.
    remark : str
        A comment at its head, which readers of the page do not see.

    Returns
    -------
    str

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> from algnn.report.outline import outline
    >>> print(markdown(outline(gather([example()]))).splitlines()[0])
    # Class-incremental node classification on 1 graph
    """
    lines = [f"<!-- {remark} -->\n"] if remark else []
    lines += [f"# {_md(report.title)}", "", _md(report.lead), ""]
    lines += [f"- **{_md(h.value)}** {_md(h.label)}" for h in report.headlines]
    if report.notes:
        lines += ["", *(f"> {_md(note)}\n>" for note in report.notes)]
        lines[-1] = lines[-1].removesuffix("\n>")
    for section in report.sections:
        lines += ["", *_md_section(section, pictures)]
    lines += ["", "## What it was made with", ""]
    lines += [f"- {_md(name)}: {_md(value)}" for name, value in report.facts]
    return "\n".join(lines) + "\n"


def latex(report: Report) -> str:
    r"""The tables of a report for a LaTeX document that loads booktabs and graphicx.

    Parameters
    ----------
    report : Report

    Returns
    -------
    str
        A fragment for ``\input``, in ASCII.

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> from algnn.report.outline import outline
    >>> print(latex(outline(gather([example()]))).splitlines()[2])
    \begin{table*}[tp]
    """
    packages = "\\usepackage{booktabs,graphicx}"
    head = f"% Tables of an algnn report, for \\input into a document with {packages}.\n"
    return head + "".join(f"\n{_tex_table(table)}" for table in report.tables())


def table_csv(table: Table) -> str:
    """A table as CSV, its values as numbers; a mean is followed by half its 95% interval.

    Parameters
    ----------
    table : Table

    Returns
    -------
    str

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> from algnn.report.tables import overview
    >>> print(table_csv(overview(gather([example()]), "A CPU, 4 cores", "1")), end="")
    method,digits,digits ±95%
    algnn,65.0,
    """
    ranged = [
        any(isinstance(row.values[i], Summary) for row in table.rows)
        for i in range(len(table.columns))
    ]
    head = [
        name
        for column, wide in zip(table.columns, ranged, strict=True)
        for name in ([column.name, f"{column.name} ±95%"] if wide else [column.name])
    ]
    rows = [
        [cell for v, wide in zip(row.values, ranged, strict=True) for cell in _csv(v, wide)]
        for row in table.rows
    ]
    return _written([head, *rows])


def runs_csv(study: Study) -> str:
    """Every run in a line of CSV.

    Parameters
    ----------
    study : Study

    Returns
    -------
    str

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> runs_csv(gather([example()])).splitlines()[1][:23]
    'digits,algnn,1,42,True,'
    """
    rows: list[Sequence[Any]] = [RUN_COLUMNS]
    for run in study.runs:
        record, outcome = run.record, run.record.outcome
        values = {
            "dataset": run.dataset, "method": run.method, "step": run.step, "seed": run.seed,
            "main": not run.changes, "differs": differs(run), "machine": run.place,
            "device": record.device, "jobs": record.machine.get("jobs"), "base": record.base,
            "edges": record.edges, "order": record.order, "sessions": len(outcome.sessions),
            "ap": run.ap, "af": run.af, "macro": outcome.macro, "micro": outcome.micro,
            "base_accuracy": run.base, "learn_seconds": run.learn,
            "selection_seconds": sum(outcome.selection_seconds) or None,
            "predict_seconds": sum(outcome.predict_seconds), "retained_bytes": run.kept,
            "ece": run.ece, "novelty_auroc": run.auroc,
            "started": record.started, "code": run.code,
            "versions": json.dumps(record.versions, sort_keys=True),
            "settings": json.dumps(record.settings, sort_keys=True, ensure_ascii=False),
            "sha256": record.provenance.get("sha256"),
        }  # fmt: skip
        rows.append([values[name] for name in RUN_COLUMNS])
    return _written(rows)


def _md_section(section: Section, pictures: str) -> Iterator[str]:
    yield f"## {_md(section.title)}"
    for paragraph in section.text:
        yield f"\n{_md_prose(paragraph)}"
    yield from _md_commands(section.commands, folded=False)
    for part in section.parts:
        if part.title:
            yield f"\n### {_md(part.title)}"
        for item in part.items:
            kind = "Figure" if isinstance(item, Chart) else "Table"
            yield f"\n**{kind} {item.number}. {_md(item.title)}.** {_md_prose(item.caption)}\n"
            if isinstance(item, Chart):
                yield f"![{_md(item.alt)}]({pictures}/{item.key}.png)"
            else:
                yield from _md_table(item)
            yield from _md_commands(item.commands)


def _md_table(table: Table) -> Iterator[str]:
    yield _md_line(_md(column.name) for column in table.columns)
    yield _md_line("---:" if column.kind in NUMBERS else "---" for column in table.columns)
    for row in table.rows:
        yield _md_line(_md_cells(table, row))


def _md_cells(table: Table, row: Row) -> Iterator[str]:
    for i, (column, text) in enumerate(zip(table.columns, table.texts(row), strict=True)):
        if column.kind in ("name", "formula") and PLAIN.fullmatch(text):
            text = f"`{text}`"
        else:
            text = _md(text)
        yield f"**{text}**" if i in row.best else f"*{text}*" if i == 0 and row.apart else text


def _md_line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _md_commands(commands: Sequence[str], folded: bool = True) -> Iterator[str]:
    if not commands:
        return
    body = "\n".join(commands)
    runs = [len(found) for found in re.findall(r"`+", body)]
    fence = "`" * max(3, 1 + max(runs, default=0))
    block = f"{fence}sh\n{body}\n{fence}"
    yield (
        f"\n<details><summary>How it was made</summary>\n\n{block}\n\n</details>"
        if folded
        else f"\n{block}"
    )


def _md(text: str) -> str:
    """Text that Markdown takes for nothing else."""
    flat = re.sub(r"\s+", " ", printable(text))
    escaped = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = re.sub(r"([\\`*\[\]|~$])", r"\\\1", escaped)
    # an underline within a word is no mark
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", escaped)


def _md_prose(text: str) -> str:
    """Our own sentences: backticks and stars mark code and stress in them."""
    parts = re.split(r"(`[^`]*`|\*[a-z]+\*)", text)
    return "".join(part if i % 2 else _md(part) for i, part in enumerate(parts))


def _tex_table(table: Table) -> str:
    numbered = "".join(_tex_column(column) for column in table.columns)
    lines = [
        r"\begin{table*}[tp]",
        r"\centering\footnotesize",
        rf"\caption{{\textbf{{{_tex(table.title)}.}} {_tex_prose(table.caption)}}}",
        rf"\label{{tab:{re.sub(r'[^A-Za-z0-9.-]', '-', table.key)}}}",
        # as wide as it is, but never wider than a line
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{numbered}}}",
        r"\toprule",
        " & ".join(rf"\textbf{{{_tex(column.name)}}}" for column in table.columns) + r" \\",
        r"\midrule",
    ]
    for i, row in enumerate(table.rows):
        if row.apart and i and not table.rows[i - 1].apart:
            lines.append(r"\midrule")
        lines.append(" & ".join(_tex_cells(table, row)) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}", r"\end{table*}", ""])


def _tex_column(column: Column) -> str:
    if column.kind in NUMBERS:
        return "r"
    return r"p{4cm}" if column.kind == "text" else "l"


def _tex_cells(table: Table, row: Row) -> Iterator[str]:
    for i, (column, text) in enumerate(zip(table.columns, table.texts(row), strict=True)):
        if column.kind == "formula" and text != NOTHING:
            yield "$" + text.replace("O(", r"\mathcal{O}(", 1).replace("k̄", r"\bar{k}") + "$"
        else:
            yield rf"\textbf{{{_tex(text)}}}" if i in row.best else _tex(text)


def _tex(text: str) -> str:
    """Text that compiles, whatever it holds: what plain LaTeX cannot set is named by its number."""
    return "".join(
        TEX.get(c, c if c.isascii() else rf"\texttt{{U+{ord(c):04X}}}")
        for c in " ".join(printable(text).split())
    )


def _tex_prose(text: str) -> str:
    return _tex(re.sub(r"`([^`]*)`|\*([a-z]+)\*", r"\1\2", text.replace("k̄", "k")))


def printable(text: str) -> str:
    r"""A text without what no document can hold.

    Parameters
    ----------
    text : str

    Returns
    -------
    str

    Examples
    --------
    >>> printable("a\x00b")
    'a�b'
    """
    return "".join(c if c.isprintable() or c.isspace() else "�" for c in text)


def _csv(value: Value, wide: bool) -> list[Any]:
    if isinstance(value, Summary):
        return [value.mean, value.ci95]
    return [value, None] if wide else [value]


def _written(rows: Iterable[Sequence[Any]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()
