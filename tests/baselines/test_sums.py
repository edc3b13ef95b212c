"""What makes each closed-form rival that method."""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.data import Data

import algnn
from algnn.analytic.features.hops import HopEncoder
from algnn.baselines.sums import (
    KLDA,
    UGCN,
    LinearBank,
    RanPAC,
    chosen_penalty,
    filter_bank,
    random_units,
    untrained_gcn,
)
from algnn.graph.propagate import normalised_adjacency

PAIR = normalised_adjacency(torch.tensor([[0, 1], [1, 0]]), 2)


def taught(model, graph):
    for session in algnn.ClassStream(graph):
        model.partial_fit(session.graph, session.nodes, session.labels)
    return model


def features_and_codes(model, graph):
    nodes = graph.train_mask.nonzero().squeeze(1)
    Z = torch.cat(list(model._features(graph, nodes, model._known.features)))
    return Z, torch.nn.functional.one_hot(graph.y[nodes]).double()


def test_ranpac_chooses_lambda_by_the_error_on_every_fifth_node_and_solves_over_all(small_graph):
    generator = torch.Generator().manual_seed(0)
    Y = torch.eye(2).double()[torch.arange(40) % 2]
    for width in (6, 90):  # fewer and more than the rows that weights come from
        Z = Y @ torch.randn(2, width, generator=generator).double()
        Z += torch.randn(40, width, generator=generator).double()
        lambdas = tuple(10.0**k for k in range(-3, 4))
        errors = []
        for penalty in lambdas:
            system = Z[:32].T @ Z[:32] + penalty * torch.eye(width).double()
            W = torch.linalg.solve(system, Z[:32].T @ Y[:32])
            errors.append(float(((Z[32:] @ W - Y[32:]) ** 2).mean()))
        assert 0 < np.argmin(errors) < len(lambdas) - 1
        assert chosen_penalty(Z, Y, lambdas) == lambdas[int(np.argmin(errors))]
    model = taught(RanPAC(width=40, device="cpu"), small_graph)
    Z, Y = features_and_codes(model, small_graph)
    assert float(Z.min()) == 0 < float(Z.max())
    penalty = model._known.penalties[0]
    assert penalty in RanPAC.LAMBDAS
    W = torch.linalg.solve(Z.T @ Z + penalty * torch.eye(40).double(), Z.T @ Y)
    torch.testing.assert_close(model._known.solved[0][0], W, rtol=0, atol=1e-5)


def test_balanced_ranpac_is_least_squares_with_each_class_weighing_the_same(small_graph):
    nodes = small_graph.train_mask.nonzero().squeeze(1)
    nodes = nodes[(small_graph.y[nodes] != 0) | (torch.arange(len(nodes)) % 3 == 0)]
    labels = small_graph.y[nodes]
    model = RanPAC(width=8, balanced=True, device="cpu").fit(small_graph, nodes, labels)
    Z = torch.cat(list(model._features(small_graph, nodes, model._known.features)))
    Y = torch.nn.functional.one_hot(labels).double()
    n = Y.sum(0)
    assert n.min() < n.max()
    # least squares on the scatter of all classes, and on their means, each N / C times
    means = Y.T @ Z / n[:, None]
    apart, times = Z - Y @ means, float(n.sum()) / len(n)
    (penalty,) = model._known.penalties
    system = times * means.T @ means + apart.T @ apart + penalty * torch.eye(8).double()
    W = torch.linalg.solve(system, times * means.T)
    torch.testing.assert_close(model._known.solved[0][0], W, rtol=0, atol=1e-5)
    plain = RanPAC(width=8, device="cpu").fit(small_graph, nodes, labels)
    assert float((plain._known.solved[0][0] - W).abs().max()) > 0.01 * float(W.abs().max())


def test_ranpac_keeps_lambda_where_a_session_has_one_class():
    # chosen there, against a constant target, it would be 1e-8 in two of five sessions
    model = RanPAC(width=300, device="cpu")
    found = []
    for session in algnn.ClassStream(algnn.load("digits")):
        model.partial_fit(session.graph, session.nodes, session.labels)
        found.append(model._known.penalties)
    assert found == [(1.0,)] * 6


def test_klda_features_approximate_the_kernel_and_the_nearest_mean_decides(small_graph):
    views = HopEncoder.of(small_graph.x, 0, 0, sizes=False)
    adjacency = normalised_adjacency(small_graph.edge_index, small_graph.num_nodes)
    H = views.prepare(adjacency, small_graph.x)[:20]
    units = random_units(H, 60_000, seed=0, bandwidth=0.3)
    kernel = torch.exp(-0.3 * torch.cdist(H.double(), H.double()) ** 2)
    torch.testing.assert_close(units @ units.T, kernel, rtol=0, atol=0.03)

    model = taught(KLDA(width=30, shrinkage=0.05, device="cpu"), small_graph)
    Z, Y = features_and_codes(model, small_graph)
    means = (Y.T @ Z) / Y.sum(0)[:, None]
    apart = Z - Y @ means
    shrunk = 0.95 * (apart.T @ apart) / len(Z) + 0.05 * torch.eye(30).double()
    away = Z[:, None] - means
    distances = (away @ torch.linalg.inv(shrunk) * away).sum(2)
    nodes = small_graph.train_mask
    assert np.array_equal(model.predict(small_graph, nodes), distances.argmin(1).numpy())


def test_ugcn_stacks_untrained_layers_by_hand():
    x = torch.tensor([[1.0, -2.0], [3.0, 0.5]])
    Z = untrained_gcn(PAIR, x, width=3, layers=2, seed=7)  # one unit, then two
    generator = torch.Generator().manual_seed(7)
    first = (2 * torch.rand(2, 1, generator=generator) - 1) * (6 / 3) ** 0.5
    second = (2 * torch.rand(1, 2, generator=generator) - 1) * (6 / 3) ** 0.5
    # both nodes see the mean of the two
    one = torch.tanh(x.mean(0, keepdim=True) @ first)
    expected = torch.cat([one, torch.tanh(one @ second)], dim=1).expand(2, 3)
    torch.testing.assert_close(Z, expected)


def test_ugcn_learns_in_sessions_what_it_learns_at_once(small_graph):
    nodes = small_graph.train_mask
    once = UGCN(width=32, device="cpu").fit(small_graph, nodes, small_graph.y[nodes])
    parts = taught(UGCN(width=32, device="cpu"), small_graph)
    found, expected = (m.decision_function(small_graph) for m in (parts, once))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_bank_is_the_mean_of_five_least_squares():
    x = torch.tensor([[1.0], [3.0]])
    # Â averages the pair: X, 2, 2, X − 2, and (I − Â)² = I − Â
    expected = torch.tensor([[1.0, 2, 2, -1, -1], [3.0, 2, 2, 1, 1]])
    torch.testing.assert_close(filter_bank(PAIR, x), expected)

    graph = Data(x=x, edge_index=torch.tensor([[0, 1], [1, 0]]))
    model = LinearBank(gamma=1e-12, device="cpu").fit(graph, [0, 1], [0, 1])
    # F w for each filter, w = fᵀy / fᵀf: of X (0.1, 0.3), of the means ½ each, of X − 2 (∓½)
    by_hand = [[0.1 + 0.5 + 0.5 + 0.5 + 0.5, 0.3 + 0.5 + 0.5 - 0.5 - 0.5]]
    by_hand.append([0.3 + 0.5 + 0.5 - 0.5 - 0.5, 0.9 + 0.5 + 0.5 + 0.5 + 0.5])
    np.testing.assert_allclose(model.decision_function(graph), np.array(by_hand) / 5, rtol=1e-6)
