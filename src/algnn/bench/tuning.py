"""Settings chosen on validation nodes, with as many trials for every method.

A trial is a run like any other, in which validation nodes take the place of test nodes
(``split="val"``). Its record holds the setting and what came of it, so the choice can be made again
by anyone who has the records, and nothing else says which runs are tuned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from algnn import methods as registry
from algnn import settings
from algnn.bench.plan import Plan, recorded_name
from algnn.errors import InputError

TRIALS = 6
# what a choice is made for: one graph and stream
CELL = ("dataset", "method", "base", "step", "edges")


def trials(plan: Plan, count: int = TRIALS) -> list[Plan]:
    """The trials of a plan's method: its grid, with the plan's first seed, on validation nodes.

    A method without a grid has none. Of a grid that is larger, `count` settings are taken, evenly.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InputError(f"trials={count!r} must be a whole number of at least 1")
    grid = settings.grid(plan.method) if plan.method in registry.METHODS else []
    places = np.unique(np.linspace(0, len(grid) - 1, min(count, len(grid))).round().astype(int))
    return [
        replace(plan, seeds=plan.seeds[:1], changes={**plan.changes, **grid[i]}, split="val")
        for i in places
    ]


def chosen(runs: pd.DataFrame) -> pd.DataFrame:
    """Of some trials, the one with the best AP for each dataset, method and stream.

    Parameters
    ----------
    runs : DataFrame
        Trials, as ``read_runs(folder, split="val")`` gives them; one seed, split and order each.

    Returns
    -------
    DataFrame
        A row each, with ``trials``, how many it was chosen from. Of equally good ones the first
        counts, by their settings.
    """
    if (runs["split"] != "val").any():
        raise InputError("runs are not trials: read them with read_runs(folder, split='val')")
    ordered = runs.assign(text=[repr(sorted(given.items())) for given in runs["settings"]])
    ordered = ordered.sort_values(["ap", "text"], ascending=[False, True], kind="stable")
    cells = ordered.groupby(list(CELL), sort=False)
    best = cells.head(1).set_index(list(CELL))
    return best.assign(trials=cells.size()).drop(columns="text").sort_index().reset_index()


def tuned(runs: pd.DataFrame, best: pd.DataFrame) -> pd.DataFrame:
    """Those of some runs on test nodes that have the settings that `chosen` gave."""
    wanted = {tuple(row[n] for n in CELL): row["settings"] for _, row in best.iterrows()}
    cells = ((tuple(row[n] for n in CELL), row["settings"]) for _, row in runs.iterrows())
    return runs[np.array([wanted.get(cell) == given for cell, given in cells], dtype=bool)]


def changed(plans: Sequence[Plan], best: pd.DataFrame) -> list[Plan]:
    """Those of some plans that settings were chosen for, with these settings."""
    names = ("dataset", "method", "step", "edges")
    wanted = {tuple(row[name] for name in names): row["settings"] for _, row in best.iterrows()}
    keys = [(recorded_name(p.dataset), p.method, p.step, p.edges) for p in plans]
    pairs = zip(plans, keys, strict=True)
    return [replace(plan, changes=dict(wanted[key])) for plan, key in pairs if key in wanted]
