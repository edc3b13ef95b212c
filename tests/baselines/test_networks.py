import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import APPNP as Propagation
from torch_geometric.nn.aggr import MeanAggregation

from algnn.baselines.joint import (
    APPNP,
    SAGE,
    neighbour_mean,
    project,
    thinned,
)
from algnn.graph.propagate import normalised_adjacency

both = pytest.mark.parametrize("network", [APPNP, SAGE])
kinds = pytest.mark.parametrize("share", [0.02, 0.6], ids=["sparse", "dense"])


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def odd_graph(share=0.6):
    """Directed, with a self-loop, an edge twice, a node with no edges and one with no features."""
    source, target = torch.randint(39, (2, 120), generator=seeded(1))
    edges = torch.stack([source, target])
    edges = torch.cat([edges, edges[:, :1], torch.tensor([[5], [5]])], dim=1)
    x = torch.randn(40, 60, generator=seeded(2))
    x[torch.rand(40, 60, generator=seeded(3)) > share] = 0
    x[7] = 0
    return Data(x=x, edge_index=edges)


def made(network, graph, dropout=0.5):
    model = network(graph.x.size(1), 9, 3, dropout, seeded())
    with torch.no_grad():  # biases start from 0, where a test would not see them
        for name, parameter in model.named_parameters():
            if name.startswith("bias"):
                parameter.copy_(torch.randn(parameter.shape, generator=seeded(4)))
    return model


def gradients(logits, model):
    mixed = torch.randn(logits.shape, generator=seeded(5))
    return torch.autograd.grad((logits * mixed).sum(), list(model.parameters()))


def by_pyg(model, graph, nodes):
    """The same weights with PyTorch Geometric's propagation and aggregation."""
    if isinstance(model, APPNP):
        hidden = torch.relu(graph.x @ model.weight1 + model.bias1)
        guess = hidden @ model.weight2 + model.bias2
        return Propagation(K=10, alpha=0.1)(guess, graph.edge_index)[nodes]
    # a node is no neighbour of itself here, whatever the edges say
    source, target = graph.edge_index[:, graph.edge_index[0] != graph.edge_index[1]]

    def layer(x, own, mean, bias):
        return x @ own + MeanAggregation()(x[source], target, dim_size=40) @ mean + bias

    hidden = torch.relu(layer(graph.x, model.weight1, model.mean1, model.bias1))
    return layer(hidden, model.weight2, model.mean2, model.bias2)[nodes]


@both
@kinds
def test_logits_and_gradients_are_those_of_pyg(network, share):
    graph, nodes = odd_graph(share), torch.tensor([31, 5, 39, 7, 12])
    model = made(network, graph)
    field = network.field(normalised_adjacency(graph.edge_index, 40), graph.x, nodes)
    assert (field.inputs.layout is torch.sparse_csr) == (share < 0.05)
    found, expected = model(field), by_pyg(model, graph, nodes)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(gradients(found, model), gradients(expected, model), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@both
def test_scores_are_the_logits_that_were_trained(network):
    graph, nodes = odd_graph(), torch.tensor([3, 0, 39])
    adjacency = normalised_adjacency(graph.edge_index, 40)
    model = made(network, graph)
    expected = model(network.field(adjacency, graph.x, nodes)).detach()
    again = network.from_weights(dict(model.named_parameters()))
    for one in (model, again):
        scores = one.scores(adjacency, graph.x, nodes)
        torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)
        assert not scores.requires_grad


def test_the_walk_reaches_ten_hops_and_no_further():
    """On a line of twelve nodes, the last one hears of all but the first."""
    line = torch.stack([torch.arange(11), torch.arange(1, 12)])
    model = APPNP(12, 4, 2, 0.0, seeded())
    with torch.no_grad():
        model.bias1.fill_(1.0)
        model.weight1.abs_()
    x = torch.eye(12)
    field = APPNP.field(normalised_adjacency(line, 12), x, torch.tensor([11]))
    (gradient,) = torch.autograd.grad(model(field).sum(), model.weight1)
    heard = gradient.abs().sum(1) > 0
    assert heard.tolist() == [False] + [True] * 11


def test_graphsage_looks_at_two_hops_only():
    """Work is restricted to what the targets can see."""
    line = torch.stack([torch.arange(11), torch.arange(1, 12)])
    line = torch.cat([line, line.flip(0)], dim=1)
    x = torch.rand(12, 3, generator=seeded())
    field = SAGE.field(normalised_adjacency(line, 12), x, torch.tensor([6, 2]))
    rows = [1, 2, 3, 5, 6, 7]
    assert field.targets.tolist() == [4, 1]
    torch.testing.assert_close(field.inputs[:, :3], x[rows])
    means = torch.stack([(x[r - 1] + x[r + 1]) / 2 for r in rows])
    torch.testing.assert_close(field.inputs[:, 3:], means)


def test_the_mean_of_no_neighbours_is_nothing():
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 1, 1]])
    found = neighbour_mean(normalised_adjacency(edges, 4)).to_dense()
    expected = torch.tensor([[0, 1, 0, 0], [0.5, 0, 0.5, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    assert torch.equal(found, expected)


@kinds
def test_features_are_dropped_entry_by_entry(share):
    """Each row through the identity shows what it kept: half of it, doubled."""
    x = torch.ones(500, 200) * (torch.rand(500, 200, generator=seeded()) < share)
    inputs, generator = thinned(x), seeded(1)
    first, second = (project(inputs, torch.eye(200), 0.5, generator) for _ in range(2))
    for kept in (first, second):
        assert set(kept[x == 0].tolist()) == {0.0}
        assert set(kept[x == 1].tolist()) == {0.0, 2.0}
        # at least 2,000 fair coins: five standard errors
        assert float(kept[x == 1].mean()) == pytest.approx(1, abs=0.12)
    assert not torch.equal(first, second)
    assert torch.equal(project(inputs, torch.eye(200)), x)


@both
def test_dropout_only_where_a_generator_is_given(network):
    graph = odd_graph()
    field = network.field(
        normalised_adjacency(graph.edge_index, 40), graph.x, torch.arange(graph.num_nodes)
    )
    model = made(network, graph)
    assert torch.equal(model(field), model(field))
    assert torch.equal(model(field, seeded(1)), model(field, seeded(1)))
    assert not torch.equal(model(field, seeded(1)), model(field, seeded(2)))
    assert not torch.equal(model(field, seeded(1)), model(field))


def test_no_features_at_all():
    x = torch.zeros(40, 30)
    adjacency = normalised_adjacency(odd_graph().edge_index, 40)
    for network in (APPNP, SAGE):
        model = network(30, 9, 3, 0.5, seeded())
        logits = model(network.field(adjacency, x, torch.tensor([1, 2])), seeded(1))
        assert torch.equal(logits, torch.zeros(2, 3))
        logits.sum().backward()
        assert torch.equal(model.weight1.grad, torch.zeros(30, 9))
