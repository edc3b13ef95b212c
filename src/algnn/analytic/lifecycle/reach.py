"""Nodes whose features change when a node leaves the graph."""

from __future__ import annotations

from copy import copy

import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn.analytic.features.blocked import steps
from algnn.analytic.features.gcn import ExpandedGCN
from algnn.analytic.features.hops import HopEncoder
from algnn.graph.propagate import to_csr


def hops(features: HopEncoder | ExpandedGCN) -> int:
    """The receptive field of the features in hops."""
    if isinstance(features, ExpandedGCN):
        return 2 if features.expansion.kind == "gcn" else 1
    return max(map(steps, features.views))


def affected(
    features: HopEncoder | ExpandedGCN, edge_index: Tensor, num_nodes: int, node: int
) -> Tensor:
    """The nodes, sorted, whose features may change when one loses its features and edges.

    One hop more than the receptive field: a neighbour that loses an edge weighs its other
    neighbours otherwise, and is weighed otherwise by them.
    """
    far = hops(features)
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
    x = graph.x.detach().clone()
    if x.layout == torch.strided:
        x[node] = 0
    else:
        x = to_csr(x)
        starts = x.crow_indices()
        x.values()[starts[node] : starts[node + 1]] = 0
    bare.x = x
    return bare
