"""A few runs on a terminal, or as one JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from algnn.bench.metrics import Matrix, Summary, summarise
from algnn.bench.paper import PaperFigures, paper_figures
from algnn.bench.records import Record, rows

NAMES = {
    "ap": "AP, average performance (%)",
    "af": "AF, average forgetting (%)",
    "macro": "macro, over classes (%)",
    "micro": "micro, over nodes (%)",
    "learn_seconds": "learning (s)",
    "predict_seconds": "predicting (s)",
    "ece": "ECE, calibration error",
    "novelty_auroc": "novelty, AUROC",
}
SHARES = ("ece", "novelty_auroc")
# viridis, the picture's colours, at 0, 25, 50, 75 and 100 per cent
SCALE = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
# widths of a cell: per cents to one decimal, whole per cents (twice), tens only (twice)
DECIMAL, WHOLE, TENS = 6, (4, 3), (2, 1)


def summaries(records: Sequence[Record]) -> dict[str, Summary]:
    """Each figure over the seeds.

    Parameters
    ----------
    records : sequence of Record
        Runs that differ in their seed only.

    Returns
    -------
    dict
        Keys as in `NAMES`; seconds are those of a whole run. Calibration and novelty are left out
        where a run did not measure them.

    Examples
    --------
    >>> from algnn.bench.protocol import Outcome
    >>> outcome = Outcome(((0, 1), (2,)), np.array([[9, 9, 0], [8, 8, 5]]), np.array([10, 10, 10]),
    ...                   (0.5, 0.1), (0.01, 0.01), (800, 880))
    >>> record = Record("digits", {"sha256": "a1"}, "algnn", {"width": 64}, 2, 1, "full", "label",
    ...                 42, outcome, "cpu")
    >>> summaries([record])["ap"]
    Summary(mean=65.0, std=None, ci95=None)
    """
    outcomes = [record.outcome for record in records]
    shares = {"ece": [o.ece for o in outcomes], "novelty_auroc": [o.auroc for o in outcomes]}
    known = {name: [v for v in found if v is not None] for name, found in shares.items()}
    return {
        "ap": summarise(outcome.ap for outcome in outcomes),
        "af": summarise(outcome.af for outcome in outcomes),
        "macro": summarise(outcome.macro for outcome in outcomes),
        "micro": summarise(outcome.micro for outcome in outcomes),
        "learn_seconds": summarise(sum(outcome.learn_seconds) for outcome in outcomes),
        "predict_seconds": summarise(sum(outcome.predict_seconds) for outcome in outcomes),
        **{name: summarise(v) for name, v in known.items() if len(v) == len(outcomes)},
    }


def as_object(records: Sequence[Record]) -> dict[str, Any]:
    """What ``algnn run --json`` prints.

    Parameters
    ----------
    records : sequence of Record
        Runs that differ in their seed only.

    Returns
    -------
    dict
        What JSON can hold.

    Examples
    --------
    >>> from algnn.bench.protocol import Outcome
    >>> outcome = Outcome(((0, 1), (2,)), np.array([[9, 9, 0], [8, 8, 5]]), np.array([10, 10, 10]),
    ...                   (0.5, 0.1), (0.01, 0.01), (800, 880))
    >>> record = Record("digits", {"sha256": "a1"}, "algnn", {"width": 64}, 2, 1, "full", "label",
    ...                 42, outcome, "cpu")
    >>> as_object([record])["runs"][0]["matrix"]
    [[90.0, None], [80.0, 50.0]]
    """
    first = records[0]
    return {
        "dataset": first.dataset,
        "method": first.method,
        "settings": first.settings,
        "base": first.base,
        "step": first.step,
        "edges": first.edges,
        "seeds": [record.seed for record in records],
        "sessions": len(first.outcome.sessions),
        **{name: asdict(summary) for name, summary in summaries(records).items()},
        "retained_bytes": _retained(records),
        "runs": [
            {
                "seed": record.seed,
                "matrix": rows(record.outcome),
                "ap": record.outcome.ap,
                "af": record.outcome.af,
                "macro": record.outcome.macro,
                "micro": record.outcome.micro,
                "learn_seconds": sum(record.outcome.learn_seconds),
            }
            for record in records
        ],
    }


def beside(record: Record) -> PaperFigures | None:
    """The paper's figures, where a run is of the stream that they hold for.

    Parameters
    ----------
    record : Record
        The run.

    Returns
    -------
    PaperFigures or None

    Examples
    --------
    >>> from algnn.bench.protocol import Outcome
    >>> outcome = Outcome(((0, 1), (2,)), np.array([[9, 9, 0], [8, 8, 5]]), np.array([10, 10, 10]),
    ...                   (0.5, 0.1), (0.01, 0.01), (800, 880))
    >>> record = Record("digits", {"sha256": "a1"}, "algnn", {"width": 64}, 2, 1, "full", "label",
    ...                 42, outcome, "cpu")
    >>> beside(record) is None
    True
    """
    classes = sum(map(len, record.outcome.sessions))
    if record.edges != "full" or record.order != "label" or record.base != -(-classes // 2):
        return None
    return paper_figures(record.dataset, record.method, record.step)


def title(records: Sequence[Record]) -> str:
    """What some runs are of, in a line.

    Parameters
    ----------
    records : sequence of Record
        Runs that differ in their seed only.

    Returns
    -------
    str

    Examples
    --------
    >>> from algnn.bench.protocol import Outcome
    >>> outcome = Outcome(((0, 1), (2,)), np.array([[9, 9, 0], [8, 8, 5]]), np.array([10, 10, 10]),
    ...                   (0.5, 0.1), (0.01, 0.01), (800, 880))
    >>> record = Record("digits", {"sha256": "a1"}, "algnn", {"width": 64}, 2, 1, "full", "label",
    ...                 42, outcome, "cpu")
    >>> title([record])
    'digits · algnn · 2 sessions (2 classes, then 1 at a time) · edges full'
    """
    first = records[0]
    count = len(first.outcome.sessions)
    later = f", then {first.step} at a time" if count > 1 else ""
    return (
        f"{first.dataset} · {first.method} · {count} session{'s' * (count > 1)}"
        f" ({first.base} classes{later}) · edges {first.edges}"
    )


def show(console: Console, records: Sequence[Record]) -> None:
    """Print the table of figures, and the mean accuracy matrix as a grid.

    Parameters
    ----------
    console : Console
        Where to.
    records : sequence of Record
        Runs that differ in their seed only.

    Examples
    --------
    >>> from algnn.bench.protocol import Outcome
    >>> outcome = Outcome(((0, 1), (2,)), np.array([[9, 9, 0], [8, 8, 5]]), np.array([10, 10, 10]),
    ...                   (0.5, 0.1), (0.01, 0.01), (800, 880))
    >>> record = Record("digits", {"sha256": "a1"}, "algnn", {"width": 64}, 2, 1, "full", "label",
    ...                 42, outcome, "cpu")
    >>> show(Console(width=80), [record])
    <BLANKLINE>
    digits · algnn · 2 sessions (2 classes, then 1 at a time) · edges full
    <BLANKLINE>
                                 seed 42
    AP, average performance (%)    65.00
    ...
    """
    paper = beside(records[0])
    printed = {"ap": paper.ap, "af": paper.af, "learn_seconds": paper.seconds} if paper else {}
    count = len(records)
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column(
        f"mean of {count} seeds ± 95%" if count > 1 else f"seed {records[0].seed}", justify="right"
    )
    if paper:
        table.add_column("the paper", justify="right")
    for name, summary in summaries(records).items():
        theirs = " ± ".join(f"{v:.2f}" for v in printed.get(name) or () if v is not None)
        ours = _share(summary) if name in SHARES else str(summary)
        table.add_row(NAMES[name], ours, *([theirs] if paper else []))
    table.add_row("retained (MB)", f"{_retained(records) / 1e6:.2f}")
    console.print()
    console.print(title(records), style="bold", markup=False, soft_wrap=True)
    console.print()
    console.print(table)
    if paper and paper.seconds:
        console.print("the paper's seconds are those of an RTX 3090", style="dim")
    console.print()
    matrix = np.mean([record.outcome.matrix for record in records], axis=0)
    console.print(grid(matrix, console.width), no_wrap=True, crop=False)
    console.print()


def _share(summary: Summary) -> str:
    half = "" if summary.ci95 is None else f" ± {summary.ci95:.3f}"
    return f"{summary.mean:.3f}{half}"


def grid(matrix: Matrix, width: int = 80) -> Text:
    """The lower triangle of an accuracy matrix as coloured cells.

    Parameters
    ----------
    matrix : array [T+1, T+1]
        Per cents.
    width : int
        Columns of the terminal. Cells hold per cents to one decimal, whole per cents, or only
        their tens (9 for 90 and more), whichever fits; where nothing does, sessions are left out.

    Returns
    -------
    Text

    Examples
    --------
    >>> print(grid(np.array([[97.5, np.nan], [90.0, 100.0]])))
    accuracy (%) after session (row) on the test nodes of session (column)
           0     1
    0   97.5
    1   90.0 100.0
    """
    count = len(matrix)
    margin = len(str(count - 1)) + 1
    cell = next((c for c in (DECIMAL, *WHOLE, *TENS) if margin + c * count <= width), 1)
    stride = max(1, -(-cell * count // max(1, width - margin)))
    # counted from the end: the last session is always shown
    shown = list(range(count - 1, -1, -stride))[::-1]
    unit = "tens of %" if cell in TENS else "%"
    rows_and_columns = "after session (row) on the test nodes of session (column)"
    drawing = Text(f"accuracy ({unit}) {rows_and_columns}\n")
    drawing.append(f"{_heading(shown, margin, cell)}\n", style="dim")
    for t in shown:
        drawing.append(str(t).rjust(margin - 1) + " ", style="dim")
        for i in shown[: shown.index(t) + 1]:
            drawing.append(_text(matrix[t, i], cell), style=_style(matrix[t, i]))
        drawing.append("\n")
    drawing.right_crop(1)
    return drawing


def _heading(shown: Sequence[int], margin: int, cell: int) -> str:
    """The sessions' numbers above their cells; some are left out where they would touch."""
    digits = len(str(shown[-1]))
    every = -(-(digits + 1) // cell)
    line = " " * margin
    for place in range(0, len(shown), every):
        label = f"{shown[place]} " if cell == DECIMAL else str(shown[place])
        line = line.ljust(margin + place * cell) + label.rjust(cell)
    return line.rstrip()


def _text(value: float, cell: int) -> str:
    if cell == DECIMAL:
        return f"{value:.1f} ".rjust(cell)
    return (f"{value:.0f}" if cell in WHOLE else f"{min(value // 10, 9):.0f}").rjust(cell)


def _style(value: float) -> Style:
    place = value / 25
    low = min(int(place), len(SCALE) - 2)
    red, green, blue = (
        round(a + (b - a) * (place - low)) for a, b in zip(SCALE[low], SCALE[low + 1], strict=True)
    )
    ink = "#ffffff" if 0.299 * red + 0.587 * green + 0.114 * blue < 128 else "#000000"
    return Style.parse(f"{ink} on rgb({red},{green},{blue})")


def _retained(records: Sequence[Record]) -> int:
    return max(record.outcome.retained_bytes[-1] for record in records)
