"""Settings chosen on validation nodes, with as many trials for every method.

A trial is a run in which validation nodes take the place of test nodes. Which runs are tuned
follows from the records of trials alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from algnn import methods as registry
from algnn import settings
from algnn.errors import InputError

if TYPE_CHECKING:
    from algnn.bench.plan import Plan

TRIALS = 6
CELL = ["dataset", "method", "base", "step", "edges"]  # what a choice is made for


def trials(plan: Plan, count: int = TRIALS) -> list[Plan]:
    """The trials of a plan's method: of its grid `count` settings, evenly, on validation nodes."""
    from algnn.checks import check_number  # not at the top: a report needs no torch

    check_number("trials", count, 1, whole=True)
    grid = registry.find(plan.method).grid
    places = np.unique(np.linspace(0, len(grid) - 1, min(count, len(grid))).round().astype(int))
    trial = replace(plan, seeds=plan.seeds[:1], split="val", confidence=False)  # AP is enough
    return [replace(trial, changes={**plan.changes, **grid[i]}) for i in places]


def chosen(runs: pd.DataFrame) -> pd.DataFrame:
    """Of trials, as ``read_runs(folder, split="val")`` gives them, the setting with the best AP.

    There is a row for each dataset, method and stream, with ``trials``, how many settings there
    were. Of equals the method's own counts, then the first of the grid; a user's, first by text.
    """
    if (runs["split"] != "val").any():
        raise InputError("runs are not trials: read them with read_runs(folder, split='val')")
    found = runs.assign(key=settings_keys(runs)).sort_values("started", kind="stable")
    each = [*CELL, "key"]
    found = found.drop_duplicates([*each, "sha256", "order", "seed", "hardware"], keep="last")
    # means are over the graphs, orders and seeds that all settings were tried on, if there are any
    settings, here = (
        found.groupby([*CELL, *more], dropna=False)["key"].transform("nunique")
        for more in ((), ("sha256", "order", "seed"))
    )
    found["all"] = here == settings
    found = found[found["all"] | ~found.groupby(CELL)["all"].transform("any")].copy()
    found["ap"] = found.groupby(each)["ap"].transform("mean")
    found = found.drop_duplicates(each)
    found["later"] = [_later(run) for run in found.itertuples()]
    found["rounded"] = found["ap"].round(9)  # the order of adding up decides on nothing
    found = found.sort_values(["rounded", "later", "key"], ascending=[False, True, True])
    cells = found.groupby(CELL)
    best = cells.head(1).set_index(CELL).assign(trials=cells.size())
    return best.drop(columns=["key", "all", "later", "rounded"]).sort_index().reset_index()


def tuned(runs: pd.DataFrame, best: pd.DataFrame) -> pd.DataFrame:
    """Those of some runs on test nodes that have the settings that `chosen` gave."""
    given, wanted = (
        pd.MultiIndex.from_frame(of[CELL].assign(key=settings_keys(of))) for of in (runs, best)
    )
    return runs[given.isin(wanted)]


def changed(plans: Sequence[Plan], best: pd.DataFrame) -> list[Plan]:
    """Those of some plans that settings were chosen for, with these settings."""
    from algnn.bench.plan import recorded_name

    wanted = best.set_index(["dataset", "method", "step", "edges"])["settings"].to_dict()
    keys = [(recorded_name(p.dataset), p.method, p.step, p.edges) for p in plans]
    pairs = zip(plans, keys, strict=True)
    return [replace(plan, changes=dict(wanted[key])) for plan, key in pairs if key in wanted]


def settings_keys(runs: pd.DataFrame) -> list[str]:
    """The `settings_key` of each run; what is off in a user's learner only the user knows."""
    pairs = zip(runs["settings"], runs["method"], strict=True)
    return [settings_key(given, method in registry.METHODS) for given, method in pairs]


def settings_key(given: Mapping[str, Any], ours: bool = True) -> str:
    """Settings as text: 1 equals 1.0, and in ours one that is off one that did not exist yet."""
    on = {k: v for k, v in given.items() if not ours or v not in (0, None)}
    return json.dumps({k: float(v) if type(v) is int else v for k, v in on.items()}, sort_keys=True)


def _later(trial: Any) -> tuple[bool, int]:
    """Whether it is not the method's own setting for the graph, and its place in the grid."""
    if trial.method not in registry.METHODS:
        return False, 0
    own, given = settings.read(trial.method, trial.dataset), trial.settings
    other = any(given.get(name) != value for name, value in own.items())
    grid = registry.METHODS[trial.method].grid
    return other, next((i for i, one in enumerate(grid) if one.items() <= given.items()), -1)
