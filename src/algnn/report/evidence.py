"""What records say, sorted out: which runs stand beside each other, and which must not.

Runs on different machines are never averaged or compared in time. A run belongs to the main tables
where its settings are the method's own for that dataset and its stream is the paper's; what differs
in any other is told.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from algnn import methods
from algnn.bench import records as store
from algnn.bench.metrics import BINS, Matrix
from algnn.bench.paper import paper_methods
from algnn.bench.protocol import Outcome
from algnn.bench.records import Record
from algnn.errors import InputError
from algnn.graph.datasets import datasets

# these see every label so far again in each session: a mark to reach, not a rival
ALL_LABELS = tuple(
    name for name, method in methods.METHODS.items() if "every node and label" in method.retains
)
FOCUS = "algnn-paper"
DEFAULT = "algnn"
UNKNOWN = "not recorded"
# keys of a run's `changes` that are no setting of its learner
STREAM = ("edges", "order", "base", "graph")


@dataclass(frozen=True, eq=False)
class Result:
    """A record, with the figures that the report asks for again and again worked out once.

    Attributes
    ----------
    record : Record
    changes : dict
        What differs from the method's settings for the dataset and from the paper's stream; empty
        for a run of the main tables.

    Examples
    --------
    >>> run = gather([example()]).runs[0]
    >>> run.ap, run.learn, run.alone, run.changes
    (65.0, 0.6, True, {})
    """

    record: Record
    changes: dict[str, Any]

    @property
    def dataset(self) -> str:
        """The graph's name."""
        return self.record.dataset

    @property
    def method(self) -> str:
        """The method's name; a path for a user's own."""
        return self.record.method

    @property
    def step(self) -> int:
        """How many classes a later session brings."""
        return self.record.step

    @property
    def seed(self) -> int:
        """Of the learner."""
        return self.record.seed

    @property
    def made_up(self) -> bool:
        """Whether the graph is a synthetic one, for time and memory only."""
        return str(self.record.provenance.get("source", "")).startswith("synthetic")

    @cached_property
    def place(self) -> str:
        """What the run ran on; only runs of one place are averaged or compared in time."""
        return place(self.record)

    @property
    def alone(self) -> bool:
        """Whether no other run shared the machine, so that its clock means something."""
        return self.record.machine.get("jobs") in (None, 1)

    @cached_property
    def matrix(self) -> Matrix:
        """Accuracy on session i after session t, [T+1, T+1]."""
        return self.record.outcome.matrix

    @cached_property
    def stages(self) -> npt.NDArray[np.float64]:
        """AP after each session, [T+1]."""
        return self.record.outcome.stagewise

    @cached_property
    def ap(self) -> float:
        """Average performance at the end."""
        return float(self.stages[-1])

    @cached_property
    def af(self) -> float:
        """Average forgetting at the end."""
        return self.record.outcome.af

    @property
    def base(self) -> float:
        """Accuracy on the base session when it was learned."""
        return float(self.matrix[0, 0])

    @cached_property
    def learn(self) -> float:
        """Seconds inside `fit` and `partial_fit`, all sessions together."""
        return float(sum(self.record.outcome.learn_seconds))

    @property
    def kept(self) -> int:
        """Bytes that the learner keeps at the end of the stream."""
        return self.record.outcome.retained_bytes[-1]

    @cached_property
    def ece(self) -> float | None:
        """Expected calibration error at the end; None in records that do not have it."""
        return self.record.outcome.ece

    @cached_property
    def auroc(self) -> float | None:
        """AUROC of novelty, mean over sessions; None in records that do not have it."""
        return self.record.outcome.auroc

    @property
    def code(self) -> str:
        """The version of the code that ran."""
        return str(self.record.versions.get("code", UNKNOWN))


Cells = dict[tuple[str, str, int, str], list[Result]]


@dataclass(frozen=True, eq=False)
class Study:
    """All runs that a report is about.

    Attributes
    ----------
    runs : tuple of Result
        One for each configuration, seed and place: the newest.
    failures : tuple
        Runs that failed, with the fields of a record and a `reason`.
    passed_over : int
        Older records of runs that were done again.

    Examples
    --------
    >>> study = gather([example(seed=42), example(seed=43)])
    >>> study.datasets(), study.methods(), study.steps("digits")
    (['digits'], ['algnn'], [1])
    """

    runs: tuple[Result, ...]
    failures: tuple[Any, ...] = ()
    passed_over: int = 0
    cells: Cells = field(init=False, repr=False)

    def __post_init__(self) -> None:
        cells: Cells = defaultdict(list)
        for run in self.runs:
            if not run.changes:
                cells[run.place, run.dataset, run.step, run.method].append(run)
        object.__setattr__(self, "cells", dict(cells))

    def cell(self, where: str, dataset: str, step: int, method: str) -> list[Result]:
        """Runs that differ in their seed only, in its order."""
        return self.cells.get((where, dataset, step, method), [])

    @cached_property
    def places(self) -> list[str]:
        """Machines, the one with the most runs of the main tables first."""
        return _by_count(key[0] for key, runs in self.cells.items() for _ in runs)

    def number(self, where: str) -> int:
        """The number by which files name a machine."""
        rest = sorted({run.place for run in self.runs} - set(self.places))
        return [*self.places, *rest].index(where) + 1

    def place_of(self, dataset: str, step: int) -> str:
        """The machine with the most runs on a dataset at a step: its figures are drawn."""
        keys = [key for key in self.cells if key[1:3] == (dataset, step)]
        return _by_count(key[0] for key in keys for _ in self.cells[key])[0]

    def datasets(
        self, where: str | None = None, step: int | None = None, *, scored: bool = True
    ) -> list[str]:
        """Datasets with runs in the main tables, in the library's order.

        Made-up graphs, on which accuracy means nothing, are among them only if not `scored`.
        """
        found = {
            key[1]
            for key, runs in self.cells.items()
            if where in (None, key[0])
            and step in (None, key[2])
            and not (scored and runs[0].made_up)
        }
        return in_order(found, [entry.name for entry in datasets()])

    def methods(
        self, where: str | None = None, dataset: str | None = None, step: int | None = None
    ) -> list[str]:
        """Methods with such runs: the registry's, a user's own, then those with all labels."""
        found = {
            key[3]
            for key in self.cells
            if where in (None, key[0]) and dataset in (None, key[1]) and step in (None, key[2])
        }
        known = [name for name in methods.METHODS if name not in ALL_LABELS]
        last = [name for name in ALL_LABELS if name in found]
        return [*in_order(found - set(last), known), *last]

    def steps(self, dataset: str, where: str | None = None) -> list[int]:
        """Steps with such runs."""
        return sorted({k[2] for k in self.cells if k[1] == dataset and where in (None, k[0])})


def gather(records: Iterable[Record], failures: Iterable[Any] = ()) -> Study:
    """Sort out records.

    Parameters
    ----------
    records : iterable of Record
        At least one; of several of one configuration, seed and machine the newest counts.
    failures : iterable
        As `algnn.bench.records.failures` gives them.

    Returns
    -------
    Study

    Examples
    --------
    >>> study = gather([example(), example(started="2030-01-01T00:00:00+00:00")])
    >>> len(study.runs), study.passed_over
    (1, 1)
    """
    given = list(records)
    if not given:
        raise InputError("records is empty: a report needs at least one run")
    newest: dict[tuple[str, int, str], Record] = {}
    for record in given:
        key = (_configuration(record), record.seed, place(record))
        if key not in newest or record.started >= newest[key].started:
            newest[key] = record
    kept = list(newest.values())
    graphs = _commonest((r.dataset, r.provenance.get("sha256")) for r in kept)
    own = _commonest(
        ((r.method, r.dataset), json.dumps(r.settings, sort_keys=True))
        for r in kept
        if r.method not in methods.METHODS
    )
    runs = [Result(record, _changes(record, graphs, own)) for record in kept]
    runs.sort(key=lambda run: (run.dataset, run.method, run.step, run.place, run.seed))
    return Study(tuple(runs), tuple(failures), len(given) - len(kept))


def read(folders: Sequence[str | os.PathLike[str]]) -> Study:
    """Sort out all records below some folders.

    Parameters
    ----------
    folders : sequence of str or path

    Returns
    -------
    Study

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> _ = store.write(example(), folder)
    >>> len(read([folder]).runs)
    1
    """
    found: list[Record] = []
    failed: list[Any] = []
    for folder in folders:
        if not Path(folder).is_dir():
            raise InputError(
                f"--records {os.fspath(folder)!r} is not a folder: give one of records"
            )
        found += store.read_all(folder)
        failed += store.failures(folder)
    if not found:
        names = ", ".join(os.fspath(folder) for folder in folders)
        if failed:
            raise InputError(
                f"--records {names} holds only runs that failed, {len(failed)} of them, the first"
                f" with {failed[0].reason}: see to that, then `algnn bench --retry-failed`"
            )
        raise InputError(
            f"--records {names} holds no record of a run: make some with `algnn bench`"
        )
    return gather(found, failed)


def place(record: Record) -> str:
    """What a run ran on, in words.

    Parameters
    ----------
    record : Record

    Returns
    -------
    str
        The GPU's name for a run on one, the processor's or its architecture's otherwise.

    Examples
    --------
    >>> place(example(machine={"architecture": "aarch64", "processor": None, "cores": 2}))
    'aarch64, 2 cores'
    """
    machine = record.machine
    if record.device != "cpu":
        return str(machine.get("gpu") or record.device)
    name = machine.get("processor") or machine.get("architecture") or "cpu"
    cores = machine.get("cores")
    return f"{name}, {cores} core{'s' * (cores != 1)}" if cores else str(name)


def baselines() -> list[str]:
    """The methods that the paper compares its own with.

    Returns
    -------
    list of str
        In the order of the registry.

    Examples
    --------
    >>> len(baselines()), baselines()[0]
    (10, 'bare')
    """
    return in_order(set(paper_methods()) - {FOCUS}, list(methods.METHODS))


def in_order(names: Iterable[str], known: Sequence[str]) -> list[str]:
    """Known names in their order, then others by the alphabet.

    Parameters
    ----------
    names : iterable of str
    known : sequence of str

    Returns
    -------
    list of str

    Examples
    --------
    >>> in_order({"b", "z", "a", "c"}, ["c", "b"])
    ['c', 'b', 'a', 'z']
    """
    rank = {name: i for i, name in enumerate(known)}
    return sorted(names, key=lambda name: (rank.get(name, len(rank)), name))


def example(**changes: Any) -> Record:
    """A small record for examples: three classes in two sessions.

    Parameters
    ----------
    **changes
        Fields that differ.

    Returns
    -------
    Record

    Examples
    --------
    >>> example(seed=7).seed
    7
    """
    outcome = Outcome(
        ((0, 1), (2,)),
        np.array([[9, 9, 0], [8, 8, 5]]),
        np.array([10, 10, 10]),
        (0.5, 0.1),
        (0.01, 0.01),
        (800, 880),
    )
    fields: dict[str, Any] = {
        "dataset": "digits",
        "provenance": {"sha256": "a1"},
        "method": "algnn",
        "base": 2,
        "step": 1,
        "edges": "full",
        "order": "label",
        "seed": 42,
        "outcome": outcome,
        "device": "cpu",
        "started": "2026-01-01T00:00:00+00:00",
        "versions": {"algnn": "0.1.0", "torch": "2.11.0", "code": "c0de"},
        "machine": {"architecture": "x86_64", "processor": "A CPU", "cores": 4, "gpu": None},
        **changes,
    }
    if "settings" not in fields:
        known = fields["method"] in methods.METHODS
        fields["settings"] = (
            methods.settings(fields["method"], fields["dataset"]) if known else {"width": 8}
        )
    return Record(**fields)


def measured(record: Record) -> Record:
    """The record with calibration and novelty, for examples.

    Parameters
    ----------
    record : Record
        As `example` gives it.

    Returns
    -------
    Record

    Examples
    --------
    >>> outcome = measured(example()).outcome
    >>> outcome.ece, outcome.auroc
    (0.05, 0.8)
    """
    bins = np.zeros((BINS, 3))
    bins[11] = 20, 15, 14
    outcome = replace(
        record.outcome, calibration_errors=(0.1, 0.05), novelty_aurocs=(0.8,), reliability=bins
    )
    return replace(record, outcome=outcome)


def _configuration(record: Record) -> str:
    """All that a run is asked for but its seed; 1 and 1.0 are the same setting.

    So are one that is off (0, false or none) and one that did not exist yet.
    """
    parts = {name: getattr(record, name) for name in store.CONFIGURATION}
    parts["settings"] = {
        name: float(value) if type(value) is int else value
        for name, value in record.settings.items()
        if value
    }
    parts["sha256"] = record.provenance.get("sha256")
    return json.dumps(parts, sort_keys=True)


def _changes(record: Record, graphs: Mapping[Any, Any], own: Mapping[Any, Any]) -> dict[str, Any]:
    """What keeps a run out of the main tables."""
    changes = _settings_changed(record, own)
    classes = sum(map(len, record.outcome.sessions))
    if record.edges != "full":
        changes["edges"] = record.edges
    if record.order != "label":
        changes["order"] = record.order
    if record.base != -(-classes // 2):
        changes["base"] = record.base
    if record.provenance.get("sha256") != graphs[record.dataset]:
        changes["graph"] = record.provenance.get("sha256") or UNKNOWN
    return changes


def _settings_changed(record: Record, own: Mapping[Any, Any]) -> dict[str, Any]:
    # a user's module is never imported here: a record is data, and must not make code run
    if record.method in methods.METHODS:
        usual = json.loads(json.dumps(methods.settings(record.method, record.dataset)))
    else:
        usual = json.loads(own[record.method, record.dataset])
    # a setting that did not exist yet was off, and where it is off today nothing has changed
    given = {name: value for name, value in usual.items() if not value} | record.settings
    return {
        name: given.get(name, UNKNOWN)
        for name in sorted(usual.keys() | given.keys())
        if name not in usual or name not in given or given[name] != usual[name]
    }


def _commonest(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """For each key the value that it has most often; of equals the first by its text."""
    counts: dict[Any, Counter[Any]] = defaultdict(Counter)
    for key, value in pairs:
        counts[key][value] += 1
    return {
        key: min(found, key=lambda value: (-found[value], str(value)))
        for key, found in counts.items()
    }


def _by_count(names: Iterable[str]) -> list[str]:
    counts = Counter(names)
    return sorted(counts, key=lambda name: (-counts[name], name))
