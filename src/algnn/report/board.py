"""The leaderboard: how the methods stand over all graphs, and the figures that the page draws."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from algnn.bench.runs import summarise
from algnn.methods import METHODS
from algnn.report import verdicts
from algnn.report.data import ALL_LABELS, DEFAULT, SWEEPS, Study, in_order
from algnn.report.style import FAMILIES, Style, styles
from algnn.report.table import WORDS, count


def standings(study: Study) -> tuple[pd.DataFrame, list[str]]:
    """Mean rank, AP and micro of each method, and the graphs that these are means over.

    On these at least half of the class-incremental methods ran. ``on`` is the number of them that
    a method ran on; unless on all, it has no means. Who sees all labels again has no rank.
    """
    ap, micro = study.means["ap"], study.means["micro"]
    names = list(ap.index)
    rivals = [name for name in names if name not in ALL_LABELS]
    compared = [g for g in ap.columns if 2 * ap.loc[rivals, g].notna().sum() >= max(len(rivals), 2)]
    on = ap[compared].notna().sum(axis=1)
    full = ap.loc[(on > 0) & (on == len(compared)), compared]
    rank = full.loc[full.index.isin(rivals)].rank(ascending=False).mean(axis=1)
    means = {"ap": full.mean(axis=1), "micro": micro.loc[full.index, compared].mean(axis=1)}
    found = pd.DataFrame({"rank": rank, **means, "on": on}, index=names)
    found = found.sort_values(["rank", "ap"], ascending=[True, False])
    # who sees all labels again comes last
    return found.loc[sorted(found.index, key=ALL_LABELS.__contains__)], compared


def board(study: Study) -> dict[str, Any]:
    """All that the leaderboard and its chart show, as JSON values."""
    (table, _), looks = standings(study), styles(study.runs.method)
    ahead = {of: verdicts.leads(study, of) for of in ("ap", "micro")}
    graphs, cells = [], {}
    for name in study.datasets(step=1):
        sessions = study.select(dataset=name, step=1).outcome.iloc[0].sessions
        classes = count(sum(map(len, sessions)), "class")
        about = f"{classes} in {count(len(sessions), 'session')}"
        leads = [of for of in ahead if ahead[of].get(name)]
        machine = study.main_hardware(name)
        graphs.append({"name": name, "about": about, "machine": machine, "leads": leads})
        runs = {method: study.anywhere(name, method) for method in table.index}
        cells[name] = {n: _cell(study, name, n, some) for n, some in runs.items() if len(some)}
    kinds = [family(name) for name in in_order(table.index, list(METHODS))]
    return {
        "graphs": graphs,
        "methods": [_method(study, row, looks[row.Index]) for row in table.itertuples()],
        **{"ours": DEFAULT, "marks": verdicts.MARKS, "few": verdicts.FEW},
        "cells": cells,
        **{of: WORDS[of] for of in ("metrics", "kinds")},
        "families": {kind: FAMILIES.get(kind, "vermilion") for kind in kinds},
    }


def family(method: str) -> str:
    """The family of a method, for its chip and its colour."""
    return METHODS[method].kind if method in METHODS else "your own"


def _method(study: Study, row: Any, style: Style) -> dict[str, Any]:
    known = METHODS.get(row.Index)
    return {
        "name": row.Index,
        "family": family(row.Index),
        "apart": row.Index in ALL_LABELS,
        "against": verdicts.tally(study, row.Index),
        "about": f"{known.summary}. Keeps {known.retains}." if known else "a learner of your own",
        **{of: _short(getattr(row, of)) for of in ("rank", "ap", "micro")},
        "style": vars(style),
    }


def _cell(study: Study, graph: str, method: str, runs: pd.DataFrame) -> dict[str, Any]:
    """One method on one graph: metrics as mean and half a 95% interval, lines of charts."""
    hardware = runs.hardware.iloc[0]
    here = hardware == study.main_hardware(graph)
    timed = runs[runs.alone] if here else runs.iloc[:0]
    columns = {"ap": runs.ap, "micro": runs.micro, "macro": runs.macro, "af": runs.af,
               "seconds": timed.learn_seconds, "bytes": runs.retained_bytes, "ece": runs.ece,
               "auroc": runs.novelty_auroc}  # fmt: skip
    found: dict[str, Any] = {"seeds": len(runs), **({} if here else {"machine": hardware})}
    for key, values in columns.items():
        if values.notna().any():
            found[key] = [_short(v) for v in summarise(values)[:2]]
    for of in ("ap", "micro"):
        if test := study.against(graph, method, of):
            interval = [_short(value, 3) for value in (test.difference, test.low, test.high)]
            found[f"{of} against"] = [test.verdict, *interval, test.pairs, test.units]
    outcomes, clocks = list(runs.outcome), list(timed.outcome)
    found["stages"] = _line(o.stagewise for o in outcomes)
    found["kept"] = _line(o.retained_bytes for o in outcomes)[:1]
    means = np.mean([o.matrix for o in outcomes], axis=0)
    found["matrix"] = [[round(v) for v in row[: t + 1]] for t, row in enumerate(means)]
    if clocks:
        found["times"] = _line(np.cumsum(o.learn_seconds) for o in clocks)[:1]
    if told := [o.novelty_aurocs for o in outcomes if o.novelty_aurocs]:
        found["novelty"] = _line(told)
    if curves := [o.reliability for o in outcomes if o.reliability is not None]:
        bins = np.sum(curves, axis=0)
        # a bin with less than a hundredth of the nodes is no point of a curve
        bins = bins[bins[:, 0] >= max(1.0, 0.01 * bins[:, 0].sum())]
        accuracy, sure = ([_short(v) for v in bins[:, i] / bins[:, 0]] for i in (2, 1))
        found["curve"] = [accuracy, [], sure]
    steps = {s: study.cell(hardware, graph, s, method) for s in study.steps(graph, hardware)}
    swept = {n: study.sweeps[n].get((graph, method, hardware), {}) for n in SWEEPS}
    for kind, points in {"steps": steps, **swept}.items():
        if len(ap := {x: summarise(some.ap) for x, some in points.items() if len(some)}) > 1:
            means, halves = ([_short(v[i]) for v in ap.values()] for i in (0, 1))
            found[kind] = [means, halves, list(ap)]
    return found


def _line(values: Iterable[Any]) -> list[list[float | None]]:
    """Means, and halves of 95% intervals, over seeds at each session."""
    found = [summarise(column) for column in zip(*values, strict=True)]
    return [[_short(s.mean) for s in found], [_short(s.ci95, 2) for s in found]]


def _short(value: Any, digits: int = 5) -> float | None:
    """A number in more digits than the page shows; None for what is not there."""
    if value is None or np.isnan(value):
        return None
    # one that ends with 5 may have been rounded up to a half, and must not be rounded up again
    while (short := f"{value:.{digits}g}").endswith("5") and float(short) != value:
        digits += 1
    return float(short)
