import numpy as np
import pytest
import torch

import algnn
from algnn.analytic.features.hops import HopEncoder
from algnn.analytic.features.selfsupervised import SelfSupervisedEncoder, _thinning
from algnn.errors import InputError
from algnn.gcn import glorot
from algnn.graph.propagate import Operator, normalised_adjacency
from algnn.graph.synthetic import communities


def learner(**changes):
    settings = {"encoder": "self-supervised", "width": 64, "hidden": 16, "device": "cpu"}
    return algnn.ALGNN(**{**settings, **changes})


@pytest.fixture(scope="module")
def planted():
    return communities(80, 240, 12, 4, seed=3)


def trained(graph, seed=0):
    adjacency = normalised_adjacency(graph.edge_index, graph.num_nodes)
    hops = HopEncoder.of(graph.x, 64, seed)
    return SelfSupervisedEncoder.trained(hops, adjacency, graph.x, 16), hops, adjacency


def test_the_embedding_stands_beside_the_views_and_their_units(planted):
    encoder, hops, adjacency = trained(planted)
    Z = encoder(encoder.prepare(adjacency, planted.x))
    torch.testing.assert_close(Z[:, : hops.width], hops(hops.prepare(adjacency, planted.x)))
    dense = adjacency.to_dense().double()
    x = torch.nn.functional.normalize(hops.entries(planted.x).double())
    W1, W2 = encoder.weight1.double(), encoder.weight2.double()
    expected = torch.nn.functional.normalize(dense @ torch.relu(dense @ x @ W1) @ W2)
    torch.testing.assert_close(Z[:, hops.width :], expected, rtol=1e-5, atol=1e-6)
    assert Z.size(1) == encoder.width == hops.width + 16


def test_training_makes_copies_of_the_graph_agree(planted):
    encoder, hops, adjacency = trained(planted)
    start = torch.Generator().manual_seed(0)
    untrained = SelfSupervisedEncoder.beside(
        hops, glorot(hops.view_width, 16, start), glorot(16, 16, start)
    )
    thinning = _thinning(Operator(adjacency), torch.Generator().manual_seed(9))
    copies = [thinning().matrix.to_dense() for _ in range(2)]

    def apart(one):
        own = torch.nn.functional.normalize(hops.entries(planted.x).float())
        H = [dense @ torch.relu(dense @ own @ one.weight1) @ one.weight2 for dense in copies]
        first, second = ((h - h.mean(0)) / h.std(0) for h in H)
        return (first - second).square().mean()

    assert apart(encoder) < 0.8 * apart(untrained)


def test_it_is_trained_where_self_loops_weigh_nothing(planted):
    n = planted.num_nodes
    edges = torch.cat([planted.edge_index, torch.arange(n).expand(2, n)], dim=1)
    weight = torch.cat([torch.ones(planted.edge_index.size(1)), torch.zeros(n)])
    adjacency = normalised_adjacency(edges, n, weight)
    encoder = SelfSupervisedEncoder.trained(
        HopEncoder.of(planted.x, 64, 0), adjacency, planted.x, 16
    )
    start = glorot(encoder.view_width, 16, torch.Generator().manual_seed(0))
    assert (encoder.weight1 - start).abs().max() > 0.01


def test_the_seed_decides_and_labels_do_not(planted):
    half = planted.y < 2
    one = learner().fit(planted, range(80), planted.y)
    two = learner().fit(planted, half, planted.y[half])
    other = learner(seed=1).fit(planted, range(80), planted.y)
    first, second, third = (m._known.features.weight1 for m in (one, two, other))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_a_thinned_graph_is_normalised_anew(planted):
    adjacency = normalised_adjacency(planted.edge_index, planted.num_nodes)
    some = _thinning(Operator(adjacency), torch.Generator().manual_seed(0))()
    matrix = some.matrix.to_dense()
    assert torch.equal(matrix.mT, some.T.matrix.to_dense())
    kept = (matrix > 0).double()
    assert 0.6 < (kept.sum() - 80) / (adjacency.values().numel() - 80) < 0.8
    roots = kept.sum(1).rsqrt()
    torch.testing.assert_close(matrix.double(), kept * roots[:, None] * roots, rtol=1e-5, atol=1e-6)


def test_it_is_exact_in_any_order_and_in_its_file(planted, tmp_path):
    whole = learner().fit(planted, range(80), planted.y)
    parts = learner()
    for labels in ([2, 0], [3], [1]):
        mask = torch.isin(planted.y, torch.tensor(labels))
        parts.partial_fit(planted, mask, planted.y[mask])
    np.testing.assert_allclose(
        parts.decision_function(planted), whole.decision_function(planted), atol=1e-8
    )
    whole.save(tmp_path / "m.safetensors")
    loaded = algnn.ALGNN.load(tmp_path / "m.safetensors")
    assert np.array_equal(loaded.decision_function(planted), whole.decision_function(planted))


def test_explain_needs_an_encoder_that_is_linear(planted):
    with pytest.raises(InputError, match="encoder='hops'"):
        learner().fit(planted, range(80), planted.y).explain(planted, 1)


def test_self_loops_may_have_no_weight(planted):
    graph, every = planted.clone(), torch.arange(planted.num_nodes)
    edges = graph.edge_index
    graph.edge_index = torch.cat([edges, every.expand(2, -1)], dim=1)
    graph.edge_weight = torch.cat([torch.ones(edges.size(1)), torch.zeros(len(every))])
    model = learner().fit(graph, every[:40], graph.y[:40])
    assert np.isfinite(model.decision_function(graph)).all()
