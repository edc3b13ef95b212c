import math

import numpy as np
import pytest
import torch

from algnn.analytic.features.expansion import Expansion, random_weights
from algnn.errors import InputError
from algnn.graph.propagate import normalised_adjacency

GOLDEN = [1060345535, 3207482061, 1062090121, 3194781929, 3197365458, 3188920684]


def test_the_plain_expansion_is_the_papers_equation():
    expansion = Expansion("plain", inputs=3, width=7, seed=5)
    H = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    prepared = expansion.prepare(torch.empty(0), H)
    expected = torch.relu(H.double() @ random_weights(3, 7, 5).double())
    torch.testing.assert_close(expansion(prepared), expected)


def test_the_gcn_expansion_is_a_random_gcn_layer(small_graph):
    expansion = Expansion("gcn", inputs=12, width=20, seed=5)
    adjacency = normalised_adjacency(small_graph.edge_index, small_graph.num_nodes)
    # the layer expands and then propagates; the library propagates and then expands
    widened = small_graph.x @ random_weights(12, 20, 5)
    expected = torch.relu(adjacency.to_dense() @ widened)
    found = expansion(expansion.prepare(adjacency, small_graph.x))
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
    expansion = Expansion("plain", inputs=64, width=300, seed=5)
    H = torch.randn(200, 64, generator=torch.Generator().manual_seed(0))
    alone = torch.cat([expansion(row) for row in H.split(1)])
    torch.testing.assert_close(expansion(H), alone, rtol=1e-12, atol=1e-13)


def test_seeds_differ():
    assert not torch.equal(random_weights(4, 4, 1), random_weights(4, 4, 2))


@pytest.mark.parametrize("wrong", [{"inputs": 0}, {"width": 2.0}, {"seed": -1}, {"seed": 2**63}])
def test_what_cannot_be_drawn_is_refused_at_once(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Expansion(**{"kind": "plain", "inputs": 4, "width": 16, "seed": 0, **wrong})
