"""The graph gains nodes and edges between calls."""

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

import algnn
from algnn.analytic.features.hops import HopEncoder


def part(graph: Data, count: int) -> Data:
    """The first nodes, and the edges between them."""
    edges, _ = subgraph(torch.arange(count), graph.edge_index, num_nodes=graph.num_nodes)
    return Data(x=graph.x[:count], edge_index=edges)


def test_nodes_that_came_after_training_are_classified():
    graph = algnn.load("digits")
    young = part(graph, 1200)
    known = torch.arange(1000)
    model = algnn.ALGNN(device="cpu").fit(young, known, graph.y[known])
    late = torch.arange(1200, graph.num_nodes)
    grown = Data(x=graph.x, edge_index=graph.edge_index)
    assert np.mean(model.predict(grown, late) == graph.y[late].numpy()) > 0.9
    # what was there before is still known, in the graph as it is now
    old = torch.arange(1000, 1200)
    assert np.mean(model.predict(grown, old) == graph.y[old].numpy()) > 0.9


def test_a_class_is_learned_from_nodes_that_came_after_training():
    graph = algnn.load("digits")
    young, known = part(graph, 1200), torch.arange(1200)
    known = known[graph.y[known] < 9]
    model = algnn.ALGNN(device="cpu").fit(young, known, graph.y[known])
    late = torch.arange(1200, graph.num_nodes)
    nines = late[graph.y[late] == 9]
    model.partial_fit(graph, nines[:20], graph.y[nines[:20]])
    assert np.mean(model.predict(graph, nines[20:]) == 9) > 0.6


def test_a_few_nodes_are_encoded_alone_and_score_the_same(small_graph):
    mask = small_graph.train_mask
    model = algnn.ALGNN(device="cpu").fit(small_graph, mask, small_graph.y[mask])
    # a graph of the same content that the learner has not seen
    fresh = Data(x=small_graph.x.clone(), edge_index=small_graph.edge_index.clone())
    few = [3, 0, 7]
    alone = model.decision_function(fresh, few)
    features = model._learned.features
    assert isinstance(features, HopEncoder)
    assert model._prepared_memo(features).peek((fresh.x, fresh.edge_index)) is None
    everything = model.decision_function(fresh)
    assert model._prepared_memo(features).peek((fresh.x, fresh.edge_index)) is not None
    np.testing.assert_allclose(alone, everything[few], rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(model.decision_function(fresh, few), everything[few])
