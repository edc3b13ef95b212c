"""Records that tests of the report make: small, with figures that can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algnn import methods
from algnn.bench.metrics import reliability
from algnn.bench.protocol import Outcome
from algnn.bench.record import Failure, Record
from algnn.bench.runs import frame, write
from algnn.report.data import Study, gather, read

GPU = {"architecture": "x86_64", "processor": "Xeon", "cores": 16, "gpu": "A GPU", "jobs": 1}
NASTY = "my.module:<script>alert(1)</script>&\"'|`*_[x](y)\\ ${n}γ中🙂"


def long_outcome(classes: int, step: int, level: float, seconds: float, seed: int) -> Outcome:
    """Accuracy that falls from about 95 per cent to `level` of that, and so do probabilities."""
    random = np.random.default_rng(seed)
    base = -(-classes // 2)
    ends = [*range(base, classes, step), classes]
    members = [range(base), *(range(a, b) for a, b in pairwise(ends))]
    count = len(ends)
    total = np.random.default_rng(0).integers(20, 200, classes)  # those of the graph
    shares = np.linspace(0.95, 0.95 * level, count)[:, None] + random.normal(0, 0.02, (1, classes))
    correct = (total * shares.clip(0, 1)).astype(np.int64)
    for t, end in enumerate(ends):
        correct[t, end:] = 0
    learn = tuple(seconds * random.uniform(0.9, 1.1) / count for _ in ends)
    kept = tuple(1000 + 500 * t for t in range(count))
    outcome = Outcome(tuple(map(tuple, members)), correct, total, learn, (0.01,) * count, kept)
    sure = random.dirichlet(np.full(3, 0.5), 2000)
    bins = reliability(sure, np.where(random.random(2000) < level, sure.argmax(1), 3))
    errors = tuple(random.uniform(0, 1 - level, count))
    told = tuple(random.uniform(level / 2, level, count - 1))
    told_apart = {"calibration_errors": errors, "novelty_aurocs": told, "reliability": bins}
    return answered(replace(outcome, **told_apart))


def answered(outcome: Outcome) -> Outcome:
    """With answers that fit its counts: of each class the first nodes are right."""
    truth = np.repeat(np.arange(outcome.total.size), outcome.total)
    place = np.concatenate([np.arange(count) for count in outcome.total])
    right = place < outcome.correct[-1][truth]
    return replace(outcome, answers=np.where(right, truth, outcome.total.size))


@pytest.fixture
def make(make_record: Callable[..., Record]) -> Callable[..., Record]:
    """A record of three classes: AP is the mean of 10·last and 50, AF is 90 − 10·last.

    With `answers`, what each test node was answered is on record.
    """

    def record(
        last: int = 8,
        seconds: float = 1.0,
        kept: int = 4000,
        answers: bool = False,
        **changes: Any,
    ) -> Record:
        outcome = replace(
            make_record().outcome,
            correct=np.array([[9, 9, 0], [last, last, 5]]),
            learn_seconds=(seconds / 2, seconds / 2),
            retained_bytes=(800, kept),
        )
        given = answered(outcome) if answers else outcome
        return make_record(**{"outcome": given, **changes})

    return record


@pytest.fixture
def study_of(make: Callable[..., Record]) -> Callable[..., Study]:
    """A study of records given as the arguments of `make`."""
    return lambda *given: gather(frame([make(**one) for one in given]))


@pytest.fixture(scope="session")
def rich_folder(
    make_record: Callable[..., Record], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Two graphs, all methods and a user's with a terrible name, steps, sweeps and a failure."""
    folder = tmp_path_factory.mktemp("records")
    names = [*methods.METHODS, NASTY]

    def put(graph: str, classes: int, name: str, seed: int, **changes: Any) -> None:
        level = 0.2 + 0.75 * names.index(name) / len(names)
        seconds = 0.2 + 0.1 * names.index(name)
        outcome = long_outcome(classes, changes.get("step", 1), level, seconds, seed)
        if graph == "corafull-graph" and name == "ncm":  # who knows little has little to forget
            correct = np.minimum(outcome.correct, outcome.total // 20)
            outcome = answered(replace(outcome, correct=correct))
        if graph == "cora" and name == "gem":  # as the first records are
            outcome = replace(outcome, calibration_errors=(), novelty_aurocs=(), reliability=None)
        fields = {"dataset": graph, "method": name, "seed": seed, "outcome": outcome}
        machine = {"device": "cuda", "machine": GPU, "base": -(-classes // 2)}
        write(make_record(**{**fields, **machine, **changes}), folder)

    for seed in (42, 43):
        for name in names:
            for step in (1, 5):
                put("corafull-graph", 70, name, seed, step=step)
        for name in ("algnn-paper", "bare", "gem", "joint", NASTY):
            put("cora", 7, name, seed)
        for width in (128, 512, 4096):
            usual = methods.settings("algnn-paper", "cora")
            put("cora", 7, "algnn-paper", seed, settings={**usual, "width": width})
        put("cora", 7, "gem", seed, settings={**methods.settings("gem", "cora"), "budget": 12})
    facts = ("cora", {}, NASTY, {}, 4, 1, "full", "label", 44, "cuda")
    write(Failure(*facts, reason="<b>out</b> | of"), folder)
    return folder


@pytest.fixture(scope="session")
def rich_study(rich_folder: Path) -> Study:
    return read([rich_folder])


@pytest.fixture(scope="session")
def rich_report(rich_study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a whole report."""
    from algnn.report.export import write as write_report

    return write_report(rich_study, tmp_path_factory.mktemp("report")).parent


@pytest.fixture(scope="session")
def nasty() -> str:
    return NASTY


@pytest.fixture(scope="session")
def long_run() -> Callable[..., Outcome]:
    return long_outcome
