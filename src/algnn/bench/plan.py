"""A method over a graph's stream with several seeds, each run left behind as a record."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from algnn import methods
from algnn.bench import protocol, records
from algnn.checks import resolve_device
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
        A name of the registry.
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
    kind = resolve_device(plan.device).type
    graph: Data = load(plan.dataset, root=plan.data)
    name = _recorded_name(plan.dataset)
    make_folder(folder)
    begun: dict[int, tuple[Learner, str]] = {}
    done: list[records.Record] = []

    def make_learner(seed: int) -> Learner:
        learner = methods.make(plan.method, name, seed, plan.device, **plan.changes)
        begun[seed] = learner, records.now()
        return learner

    def make_stream(seed: int) -> ClassStream:
        return ClassStream(graph, plan.base, plan.step, plan.order, plan.edges, seed)

    def keep(seed: int, outcome: protocol.Outcome) -> None:
        learner, started = begun.pop(seed)
        params = learner.get_params()
        record = records.Record(
            dataset=name,
            provenance=graph.provenance,
            method=plan.method,
            settings={key: params[key] for key in params if key not in methods.APART},
            base=len(outcome.sessions[0]),
            step=plan.step,
            edges=plan.edges,
            order=plan.order if isinstance(plan.order, str) else ",".join(map(str, plan.order)),
            seed=seed,
            outcome=outcome,
            device=kind,
            started=started,
        )
        records.write(record, folder)
        done.append(record)

    title = f"{name} {plan.method}"
    protocol.run_seeds(make_learner, make_stream, plan.seeds, on_outcome=keep, title=title)
    return done


def _recorded_name(dataset: str) -> str:
    # a user's file keeps its ending, so that it never passes for the dataset it may be named after
    known = dataset.lower() in {entry.name for entry in datasets()}
    return dataset.lower() if known else Path(dataset).name


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
