"""Paired comparison and ranks, against figures that can be checked by hand or in the literature."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from algnn.bench.protocol import Outcome
from algnn.bench.significance import compare, rank
from algnn.errors import InputError

SESSIONS = ((0, 1), (2,))
TOTAL = np.array([30, 30, 20])
TRUTH = np.repeat(np.arange(3), TOTAL)
CLOCKS = (1.0, 1.0), (1.0, 1.0), (1, 1)


def outcome(answers):
    right = np.bincount(TRUTH[answers == TRUTH], minlength=3)
    correct = np.stack([right * [1, 1, 0], right])
    return Outcome(SESSIONS, correct, TOTAL, *CLOCKS, answers=answers)


def table(*outcomes, sha="s", first=0):
    stream = {"dataset": "g", "base": 2, "step": 1, "edges": "full", "order": "label"}
    rows = [
        {**stream, "sha256": sha, "seed": first + i, "outcome": one, "ap": one.ap}
        for i, one in enumerate(outcomes)
    ]
    return pd.DataFrame(rows)


def wrong_at(*places):
    answers = TRUTH.copy()
    answers[list(places)] = 3
    return outcome(answers)


def test_the_difference_is_that_of_the_figures_and_the_interval_is_paired():
    # both miss the same 20 of 60 nodes of session 0, theirs 6 more of session 1
    ours, theirs = wrong_at(*range(20)), wrong_at(*range(20), *range(60, 66))
    found = compare(table(ours), table(theirs))
    assert found.difference == pytest.approx(ours.ap - theirs.ap) == pytest.approx(15.0)
    # what both miss adds nothing: half of 100 (Binomial(20, 0.3) / 20)
    assert found.low == pytest.approx(50 * 2 / 20, abs=2.6)
    assert found.high == pytest.approx(50 * 10 / 20, abs=2.6)
    assert found.verdict == "leads"
    assert compare(table(theirs), table(ours)).verdict == "trails"
    micro = compare(table(ours), table(theirs), "micro")
    assert micro.difference == pytest.approx(100 * 6 / 80)
    same = compare(table(ours), table(ours))
    assert (same.difference, same.low, same.high, same.verdict) == (0, 0, 0, "undecided")


def test_streams_are_not_mixed():
    runs = pd.concat([table(wrong_at(1)), table(wrong_at(1)).assign(edges="seen")])
    for mixed in (runs, runs.assign(edges="full", dataset=["g", "h"], sha256=["s", "t"])):
        with pytest.raises(InputError, match="several graphs, base, step or edges: compare"):
            compare(mixed, mixed)
    with pytest.raises(InputError, match="no two runs share"):
        compare(runs[:1], runs[1:])


@pytest.mark.parametrize("missed", range(1, 20))
def test_one_pair_of_runs_has_the_interval_of_its_nodes(missed):
    found = compare(table(wrong_at()), table(wrong_at(*range(missed))))
    share = missed / 60
    error = 50 * (share * (1 - share) / 60) ** 0.5
    assert found.high - found.difference == pytest.approx(1.96 * error, rel=1e-3)
    assert found.difference - found.low == pytest.approx(1.96 * error, rel=1e-3)


def test_splits_that_happen_to_agree_are_not_certain():
    splits = [[table(wrong_at(*range(k)), sha=s) for s in "ab"] for k in (1, 2)]
    found = compare(*map(pd.concat, splits))
    assert found.low < 0 < found.difference == pytest.approx(100 / 60 / 2)
    # seeds that answer alike tell the same nodes once more
    one, other = wrong_at(1), wrong_at(*range(9))
    assert compare(table(one, one), table(other, other)) == replace(
        compare(table(one), table(other)), pairs=2
    )


def test_splits_that_disagree_leave_it_undecided():
    good, bad = wrong_at(60), wrong_at(*range(60, 66))
    ours = pd.concat([table(good, sha="one"), table(bad, sha="two")])
    theirs = pd.concat([table(bad, sha="one"), table(good, sha="two"), table(bad, sha="three")])
    found = compare(ours, theirs)
    assert (found.units, found.pairs, found.verdict) == (2, 2, "undecided")
    assert found.low < -5 < 5 < found.high
    # two seeds of one split are one unit
    both = compare(table(good, good), table(bad, bad))
    assert (both.units, both.pairs) == (1, 2)


def drawn(random, *shares):
    # one answer a run; where a run is right, others mostly are
    level = random.random(TRUTH.size)
    for share in shares:
        level = np.where(random.random(TRUTH.size) < 0.2, random.random(TRUTH.size), level)
        yield outcome(np.where(level < share, TRUTH, 3))


def test_the_error_of_one_split_is_that_of_drawing_seeds_and_nodes_one_by_one():
    random = np.random.default_rng(3)
    ours, theirs = list(drawn(random, 0.8, 0.83, 0.78)), list(drawn(random, 0.72, 0.74, 0.75))
    ahead = np.array([[(o.answers == TRUTH) * 1.0 for o in runs] for runs in (ours, theirs)])
    ahead = ahead[0] - ahead[1]
    halves = np.arange(60), np.arange(60, 80)
    seeds = np.var([50 * sum(one[h].mean() for h in halves) for one in ahead], ddof=1) / 3
    samples = []
    for _ in range(5000):
        nodes = [random.choice(h, h.size) for h in halves]
        samples.append(50 * sum(ahead[:, h].mean(1) for h in nodes))
    both = seeds + np.cov(np.transpose(samples))[~np.eye(3, dtype=bool)].mean()
    half = stats.t.ppf(0.975, 2 * (both / seeds) ** 2) * both**0.5
    found = compare(table(*ours), table(*theirs))
    assert found.high - found.difference == pytest.approx(half, rel=0.05)
    assert found.low + found.high == pytest.approx(2 * found.difference)


def reordered(one):
    # the same answers of a run that learned class 2 first
    moved = {2: 0, 0: 1, 1: 2, 3: 3}
    answers = np.array([moved[a] for a in one.answers])
    answers = np.concatenate([answers[60:], answers[:60]])
    correct = one.correct[:, [2, 0, 1]]
    return Outcome(((2, 0), (1,)), correct, TOTAL[[2, 0, 1]], *CLOCKS, answers=answers)


def test_another_order_of_classes_brings_no_new_test_nodes():
    random = np.random.default_rng(5)
    (ours,), (theirs,) = drawn(random, 0.9), drawn(random, 0.8)
    once = compare(table(ours), table(theirs), "micro")
    twice = [
        pd.concat([table(one), table(reordered(one)).assign(order="other")])
        for one in (ours, theirs)
    ]
    again = compare(*twice, "micro")
    assert (again.units, again.pairs) == (2, 2)
    assert (again.low, again.high) == pytest.approx((once.low, once.high))
    # another split does; that the two agree may be chance, by their nodes
    apart = [runs.assign(sha256=["one", "two"], order="label") for runs in twice]
    wider = stats.t.ppf(0.975, 1) / stats.norm.ppf(0.975) / 2**0.5
    found = compare(*apart, "micro")
    assert found.high - found.low == pytest.approx(wider * (once.high - once.low))


def test_of_few_splits_the_interval_holds_the_truth_as_often_as_it_says():
    random, held = np.random.default_rng(0), 0
    outcomes = [wrong_at(*range(60, 60 + n)) for n in range(21)]
    theirs = pd.concat([table(outcomes[0], sha=str(i)) for i in range(5)])
    for _ in range(200):
        # splits differ by far more than nodes do; the mean over all splits is 10 of 20 nodes
        ours = theirs.assign(outcome=[outcomes[n] for n in random.integers(0, 21, 5)])
        found = compare(ours, theirs)
        held += found.low <= -25 <= found.high
    assert held >= 0.92 * 200  # of the samples' percentiles 0.875 do


@pytest.mark.parametrize(("seeds", "low", "high"), [(2, 0.85, 0.94), (3, 0.90, 0.97)])
def test_of_two_seeds_of_one_split_the_interval_holds_less_often_than_it_says(seeds, low, high):
    random, held = np.random.default_rng(1), 0
    theirs = table(*[wrong_at(*range(60))] * seeds)
    spread = 2 * (0.25 / 60) ** 0.5  # seeds differ twice as much as drawing the 60 nodes does
    for _ in range(400):
        level = random.random(60)
        shares = np.clip(random.normal(0.5, spread, seeds), 0, 1)
        ours = (wrong_at(*np.flatnonzero(level >= share)) for share in shares)
        found = compare(table(*ours), theirs)
        held += found.low <= 25 <= found.high
    assert low <= held / 400 <= high


def test_what_cannot_be_compared_is_refused():
    one = wrong_at(0)
    with pytest.raises(InputError, match="no two runs share"):
        compare(table(one), table(one, first=7))
    with pytest.raises(InputError, match="one method with one setting"):
        compare(pd.concat([table(one), table(one)]), table(one))
    with pytest.raises(InputError, match="use one of ap, micro"):
        compare(table(one), table(one), "af")
    with pytest.raises(InputError, match="there are no ranks"):
        rank(pd.DataFrame({"dataset": ["a"], "method": ["x"], "ap": [1.0]}))


def test_ranks_are_of_one_setting_and_one_stream():
    runs = pd.DataFrame({
        "dataset": ["a"] * 3, "method": ["x", "y", "y"], "ap": [1.0, 2.0, 3.0],
        "base": 2, "step": 1, "edges": "full", "settings": [{}, {"lr": 1}, {"lr": 1.0}],
    })  # fmt: skip
    assert rank(runs).average.to_dict() == {"y": 1.0, "x": 2.0}
    for other in ({"step": [1, 1, 2]}, {"settings": [{}, {"lr": 1}, {"lr": 2}]}):
        with pytest.raises(InputError, match="runs of y on a have several settings or streams"):
            rank(runs.assign(**other))


def test_ranks_and_nemenyis_difference():
    # four methods on 14 graphs, each a little noisy: 2.569 √(4·5 / (6·14)) = 1.25 (Demšar, 2006)
    noise = np.random.default_rng(0).normal(0, 1, (4, 14))
    worst, second, third, best = (noise + np.array([[0.0], [2.0], [0.3], [2.1]])).tolist()
    rows = [
        {"dataset": str(place), "method": name, "ap": value}
        for name, values in (("worst", worst), ("second", second), ("third", third), ("best", best))
        for place, value in enumerate(values)
    ]
    found = rank(pd.DataFrame(rows))
    assert found.critical_difference == pytest.approx(1.25, abs=0.01)
    assert found.p_value < 0.05
    assert found.average.index.tolist()[0] in ("best", "second")
    assert found.average["worst"] == found.average.max()
    with warnings.catch_warnings(action="error"):
        assert np.isnan(rank(pd.DataFrame(rows).assign(ap=1.0)).p_value)
    assert found.average.sum() == pytest.approx(10)
    first, last = found.cliques()[0], found.cliques()[-1]
    assert {"best", "second"} <= set(first)
    assert "worst" in last
    # a graph that one method lacks does not count
    assert rank(pd.DataFrame(rows[1:])).means.shape == (13, 4)
