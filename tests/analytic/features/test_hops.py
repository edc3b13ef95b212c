import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from algnn import ALGNN
from algnn.analytic.features.expansion import random_weights
from algnn.analytic.features.hops import (
    BANKS,
    NARROW_VIEW,
    UNITS,
    HopEncoder,
    candidates,
    kernels,
    plain_encoder,
    polynomial,
)
from algnn.errors import InputError
from algnn.graph.propagate import Operator, normalised_adjacency


def unit(rows: torch.Tensor) -> torch.Tensor:
    return rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)


def directed(seed: int, nodes: int = 30, edges: int = 90) -> tuple[torch.Tensor, torch.Tensor]:
    """Features with signs, and Â of a graph whose edges go one way."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(nodes, (2, edges), generator=generator)
    x = torch.randn(nodes, 7, generator=generator)
    return x, normalised_adjacency(edge_index, nodes)


def by_hand(adjacency: torch.Tensor, x: torch.Tensor) -> dict[str, torch.Tensor]:
    dense, x = adjacency.to_dense().double(), x.double()
    walk = x
    for _ in range(10):
        walk = 0.9 * dense @ walk + 0.1 * x
    return {"0": unit(x), "2": unit(dense @ dense @ x), "pagerank": unit(walk)}


@pytest.mark.parametrize("name", BANKS)
def test_views_are_polynomials_of_the_adjacency_side_by_side(name):
    x, adjacency = directed(0)
    bank, views = HopEncoder(name, 7), by_hand(adjacency, x)
    expected = torch.cat([views[view] for view in bank.views], 1)
    prepared = bank.prepare(adjacency, x)
    torch.testing.assert_close(prepared.double(), expected, rtol=1e-6, atol=1e-7)
    assert bank.width == prepared.size(1)
    assert bank(prepared).dtype == torch.float64


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(sorted(BANKS)), st.integers(0, 99), st.booleans(), st.sampled_from([0, 4]))
def test_a_few_nodes_have_the_views_that_they_have_among_all(name, seed, root, projected):
    """Also where edges go one way only, so that Â is not its own transpose."""
    x, adjacency = directed(seed)
    bank = HopEncoder(name, 7, projected, root, seed=seed)
    nodes = torch.tensor([3, 29, 3, 0])
    rows = bank.rows(Operator(adjacency).T.matrix, x, nodes)
    torch.testing.assert_close(rows, bank.prepare(adjacency, x)[nodes], rtol=2e-7, atol=1e-8)


def test_roots_keep_their_signs():
    x, adjacency = torch.tensor([[4.0, -9.0]]), normalised_adjacency(torch.empty(2, 0).long(), 1)
    found = HopEncoder("raw", 2, root=True).prepare(adjacency, x)
    torch.testing.assert_close(found, unit(torch.tensor([[2.0, -3.0]])))


def test_wide_features_are_projected_so_that_inner_products_stay():
    x = torch.randn(40, 5000, generator=torch.Generator().manual_seed(0)).double()
    bank = HopEncoder("raw", 5000, projected=1024, seed=3)
    drawn, found = x @ x.T / 5000, bank.entries(x) @ bank.entries(x).T / 5000
    # an inner product of n terms is off by about its size / √1024
    assert float((drawn - found).abs().mean()) < 0.05
    assert torch.equal(bank.entries(x), bank.entries(x))
    other = HopEncoder("raw", 5000, projected=1024, seed=4)
    assert not torch.equal(bank.entries(x), other.entries(x))


def test_units_stand_beside_the_views():
    x, adjacency = directed(0)
    bank = HopEncoder("two hops", 7, expanded=50, seed=5)
    prepared = bank.prepare(adjacency, x)
    units = unit((prepared.double() @ random_weights(7, 50, 5).double()).relu())
    torch.testing.assert_close(bank(prepared), torch.cat([prepared.double(), units], 1))
    assert bank.width == 57


def test_what_is_decided_without_labels():
    assert plain_encoder(torch.full((10, 5000), -1.0), 0) == HopEncoder("pagerank", 5000)
    assert plain_encoder(torch.eye(10), 0) == HopEncoder("pagerank", 10)
    large = plain_encoder(torch.full((5000, 1025), 2.0), 1)
    assert large == HopEncoder("pagerank", 1025, 1024, True, 0, 1)
    # wide features, and those of fewer nodes than columns, are not expanded
    assert not any(bank.expanded for bank in candidates(HopEncoder("raw", NARROW_VIEW + 1), 10**6))
    assert not any(bank.expanded for bank in candidates(HopEncoder("raw", 100), 99))
    assert all(bank.expanded == UNITS for bank in candidates(HopEncoder("raw", 100), 200))


def test_a_polynomial_counts_hops():
    swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).to_sparse_csr()
    assert polynomial("2", swap, torch.tensor([[5.0], [7.0]])).flatten().tolist() == [5, 7]


def test_kernels_are_inner_products_of_features():
    x, adjacency = directed(0)
    encoders = [HopEncoder("raw", 7), HopEncoder("own and two hops", 7, expanded=50, seed=5)]
    views = {name: view.float() for name, view in by_hand(adjacency, x).items()}
    for encoder, found in zip(encoders, kernels(encoders, views), strict=True):
        Z = encoder(torch.cat([views[view] for view in encoder.views], dim=1))
        torch.testing.assert_close(found, Z @ Z.mT)


def test_an_unknown_bank_is_named():
    with pytest.raises(InputError, match="bank='all' is unknown: use one of pagerank"):
        HopEncoder("all", 3)


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
    [(0.9, 4.0, {"pagerank", "two hops"}), (0.0, 0.8, {"raw", "own and pagerank"})],
)
def test_the_base_session_finds_out_whether_neighbours_are_alike(homophily, noise, expected):
    """With neighbours at random the node's own features count, with like ones their average."""
    graph, y = mixed(homophily, noise)
    nodes = torch.arange(200)
    model = ALGNN(device="cpu").fit(graph, nodes, y[nodes])
    assert model._learned.features.name in expected
