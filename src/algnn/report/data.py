"""The runs of a report: which are compared with which.

Runs on different hardware are never averaged or compared in time. A run belongs to the main tables
if its settings are the method's own for the dataset and its stream is the paper's; for every other
run, the report says what differs. The comparison of methods also takes other random splits and
orders of classes, where most methods have them. Settings that trials chose have tables apart.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from algnn import settings
from algnn.bench.runs import FAILURE_COLUMNS, read_tables
from algnn.bench.significance import FIGURES, Comparison, compare
from algnn.bench.tuning import chosen, settings_keys, tuned
from algnn.errors import InputError
from algnn.graph.catalogue import datasets
from algnn.methods import APART, METHODS

LAST = "digits"  # a small set for trying things out: it stands behind the real graphs
# these see all earlier labels again in each session: upper references, not rivals
ALL_LABELS = tuple(name for name, m in METHODS.items() if "every node and label" in m.retains)
FOCUS = "algnn-paper"
DEFAULT = "algnn"
# variants of one learner are no rivals of each other
OURS = tuple(name for name, m in METHODS.items() if m.paper.startswith("this library"))
UNKNOWN = "not recorded"
# the command's word for a setting that `algnn sweep` changes
SWEEPS = {"width": "expansion", "gamma": "gamma"}
CELL = ["hardware", "dataset", "step", "method"]


@dataclass(frozen=True, eq=False)
class Study:
    """The tables of runs and of failures that a report is about, as `algnn.bench.runs` has them.

    A run also has ``changes`` (the settings that differ from the main tables), ``stream`` (what
    differs there), both in words as ``differs``, ``main``, and ``swept``, the one setting that
    differs if `algnn sweep` can change it; ``drawn`` are those with the stream of the main tables,
    or with a random split and order.
    `trials` has the code's version of each trial, `chosen` the settings that trials chose; runs
    with these are ``tuned``.
    """

    runs: pd.DataFrame
    failures: pd.DataFrame
    passed_over: int
    trials: pd.Series
    chosen: pd.DataFrame

    @cached_property
    def _cells(self) -> dict[tuple[str, str, int, str], pd.DataFrame]:
        return dict(iter(self._main.groupby(CELL)))

    @cached_property
    def _main(self) -> pd.DataFrame:
        return self.runs[self.runs.main]

    def cell(self, hardware: str, dataset: str, step: int, method: str) -> pd.DataFrame:
        """Runs of the main tables that differ in their seed only; may be empty."""
        return self._cells.get((hardware, dataset, step, method), self.runs[:0])

    def select(self, **wanted: Any) -> pd.DataFrame:
        """Runs of the main tables with these values of their columns; None takes any value."""
        masks = [self._main[name] == value for name, value in wanted.items() if value is not None]
        return self._main[np.logical_and.reduce(masks)] if masks else self._main

    @cached_property
    def seen_edges(self) -> pd.DataFrame:
        """Runs at step 1 with nodes that come with their classes, of methods in the main tables."""
        runs = self.runs[[one == {"edges": "seen"} for one in self.runs.stream]]
        runs = runs[runs.own & (runs.step == 1) & runs.dataset.isin(self.datasets(step=1))]
        here = runs.hardware == [self.main_hardware(graph) for graph in runs.dataset]
        return runs[here & runs.method.isin(self.methods(step=1))]

    @cached_property
    def sweeps(self) -> dict[str, dict[tuple[str, str, str], dict[Any, pd.DataFrame]]]:
        """By setting, then dataset, method and hardware: runs by value, the own one included."""
        found: dict[str, dict[Any, dict[Any, pd.DataFrame]]] = {name: {} for name in SWEEPS}
        for name, series in found.items():
            groups = self.runs[self.runs.swept == name].groupby(["dataset", "method", "hardware"])
            for (graph, method, hardware), runs in groups:
                points = dict(iter(runs.groupby(runs.changes.str.get(name))))
                usual = self.cell(hardware, graph, 1, method)
                own = usual.settings.iloc[0].get(name) if len(usual) else None
                if isinstance(own, int | float) and own > 0:
                    points[own] = usual
                series[graph, method, hardware] = dict(sorted(points.items()))
        return found

    @cached_property
    def hardware(self) -> list[str]:
        """Hardware of the main tables, that with the most runs first."""
        return _by_count(self.select().hardware)

    def number(self, hardware: str) -> int:
        """The number by which file names refer to a piece of hardware."""
        rest = sorted(set(self.runs.hardware) - set(self.hardware))
        return [*self.hardware, *rest].index(hardware) + 1

    @cached_property
    def _machines(self) -> dict[str, list[str]]:
        """Of each dataset at step 1 the hardware, that with the most runs first."""
        runs = self.select(step=1)
        return {graph: _by_count(found) for graph, found in runs.hardware.groupby(runs.dataset)}

    def main_hardware(self, dataset: str) -> str:
        """The hardware with the most runs on a dataset at step 1: its times are shown."""
        return self._machines[dataset][0]

    @cached_property
    def compared(self) -> pd.DataFrame:
        """Runs at step 1 that the paired test may take: of all splits and orders that most have."""
        runs = self.runs[self.runs.own & self.runs.drawn & (self.runs.step == 1)]
        methods = runs.groupby("dataset").method.transform("nunique")
        common = runs.groupby(["dataset", "sha256", "order"]).method.transform("nunique")
        return runs[runs.main | (2 * common >= methods)]

    @cached_property
    def tuned(self) -> pd.DataFrame:
        """Runs at step 1 with the settings that trials chose, the method's own or not."""
        return self.runs[self.runs.tuned & self.runs.drawn & (self.runs.step == 1)]

    @cached_property
    def _by_method(self) -> list[dict[tuple[str, str, str], pd.DataFrame]]:
        by = ["hardware", "dataset", "method"]
        return [dict(iter(runs.groupby(by))) for runs in (self.compared, self.tuned)]

    def drawn(self, dataset: str, method: str, tuned: bool = False) -> pd.DataFrame:
        """Runs of a method on all splits and orders, on the main hardware or the next."""
        cells, machines = self._by_method[tuned], self._machines.get(dataset, [])
        rest = sorted({hardware for hardware, *_ in cells}) if tuned else []
        found = [cells.get((hardware, dataset, method)) for hardware in (*machines, *rest)]
        there = (cell for cell in found if cell is not None)
        # on the split and order of the means if it has any
        return min(there, key=lambda cell: not cell.usual.any(), default=self.runs[:0])

    def anywhere(self, dataset: str, method: str, tuned: bool = False) -> pd.DataFrame:
        """Runs as `drawn` gives them, on the split and order of the means alone."""
        return (runs := self.drawn(dataset, method, tuned))[runs.usual.astype(bool)]

    @cached_property
    def means(self) -> dict[str, pd.DataFrame]:
        """Mean AP and micro, a row for each method and a column for each graph."""
        names, graphs = self.methods(step=1), self.datasets(step=1)
        found = {g: [self.anywhere(g, n) for n in names] for g in graphs}
        means = {of: {g: [c[of].mean() for c in found[g]] for g in graphs} for of in FIGURES}
        return {of: pd.DataFrame(means[of], names, graphs) for of in FIGURES}

    @cached_property
    def against(self) -> Callable[..., Comparison | None]:
        """How far `algnn` is ahead of a method on a graph; None without answers to the same nodes.

        Called with graph, method, ``"ap"`` or ``"micro"``, and whether the method is tuned.
        """

        @cache
        def both(graph: str, method: str, tuned: bool) -> dict[str, Comparison]:
            ours, theirs = self.drawn(graph, DEFAULT), self.drawn(graph, method, tuned)
            try:
                return {of: compare(ours, theirs, of) for of in FIGURES if method != DEFAULT}
            except InputError:
                return {}

        return lambda graph, method, figure, tuned=False: both(graph, method, tuned).get(figure)

    def datasets(
        self, hardware: str | None = None, step: int | None = None, *, scored: bool = True
    ) -> list[str]:
        """Datasets of the main tables, real graphs first; not `scored`: synthetic ones too."""
        found = self.select(hardware=hardware, step=step)
        names = found.dataset[~found.synthetic] if scored else found.dataset
        ordered = in_order(set(names), [entry.name for entry in datasets()])
        return sorted(ordered, key=lambda name: name == LAST)

    def methods(
        self, hardware: str | None = None, dataset: str | None = None, step: int | None = None
    ) -> list[str]:
        """Methods of the main tables: the registry's, a user's own, then those with all labels."""
        found = set(self.select(hardware=hardware, dataset=dataset, step=step).method)
        known = in_order(found - set(ALL_LABELS), list(METHODS))
        return [*known, *(name for name in ALL_LABELS if name in found)]

    def steps(self, dataset: str, hardware: str) -> list[int]:
        """Numbers of classes per session with runs in the main tables."""
        return sorted({s for h, g, s, _ in self._cells if (h, g) == (hardware, dataset)})


def read(folders: Sequence[str | os.PathLike[str]]) -> Study:
    """The study of all records below some folders."""
    for folder in folders:
        if not Path(folder).is_dir():
            raise InputError(f"--records {str(folder)!r} is not a folder: give one of records")
    runs, trials, failures = read_tables(folders)
    if runs.empty:
        names = ", ".join(os.fspath(folder) for folder in folders)
        if len(failures):
            raise InputError(
                f"--records {names} holds only runs that failed, {len(failures)} of them, the first"
                f" with {failures.reason[0]}: see to that, then `algnn bench --retry-failed`"
            )
        some = f"only trials, {len(trials)} of them" if len(trials) else "no record of a run"
        raise InputError(f"--records {names} holds {some}: make some with `algnn bench`")
    return gather(runs, failures, trials)


def gather(
    runs: pd.DataFrame, failures: pd.DataFrame | None = None, trials: pd.DataFrame | None = None
) -> Study:
    """The study of a table of runs; of one configuration, seed and hardware the newest counts."""
    if runs.empty:
        raise InputError("runs is empty: a report needs at least one run")
    # as Python's own: a report looks at single values far more often than at whole columns
    plain = runs.astype(dict.fromkeys(runs.select_dtypes("string"), object))
    plain.columns = plain.columns.astype(object)
    given = plain.assign(
        code=runs.code.replace("", UNKNOWN),
        sha256=runs.sha256.fillna(""),
        synthetic=[str(p.get("source", "")).startswith("synthetic") for p in runs.provenance],
        key=settings_keys(runs),
    )
    same = [*CELL, "key", "base", "edges", "order", "sha256", "seed"]
    found = given.sort_values("started", kind="stable").drop_duplicates(same, keep="last")
    usual = found[found.order == "label"]
    pairs = (pair for some in (found, usual) for pair in some.groupby("dataset").sha256)
    graphs = {graph: _by_count(hashes)[0] for graph, hashes in pairs}
    files = dict(zip(found.sha256, found.provenance, strict=True))
    # a user's learner has no settings of its own here but those of most graphs, then of most runs
    texts = [json.dumps(one, sort_keys=True) for one in found.settings]
    uses = found.groupby([found.method, pd.Index(texts)]).dataset.agg(["nunique", "size"])
    own = dict(uses.sort_values(["nunique", "size"]).index)  # the last of a method wins in a dict
    facts = []
    for run in found.itertuples():
        changes, stream = _changes(run, own), _stream(run, graphs)
        facts.append({
            "changes": changes,
            "stream": stream,
            "differs": in_words(changes, stream),
            "swept": _swept(changes, stream) if run.step == 1 else "",
            "main": not (changes or stream),
            "own": not changes,
            "usual": not stream,
            "drawn": _drawn(stream, run.provenance, files[graphs[run.dataset]]),
        })  # fmt: skip
    found = found.assign(**pd.DataFrame(facts, found.index))
    tried = runs.iloc[:0] if trials is None else trials
    best = chosen(tried)
    found["tuned"] = found.index.isin(tuned(found, best).index)
    # one value that trials chose is no sweep
    values = found.groupby(["swept", *CELL]).key.transform("nunique")
    found.loc[found.tuned & (values == 1), "swept"] = ""
    found = found.sort_values(["dataset", "method", "step", "hardware", "seed", "differs"])
    missing = pd.DataFrame(columns=FAILURE_COLUMNS) if failures is None else failures
    half = [-(-outcome.total.size // 2) for outcome in best.outcome]
    shown = best[(best.step == 1) & (best.edges == "full") & (best.base == half)]
    # a copy has columns of one type side by side, and is cut into pieces far more quickly
    kept = found.reset_index(drop=True).copy()
    return Study(kept, missing, len(given) - len(found), tried.code.replace("", UNKNOWN), shown)


def in_order(names: Iterable[str], known: Sequence[str]) -> list[str]:
    """Known names in their order, then others in alphabetical order."""
    rank = {name: i for i, name in enumerate(known)}
    return sorted(names, key=lambda name: (rank.get(name, len(rank)), name))


def _changes(run: Any, own: Mapping[Any, Any]) -> dict[str, Any]:
    """The settings that keep a run out of the main tables."""
    # a user's module is never imported here: a record is data, and must not make code run
    known = run.method in METHODS
    usual = json.loads(_usual(run.method, run.dataset) if known else own[run.method])
    # a setting that did not exist yet was off, and where it is off today nothing has changed
    given = {name: value for name, value in usual.items() if not value} | run.settings
    return {
        name: given.get(name, UNKNOWN)
        for name in sorted(usual.keys() | given.keys())
        if given.get(name, UNKNOWN) != usual.get(name, UNKNOWN)
    }


def _stream(run: Any, graphs: Mapping[Any, Any]) -> dict[str, Any]:
    """What of its stream keeps a run out of the main tables; a setting may have such a name."""
    half = -(-sum(map(len, run.outcome.sessions)) // 2)
    usual = {"edges": "full", "order": "label", "base": half}
    stream = {k: getattr(run, k) for k, value in usual.items() if getattr(run, k) != value}
    return stream | ({} if run.sha256 == graphs[run.dataset] else {"graph": run.sha256 or UNKNOWN})


def _drawn(stream: Mapping[str, Any], here: Mapping[str, Any], usual: Mapping[str, Any]) -> bool:
    """Whether a run's stream is that of the main tables but for a random split and order."""
    if stream.keys() & {"edges", "base"} or stream.get("order", "random-")[:7] != "random-":
        return False
    splits = [str(one.get("split")) for one in (here, usual)]
    kinds = [{**one, "split": split.partition(", seed ")[0], "sha256": ""}
             for one, split in zip((here, usual), splits, strict=True)]  # fmt: skip
    return "graph" not in stream or (kinds[0] == kinds[1] and splits[0] != splits[1])


@cache
def _usual(method: str, dataset: str) -> str:
    """What `methods.settings` gives, which would have to import torch."""
    module, _, name = str(METHODS[method].place).removeprefix("algnn.").partition(":")
    given = {**settings.declared(f"algnn.{module}", name), **settings.read(method, dataset)}
    return json.dumps({name: value for name, value in given.items() if name not in APART})


def in_words(changes: Mapping[str, Any], stream: Mapping[str, Any] | None = None) -> str:
    """Settings and what differs in a stream, as a list."""
    other = dict(stream or {})
    graph = other.pop("graph", None)
    found = [
        f"{name} {UNKNOWN}" if value == UNKNOWN
        else f"{name}={value:g}" if isinstance(value, float)
        else f"{name}={value}"
        for name, value in (*changes.items(), *other.items())
    ]  # fmt: skip
    if graph:
        found.append(f"another file or split of this graph, {graph[:8]}")
    return ", ".join(found)


def _swept(changes: Mapping[str, Any], stream: Mapping[str, Any]) -> str:
    """All that differs, if it is one setting of `SWEEPS` and has a place on a log axis."""
    for name, value in changes.items() if len(changes) == 1 and not stream else ():
        if name in SWEEPS and isinstance(value, int | float) and value > 0:
            return name
    return ""


def _by_count(names: Iterable[str]) -> list[str]:
    return [name for name, _ in Counter(sorted(names)).most_common()]
