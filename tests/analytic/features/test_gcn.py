import torch

from algnn.analytic.features.gcn import GCNEncoder
from algnn.graph import propagate
from algnn.graph.propagate import normalised_adjacency

SETTINGS = {"hidden": 16, "lr": 0.01, "dropout": 0.5, "weight_decay": 5e-4, "seed": 1}


def fitted(graph, **changes):
    adjacency = normalised_adjacency(graph.edge_index, graph.num_nodes)
    nodes = graph.train_mask.nonzero().squeeze(1)
    settings = {"epochs": 50, **SETTINGS, **changes}
    field = propagate.receptive_field(adjacency, graph.x, nodes)
    return adjacency, GCNEncoder.fit(field, graph.y[nodes], **settings)


def test_the_encoder_is_the_first_layer_of_a_gcn(small_graph):
    adjacency, encoder = fitted(small_graph)
    expected = torch.relu(adjacency.to_dense() @ small_graph.x @ encoder.weight + encoder.bias)
    torch.testing.assert_close(encoder(adjacency, small_graph.x), expected)


def test_training_moves_it_and_brings_classes_together(small_graph):
    adjacency, trained = fitted(small_graph)
    _, untrained = fitted(small_graph, epochs=1, lr=0.0)

    def spread_ratio(encoder):
        H = encoder(adjacency, small_graph.x)
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
    whole = encoder(adjacency, small_graph.x)
    monkeypatch.setattr(propagate, "BLOCK_BYTES", 500)
    torch.testing.assert_close(encoder(adjacency, small_graph.x), whole)
