"""Tuned settings in a report: beside a method's own, and mixed with nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from algnn import methods
from algnn.bench.record import Failure
from algnn.bench.runs import frame, write
from algnn.errors import InputError
from algnn.report import tables, verdicts
from algnn.report.build import build
from algnn.report.data import Study, gather, read
from algnn.report.export import markdown

MAIN = ("A CPU, 4 cores", "cora")


@pytest.fixture
def records(make) -> list[list[Any]]:
    """Runs of three methods, trials of two of them, and runs of what these chose.

    `gem` gains by tuning, and `linear-bank`'s own setting is as good as another.
    """

    def run(method: str, last: int, seed: int = 42, split: str = "test", **changes: Any) -> Any:
        given = methods.settings(method, "cora", **changes)
        where = {"dataset": "cora", "method": method, "settings": given, "answers": True}
        return make(last=last, seed=seed, split=split, **where)

    seeds = (42, 43)
    main = [run(name, last, s) for s in seeds for name, last in
            (("algnn", 9), ("gem", 4), ("linear-bank", 5), ("bare", 1))]  # fmt: skip
    trials = [run("gem", 5 + 3 * (lr == 0.005), 42, "val", lr=lr) for lr in (0.001, 0.005)]
    trials += [run("linear-bank", 7, 42, "val", gamma=gamma) for gamma in (0.01, 0.1)]
    again = [run("gem", 6, s, lr=0.005) for s in seeds]
    return [main, trials, again]


@pytest.fixture
def study(records) -> Study:
    main, trials, again = records
    return gather(frame([*main, *again]), None, frame(trials))


def test_own_and_tuned_settings_stand_side_by_side(study):
    table = tables.tuned(study, "cora")
    assert table is not None
    rows = {row[0]: row[1:] for row in map(table.texts, table.rows)}
    assert list(rows) == ["algnn", "gem", "linear-bank"]
    assert rows["algnn"][0] == "70.00 ± 0.00"
    assert rows["algnn"][5:] == ["no setting per graph", "0", "2", "0"]
    assert rows["gem"][:2] == ["45.00 ± 0.00", "55.00 ± 0.00"]
    assert rows["gem"][5:] == ["lr=0.005, margin=0.5", "2", "2", "2"]
    # of equals its own: the runs of the main tables are the tuned ones
    assert rows["linear-bank"][:2] == ["50.00 ± 0.00", "50.00 ± 0.00"]
    assert rows["linear-bank"][5] == "gamma=0.1 (its own)"
    assert table.commands == (
        "algnn tune cora --methods gem,linear-bank --trials 2 --seeds 42,43 --device cpu",
    )
    means = tables.tuned_means(study)
    assert [row.values[:5] for row in means.rows] == [
        ("gem", 1, 45.0, 55.0, 70.0),
        ("linear-bank", 1, 50.0, 50.0, 70.0),
    ]


def test_what_was_chosen_of_a_learner_of_ones_own_is_named(make):
    def run(lr: float, last: int, split: str = "test") -> Any:
        given = {"lr": lr, "power": 2}
        return make(last=last, split=split, dataset="cora", method="mine:Class", settings=given)

    trials = [run(lr, last, "val") for lr, last in ((0.1, 4), (0.2, 6))]
    study = gather(frame([run(0.1, 5), run(0.2, 7)]), None, frame(trials))
    (row,) = tables.tuned(study, "cora").rows
    assert "lr=0.2, power=2" in row.values


def test_neither_trials_nor_tuned_runs_change_another_table(study, records):
    plain = gather(frame(records[0]))
    for make in (tables.leaderboard, tables.retained, lambda s: tables.main(s, *MAIN)):
        assert make(study) == make(plain)
    assert tables.others(study) is None
    assert verdicts.leads(study) == verdicts.leads(plain)
    assert list(verdicts.opening(study))[1:-1] == list(verdicts.opening(plain))[1:-1]
    # without the trials nothing says that a run is tuned
    main, _, again = records
    alone = gather(frame([*main, *again]))
    assert [row.values[0] for row in tables.others(alone).rows] == ["gem"]
    assert tables.tuned_means(alone) is None


def test_the_document_says_what_was_tuned_and_that_algnn_was_not(study, records):
    text = markdown(build(study))
    assert "## Tuned settings" in text
    assert "tried 2 settings in 2 cases of 2 methods on 1 graph" in text
    assert "`algnn` itself has none to try" in text
    assert "then run on test nodes (2 cases, " in text
    assert "tuned on validation nodes it leads all by AP on" in text
    assert "- trials on validation nodes: 4" in text
    assert re.search(r"^- code of trials: \w+ \(4 runs\)$", text, re.MULTILINE)
    main, trials, _ = records
    others = [replace(one, base=1) for one in trials]  # another stream: no choice for this one
    two = [main[0], main[3]]  # algnn and bare
    tried = markdown(build(gather(frame(two), None, frame([trials[1], *others]))))
    assert "No run on test nodes with the chosen settings is on record." in tried
    assert tried.count("margin=0.5") == 1
    plain = markdown(build(gather(frame(main))))
    assert "without its records there are no tuned rows" in plain
    assert "## Tuned settings" not in plain


def test_joint_networks_are_compared_with_both_settings(make, records):
    def run(
        last: int, seed: int = 42, split: str = "test", method: str = "joint", **changes: Any
    ) -> Any:
        given = methods.settings(method, "cora", **changes)
        where = {"dataset": "cora", "method": method, "settings": given, "answers": True}
        return make(last=last, seed=seed, split=split, **where)

    own = [run(7, seed) for seed in (42, 43)]
    trials = [run(5, split="val"), run(8, split="val", lr=0.02)]
    tuned = [run(10, seed, lr=0.02) for seed in (42, 43)]
    *_, last = verdicts.opening(gather(frame([*records[0], *own, *tuned]), None, frame(trials)))
    assert last.startswith("All labels at once, tuned:")
    assert "is above `algnn` on `cora` (5.0, `joint`, undecided)" in last
    untuned = [*records[0], *own, *tuned, run(9, method="joint-sage")]
    *_, last = verdicts.opening(gather(frame(untuned), None, frame(trials)))
    assert "at once, tuned" not in last  # the other network may be the better one, tuned
    # with no rival tuned
    main = [one for one in records[0] if one.method == "algnn"]
    text = "\n".join(verdicts.opening(gather(frame([*main, *own, *tuned]), None, frame(trials))))
    assert "setting of a method was then run on test nodes (1 case, 1 of them on one split" in text
    assert "The verdict rests on one split and one order of classes, and on 2 pairs of" in text
    text = "\n".join(verdicts.opening(gather(frame([*records[0], *own]))))
    assert "It is above on `cora` (10.0, `joint`, the test agrees)" in text
    assert "at once, tuned" not in text


def test_a_tuned_value_is_no_sweep_unless_others_are_there(make):
    def run(gamma: float, **changes: Any) -> Any:
        given = methods.settings("linear-bank", "cora", gamma=gamma)
        return make(dataset="cora", method="linear-bank", settings=given, **changes)

    trials = frame([run(0.1, split="val"), run(1.0, last=9, split="val")])
    own, tuned, third = run(0.1), run(1.0), run(10.0)
    study = gather(frame([own, tuned]), None, trials)
    assert study.sweeps["gamma"] == {}
    ((points,),) = [gather(frame([own, tuned, third]), None, trials).sweeps["gamma"].values()]
    assert list(points) == [0.1, 1.0, 10.0]


def test_a_failed_trial_is_named_and_trials_alone_are_no_report(records, tmp_path):
    main, trials, _ = records
    for trial in trials:
        write(trial, tmp_path)
    with pytest.raises(InputError, match="holds only trials, 4 of them"):
        read([tmp_path])
    write(main[0], tmp_path)
    facts = {name: getattr(trials[0], name) for name in ("dataset", "provenance", "method")}
    stream = {"base": 2, "step": 1, "edges": "full", "order": "label", "device": "cpu"}
    write(Failure(**facts, settings={}, **stream, seed=44, split="val", reason="no room"), tmp_path)
    (row,) = tables.failed(read([tmp_path])).rows
    assert row.values[-1] == "in a trial: no room"
