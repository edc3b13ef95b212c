import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from algnn.baselines.importance import node_importance
from algnn.gcn import GCN
from algnn.graph import propagate
from algnn.graph.propagate import normalised_adjacency, receptive_field


def problem(graph, nodes):
    generator = torch.Generator().manual_seed(1)
    gcn = GCN(graph.x.size(1), 6, 4, dropout=0.5, generator=generator)
    with torch.no_grad():
        gcn.bias1.normal_(generator=generator)
        gcn.bias2.normal_(generator=generator)
    adjacency = normalised_adjacency(graph.edge_index, graph.num_nodes)
    return gcn, receptive_field(adjacency, graph.x, nodes)


def one_by_one(gcn, field, value, reduce):
    """The same by autograd, a backward pass per node."""
    total = {name: torch.zeros_like(p) for name, p in gcn.named_parameters()}
    logits = gcn(field)
    for row in range(logits.size(0)):
        gradients = torch.autograd.grad(
            value(logits[row], row), list(gcn.parameters()), retain_graph=True
        )
        for name, gradient in zip(total, gradients, strict=True):
            total[name] += reduce(gradient) / logits.size(0)
    return total


@pytest.mark.parametrize("block", [64 * 2**20, 2000])
def test_squared_gradients_of_the_cross_entropy(small_graph, monkeypatch, block):
    monkeypatch.setattr(propagate, "BLOCK_BYTES", block)
    nodes = small_graph.train_mask.nonzero().squeeze(1)
    codes = small_graph.y[nodes]
    gcn, field = problem(small_graph, nodes)
    one_hot = torch.nn.functional.one_hot(codes, 4)
    found = node_importance(gcn, field, lambda z: z.softmax(1) - one_hot, torch.square)
    expected = one_by_one(gcn, field, lambda z, v: cross_entropy(z, codes[v]), torch.square)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-8)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(0, 59), min_size=1, max_size=12, unique=True))
def test_absolute_gradients_of_the_squared_norm(nodes):
    from torch_geometric.data import Data

    generator = torch.Generator().manual_seed(len(nodes))
    edges = torch.randint(0, 60, (2, 150), generator=generator)
    graph = Data(x=torch.randn(60, 5, generator=generator), edge_index=edges)
    gcn, field = problem(graph, torch.tensor(nodes))
    found = node_importance(gcn, field, lambda z: 2 * z, torch.abs)
    expected = one_by_one(gcn, field, lambda z, _: z.square().sum(), torch.abs)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6)
