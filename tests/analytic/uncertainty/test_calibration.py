from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.transforms import ToSparseTensor

from algnn import ALGNN, ClassStream, load
from algnn.analytic.heads import HEADS
from algnn.analytic.statistics import Statistics
from algnn.analytic.uncertainty.calibration import (
    MOST_MOVE,
    MOST_RIVALS,
    POINTS,
    SAMPLE,
    TAILS,
    WEIGHTS,
    Scores,
    _mean_leverage,
    adjusted_sharpness,
    held_out,
    probabilities,
    sharpness,
)
from algnn.analytic.uncertainty.novelty import spread_out

seeds = st.integers(0, 2**32 - 1)


def some_scores(seed, C):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(C, C)) * 0.3
    return Scores(
        np.eye(C) * 0.7 + rng.normal(0, 0.1, (C, C)), root @ root.T, rng.integers(1, 50, C)
    )


def blobs(rng, per_class, apart=1.2, classes=4, width=12):
    """Nodes of overlapping classes, of which some look like another class altogether."""
    labels = np.repeat(np.arange(classes), per_class)
    look = np.where(rng.random(labels.size) < 0.9, labels, rng.integers(0, classes, labels.size))
    means = np.random.default_rng(7).normal(0, apart, (classes, width))
    return torch.from_numpy(means[look] + rng.normal(size=(labels.size, width))), labels


def test_nodes_that_have_faded_decide_less_of_their_scores():
    counts = np.array([40.0, 10.0])
    assert _mean_leverage(20.0, counts, np.ones(2)) == pytest.approx(20 / 50)
    # with q = 4: 1/8 q / (1 + 1/8 q) = 1/3 of the old, 4/5 of the new
    weights = np.array([1 / 8, 1.0])
    total = 40 / 3 + 10 * 4 / 5
    assert _mean_leverage(total, counts, weights) == pytest.approx((5 / 3 + 8) / 15)
    assert _mean_leverage(50.0, counts, weights) == 1.0
    assert _mean_leverage(0.0, counts, weights) == 0.0  # of features that are all zero
    assert _mean_leverage(3.0, counts, np.array([0.0, 1.0])) == pytest.approx(0.3)


@pytest.mark.parametrize("half_life", [1, 3])
def test_probabilities_stay_calibrated_while_old_nodes_fade(half_life):
    digits = load("digits")
    model = ALGNN(width=1024, half_life=half_life, device="cpu")
    for session in ClassStream(digits):
        model.partial_fit(session.graph, session.nodes, session.labels)
    right = model.predict(digits, digits.test_mask) == digits.y[digits.test_mask].numpy()
    sure = model.predict_proba(digits, digits.test_mask).max(1)
    assert abs(float(right.mean()) - float(sure.mean())) < 0.03


@given(seeds, st.integers(2, 5), st.integers(2, 4), st.floats(0.01, 10))
@settings(max_examples=40, deadline=None)
def test_left_out_is_what_refits_without_each_node_give(seed, d, repeats, gamma):
    """Exactly so where all nodes weigh the same, as in a design that repeats."""
    rng = np.random.default_rng(seed)
    Z = torch.eye(d).double().repeat(repeats, 1)
    labels = rng.integers(0, 3, len(Z))
    _, labels = np.unique(labels, return_inverse=True)
    C = labels.max() + 1
    found = held_out("ridge", gamma, Statistics.empty(d).plus([Z], labels))
    each = np.empty((len(Z), C))
    for i in range(len(Z)):
        rest = np.arange(len(Z)) != i
        G, Y = Z[rest].T @ Z[rest], torch.eye(C).double()[labels[rest]]
        each[i] = Z[i] @ torch.linalg.solve(G + gamma * torch.eye(d), Z[rest].T @ Y)
    mean = np.stack([each[labels == c].mean(0) for c in range(C)])
    np.testing.assert_allclose(found.mean, mean, atol=1e-10)
    np.testing.assert_allclose(
        found.scatter, np.cov((each - mean[labels]).T, bias=True).reshape(C, C), atol=1e-10
    )


@given(seeds, st.integers(2, 6), st.floats(0.1, 30))
@settings(max_examples=40, deadline=None)
def test_log_loss_is_that_of_nodes_with_one_rival_each(seed, C, beta):
    scores = some_scores(seed, C)
    confusion, total, N = scores.confusion, 0.0, scores.n.sum()

    def loss(row, true):
        logits = beta * row
        top = logits.max()
        return top + np.log(np.exp(logits - top).sum()) - logits[true]

    for c in range(C):
        size = confusion[c].sum()
        for k in range(C):
            if k == c:
                continue
            share = confusion[c, k] / size if size else 1 / (C - 1)
            for weight, u in zip(WEIGHTS, POINTS, strict=True):
                row = scores.mean[c].copy()
                shift = u * np.sqrt(size * (TAILS - 2) / TAILS)
                row[c] -= shift
                row[k] += shift
                total += scores.n[c] * share * weight * loss(row, c)
            # and the one mistaken node
            total += scores.n[c] / N / (C - 1) * loss(scores.mean[c], k)
    assert scores.log_loss(beta) == pytest.approx(total / (N + 1), rel=1e-9, abs=1e-12)


def test_of_hundreds_of_classes_the_likely_rivals_decide(monkeypatch):
    scores = some_scores(0, 150)
    every = MOST_RIVALS + 50
    with np.errstate(all="raise"):  # a caller's own setting, which is not for us
        some = scores.log_loss(3.0)
    monkeypatch.setattr("algnn.analytic.uncertainty.calibration.MOST_RIVALS", every)
    assert some == pytest.approx(scores.log_loss(3.0), rel=0.02)
    monkeypatch.setattr("algnn.analytic.uncertainty.calibration.MOST_RIVALS", 1)
    assert some != pytest.approx(scores.log_loss(3.0), rel=1e-7)


@given(seeds, st.integers(2, 6))
@settings(max_examples=40, deadline=None)
def test_no_other_sharpness_is_better(seed, C):
    scores = some_scores(seed, C)
    beta = sharpness(scores)
    best = scores.log_loss(beta)
    assert all(scores.log_loss(beta * other) >= best - 1e-9 for other in (0.5, 0.9, 1.1, 2.0))


@given(seeds, st.integers(2, 8))
@settings(max_examples=40, deadline=None)
def test_confusion_account_for_the_whole_scatter(seed, C):
    scores = some_scores(seed, C)
    confusion = scores.confusion
    assert (confusion >= 0).all()
    assert not confusion.diagonal().any()
    centred = np.eye(C) - 1 / C
    energy = np.trace(centred @ scores.scatter @ centred)
    share = scores.n / scores.n.sum()
    assert 2 * (share @ confusion.sum(1)) == pytest.approx(energy)


def test_confusion_between_two_classes_are_found_there():
    # classes 0 and 1 are taken for each other, and nobody takes 2 for either
    swap = np.array([1.0, -1.0, 0.0])
    confusion = Scores(np.eye(3), 0.2 * np.outer(swap, swap), np.ones(3)).confusion
    assert confusion[0, 1] == confusion[1, 0] > 0
    assert confusion[0, 1] == confusion.max() > 5 * confusion[0, 2] >= 0


def test_the_weights_of_students_t():
    assert WEIGHTS.sum() == pytest.approx(1)
    # its quartiles are ±0.7407 at four degrees of freedom, its variance is 2
    assert WEIGHTS[np.abs(POINTS) < 0.7407].sum() == pytest.approx(0.5, abs=0.05)
    assert float(WEIGHTS @ POINTS**2) == pytest.approx(2, abs=0.15)


@pytest.mark.parametrize("head", ["balanced", "ridge"])
@pytest.mark.parametrize("per_class", [10, 40, 400])
def test_fresh_nodes_would_choose_much_the_same(head, per_class):
    """Thousands of nodes that the sums have never seen want no other β by much."""
    rng = np.random.default_rng(per_class)
    Z, labels = blobs(rng, per_class)
    fresh, truth = blobs(rng, 2000)
    sums, gamma = Statistics.empty(Z.size(1)).plus([Z], labels), 0.01
    W, b = HEADS[head](sums, gamma)

    def loss(beta):
        likely = torch.log_softmax(beta * (fresh @ W + b), dim=1)
        return -float(likely[torch.arange(len(truth)), torch.from_numpy(truth)].mean())

    beta = sharpness(held_out(head, gamma, sums))
    best = min(loss(other) for other in np.geomspace(1, 30, 60))
    assert loss(beta) < 1.06 * best
    assert loss(beta) < 0.8 * loss(1.0)
    # ten nodes a class leave confusion, which make it careful rather than sure
    assert loss(beta) < 1.01 * best or (per_class == 10 and loss(1.1 * beta) < loss(beta))


def test_features_that_tell_nothing_give_probabilities_that_say_so():
    rng = np.random.default_rng(2)
    count = 20_000
    x = torch.from_numpy(rng.standard_normal((count, 8))).float()
    graph = Data(x=x, edge_index=torch.zeros(2, 0, dtype=torch.long))
    model = ALGNN(width=128).fit(graph, range(count // 2), rng.integers(0, 2, count // 2))
    sure = model.predict_proba(graph, range(count // 2, count)).max(1)
    assert sure.mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("gamma", [1e-2, 1e-5])
def test_weights_that_fit_every_node_are_no_reason_for_confidence(gamma):
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 400)
    x = rng.standard_normal((400, 100)) + 0.1 * rng.standard_normal((3, 100))[y]
    graph = Data(x=torch.tensor(x).float(), edge_index=torch.zeros(2, 0, dtype=torch.long))
    model = ALGNN(head="ridge", gamma=gamma).fit(graph, range(200), y[:200])
    rest = range(200, 400)
    sure = model.predict_proba(graph, rest).max(1).mean()
    assert sure == pytest.approx(model.score(graph, rest, y[200:]), abs=0.1)


def test_nothing_to_go_by():
    zeros = Statistics.empty(3).plus([torch.zeros(4, 3)], np.array([0, 0, 1, 1]))
    assert sharpness(held_out("balanced", 0.1, zeros)) == 1.0
    alone = Statistics.empty(3).plus([torch.ones(2, 3)], np.array([0, 0]))
    assert sharpness(held_out("balanced", 0.1, alone)) == 1.0
    # a node per class: no scatter, and each score decided by one node
    single = Statistics.empty(3).plus([torch.eye(3)], np.array([0, 1, 2]))
    for head in HEADS:
        assert 0 < sharpness(held_out(head, 1e-9, single)) < np.inf


def test_a_head_that_is_no_regression_is_taken_as_it_is():
    Z, labels = blobs(np.random.default_rng(0), 30)
    sums = Statistics.empty(Z.size(1)).plus([Z], labels)
    W, b = HEADS["slda"](sums, 1.0)
    seen = (Z @ W + b).numpy()
    mean = np.stack([seen[labels == c].mean(0) for c in range(4)])
    np.testing.assert_allclose(held_out("slda", 1.0, sums).mean, mean)


def test_probabilities_do_not_know_the_order_of_sessions(make_graph):
    graph = make_graph(classes=4, per_class=20)
    train = graph.train_mask.nonzero().squeeze(1)
    first, second = train[graph.y[train] < 2], train[graph.y[train] >= 2]
    models = []
    for sessions in ((first, second), (second, first)):
        model = ALGNN(width=256, gamma=0.01)
        # the bank is frozen in the base session, so both must start from the same one
        model.fit(graph, train, graph.y[train])
        model = model.blank()
        for nodes in sessions:
            model.partial_fit(graph, nodes, graph.y[nodes])
        models.append(model.predict_proba(graph))
    np.testing.assert_allclose(models[0], models[1], rtol=1e-5, atol=1e-9)


def labelled(rng, count, beta, C):
    """Scores, some of them farther apart than others, and classes drawn from softmax(β s)."""
    found = torch.from_numpy(rng.normal(0, 0.3, (count, C)) * rng.uniform(0.5, 1.5, (count, 1)))
    drawn = probabilities(found, beta).cumsum(1) < torch.from_numpy(rng.random((count, 1)))
    return found, drawn.sum(1).clamp_max(C - 1).numpy()


def summed(found, labels, C):
    mean = np.stack([found[labels == c].mean(0).numpy() for c in range(C)])
    rest = found.numpy() - mean[labels]
    return Scores(mean, rest.T @ rest / len(rest), np.bincount(labels, minlength=C).astype(float))


@pytest.mark.parametrize("C", [2, 5, 25])
@pytest.mark.parametrize("wrong", [0.8, 1.25])
def test_a_graph_without_labels_puts_sharpness_right(C, wrong):
    rng = np.random.default_rng(C)
    scores = summed(*labelled(rng, 20_000, 8.0, C), C)
    sample, _ = labelled(rng, SAMPLE, 8.0, C)
    assert abs(np.log(adjusted_sharpness(8.0 * wrong, scores, sample) / 8.0)) < 0.4 * abs(
        np.log(wrong)
    )
    # no score tells by what all classes share
    shifted = Scores(scores.mean + 3.0, scores.scatter, scores.n)
    assert adjusted_sharpness(6.0, shifted, sample - 5.0) == pytest.approx(
        adjusted_sharpness(6.0, scores, sample)
    )


def test_weights_make_up_for_nodes_that_score_low():
    """A tenth of the graph scores low for all classes; as all count the same, β moves by 0.23."""
    rng = np.random.default_rng(0)
    scores = summed(*labelled(rng, 20_000, 8.0, 4), 4)
    sample, _ = labelled(rng, SAMPLE, 8.0, 4)
    sample[::10] *= 0.4
    assert abs(np.log(adjusted_sharpness(8.0, scores, sample) / 8.0)) < 0.12


@given(seeds, st.integers(1, 6), st.floats(0.01, 100), st.integers(0, 30))
@settings(max_examples=40, deadline=None)
def test_a_graph_moves_sharpness_by_so_much_at_most(seed, C, beta, size):
    scores = some_scores(seed, C)
    rng = np.random.default_rng(seed)
    sample = torch.from_numpy(rng.normal(size=(size, C)) * rng.choice([0.0, 1e-6, 1.0, 1e6]))
    found = adjusted_sharpness(beta, scores, sample)
    few = size / (size + 200)
    assert abs(np.log(found / beta)) <= few * np.log(MOST_MOVE) + 1e-12


def test_a_new_session_head_or_graph_means_a_new_sharpness(make_graph):
    graph, other = make_graph(classes=4, per_class=20), make_graph(classes=4, per_class=20, seed=1)
    train = graph.train_mask.nonzero().squeeze(1)
    model = ALGNN(width=256).fit(graph, train[::2], graph.y[train[::2]])
    model.predict_proba(graph)
    model.partial_fit(graph, train[1::2], graph.y[train[1::2]])
    for asked in (graph, other, graph):
        known = model._learned
        sums = held_out(known.head, known.gamma, known.statistics)
        scores = torch.from_numpy(model.decision_function(asked))
        beta = adjusted_sharpness(sharpness(sums), sums, scores[spread_out(len(scores), SAMPLE)])
        expected = torch.softmax(beta * scores, 1)
        np.testing.assert_allclose(model.predict_proba(asked), expected, rtol=1e-9)
        np.testing.assert_allclose(model.predict_proba(asked, [3, 5]), expected[[3, 5]], rtol=1e-9)


@pytest.mark.parametrize("C", [2, 10, 11, 15, 20, 70])
def test_with_many_classes_probabilities_are_a_mixture(C):
    scores = torch.randn(50, C, generator=torch.Generator().manual_seed(C), dtype=torch.float64)
    degree = np.clip((C - 10) / 10, 0, 1)
    sharp = 2.0 * (1 + 0.5 * degree) * scores
    mixed = (1 - 0.3 * degree) * sharp.softmax(1) + 0.3 * degree * (0.3 * sharp).softmax(1)
    found = probabilities(scores, 2.0)
    torch.testing.assert_close(found, mixed)
    assert torch.equal(found.argmax(1), scores.argmax(1))


@pytest.mark.parametrize("count", [5, 22, 27, 100])
def test_nodes_that_are_all_alike_but_for_rounding(count):
    graph = Data(x=torch.full((count, 7), 0.3), edge_index=torch.zeros(2, 0, dtype=torch.int64))
    model = ALGNN(width=64).fit(graph, range(4), [0, 1, 0, 1])
    np.testing.assert_allclose(model.predict_proba(graph), 0.5, atol=1e-6)


def test_a_graph_with_adj_t_has_probabilities(make_graph):
    graph = make_graph(classes=3, per_class=12)
    plain = Data(x=graph.x, edge_index=graph.edge_index)
    train = graph.train_mask.nonzero().squeeze(1)
    model = ALGNN(width=64).fit(plain, train, graph.y[train])
    found = model.predict_proba(ToSparseTensor()(plain.clone()), [0, 1])
    np.testing.assert_allclose(found, model.predict_proba(plain, [0, 1]), rtol=1e-6)
