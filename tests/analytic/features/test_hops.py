import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import algnn
from algnn.analytic.features.blocked import polynomial, steps
from algnn.analytic.features.expansion import random_weights
from algnn.analytic.features.hops import SIZES, VIEW_SETS, HopEncoder
from algnn.analytic.features.reduce import WIDEST
from algnn.analytic.lifecycle.preconditions import without_node
from algnn.errors import InputError
from algnn.graph.propagate import normalised_adjacency, to_csr


def unit(rows: torch.Tensor) -> torch.Tensor:
    return rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)


def directed(seed: int, nodes: int = 30, edges: int = 90) -> tuple[torch.Tensor, torch.Tensor]:
    """Features with signs, and Â of a graph whose edges go one way."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(nodes, (2, edges), generator=generator)
    x = torch.randn(nodes, 7, generator=generator)
    return x, normalised_adjacency(edge_index, nodes)


def wide(nodes: int = 40, columns: int = WIDEST + 88) -> torch.Tensor:
    """Wide counts, most of them zero, and a row without any."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(1, 9, (nodes, columns), generator=generator).float()
    x[torch.rand(nodes, columns, generator=generator) > 0.05] = 0
    x[3] = 0
    return x


def by_hand(adjacency: torch.Tensor, x: torch.Tensor) -> dict[str, torch.Tensor]:
    dense, x = adjacency.to_dense().double(), x.double()
    walk, neighbours = x, dense - dense.diag().diag()
    for _ in range(10):
        walk = 0.9 * dense @ walk + 0.1 * x
    return {
        "0": unit(x),
        "2": unit(dense @ dense @ x),
        "open 1": unit(neighbours @ x),
        "open 2": unit(neighbours @ neighbours @ x),
        "pagerank": unit(walk),
    }


@pytest.mark.parametrize("name", VIEW_SETS)
def test_views_are_polynomials_of_the_adjacency_side_by_side(name):
    x, adjacency = directed(0)
    encoder, views = HopEncoder(name, 7), by_hand(adjacency, x)
    expected = torch.cat([views[view] for view in encoder.views], 1)
    prepared = encoder.prepare(adjacency, x)
    torch.testing.assert_close(prepared.double(), expected, rtol=1e-6, atol=1e-7)
    assert encoder.width == prepared.size(1)
    assert encoder(prepared).dtype == torch.float64
    torch.testing.assert_close(encoder.prepare(adjacency, to_csr(x)), prepared)


@pytest.mark.parametrize("view", VIEW_SETS["all"])
def test_what_a_node_sees_is_its_row_of_the_polynomial(view):
    """Also where edges go one way only, so that Â is not its own transpose."""
    _, adjacency = directed(2)
    everything = torch.eye(30).double()
    matrix = adjacency.double()
    expected = polynomial(view, matrix, everything)
    nodes = torch.tensor([3, 29, 0])
    transposed = to_csr(matrix.to_dense().mT.contiguous())
    seen = polynomial(view, transposed, everything[:, nodes].contiguous())
    torch.testing.assert_close(seen, expected[nodes].mT)


def test_a_view_looks_as_far_as_its_degree():
    assert [steps(view) for view in VIEW_SETS["all"]] == [0, 1, 2, 10]


def test_roots_keep_their_signs():
    x, adjacency = torch.tensor([[4.0, -9.0]]), normalised_adjacency(torch.empty(2, 0).long(), 1)
    found = HopEncoder("raw", 2, root=True).prepare(adjacency, x)
    torch.testing.assert_close(found, unit(torch.tensor([[2.0, -3.0]])))


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_wide_features_are_reduced_to_their_coordinates_in_a_basis(kind):
    x = wide()
    adjacency = normalised_adjacency(torch.tensor([[0, 1], [1, 0]]), len(x))
    encoder = HopEncoder.of(x if kind == "dense" else to_csr(x), 100, seed=3)
    assert encoder.root
    # as many directions as rows; the row without entries adds none that matter
    assert encoder.basis.shape == (x.size(1), len(x))
    found = encoder.prepare(adjacency, x if kind == "dense" else to_csr(x))
    rows = unit(x.sqrt().double())
    own = unit(rows @ encoder.basis.double())
    torch.testing.assert_close(found[:, : len(x)].double(), own, rtol=0, atol=2e-6)
    # the basis spans all rows, so nothing of their inner products is lost
    torch.testing.assert_close(own @ own.mT, rows @ rows.mT, rtol=0, atol=1e-5)


def test_the_walk_of_wide_features_has_more_columns_than_the_views_before_it():
    x, adjacency = directed(0)
    encoder = HopEncoder.of(x, 100, seed=3, widest=5, near=2, rank=6, sizes=False)
    assert encoder.widths == [2, 2, 2, 6]
    assert (encoder.breadth, encoder.width) == (12, 100)
    views = by_hand(adjacency, unit(x.double()) @ encoder.basis.double())
    expected = [unit(views[name][:, :2]) for name in ("0", "open 1", "open 2")]
    found = encoder.prepare(adjacency, x)
    expected = torch.cat([*expected, views["pagerank"]], 1)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-6)
    weights = encoder.unit_weights(x.device)
    assert not bool(weights[:6, 44:].any())
    # both kinds of units are of inputs as long: four views, or one of them times two
    drawn = random_weights(12, 88, 3).double()
    torch.testing.assert_close(weights[6:, 44:], 2 * drawn[6:, 44:])


def test_sparse_and_dense_features_are_encoded_alike():
    x = wide()
    dense, sparse = (HopEncoder.of(one, 4000, seed=3) for one in (x, to_csr(x)))
    assert replace(dense, basis=None).__dict__ == replace(sparse, basis=None).__dict__
    torch.testing.assert_close(dense.basis, sparse.basis, rtol=0, atol=1e-6)


def test_a_random_projection_keeps_inner_products():
    """As files of version 0.1 and private learners have it in the place of a basis."""
    x = torch.randn(40, 5000, generator=torch.Generator().manual_seed(0))
    first, again, other = (
        HopEncoder("raw", 5000, projected=1024, seed=seed).reduction(x.device) for seed in (3, 3, 4)
    )
    drawn, found = x @ x.T / 5000, (x.double() @ first) @ (x.double() @ first).T / 5000
    # an inner product of n terms is off by about its size / √1024
    assert float((drawn - found).abs().mean()) < 0.05
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_units_stand_beside_the_views():
    x, adjacency = directed(0)
    encoder = HopEncoder("two hops", 7, expanded=50, seed=5)
    prepared = encoder.prepare(adjacency, x)
    units = unit((prepared.double() @ random_weights(7, 50, 5).double()).relu())
    torch.testing.assert_close(encoder(prepared), torch.cat([prepared.double(), units], 1))
    assert encoder.width == 57


def test_half_of_the_units_of_all_views_see_pagerank_alone():
    weights = HopEncoder("all", 7, expanded=51, seed=5).unit_weights(torch.device("cpu"))
    drawn = random_weights(28, 51, 5).double()
    assert torch.equal(weights[:, :25], drawn[:, :25])
    assert not bool(weights[:21, 25:].any())
    torch.testing.assert_close(weights[21:, 25:], 2 * drawn[21:, 25:])


@pytest.mark.parametrize("given", [torch.Tensor.clone, to_csr], ids=["dense", "csr"])
def test_columns_tell_how_large_a_row_was(given):
    lengths = torch.tensor([0.0, 1.0, 3.0, 2.5e4, 2.5e9])
    signs = torch.tensor([1.0, 1, 1, -1, -1])
    x = given((signs * lengths.sqrt())[:, None] * torch.tensor([0.6, -0.8]))
    adjacency = normalised_adjacency(torch.empty(2, 0).long(), 5)
    encoder = HopEncoder.of(x, 100, seed=3)
    assert (encoder.sizes, encoder.prepared_width, encoder.width) == (True, 8 + SIZES, 100)
    found = encoder.prepare(adjacency, x)[:, 8:]
    expected = torch.zeros(5, SIZES)
    expected[1, 0] = expected[2, 1] = 0.5  # 2^1 and 2^2
    above = math.log2(1 + 2.5e4) - 14
    expected[3, 13:15] = torch.tensor([1 - above, above]) / 2
    expected[4, 15] = 0.5  # all that is larger
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    assert torch.equal(encoder(encoder.prepare(adjacency, x))[:, 8 : 8 + SIZES].float(), found)


def test_rows_of_one_size_have_no_columns_for_it():
    x, adjacency = directed(0)
    assert not HopEncoder.of(unit(x), 100, seed=1).sizes
    assert HopEncoder.of(x, 100, seed=1).sizes
    plain = HopEncoder.of(x, 100, seed=1, sizes=False)
    assert plain.fingerprint == HopEncoder.of(unit(x), 100, seed=1).fingerprint
    sized = replace(plain, sizes=True)
    assert plain.fingerprint != sized.fingerprint
    # views and units are the same with them and without
    one, other = (encoder(encoder.prepare(adjacency, x)) for encoder in (plain, sized))
    assert torch.equal(one, torch.cat([other[:, :28], other[:, 28 + SIZES :]], dim=1))


def test_what_is_decided_without_labels():
    def decided(x, width=100):
        encoder = HopEncoder.of(x, width, seed=1)
        return encoder.root, encoder.view_width, encoder.expanded

    assert decided(torch.full((10, 5), -1.0)) == (False, 5, 80)  # signs: no roots
    assert decided(torch.eye(10)) == (False, 10, 60)  # 0 and 1 have no roots but themselves
    assert decided(torch.full((10, 5), 2.0), 18) == (True, 5, 0)  # views that leave no room
    assert decided(torch.rand(9, WIDEST))[1] == WIDEST
    assert decided(torch.rand(9, WIDEST + 1))[1] == 9  # reduced, to as many columns as rows


def test_unknown_views_are_named():
    with pytest.raises(InputError, match="views='some' is unknown: use one of all"):
        HopEncoder("some", 3)


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


@pytest.mark.parametrize(("homophily", "noise"), [(0.9, 4.0), (0.0, 1.5)])
def test_one_set_of_views_serves_like_and_unlike_neighbours(homophily, noise):
    """With neighbours at random the node's own features count, with like ones their average."""
    graph, y = mixed(homophily, noise)
    nodes, others = torch.arange(300), torch.arange(300, 600)
    model = algnn.ALGNN(width=512, device="cpu").fit(graph, nodes, y[nodes])
    assert model.score(graph, others, y[others]) > 0.85


@pytest.mark.parametrize("layout", ["csr", "coo"])
def test_a_learner_takes_sparse_features(small_graph, tmp_path, layout):
    """With the same answers in every layout, whatever is asked."""
    mask, y = small_graph.train_mask, small_graph.y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        x = small_graph.x.to_sparse_csr() if layout == "csr" else small_graph.x.to_sparse()
    sparse = Data(x=x, edge_index=small_graph.edge_index)
    ours, theirs = (
        algnn.ALGNN(width=128, device="cpu").fit(graph, mask, y[mask])
        for graph in (sparse, small_graph)
    )
    ours.save(tmp_path / "model.safetensors")
    ours = algnn.ALGNN.load(tmp_path / "model.safetensors")
    answers = [
        (
            one.decision_function(graph),
            one.novelty(graph),
            one.explain(graph, 5).by_feature,
            without_node(graph, 7).x.to_dense().numpy(),
        )
        for one, graph in ((ours, sparse), (theirs, small_graph))
        if one.forget(graph, [0], y[:1])
    ]
    for found, expected in zip(*answers, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    # not even the columns of its entries are left
    bare = without_node(sparse, 7).x
    assert bare.crow_indices()[7] == bare.crow_indices()[8]


class FewDirections(algnn.ALGNN):
    """Reduces to fewer columns, to be quick."""

    def _hop_encoder(self, graph):
        return HopEncoder.of(self._inputs(graph, sparse=True), self.width, self.seed, rank=24)


def test_features_too_wide_to_be_dense():
    """5,000 nodes with 100,000 columns: 4 GB in float64, and a few entries in each row."""
    rng = np.random.default_rng(0)
    nodes, columns, each = 5_000, 100_000, 8
    y = np.arange(nodes) % 3
    # the first entries of a row are among 50 columns of its class, the others anywhere
    places = rng.integers(columns, size=(nodes, each))
    places[:, :4] = y[:, None] * 50 + rng.integers(50, size=(nodes, 4))
    rows = np.repeat(np.arange(nodes), each)
    where = torch.from_numpy(np.stack([rows, places.ravel()]))
    x = torch.sparse_coo_tensor(
        where, torch.ones(nodes * each), (nodes, columns), check_invariants=True
    )
    edges = torch.from_numpy(rng.integers(nodes, size=(2, nodes)))
    graph, y = Data(x=x, edge_index=edges), torch.from_numpy(y)
    nodes = torch.arange(300)
    model = FewDirections(width=256, device="cpu").fit(graph, nodes, y[nodes])
    assert model._learned.features.basis.shape == (columns, 24)
    asked = torch.arange(300, 900)
    assert model.score(graph, asked, y[asked]) > 0.8
