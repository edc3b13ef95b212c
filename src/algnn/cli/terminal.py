"""Runs that differ in their seed, on a terminal or as one JSON object."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from rich.color import Color, blend_rgb
from rich.console import Console
from rich.style import Style
from rich.text import Text

from algnn.bench.metrics import Matrix
from algnn.bench.paper import PaperFigures, paper_figures
from algnn.bench.record import rows as matrix_rows
from algnn.bench.runs import Summary, summarise
from algnn.cli.shared import plain_table

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
COLOURS = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")
SCALE = [Color.parse(name).get_truecolor() for name in COLOURS]
# widths of a cell: per cents to one decimal, whole per cents (twice), tens only (twice)
DECIMAL, WHOLE, TENS = 6, (4, 3), (2, 1)


def summaries(runs: pd.DataFrame) -> dict[str, Summary]:
    """Each figure of `NAMES` over the seeds, unless a run has not measured it."""
    return {name: summarise(runs[name]) for name in NAMES if runs[name].notna().all()}


def as_object(runs: pd.DataFrame) -> dict[str, Any]:
    """The JSON object of ``algnn run --json``, for runs that differ in their seed only."""
    rows = runs.to_dict("records")
    facts = ("dataset", "method", "settings", "base", "step", "edges")
    figures = ("ap", "af", "macro", "micro", "learn_seconds")
    return {
        **{name: rows[0][name] for name in facts},
        "seeds": [row["seed"] for row in rows],
        "sessions": len(rows[0]["outcome"].sessions),
        **{
            name: {"mean": found.mean, "std": found.std, "ci95": found.ci95}
            for name, found in summaries(runs).items()
        },
        "retained_bytes": int(runs["retained_bytes"].max()),
        "runs": [
            {"seed": row["seed"], "matrix": matrix_rows(row["outcome"])}
            | {name: row[name] for name in figures}
            for row in rows
        ],
    }


def beside(runs: pd.DataFrame) -> PaperFigures | None:
    """The paper's figures, where the runs are of the stream that they hold for."""
    first = runs.iloc[0]
    classes = sum(map(len, first["outcome"].sessions))
    if (first["edges"], first["order"], first["base"]) != ("full", "label", -(-classes // 2)):
        return None
    return paper_figures(first["dataset"], first["method"], int(first["step"]))


def title(runs: pd.DataFrame) -> str:
    """Dataset, method and stream of runs that differ in their seed only, in a line."""
    first = runs.iloc[0]
    count = len(first["outcome"].sessions)
    later = f", then {first['step']} at a time" if count > 1 else ""
    return (
        f"{first['dataset']} · {first['method']} · {count} session{'s' * (count > 1)}"
        f" ({first['base']} classes{later}) · edges {first['edges']}"
    )


def show(console: Console, runs: pd.DataFrame) -> None:
    """Print figures and the mean accuracy matrix of runs that differ in their seed only."""
    paper = beside(runs)
    printed = {"ap": paper.ap, "af": paper.af, "learn_seconds": paper.seconds} if paper else {}
    count = len(runs)
    seeds = f"mean of {count} seeds ± 95%" if count > 1 else f"seed {runs['seed'].iloc[0]}"
    table = plain_table("", seeds, *(["the paper"] if paper else []), right=slice(1, None))
    for name, summary in summaries(runs).items():
        theirs = " ± ".join(f"{v:.2f}" for v in printed.get(name) or () if v is not None)
        digits = 3 if name in SHARES else 2
        half = "" if summary.ci95 is None else f" ± {summary.ci95:.{digits}f}"
        table.add_row(NAMES[name], f"{summary.mean:.{digits}f}{half}", *([theirs] if paper else []))
    table.add_row("retained (MB)", f"{runs['retained_bytes'].max() / 1e6:.2f}")
    console.print()
    console.print(title(runs), style="bold", markup=False, soft_wrap=True)
    console.print()
    console.print(table)
    if paper and paper.seconds:
        console.print("the paper's seconds are those of an RTX 3090", style="dim")
    console.print()
    matrix = np.mean([outcome.matrix for outcome in runs["outcome"]], axis=0)
    console.print(grid(matrix, console.width), no_wrap=True, crop=False)
    console.print()


def grid(matrix: Matrix, width: int = 80) -> Text:
    """The lower triangle of an accuracy matrix in per cent, as coloured cells.

    Cells hold per cents to one decimal, whole per cents, or only their tens (9 for 90 and more),
    whichever fits the width; where nothing does, sessions are left out.
    """
    count = len(matrix)
    margin = len(str(count - 1)) + 1
    cell = next((c for c in (DECIMAL, *WHOLE, *TENS) if margin + c * count <= width), 1)
    stride = max(1, -(-cell * count // max(1, width - margin)))
    # counted from the end: the last session is always shown
    shown = list(range(count - 1, -1, -stride))[::-1]
    unit = "tens of %" if cell in TENS else "%"
    drawing = Text(f"accuracy ({unit}) after session (row) on the test nodes of session (column)\n")
    heading = " " * margin
    # numbers of sessions are left out where they would touch
    for place in range(0, len(shown), -(-(len(str(shown[-1])) + 1) // cell)):
        label = f"{shown[place]}{' ' * (cell == DECIMAL)}"
        heading = heading.ljust(margin + place * cell) + label.rjust(cell)
    drawing.append(f"{heading.rstrip()}\n", style="dim")
    for t in shown:
        drawing.append(str(t).rjust(margin - 1) + " ", style="dim")
        for i in shown[: shown.index(t) + 1]:
            drawing.append(_text(matrix[t, i], cell), style=_style(matrix[t, i]))
        drawing.append("\n")
    drawing.right_crop(1)
    return drawing


def _text(value: float, cell: int) -> str:
    if cell == DECIMAL:
        return f"{value:.1f} ".rjust(cell)
    return (f"{value:.0f}" if cell in WHOLE else f"{min(value // 10, 9):.0f}").rjust(cell)


def _style(value: float) -> Style:
    low = min(int(value / 25), len(SCALE) - 2)
    paper = blend_rgb(SCALE[low], SCALE[low + 1], value / 25 - low)
    ink = "#ffffff" if np.dot(paper, (0.299, 0.587, 0.114)) < 128 else "#000000"
    return Style(color=ink, bgcolor=Color.from_triplet(paper))
