"""A report on disk, every file whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from algnn.bench.records import write_atomically
from algnn.report.drawing import Drawn, render
from algnn.report.evidence import Study
from algnn.report.outline import outline
from algnn.report.page import page
from algnn.report.texts import latex, markdown, runs_csv, table_csv

# at the head of a Markdown document that stands for itself
REMARK = "made from records by `algnn report --markdown`: change those, not this"


def write(study: Study, folder: str | os.PathLike[str]) -> Path:
    """Write a report in all its forms.

    Parameters
    ----------
    study : Study
        As `algnn.report.evidence.read` gives it.
    folder : str or path
        Gets ``index.html``, ``report.md``, ``tables.tex``, ``csv/`` and ``figures/``; files of
        the same name are replaced.

    Returns
    -------
    Path
        The page.

    Examples
    --------
    >>> import tempfile
    >>> from algnn.report.evidence import example, gather
    >>> path = write(gather([example()]), tempfile.mkdtemp())
    >>> sorted(found.name for found in path.parent.iterdir())
    ['csv', 'figures', 'index.html', 'report.md', 'tables.tex']
    """
    root = Path(folder)
    report = outline(study)
    drawn = {chart.key: render(chart) for chart in report.charts()}
    for key, found in drawn.items():
        write_atomically(root / "figures" / f"{key}.svg", found.svg)
    _pictures(drawn, root / "figures")
    write_atomically(root / "csv" / "runs.csv", runs_csv(study).encode())
    for table in report.tables():
        write_atomically(root / "csv" / f"{table.key}.csv", table_csv(table).encode())
    write_atomically(root / "report.md", markdown(report).encode())
    write_atomically(root / "tables.tex", latex(report).encode())
    # last: whoever finds it finds all the rest
    write_atomically(root / "index.html", page(report, drawn).encode())
    return root / "index.html"


def write_markdown(study: Study, path: str | os.PathLike[str]) -> Path:
    """Write a report as one Markdown document, its figures in a folder of the same name.

    Parameters
    ----------
    study : Study
        As for `write`.
    path : str or path
        Such as ``docs/results.md``, whose figures go to ``docs/results/``.

    Returns
    -------
    Path
        The document.

    Examples
    --------
    >>> import tempfile
    >>> from algnn.report.evidence import example, gather
    >>> path = write_markdown(gather([example()]), Path(tempfile.mkdtemp(), "results.md"))
    >>> sorted(found.name for found in path.parent.iterdir())
    ['results', 'results.md']
    """
    target = Path(path)
    report = outline(study)
    _pictures({chart.key: render(chart) for chart in report.charts()}, target.with_suffix(""))
    write_atomically(target, markdown(report, target.stem, REMARK).encode())
    return target


def _pictures(drawn: dict[str, Drawn], folder: Path) -> None:
    for key, found in drawn.items():
        write_atomically(folder / f"{key}.png", found.png)
