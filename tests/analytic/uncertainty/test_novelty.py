from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import MultivariateNormal

import algnn
from algnn import ALGNN
from algnn.analytic.statistics import Statistics
from algnn.analytic.uncertainty.novelty import WIDENING, NoveltyModel, sample_size, spread_out
from algnn.bench.metrics import auroc
from algnn.errors import NotFittedError

seeds = st.integers(0, 2**32 - 1)


def draw(seed, d, C=3, nodes=30, sample=40):
    """Sums, a sample of the graph, and nodes to ask about."""
    rng = np.random.default_rng(seed)
    labels = np.arange(nodes) % C
    means = rng.normal(0, 2, (C + 1, d))
    Z = torch.from_numpy(means[labels] + rng.normal(size=(nodes, d)))
    graph = torch.from_numpy(means[rng.integers(0, C + 1, sample)] + rng.normal(size=(sample, d)))
    asked = torch.from_numpy(rng.normal(0, 2, (9, d)))
    return Z, labels, graph, asked


@given(seeds, st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_it_is_a_ratio_of_two_gaussians(seed, d):
    Z, labels, graph, asked = draw(seed, d)
    model = NoveltyModel.of(Statistics.empty(d).plus([Z], labels), graph)
    means = torch.stack([Z[labels == c].mean(0) for c in range(3)])
    scatter = torch.from_numpy(np.cov((Z - means[labels]).T.numpy(), bias=True).reshape(d, d))
    wider = WIDENING * scatter.trace() / len(Z) * torch.eye(d, dtype=torch.float64)
    # half of anything is the seen classes, each the same, half the graph
    centre = (means.mean(0) + graph.mean(0)) / 2
    seen = scatter + (means - centre).T @ (means - centre) / 3
    whole = (seen + (graph - centre).T @ (graph - centre) / len(graph)) / 2
    anything = MultivariateNormal(centre, whole + wider).log_prob(asked)
    classes = [MultivariateNormal(mean, scatter + wider).log_prob(asked) for mean in means]
    expected = anything - torch.stack(classes).amax(0)
    between = (1 + expected / (1 + expected.abs())) / 2
    torch.testing.assert_close(model.novelty(asked), between, rtol=1e-10, atol=1e-10)


@given(seeds, st.integers(2, 6))
@settings(max_examples=30, deadline=None)
def test_a_turn_of_all_features_changes_nothing(seed, d):
    Z, labels, graph, asked = draw(seed, d)
    turn = torch.linalg.qr(torch.from_numpy(np.random.default_rng(seed).normal(size=(d, d))))[0]
    found = [
        NoveltyModel.of(Statistics.empty(d).plus([Z @ T], labels), graph @ T).novelty(asked @ T)
        for T in (torch.eye(d).double(), turn)
    ]
    torch.testing.assert_close(found[0], found[1], rtol=1e-8, atol=1e-10)


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_what_neither_nodes_nor_graph_span_says_nothing(seed):
    """So that coordinates in what they span are enough."""
    Z, labels, graph, asked = draw(seed, 3)
    beside = torch.nn.functional.pad
    wide = NoveltyModel.of(
        Statistics.empty(5).plus([beside(Z, (0, 2))], labels), beside(graph, (0, 2))
    )
    outside = beside(asked, (0, 2)) + torch.tensor([0, 0, 0, 3.0, -1.0])
    narrow = NoveltyModel.of(Statistics.empty(3).plus([Z], labels), graph)
    torch.testing.assert_close(wide.novelty(outside), narrow.novelty(asked), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("labels", [np.array([0, 0, 1, 1]), np.arange(4)])
@pytest.mark.parametrize("scale", [0.0, 1e-12, 1.0, 1e6])
def test_sums_of_little_or_nothing(labels, scale):
    Z = scale * torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1]]).double()
    model = NoveltyModel.of(Statistics.empty(2).plus([Z], labels), Z)
    found = model.novelty(scale * torch.tensor([[1.0, 0], [0, 1], [-4, -4]]).double())
    assert bool(torch.isfinite(found).all())
    assert bool(((found >= 0) & (found <= 1)).all())


def test_nodes_looked_at():
    assert spread_out(7, sample_size(4)).tolist() == list(range(7))
    assert len(spread_out(100_000, sample_size(10))) == 512
    some = spread_out(100_000, sample_size(1000))
    assert len(some) == len(some.unique()) == 2000
    assert int(some.max()) < 100_000
    assert int(some.diff().max()) - int(some.diff().min()) <= 1


def test_it_tells_digits_never_seen():
    graph = algnn.load("digits")
    stream = algnn.ClassStream(graph)
    model = ALGNN(width=320).fit(stream[0].graph, stream[0].nodes, stream[0].labels)
    new, old = (graph.test_mask & (graph.y >= 5)), (graph.test_mask & (graph.y < 5))
    found = model.novelty(graph)
    assert found.shape == (graph.num_nodes,)
    assert auroc(found[new], found[old]) > 0.97
    # above a half: not of the seen classes
    assert (found[new] > 0.5).mean() > 0.8
    assert (found[old] < 0.5).mean() > 0.95


def test_some_nodes_are_as_new_as_among_all(make_graph):
    graph = make_graph(classes=4, per_class=20)
    train = graph.train_mask & (graph.y < 3)
    model = ALGNN(width=256).fit(graph, train, graph.y[train])
    everyone = model.novelty(graph)
    np.testing.assert_allclose(model.novelty(graph, [5, 70, 3]), everyone[[5, 70, 3]], rtol=1e-9)
    assert model.novelty(graph, []).shape == (0,)


def test_a_graph_that_changes_is_looked_at_again(make_graph):
    graph = make_graph(classes=4, per_class=20)
    train = graph.train_mask & (graph.y < 3)
    model = ALGNN(width=256).fit(graph, train, graph.y[train])
    before = model.novelty(graph, [0])
    other = graph.clone()
    other.x = torch.cat([graph.x[:60], -3 * graph.x[60:]])
    assert not np.allclose(model.novelty(other, [0]), before)
    np.testing.assert_array_equal(model.novelty(graph, [0]), before)
    # and what was learned since counts
    rest = graph.train_mask & (graph.y == 3)
    assert model.partial_fit(graph, rest, graph.y[rest]).novelty(graph, rest).mean() < 0.5


def test_one_that_knows_no_class_says_so(make_graph):
    graph = make_graph(classes=4, per_class=20)
    blank = ALGNN(width=256).fit(graph, graph.train_mask, graph.y[graph.train_mask]).blank()
    for ask in (blank.novelty, blank.predict_proba):
        with pytest.raises(NotFittedError, match="knows no class"):
            ask(graph)


def test_nodes_that_all_look_the_same_have_a_novelty(small_graph):
    graph = small_graph.clone()
    graph.x = torch.ones(graph.num_nodes, 1)
    for count in (8, graph.num_nodes):
        model = ALGNN(width=32, device="cpu").fit(graph, range(count), graph.y[:count])
        assert np.isfinite(model.novelty(graph)).all()
