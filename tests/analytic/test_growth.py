"""The graph gains nodes and edges between calls."""

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

import algnn


def part(graph: Data, count: int) -> Data:
    """The first nodes, and the edges between them."""
    edges, _ = subgraph(torch.arange(count), graph.edge_index, num_nodes=graph.num_nodes)
    return Data(x=graph.x[:count], edge_index=edges)


def test_nodes_that_came_after_training_are_classified():
    graph = algnn.load("digits")
    young = part(graph, 1200)
    known = torch.arange(1000)
    model = algnn.ALGNN(width=512, device="cpu").fit(young, known, graph.y[known])
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
    model = algnn.ALGNN(width=512, device="cpu").fit(young, known, graph.y[known])
    late = torch.arange(1200, graph.num_nodes)
    nines = late[graph.y[late] == 9]
    model.partial_fit(graph, nines[:20], graph.y[nines[:20]])
    assert np.mean(model.predict(graph, nines[20:]) == 9) > 0.6
