"""What is made of features: expansion, GCN, and fewer columns."""

import math

import numpy as np
import pytest
import torch

import algnn
from algnn.analytic.features.expansion import ExpandedGCN, random_weights
from algnn.analytic.features.reduce import principal_basis, unit_rows
from algnn.errors import InputError
from algnn.graph import propagate
from algnn.graph.propagate import normalised_adjacency, to_csr

GOLDEN = [1060345535, 3207482061, 1062090121, 3194781929, 3197365458, 3188920684]


def expanded(kind: str, h: int, width: int, **changes) -> ExpandedGCN:
    settings = {"kind": kind, "width": width, "seed": 5, **changes}
    return ExpandedGCN(torch.eye(h), torch.zeros(h), **settings)


def test_the_plain_expansion_is_the_papers_equation():
    H = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    expected = torch.relu(H.double() @ random_weights(3, 7, 5).double())
    torch.testing.assert_close(expanded("plain", 3, 7)(H), expected)


def test_the_gcn_expansion_is_a_random_gcn_layer(small_graph):
    features = expanded("gcn", 12, 20)
    adjacency = normalised_adjacency(small_graph.edge_index, small_graph.num_nodes)
    H = torch.relu(adjacency.to_dense() @ small_graph.x)
    # the layer expands and then propagates; the library propagates and then expands
    expected = torch.relu(adjacency.to_dense() @ (H @ random_weights(12, 20, 5)))
    found = features(features.prepare(adjacency, small_graph.x))
    torch.testing.assert_close(found, expected.double(), rtol=1e-5, atol=1e-6)


def test_the_weights_of_a_seed_never_change():
    """Checkpoints hold the seed in place of the matrix, so these values are part of the format."""
    found = random_weights(2, 3, seed=42)
    bits = [GOLDEN[0:3], GOLDEN[3:6]]
    np.testing.assert_array_equal(found.numpy().view(np.uint32), np.array(bits, dtype=np.uint32))


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_weights_are_the_generators_bits(size):
    words = np.random.Philox(key=2**63 - 1).random_raw(size)
    unit = (words >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1.0)
    expected = unit * np.float32(math.sqrt(6 / (1 + size)))
    found = random_weights(1, size, seed=2**63 - 1)
    assert found.shape == (1, size)
    np.testing.assert_array_equal(found.numpy()[0].view(np.uint32), expected.view(np.uint32))


def test_weights_are_uniform_within_glorots_bound():
    weights = random_weights(100, 200, seed=1)
    bound = (6 / 300) ** 0.5
    assert weights.abs().max() <= bound
    assert abs(float(weights.mean())) < 0.01 * bound
    assert abs(float(weights.std()) / (bound / 3**0.5) - 1) < 0.01


def test_the_features_of_a_node_do_not_depend_on_its_batch():
    features = expanded("plain", 64, 300)
    H = torch.randn(200, 64, generator=torch.Generator().manual_seed(0))
    alone = torch.cat([features(row) for row in H.split(1)])
    torch.testing.assert_close(features(H), alone, rtol=1e-12, atol=1e-13)


def test_seeds_differ():
    assert not torch.equal(random_weights(4, 4, 1), random_weights(4, 4, 2))


@pytest.mark.parametrize("wrong", [{"width": 2.0}, {"seed": -1}, {"seed": 2**63}])
def test_what_cannot_be_drawn_is_refused_at_once(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        expanded(**{"kind": "plain", "h": 4, "width": 16, **wrong})


# -- the GCN --------------------------------------------------------------------------------------


SETTINGS = {"encoder": "gcn", "expansion": "plain", "width": 32, "gamma": 1.0, "device": "cpu"}


def fitted(graph, **changes):
    adjacency = normalised_adjacency(graph.edge_index, graph.num_nodes)
    trained = {"hidden": 16, "lr": 0.01, "seed": 1, **changes}
    model = algnn.ALGNN(**SETTINGS, **trained)
    return adjacency, model.fit(graph, graph.train_mask, graph.y[graph.train_mask])._known.features


def test_the_encoder_is_the_first_layer_of_a_gcn(small_graph):
    adjacency, encoder = fitted(small_graph)
    expected = torch.relu(adjacency.to_dense() @ small_graph.x @ encoder.weight + encoder.bias)
    torch.testing.assert_close(encoder.prepare(adjacency, small_graph.x), expected)


def test_training_moves_it_and_brings_classes_together(small_graph):
    adjacency, trained = fitted(small_graph)
    _, untrained = fitted(small_graph, epochs=1, lr=0.0)

    def spread_ratio(encoder):
        H = encoder.prepare(adjacency, small_graph.x)
        means = torch.stack([H[small_graph.y == c].mean(0) for c in range(4)])
        return (means - means.mean(0)).norm() / (H - means[small_graph.y]).norm()

    assert spread_ratio(trained) > 1.2 * spread_ratio(untrained)


def test_the_same_seed_gives_the_same_encoder_and_leaves_torchs_random_state_alone(small_graph):
    before = torch.random.get_rng_state()
    first, second = fitted(small_graph)[1], fitted(small_graph)[1]
    assert torch.equal(first.weight, second.weight)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not torch.equal(first.weight, fitted(small_graph, seed=2)[1].weight)


def test_a_frozen_encoder_asks_for_no_gradient(small_graph):
    _, encoder = fitted(small_graph)
    assert not encoder.weight.requires_grad
    assert not encoder.bias.requires_grad


def test_the_block_size_does_not_matter(small_graph, monkeypatch):
    adjacency, encoder = fitted(small_graph)
    whole = encoder.prepare(adjacency, small_graph.x)
    monkeypatch.setattr(propagate, "BLOCK_BYTES", 500)
    torch.testing.assert_close(encoder.prepare(adjacency, small_graph.x), whole)


# -- fewer columns --------------------------------------------------------------------------------


RANK = 6


def decaying(rows: int = 60, columns: int = 40) -> torch.Tensor:
    """A matrix whose singular values halve from one to the next."""
    generator = torch.Generator().manual_seed(0)
    left, _ = torch.linalg.qr(torch.randn(rows, columns, generator=generator))
    right, _ = torch.linalg.qr(torch.randn(columns, columns, generator=generator))
    return left * 0.5 ** torch.arange(columns) @ right.mT


@pytest.mark.parametrize("convert", [lambda X: X, to_csr], ids=["dense", "csr"])
def test_the_basis_is_that_of_a_singular_value_decomposition(convert):
    X = decaying()
    V = principal_basis(convert(X), seed=0, rank=RANK)
    assert (V.shape, V.dtype) == ((40, 6), torch.float32)
    torch.testing.assert_close(V.mT @ V, torch.eye(6), rtol=0, atol=1e-6)
    exact = torch.from_numpy(np.linalg.svd(X.double().numpy())[2][:6].T).float()
    # vector by vector, but for the sign, which is that of the largest entry
    signs = torch.where(exact.gather(0, exact.abs().argmax(0, keepdim=True)) < 0, -1.0, 1.0)
    torch.testing.assert_close(V, exact * signs, rtol=0, atol=1e-5)


def test_it_is_deterministic_and_depends_little_on_the_seed():
    X = to_csr(decaying())
    V = principal_basis(X, seed=0, rank=RANK)
    assert torch.equal(V, principal_basis(X, seed=0, rank=RANK))
    torch.testing.assert_close(V, principal_basis(X, seed=7, rank=RANK), rtol=0, atol=1e-5)


def test_fewer_rows_than_directions_and_rows_that_say_nothing():
    X = torch.zeros(4, 40)
    assert bool(principal_basis(X, seed=0, rank=RANK).isfinite().all())
    X[0, 3], X[1, 9] = 2.0, -1.0
    V = principal_basis(to_csr(X), seed=0, rank=RANK)
    assert V.shape == (40, 4)
    torch.testing.assert_close(V[[3, 9], [0, 1]], torch.ones(2))


@pytest.mark.parametrize("shape", [(300, 120), (120, 300)])
def test_directions_that_no_row_has_are_columns_of_zeros(shape):
    draw = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, 20, generator=draw) for size in shape)
    V = principal_basis(left @ right.mT, seed=0, rank=80).double()
    assert bool((V[:, 20:] == 0).all())
    torch.testing.assert_close(V[:, :20].mT @ V[:, :20], torch.eye(20).double(), rtol=0, atol=1e-6)
    inside = torch.linalg.qr(right.double())[0]
    torch.testing.assert_close(inside @ (inside.mT @ V), V, rtol=0, atol=1e-5)


def test_rows_of_length_one():
    X = torch.tensor([[3.0, 0.0, 4.0], [0.0, 0.0, 0.0], [0.0, -2.0, 0.0]])
    expected = torch.tensor([[0.6, 0.0, 0.8], [0.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    torch.testing.assert_close(unit_rows(to_csr(X)).to_dense(), expected)
