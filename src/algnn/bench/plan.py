"""Plans: which runs are wanted; and `perform`, which does one of them wherever it is called."""

import os
import random
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from algnn import methods as registry
from algnn.bench import protocol, runs
from algnn.bench.environment import code_version, machine, now, versions
from algnn.bench.record import RUN_FACTS, Record, Run
from algnn.checks import check_base, check_number, resolve_device
from algnn.errors import DatasetError, InputError
from algnn.files import make_folder
from algnn.graph.datasets import available, datasets, load
from algnn.graph.stream import ClassStream
from algnn.learner import Learner

DATASETS = ("digits", "cora", "citeseer", "computers")
Tell = Callable[[int, int], None]  # is given the number of sessions that are done, and of all


@dataclass(frozen=True)
class Plan:
    """One method on one dataset, one run for each seed; the stream is as in `ClassStream`."""

    dataset: str  # a name, or the path of an .npz
    method: str  # a name of the registry, or module:Class
    seeds: list[int]
    changes: dict[str, Any] = field(default_factory=dict)  # settings that are not the method's own
    base: int | None = None
    step: int = 1
    edges: str = "full"
    order: str | list[int] = "label"  # "random-3" is that of seed 3, whatever the learner's seed
    device: str = "auto"
    data: Path | None = None  # a data root other than the usual one
    confidence: bool = True  # as in `protocol.run`
    draw: int = 42  # the seed of the random split of a graph without one
    split: str = "test"  # the nodes that are asked about, "val" for trials


def cross(
    datasets: Sequence[str],
    methods: Mapping[str, dict[str, Any]],
    steps: Sequence[int],
    seeds: Sequence[int],
    **common: Any,
) -> list[Plan]:
    """Every method (with its changed settings) on every dataset with every step and seed."""
    _check_some(datasets=datasets, methods=methods, steps=steps)
    return [
        Plan(os.fspath(dataset), method, list(seeds), changes, step=step, **common)
        for dataset in datasets
        for step in steps
        for method, changes in methods.items()
    ]


def _check_some(**given: Sized) -> None:
    for name, some in given.items():
        if not len(some):
            raise InputError(f"{name} is empty: give at least one")


def varied(plans: Sequence[Plan], splits: int = 1, orders: int = 1, draws: int = 1) -> list[Plan]:
    """The same plans with random splits and orders of classes besides their own.

    These are crossed with each other and the seeds; of `draws`, all three change at once.
    """
    for name, count in (("splits", splits), ("orders", orders), ("draws", draws)):
        check_number(name, count, 1, whole=True)
    if draws > 1 and (splits, orders) != (1, 1):
        raise InputError("draws changes splits and orders at once: give either it or these")
    if max(orders, draws) > 1 and any(plan.order == "random" for plan in plans):
        words = "each seed has an order of its own, which may be among the others"
        raise InputError(f"order='random' with several orders or draws: {words}; give one of them")
    pairs = product(range(splits), range(orders)) if draws == 1 else ((i, i) for i in range(draws))
    found = []
    for (split, order), plan in product(pairs, plans):
        own = str(plan.order).partition("random-")[2]  # the others have the numbers after it
        named = f"random-{int(own or 0) + order}" if order else plan.order
        seeds = plan.seeds if draws == 1 else [plan.seeds[0] + split]
        found.append(replace(plan, draw=plan.draw + split, order=named, seeds=seeds))
    return found


def at_hand(data: Path | None = None) -> list[str]:
    """Those of the benchmark's usual datasets that need no download."""
    return [name for name in DATASETS if available(name, data)]


def fit_changes(names: Sequence[str], changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """For each method those of the changed settings that it has; one of the methods must."""
    known = {name: registry.find(name).defaults for name in names}
    every = {setting: value for defaults in known.values() for setting, value in defaults.items()}
    for setting in changes:
        registry.check_known(", ".join(names), setting, every)
    return {n: {s: v for s, v in changes.items() if s in d} for n, d in known.items()}


def planned(plan: Plan, graph: Data) -> list[Run]:
    """The runs of a plan, by seed; everything that can be checked beforehand is checked."""
    _check_some(seeds=plan.seeds)
    for seed in plan.seeds:
        check_number("seed", seed, 0, 2**63, whole=True)
    stream = _stream(plan, graph, plan.seeds[0])
    protocol.tests_of(stream, plan.split)
    if plan.method in registry.METHODS:  # nobody knows what a user's learner does
        check_base(np.array(stream.classes[0]))
        _learner(plan, 0)._check_params()
    return [_run(plan, graph, stream.base, seed) for seed in plan.seeds]


def recorded_name(dataset: str) -> str:
    """The dataset's name in records, where a graph of one's own never passes for a known one."""
    known, own = {entry.name for entry in datasets()}, Path(os.path.abspath(dataset)).name
    if own != own.encode(errors="replace").decode():  # no table of runs could be made of it
        raise InputError(f"{own!r} is not in UTF-8, and records need its name: rename it")
    shown = f"./{own}" if own.lower() in known else own
    return dataset.lower() if dataset.lower() in known else shown


def carry_out(plan: Plan, folder: Path, tell: Tell = lambda done, of: None) -> list[Record]:
    """Run a plan in this process, seed after seed."""
    registry.find(plan.method)
    resolve_device(plan.device)  # before a graph is downloaded
    graph = load(plan.dataset, root=plan.data, seed=plan.draw)
    planned(plan, graph)
    make_folder(folder)
    found, count = list[Record](), len(plan.seeds)
    for seed in plan.seeds:
        done = perform(plan, seed, graph, tell=lambda i, of: tell(len(found) * of + i, count * of))
        runs.write(done, folder)
        found.append(done)
    return found


def perform(
    plan: Plan, seed: int, graph: Data, jobs: int = 1, tell: Tell = lambda done, of: None
) -> Record:
    """Do one run of a plan on its graph, one of `jobs` that go on side by side."""
    stream = _stream(plan, graph, seed)
    # ours have generators of their own; a user's learner may draw from those that all share
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    learner, started = _learner(plan, seed), now()
    asked: Any = {"split": plan.split, "confidence": plan.confidence}
    outcome = protocol.run(learner, stream, lambda i: tell(i + 1, len(stream)), **asked)
    run = _run(plan, graph, stream.base, seed)
    facts: Any = {name: getattr(run, name) for name in RUN_FACTS} | {"started": started}
    code = versions(registry.find(plan.method).learner)
    return Record(**facts, outcome=outcome, versions=code, machine=machine(jobs))


def rehearse(plan: Plan, seed: int, graph: Data) -> None:
    """Learn the first three sessions with a learner that is thrown away, in few epochs."""
    if "epochs" in registry.find(plan.method).defaults:
        plan = replace(plan, changes={**plan.changes, "epochs": 2})
    stream, learner = _stream(plan, graph, seed), _learner(plan, seed)
    for session in islice(stream, 3):
        extra = (stream.nodes("val", session.index),) if learner.uses_validation else ()
        learner.partial_fit(session.graph, session.nodes, session.labels, *extra)
        learner.predict(session.graph, session.nodes)


def _learner(plan: Plan, seed: int) -> Learner:
    name = recorded_name(plan.dataset)
    return registry.make(plan.method, name, seed, plan.device, **plan.changes)


def _stream(plan: Plan, graph: Data, seed: int) -> ClassStream:
    if graph.get("y") is None:
        raise DatasetError(f"{plan.dataset}: y is missing: a benchmark needs the labels of nodes")
    # tensors of its own for each run: what one learner may do to them is no other's concern
    placed = graph.clone(*protocol.INPUTS)
    if registry.find(plan.method).kind != "own":
        # a part of loading, which no clock shall count; a user's learner may not expect it there
        placed = placed.to(resolve_device(plan.device), *protocol.INPUTS)
    order = plan.order
    if isinstance(order, str) and order.startswith("random-"):
        order, seed = "random", int(order.removeprefix("random-"))
    return ClassStream(placed, plan.base, plan.step, order, plan.edges, seed)


def _run(plan: Plan, graph: Data, base: int, seed: int) -> Run:
    known, name = registry.find(plan.method), recorded_name(plan.dataset)
    settings = registry.settings(plan.method, name, **plan.changes)
    # whatever kind of integers they are given in
    order = plan.order if isinstance(plan.order, str) else ",".join(str(int(c)) for c in plan.order)
    stream = base, int(plan.step), plan.edges, order
    device, code = resolve_device(plan.device).type, code_version(known.learner)
    facts = (name, graph.provenance, known.name, settings, *stream, int(seed), device, plan.split)
    return Run(*facts, code=code)
