import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from algnn import ALGNN
from algnn.analytic.bank import BANKS, Bank, projected_width
from algnn.errors import InputError
from algnn.graph.propagate import normalised_adjacency


def unit(rows: torch.Tensor) -> torch.Tensor:
    return rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)


def parts(graph: Data) -> tuple[torch.Tensor, torch.Tensor]:
    return graph.x, normalised_adjacency(graph.edge_index, graph.num_nodes)


def test_hops_are_powers_of_the_adjacency_side_by_side(small_graph):
    x, adjacency = (
        small_graph.x,
        normalised_adjacency(small_graph.edge_index, small_graph.num_nodes),
    )
    dense = adjacency.to_dense()
    views = [unit(torch.linalg.matrix_power(dense, k) @ x) for k in range(4)]
    hops = Bank("hops", x.size(1))
    torch.testing.assert_close(
        hops.prepare(adjacency, x), torch.cat(views, 1), rtol=1e-4, atol=1e-5
    )
    two = Bank("two hops", x.size(1)).prepare(adjacency, x)
    torch.testing.assert_close(two, views[2], rtol=1e-4, atol=1e-5)
    raw = Bank("raw", x.size(1))
    torch.testing.assert_close(raw.prepare(adjacency, x), views[0])
    assert (hops.width, raw.width) == (4 * x.size(1), x.size(1))
    assert hops(hops.prepare(adjacency, x)).dtype == torch.float64


def test_pagerank_comes_close_to_its_fixed_point(small_graph):
    x, adjacency = (
        small_graph.x,
        normalised_adjacency(small_graph.edge_index, small_graph.num_nodes),
    )
    dense = adjacency.to_dense().double()
    fixed = 0.1 * torch.linalg.solve(torch.eye(len(x)).double() - 0.9 * dense, x.double())
    found = Bank("pagerank", x.size(1)).prepare(adjacency, x).double()
    # ten steps leave 0.9^11 of the way
    assert float((found * unit(fixed)).sum(1).mean()) > 0.9


def test_wide_features_of_large_graphs_are_projected(small_graph):
    x, adjacency = (
        small_graph.x,
        normalised_adjacency(small_graph.edge_index, small_graph.num_nodes),
    )
    bank = Bank("hops", x.size(1), projected=5, seed=3)
    assert bank.prepare(adjacency, x).shape == (len(x), 20)
    assert bank.width == 20
    assert torch.equal(bank.prepare(adjacency, x), bank.prepare(adjacency, x))
    other = Bank("hops", x.size(1), projected=5, seed=4)
    assert not torch.equal(bank.prepare(adjacency, x), other.prepare(adjacency, x))
    assert projected_width(5000, 10) == projected_width(100, 10**6) == 0


def test_an_unknown_bank_is_named():
    with pytest.raises(InputError, match="bank='all' is unknown: use one of pagerank"):
        Bank("all", 3)
    assert list(BANKS)


def mixed(homophily: float, noise: float) -> tuple[Data, torch.Tensor]:
    """600 nodes of 4 classes; edges inside a class with a given chance, anywhere otherwise."""
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=600)
    source = rng.integers(600, size=3000)
    like = np.array([rng.choice(np.flatnonzero(y == y[s])) for s in source])
    target = np.where(rng.random(3000) < homophily, like, rng.integers(600, size=3000))
    edges = torch.from_numpy(np.stack([np.r_[source, target], np.r_[target, source]]))
    x = rng.standard_normal((4, 40))[y] + noise * rng.standard_normal((600, 40))
    return Data(x=torch.from_numpy(x).float(), edge_index=edges), torch.from_numpy(y)


@pytest.mark.parametrize(
    ("homophily", "noise", "expected"),
    [(0.9, 4.0, {"pagerank", "two hops", "hops"}), (0.0, 0.8, {"raw"})],
)
def test_the_base_session_finds_out_whether_neighbours_are_alike(homophily, noise, expected):
    """With neighbours at random the node's own features count, with like ones their average."""
    graph, y = mixed(homophily, noise)
    nodes = torch.arange(200)
    model = ALGNN(device="cpu").fit(graph, nodes, y[nodes])
    assert model._learned.features.name in expected
