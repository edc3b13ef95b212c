"""The tables of docs/baselines.md, written anew from records.

    python benchmarks/baselines.py docs/baselines.md docs/records

A document marks the place of a table by two comments, ``<!-- table cpu/cora -->`` and
``<!-- end -->``; `refresh` writes between them what the records in the folder ``cpu`` say of cora.
Between ``<!-- grids -->`` and ``<!-- end -->`` it writes each method's settings and grid.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pandas as pd

from algnn.bench.runs import read_runs, summarise, write_atomically
from algnn.bench.tuning import chosen, settings_key, tuned
from algnn.methods import METHODS, settings
from algnn.report.paper import paper_figures
from algnn.settings import grid

PLACE = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
GRIDS = re.compile(r"(<!-- grids -->\n).*?(<!-- end -->)", re.DOTALL)
MEANS = ("mean_ap", "base_accuracy", "macro", "micro")
COLUMNS = (
    *("method", "AP", "AP, paper", "AF", "AF, paper"),
    *("mean AP", "base", "macro", "micro", "learn / bare", "selection / bare", "kept (kB)"),
)


read_once = cache(read_runs)


def comparison(runs: pd.DataFrame, dataset: str, again: pd.DataFrame | None = None) -> str:
    """All methods on one dataset at step 1, in the order of the registry, as a Markdown table.

    Only runs with the whole graph visible and in the order of labels count: not every method has
    others. Of these, those of the method's own settings count where there are any. A method has a
    second row of the runs `again`, which have the settings that trials chose. Times are those of
    `bare` with the same seed, the median over seeds.
    """
    here, best = _compared(runs, dataset), _compared(runs[:0] if again is None else again, dataset)
    of = {name: _own(here[here["method"] == name], name, dataset) for name in METHODS}
    clocked = of["bare"][of["bare"]["alone"]]
    bare = dict(zip(clocked["seed"], clocked["learn_seconds"], strict=True))
    rows = []
    for name, found in of.items():
        if len(found):
            rows.append(_row(dataset, name, found, bare))
        chose = best[best["method"] == name]
        if len(chose) and _is_own(found, name, dataset).any():
            rows.append(_row(dataset, name, chose, bare, ", tuned"))
    return "".join([_line(COLUMNS), _line(["---"] * len(COLUMNS)), *rows])


def grids() -> str:
    """The settings of each method and the grid that it is tuned over, as a Markdown table."""
    rows = [_line(["method", "source", "setting (of Cora)", "grid"]), _line(["---"] * 4)]
    for name, method in METHODS.items():
        tried: dict[str, list[object]] = {}
        for trial in grid(name):
            for setting, value in trial.items():
                tried.setdefault(setting, [])
                tried[setting] += [] if value in tried[setting] else [value]
        words = "; ".join(f"{s} {', '.join(map(_short, v))}" for s, v in tried.items())
        usual = settings(name, "cora")
        own = ", ".join(f"{setting} {_short(usual[setting])}" for setting in tried)
        rows.append(_line([f"`{name}`", method.paper, own or "–", words or "none"]))
    return "".join(rows)


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def refresh(document: Path, records: Path) -> str:
    """The document with every table in it written anew from a folder of folders of records.

    Trials, and runs on the same hardware of what they chose, may lie in any of the folders.
    """
    every, trials = (read_once(records, split) for split in ("test", "val"))
    again = tuned(every, chosen(trials)).sort_values("started")
    again = again.drop_duplicates(["configuration", "seed", "hardware"], keep="last")

    def table(place: re.Match[str]) -> str:
        folder, _, dataset = place[2].rpartition("/")
        found = read_once(records / folder)
        here = again[again["hardware"].isin(found["hardware"])]
        return place[1] + comparison(found, dataset, here) + place[3]

    written = PLACE.sub(table, document.read_text("utf-8"))
    return GRIDS.sub(lambda place: place[1] + grids() + place[2], written)


def _compared(runs: pd.DataFrame, dataset: str) -> pd.DataFrame:
    return runs.query("dataset == @dataset and edges == 'full' and step == 1 and order == 'label'")


def _own(runs: pd.DataFrame, method: str, dataset: str) -> pd.DataFrame:
    own = runs[_is_own(runs, method, dataset)]
    return own if len(own) else runs


def _is_own(runs: pd.DataFrame, method: str, dataset: str) -> pd.Series:
    return runs["settings"].map(settings_key) == settings_key(settings(method, dataset))


def _row(
    dataset: str, method: str, runs: pd.DataFrame, bare: dict[int, float], note: str = ""
) -> str:
    paper = paper_figures(dataset, method)
    clocked = runs[runs["alone"]]
    seconds = clocked["seed"].map(bare)

    def ratio(name: str) -> str:
        # the median: one run beside which the machine was busy does not count
        value = (clocked[name] / seconds).median()
        return "–" if pd.isna(value) else f"{value:.2f}"

    cells = (
        f"`{method}`{note}",
        _with_interval(runs["ap"]),
        "–" if paper is None else f"{paper.ap[0]:.1f}",
        _with_interval(runs["af"]),
        "–" if paper is None or paper.af is None else f"{paper.af[0]:.1f}",
        *(f"{summarise(runs[name]).mean:.1f}" for name in MEANS),
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
