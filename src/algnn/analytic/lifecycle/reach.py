"""Whose features change when a node leaves the graph."""

from __future__ import annotations

from copy import copy

import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn.analytic.features.hops import HopEncoder as Bank
from algnn.analytic.features.gcn import ExpandedGCN as Widened
from algnn.graph.propagate import normalised_adjacency

# a path longer than any encoder looks; one that sees its end is taken to see everything
PATH = 64


def hops(features: Bank | Widened) -> int | None:
    """How many edges away a node's features look.

    Parameters
    ----------
    features : Bank or Widened

    Returns
    -------
    int or None
        None where they look at the whole graph.

    Examples
    --------
    >>> hops(Bank("two hops", inputs=3)), hops(Bank("raw", inputs=3))
    (2, 0)
    """
    if isinstance(features, Widened):
        return 2 if features.expansion.kind == "gcn" else 1
    # asked of the views themselves: how far along a path does a node show that alone has features?
    steps = torch.arange(PATH - 1)
    both_ways = torch.cat([torch.stack([steps, steps + 1]), torch.stack([steps + 1, steps])], 1)
    x = torch.zeros(PATH, features.inputs)
    x[0] = 1.0
    seen = features.prepare(normalised_adjacency(both_ways, PATH), x).any(dim=1)
    farthest = int(seen.nonzero().max()) if bool(seen.any()) else 0
    return None if farthest == PATH - 1 else farthest


def affected(features: Bank | Widened, edge_index: Tensor, num_nodes: int, node: int) -> Tensor:
    """The nodes whose features may change when one loses its features and edges.

    One hop more than features look: a neighbour that loses an edge weighs its other neighbours
    otherwise, and so is weighed by them.

    Parameters
    ----------
    features : Bank or Widened
    edge_index : Tensor [2, E]
    num_nodes : int
    node : int

    Returns
    -------
    Tensor [m], int64
        Sorted, `node` among them.

    Examples
    --------
    >>> path = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]])
    >>> affected(Bank("two hops", inputs=3), path, 5, node=0)
    tensor([0, 1, 2, 3])
    """
    far = hops(features)
    if far is None:
        return torch.arange(num_nodes)
    source, target = edge_index.cpu()
    reached = torch.zeros(num_nodes, dtype=torch.bool)
    reached[node] = True
    for _ in range(far + 1 if far else 0):
        reached[target[reached[source]]] = True
    return reached.nonzero().squeeze(1)


def without_node(graph: Data, node: int) -> Data:
    """The graph with a node's features set to zero and its edges gone; every id stays what it was.

    Parameters
    ----------
    graph : Data
        Left as it is.
    node : int

    Returns
    -------
    Data
        Labels and masks are those of `graph`.

    Examples
    --------
    >>> pair = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
    >>> bare = without_node(pair, 0)
    >>> bare.x.squeeze().tolist(), bare.edge_index.shape
    ([0.0, 1.0], torch.Size([2, 0]))
    """
    bare = copy(graph)
    kept = (graph.edge_index != node).all(dim=0)
    for name in graph.edge_attrs():
        value = graph[name]
        if isinstance(value, Tensor):
            along = graph.__cat_dim__(name, value)
            bare[name] = value.index_select(along, kept.nonzero().squeeze(1).to(value.device))
    bare.x = graph.x.detach().clone()
    bare.x[node] = 0
    return bare
