"""A method over a graph's stream with several seeds, each run left behind as a record.

`runs` says which runs a plan stands for before any is run; `perform` does one of them, wherever it
is called.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from algnn import methods
from algnn.bench import protocol, records
from algnn.bench.environment import code_version, machine, now, versions
from algnn.checks import check_number, resolve_device
from algnn.errors import InputError
from algnn.graph.datasets import datasets, load
from algnn.graph.stream import ClassStream
from algnn.learner import Learner


@dataclass(frozen=True)
class Plan:
    """What is to be run.

    Attributes
    ----------
    dataset : str
        A dataset's name, or the path of an ``.npz``.
    method : str
        A name of the registry, or the ``module:Class`` of a learner of your own.
    seeds : sequence of int
        One run for each.
    changes : dict
        Settings that differ from the method's for this dataset.
    base, step, edges, order
        As in `ClassStream`.
    device : str
    data : Path or None
        The data root, where it is not the usual one.

    Examples
    --------
    >>> Plan("digits", "algnn", [42]).step
    1
    """

    dataset: str
    method: str
    seeds: list[int]
    changes: dict[str, Any] = field(default_factory=dict)
    base: int | None = None
    step: int = 1
    edges: str = "full"
    order: str | list[int] = "label"
    device: str = "auto"
    data: Path | None = None


def carry_out(plan: Plan, folder: Path) -> list[records.Record]:
    """Run a plan once for each seed; each run's record is on disk as soon as it is done.

    Parameters
    ----------
    plan : Plan
    folder : Path
        For the records.

    Returns
    -------
    list of Record
        In the order of the seeds.

    Examples
    --------
    >>> import tempfile
    >>> quick = {"width": 64, "hidden": 16, "epochs": 2}
    >>> plan = Plan("digits", "algnn", [42], quick, step=5)
    >>> [record.outcome.matrix.shape for record in carry_out(plan, Path(tempfile.mkdtemp()))]
    [(2, 2)]
    """
    methods.find(plan.method)
    resolve_device(plan.device)
    graph: Data = load(plan.dataset, root=plan.data)
    make_folder(folder)
    begun: dict[int, str] = {}
    done: list[records.Record] = []

    def make_learner(seed: int) -> Learner:
        begun[seed] = now()
        return _learner(plan, seed)

    def keep(seed: int, outcome: protocol.Outcome) -> None:
        done.append(_record(plan, graph, seed, outcome, begun.pop(seed), jobs=1))
        records.write(done[-1], folder)

    title = f"{recorded_name(plan.dataset)} {plan.method}"
    protocol.run_seeds(
        make_learner,
        lambda seed: _stream(plan, graph, seed),
        plan.seeds,
        on_outcome=keep,
        title=title,
    )
    return done


def runs(plan: Plan, graph: Data) -> list[records.Run]:
    """Which runs a plan stands for; all that can be checked beforehand is.

    Parameters
    ----------
    plan : Plan
    graph : Data
        The plan's graph.

    Returns
    -------
    list of Run
        In the order of the seeds.

    Examples
    --------
    >>> plan = Plan("digits", "algnn", [42, 43], step=5)
    >>> [(run.base, run.seed) for run in runs(plan, load("digits"))]
    [(5, 42), (5, 43)]
    """
    if len(plan.seeds) == 0:
        raise InputError("seeds is empty: give at least one")
    for seed in plan.seeds:
        check_number("seed", seed, 0, 2**63, whole=True)
    stream = _stream(plan, graph, plan.seeds[0])
    protocol.examination(stream)
    if plan.method in methods.METHODS:  # nobody knows what a user's constructor does
        name = recorded_name(plan.dataset)
        methods.make(plan.method, name, 0, plan.device, **plan.changes)._check_params()
    return [_run(plan, graph, stream.base, seed) for seed in plan.seeds]


def perform(
    plan: Plan,
    seed: int,
    graph: Data,
    jobs: int = 1,
    on_session: Callable[[int, int], None] | None = None,
) -> records.Record:
    """Do one run of a plan.

    Parameters
    ----------
    plan : Plan
    seed : int
        Of this run.
    graph : Data
        The plan's graph.
    jobs : int
        How many runs go on side by side, for the record.
    on_session : callable, optional
        Called with the index of each session once it is learned and tested, and their number.

    Returns
    -------
    Record
        Not yet written.

    Examples
    --------
    >>> plan = Plan("digits", "algnn", [42], {"width": 64, "hidden": 16, "epochs": 2}, step=5)
    >>> perform(plan, 42, load("digits")).outcome.matrix.shape
    (2, 2)
    """
    stream = _stream(plan, graph, seed)

    def tell(index: int) -> None:
        if on_session is not None:
            on_session(index, len(stream))

    started = now()
    outcome = protocol.run(_learner(plan, seed), stream, tell)
    return _record(plan, graph, seed, outcome, started, jobs)


def rehearse(plan: Plan, seed: int, graph: Data, sessions: int = 3) -> None:
    """Have a plan's learner learn the first sessions, and forget about it.

    Parameters
    ----------
    plan : Plan
    seed : int
    graph : Data
        The plan's graph.
    sessions : int

    Examples
    --------
    >>> import algnn
    >>> rehearse(Plan("digits", "ncm", [42], device="cpu"), 42, algnn.load("digits"), sessions=1)
    """
    stream, learner = _stream(plan, graph, seed), _learner(plan, seed)
    for index in range(min(sessions, len(stream))):
        session = stream[index]
        extra = (stream.nodes("val", index),) if learner.uses_validation else ()
        learner.partial_fit(session.graph, session.nodes, session.labels, *extra)
        learner.predict(session.graph, session.nodes)


def recorded_name(dataset: str) -> str:
    """What records call a dataset.

    Parameters
    ----------
    dataset : str
        A dataset's name, or the path of an ``.npz``.

    Returns
    -------
    str
        A user's file keeps its ending, so that it never passes for the dataset it may be named
        after, and loses its folder, which is nobody's business.

    Examples
    --------
    >>> recorded_name("Cora"), recorded_name("secret/cora.npz")
    ('cora', 'cora.npz')
    """
    known = dataset.lower() in {entry.name for entry in datasets()}
    return dataset.lower() if known else Path(dataset).name


def _learner(plan: Plan, seed: int) -> Learner:
    # ours have generators of their own; a user's learner may draw from those that all share
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    name = recorded_name(plan.dataset)
    return methods.make(plan.method, name, seed, plan.device, **plan.changes)


def _stream(plan: Plan, graph: Data, seed: int) -> ClassStream:
    placed = graph
    if methods.find(plan.method).kind != "own":
        # a part of loading, which no clock shall count; a user's learner may not expect it there
        placed = copy.copy(graph).to(resolve_device(plan.device), "x", "edge_index")
    return ClassStream(placed, plan.base, plan.step, plan.order, plan.edges, seed)


def _run(plan: Plan, graph: Data, base: int, seed: int) -> records.Run:
    known = methods.find(plan.method)
    name = recorded_name(plan.dataset)
    return records.Run(
        dataset=name,
        provenance=graph.provenance,
        method=known.name,
        settings=methods.settings(plan.method, name, **plan.changes),
        base=base,
        step=plan.step,
        edges=plan.edges,
        order=plan.order if isinstance(plan.order, str) else ",".join(map(str, plan.order)),
        seed=seed,
        device=resolve_device(plan.device).type,
        code=code_version(known.learner),
    )


def _record(
    plan: Plan, graph: Data, seed: int, outcome: protocol.Outcome, started: str, jobs: int
) -> records.Record:
    run = _run(plan, graph, len(outcome.sessions[0]), seed)
    return records.Record(
        **{name: getattr(run, name) for name in records.RUN_FACTS},
        outcome=outcome,
        started=started,
        versions=versions(methods.find(plan.method).learner),
        machine=machine(jobs),
    )


def make_folder(folder: Path) -> None:
    """Make a folder that can be written to, before hours of work whose result could not be.

    Parameters
    ----------
    folder : Path

    Examples
    --------
    >>> import tempfile
    >>> make_folder(Path(tempfile.mkdtemp()) / "new")
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be a folder: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise InputError(f"{folder} cannot be written to: choose another folder")
