"""The tables of docs/baselines.md, written anew from records.

    python benchmarks/baselines.py docs/baselines.md docs/records

A document marks the place of a table by two comments, ``<!-- table cpu/cora -->`` and
``<!-- end -->``; `refresh` writes between them what the records in the folder ``cpu`` say of cora.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from algnn.bench.paper import paper_figures
from algnn.bench.runs import read_runs, summarise, write_atomically
from algnn.methods import METHODS, settings

PLACE = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
COLUMNS = (
    *("method", "AP", "AP, paper", "AF", "AF, paper"),
    *("base", "macro", "micro", "learn / bare", "selection / bare", "kept (kB)"),
)


def comparison(runs: pd.DataFrame, dataset: str) -> str:
    """All methods on one dataset at step 1, in the order of the registry, as a Markdown table.

    Only runs of the paper's stream count, and only those of the method's own settings where there
    are any. Times are those of `bare` with the same seed, the median over seeds.
    """
    chosen = runs.query(
        "dataset == @dataset and edges == 'full' and order == 'label' and step == 1"
    )
    of = {name: _own(chosen[chosen["method"] == name], name, dataset) for name in METHODS}
    clocked = of["bare"][of["bare"]["alone"]]
    bare = dict(zip(clocked["seed"], clocked["learn_seconds"], strict=True))
    rows = [_row(dataset, name, found, bare) for name, found in of.items() if len(found)]
    return "".join([_line(COLUMNS), _line(["---"] * len(COLUMNS)), *rows])


def refresh(document: Path, records: Path) -> str:
    """The document with every table in it written anew from a folder of folders of records."""

    def table(place: re.Match[str]) -> str:
        folder, _, dataset = place[2].rpartition("/")
        return place[1] + comparison(read_runs(records / folder), dataset) + place[3]

    return PLACE.sub(table, document.read_text("utf-8"))


def _own(runs: pd.DataFrame, method: str, dataset: str) -> pd.DataFrame:
    usual = settings(method, dataset)
    # a setting that did not exist yet was off
    off = {name: value for name, value in usual.items() if not value}
    own = runs[[off | given == usual for given in runs["settings"]]]
    return own if len(own) else runs


def _row(dataset: str, method: str, runs: pd.DataFrame, bare: dict[int, float]) -> str:
    paper = paper_figures(dataset, method)
    clocked = runs[runs["alone"]]
    seconds = clocked["seed"].map(bare)

    def ratio(name: str) -> str:
        # the median: one run beside which the machine was busy does not count
        value = (clocked[name] / seconds).median()
        return "–" if pd.isna(value) else f"{value:.2f}"

    cells = (
        f"`{method}`",
        _with_interval(runs["ap"]),
        "–" if paper is None else f"{paper.ap[0]:.1f}",
        _with_interval(runs["af"]),
        "–" if paper is None or paper.af is None else f"{paper.af[0]:.1f}",
        *(f"{summarise(runs[name]).mean:.1f}" for name in ("base_accuracy", "macro", "micro")),
        ratio("learn_seconds"),
        ratio("selection_seconds"),
        f"{runs['retained_bytes'].median() / 1000:,.0f}",
    )
    return _line(cells)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def _with_interval(values: Iterable[float]) -> str:
    mean, ci95, _ = summarise(values)
    return f"{mean:.1f}" + ("" if ci95 is None else f" ± {ci95:.1f}")


if __name__ == "__main__":
    target, folder = map(Path, sys.argv[1:])
    write_atomically(target, refresh(target, folder).encode())
