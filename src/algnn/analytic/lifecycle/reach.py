"""Nodes whose features change when a node leaves the graph."""

from __future__ import annotations

from copy import copy

import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn.analytic.features.gcn import ExpandedGCN
from algnn.analytic.features.hops import HopEncoder
from algnn.graph.propagate import normalised_adjacency

# longer than the receptive field of any encoder; one that sees its end is taken to see everything
PATH = 64


def hops(features: HopEncoder | ExpandedGCN) -> int | None:
    """The receptive field of the features in hops; None for the whole graph."""
    if isinstance(features, ExpandedGCN):
        return 2 if features.expansion.kind == "gcn" else 1
    # measured: how far along a path does the one node that has features show?
    steps = torch.arange(PATH - 1)
    both_ways = torch.cat([torch.stack([steps, steps + 1]), torch.stack([steps + 1, steps])], 1)
    x = torch.zeros(PATH, features.inputs, dtype=torch.float32)
    x[0] = 1.0
    seen = features.prepare(normalised_adjacency(both_ways, PATH), x).any(dim=1)
    farthest = int(seen.nonzero().max()) if bool(seen.any()) else 0
    return None if farthest == PATH - 1 else farthest


def affected(
    features: HopEncoder | ExpandedGCN, edge_index: Tensor, num_nodes: int, node: int
) -> Tensor:
    """The nodes, sorted, whose features may change when one loses its features and edges.

    One hop more than the receptive field: a neighbour that loses an edge weighs its other
    neighbours otherwise, and is weighed otherwise by them.
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
    """A copy of the graph with a node's features set to zero and its edges removed; ids stay."""
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
