"""Trials: as many for every method, on validation nodes alone, and records like any other."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import algnn
from algnn import methods, settings
from algnn.bench import protocol, record, runs, scheduler, tuning
from algnn.bench.plan import Plan, carry_out, varied
from algnn.errors import AlgnnError, InputError
from algnn.methods import METHODS, make

UNTUNED = {"algnn", "algnn-nodes", "algnn-ssl"}


def test_a_setting_that_is_off_equals_none_at_all():
    assert tuning.settings_key({"a": 1, "b": 0, "c": None}) == tuning.settings_key({"a": 1.0})
    # but in a user's learner, which may tell them apart
    assert len({tuning.settings_key({"a": off}, ours=False) for off in (0, None, False)}) == 3


@pytest.mark.parametrize("name", METHODS)
def test_every_method_but_ours_has_as_many_trials_that_its_learner_takes(name):
    grid = settings.grid(name)
    assert len(grid) == (0 if name in UNTUNED else tuning.TRIALS)
    for trial in grid:
        chosen = methods.settings(name, "cora", **trial)
        make(name, "cora", device="cpu", **trial)._check_params()
        assert trial.items() <= chosen.items()


@pytest.fixture
def path(tmp_path, make_graph):
    algnn.save_npz(make_graph(), tmp_path / "small.npz")
    return str(tmp_path / "small.npz")


def test_the_best_trial_is_run_and_no_test_node_is_looked_at(path, tmp_path):
    plan = Plan(path, "linear-bank", [42, 43], device="cpu")
    tried = tuning.trials(plan, 3)
    assert [trial.changes["gamma"] for trial in tried] == [1e-6, 0.01, 10.0]
    assert {(trial.split, trial.confidence) for trial in tried} == {("val", False)}
    folder = tmp_path / "records"
    for trial in tried:
        carry_out(trial, folder)
    trials = runs.read_runs(folder, split="val")
    assert len(trials) == 3
    assert runs.read_runs(folder).empty  # no table takes trials for results
    best = tuning.chosen(trials)
    assert best["trials"].tolist() == [3]
    assert best["ap"].item() == trials["ap"].max()
    again = tuning.changed([plan], best)
    assert again[0].changes["gamma"] == best["settings"].item()["gamma"]
    for one in (*again, plan):
        carry_out(one, folder)
    found = runs.read_runs(folder)
    assert len(found) == 4
    assert tuning.tuned(found, best)["seed"].tolist() == [42, 43]
    with pytest.raises(InputError, match="are not trials"):
        tuning.chosen(found)
    # with other labels at all test nodes, every trial is the same
    spoiled = algnn.load(path)
    spoiled.y[spoiled.test_mask] = spoiled.y[spoiled.test_mask].roll(1)
    learner = make("linear-bank", "small.npz", 42, "cpu", gamma=0.01)
    outcome = protocol.run(learner, algnn.ClassStream(spoiled), split="val")
    assert outcome.ap == trials[[s["gamma"] == 0.01 for s in trials["settings"]]]["ap"].item()
    assert outcome.total.sum() == int(spoiled.val_mask.sum())


def test_a_class_without_validation_nodes_counts_in_no_trial(tmp_path, make_graph):
    graph = make_graph()
    last = int(graph.y.max())
    graph.val_mask &= graph.y != last
    algnn.save_npz(graph, tmp_path / "rare.npz")
    (trial, *_) = tuning.trials(Plan(str(tmp_path / "rare.npz"), "linear-bank", [42], device="cpu"))
    folder = tmp_path / "records"
    carry_out(trial, folder)
    (found,) = runs.read_records(folder)
    assert np.isnan(found.outcome.matrix[-1, -1])
    assert found.outcome.ap == pytest.approx(found.outcome.matrix[-1, :-1].mean())
    carry_out(dataclasses.replace(trial, confidence=True), tmp_path / "measured")
    (measured,) = runs.read_records(tmp_path / "measured")
    assert len(measured.outcome.novelty_aurocs) == len(measured.outcome.sessions) - 2
    graph.val_mask &= graph.y == last
    algnn.save_npz(graph, tmp_path / "rare.npz")
    with pytest.raises(InputError, match="no val node in session 0"):
        carry_out(trial, folder)


def test_of_equal_trials_the_own_setting_is_chosen_and_seeds_are_averaged(make_record):
    def trial(ap: int, started: str = "2026", seed: int = 42, **changes):
        outcome = dataclasses.replace(
            make_record().outcome, correct=np.array([[9, 9, 0], [ap, ap, ap]])
        )
        given = methods.settings("bare", "cora", **changes)
        return make_record(
            dataset="cora", method="bare", settings=given, outcome=outcome, split="val",
            seed=seed, started=started,
        )  # fmt: skip

    def choose(*trials):
        (row,) = tuning.chosen(runs.frame(trials)).to_dict("records")
        return row["settings"]["lr"], row["settings"]["epochs"], row["trials"]

    own, others = trial(5), [trial(5, lr=lr, epochs=e) for lr in (0.01, 0.005) for e in (200, 50)]
    assert choose(*others, own) == (0.001, 50, 5)
    assert choose(*others) == (0.005, 50, 4)  # one change, and first of the grid
    # two seeds of one setting are one trial, and their mean counts, if all settings have both
    two = trial(9, lr=0.01), trial(0, seed=43, lr=0.01)
    assert choose(own, trial(5, seed=43), *two) == (0.001, 50, 2)
    assert choose(own, *two) == (0.01, 50, 2)
    # a repeated trial replaces the old one
    assert choose(own, trial(9, lr=0.01), trial(1, "2027", lr=0.01)) == (0.001, 50, 2)
    # of a learner of one's own, whichever was tried first
    mine = [
        dataclasses.replace(one, method="mine:Class", settings={"lr": lr, "epochs": 1})
        for one, lr in ((trial(5, "2025"), 0.3), (trial(5), 0.1), (trial(5, "2027"), 0.2))
    ]
    assert choose(*mine) == choose(*mine[::-1]) == (0.1, 1, 3)
    # a setting that is off did not exist in older records
    best = tuning.chosen(runs.frame([own]))
    main = make_record(dataset="cora", method="bare", settings=own.settings | {"new": False})
    assert len(tuning.tuned(runs.frame([main]), best)) == 1


def test_answers_are_kept_by_true_class_and_read_back(path, tmp_path):
    (found,) = carry_out(Plan(path, "bare", [1], {"epochs": 3}, edges="seen"), tmp_path / "r")
    outcome = found.outcome
    truth = np.repeat(np.arange(outcome.total.size), outcome.total)
    right = np.bincount(truth[outcome.answers == truth], minlength=outcome.total.size)
    assert right.tolist() == outcome.correct[-1].tolist()
    (read,) = runs.read_records(tmp_path / "r")
    assert np.array_equal(read.outcome.answers, outcome.answers)
    runs.pack(tmp_path / "r")
    (packed,) = runs.read_records(tmp_path / "r")
    assert np.array_equal(packed.outcome.answers, outcome.answers)
    for damaged in ("", "AAAA", record.packed(outcome.answers[1:], 4)):
        text = record.as_json(found) | {"answers": damaged}
        with pytest.raises(AlgnnError, match="is not a record"):
            record.from_json(runs.json.dumps(text).encode(), "here")
    # figures that do not follow from the answers
    text = record.as_json(found)
    text["correct"] = [
        *text["correct"][:-1],
        [text["correct"][-1][0] - 1, *text["correct"][-1][1:]],
    ]
    with pytest.raises(AlgnnError, match="answers and the last row of correct do not agree"):
        record.from_json(runs.json.dumps(text).encode(), "here")
    # a class that was never seen is none of the columns
    stream = algnn.ClassStream(algnn.load(path))

    class Wrong(type(make("bare", "small.npz"))):
        def predict(self, graph, nodes=None):
            return np.full(len(super().predict(graph, nodes)), 99)

    assert set(protocol.run(Wrong(epochs=1), stream).answers.tolist()) == {4}


def test_splits_orders_and_draws(path, tmp_path):
    crossed = varied([Plan("digits", "bare", [42, 43])], splits=2, orders=3)
    assert len(crossed) == 6
    assert {plan.order for plan in crossed} == {"label", "random-1", "random-2"}
    with pytest.raises(InputError, match="give either"):
        varied(crossed, splits=2, draws=2)
    # never the same stream twice, and no order fewer than asked for
    third = varied([Plan("digits", "bare", [42], order="random-3")], orders=3)
    assert [plan.order for plan in third] == ["random-3", "random-4", "random-5"]
    for more in ({"orders": 2}, {"draws": 2}):
        with pytest.raises(InputError, match="each seed has an order of its own"):
            varied([Plan("digits", "bare", [1, 2], order="random")], **more)
    # this file has a split of its own: orders and seeds are all that changes
    folder = tmp_path / "records"
    plans = varied([Plan(path, "linear-bank", [42], device="cpu")], draws=3)
    for plan in plans:
        carry_out(plan, folder)
    found = runs.read_runs(folder)
    assert len(found) == 3
    assert found["sha256"].nunique() == 1
    orders = {tuple(c for part in outcome.sessions for c in part) for outcome in found["outcome"]}
    assert len(orders) > 1
    graph = algnn.load(path)
    again = algnn.ClassStream(graph, order="random", seed=1)
    by_order = dict(zip(found["order"], found["outcome"], strict=True))
    assert by_order["random-1"].sessions == tuple(again.classes)
    # without one, each draw has its own
    bare = dataclasses.replace(plans[1], dataset="digits", changes={"gamma": 1.0})
    (record_,) = carry_out(bare, folder)
    assert record_.provenance["split"] == "random 40/10/50, seed 43"


def test_a_split_that_comes_with_the_graph_is_not_run_twice(path, tmp_path):
    plans = varied([Plan(path, "linear-bank", [42], device="cpu")], splits=3)
    tally = scheduler.carry_out(plans, tmp_path / "records", jobs=1, progress=False)
    assert len(tally.done) == 1
    assert tally.wanted(*plans) == 1
