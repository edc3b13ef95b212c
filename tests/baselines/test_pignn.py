"""PI-GNN: frozen blocks do not move, say nothing of later classes, and new ones do not shrink."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import algnn
from algnn.baselines.isolation import PIGNN
from algnn.baselines.training import Bare
from algnn.gcn import GCN
from algnn.graph import propagate
from algnn.graph.propagate import normalised_adjacency

SMALL = {"hidden": 8, "block": 3, "epochs": 3, "device": "cpu"}


def test_frozen_blocks_do_not_move_by_a_bit_and_new_ones_keep_their_width(make_graph):
    stream = algnn.ClassStream(make_graph(classes=8), base=2)
    # a weight decay that would move anything it reaches
    model = PIGNN(**{**SMALL, "lr": 0.05, "weight_decay": 0.5})
    before = None
    for session in stream:
        model.partial_fit(session.graph, session.nodes, session.labels)
        now = model._learned.weights
        assert now["weight2"].shape == (8 + 3 * session.index, 2 + session.index)
        assert now["weight1"][:, -3:].any(0).all()
        if before is not None:
            units, classes = before["weight2"].shape
            assert torch.equal(now["weight1"][:, :units], before["weight1"])
            assert torch.equal(now["bias1"][:units], before["bias1"])
            assert torch.equal(now["weight2"][:units, :classes], before["weight2"])
            assert torch.equal(now["bias2"][:classes], before["bias2"])
        before = {name: weight.clone() for name, weight in now.items()}


def test_all_that_is_not_frozen_is_trained(small_graph):
    stream = algnn.ClassStream(small_graph, base=3)
    model = PIGNN(**SMALL, lr=0.05)
    model.fit(stream[0].graph, stream[0].nodes, stream[0].labels)
    base = model._learned
    # the same draws, but no step is taken
    idle = PIGNN(**SMALL, lr=0.0)
    idle._learned = base
    for learner in (model, idle):
        learner.partial_fit(stream[1].graph, stream[1].nodes, stream[1].labels)
    moved = {name: w != idle._learned.weights[name] for name, w in model._learned.weights.items()}
    assert moved["weight1"][:, 8:].any(0).all()
    assert moved["bias1"][8:].any()
    assert moved["weight2"][8:].all()  # the block's say about old classes and new
    assert moved["weight2"][:8, 3].any()  # the new class reads the old units
    assert moved["bias2"][3]


def test_frozen_blocks_say_nothing_of_later_classes_until_taught(make_graph, learn):
    """Without a step, no unit of an earlier session adds a thing to the logit of a later class."""
    graph = make_graph(classes=6)
    stream = algnn.ClassStream(graph, base=2)
    model = learn(PIGNN(**SMALL, lr=0.0), graph)
    weights = model._learned.weights
    for t in range(1, 5):
        units = 8 + 3 * (t - 1)
        assert (weights["weight2"][:units, t + 1] == 0).all()
        assert (weights["weight2"][units : units + 3, : t + 2] != 0).all()
    # so the logit of the last class is the last block's alone
    alone = {
        "weight1": weights["weight1"][:, -3:],
        "bias1": weights["bias1"][-3:],
        "weight2": weights["weight2"][-3:, -1:],
        "bias2": weights["bias2"][-1:],
    }
    adjacency = normalised_adjacency(graph.edge_index, graph.num_nodes)
    expected = GCN.from_weights(alone).scores(adjacency, graph.x, torch.arange(graph.num_nodes))
    found = model.decision_function(stream[0].graph)[:, -1:]
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)


def test_the_loss_is_that_of_its_formula(make_graph, learn, task_of):
    """Against a plain GCN of all blocks over the whole graph."""
    graph = make_graph(classes=5)
    stream = algnn.ClassStream(graph, base=2)
    model = learn(PIGNN(**SMALL, lr=0.05, dropout=0.0, retrain=0.7, budget=7), graph, 3)
    before, session = model._learned, stream[3]
    task = task_of(model, session.graph, session.nodes, session.labels)
    with torch.no_grad():
        for parameter in task.gcn.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(5))
    adjacency = normalised_adjacency(graph.edge_index, graph.num_nodes)
    logits = GCN.from_weights(task.gcn.weights).scores(
        adjacency, graph.x, torch.arange(graph.num_nodes)
    )
    old = before.memory["nodes"]
    assert old.numel() == 7
    expected = cross_entropy(logits[session.nodes], session.labels)
    expected = expected + 0.7 * cross_entropy(logits[old], graph.y[old])
    found = model._loss(task, model._prepare(task))
    assert found.item() == pytest.approx(expected.item(), rel=1e-4)


def test_retraining_acts_on_old_classes(small_graph, learn):
    test = small_graph.test_mask & (small_graph.y < 3)

    def after(retrain):
        model = PIGNN(hidden=16, block=16, lr=0.02, epochs=40, retrain=retrain, device="cpu")
        found = learn(model, small_graph, base=3).predict(small_graph, test)
        return float((found == small_graph.y[test].numpy()).mean())

    assert after(0.0) < 0.5 < 0.9 < after(1.0)


def test_the_base_session_is_bares(small_graph):
    session = algnn.ClassStream(small_graph)[0]
    model = PIGNN(**SMALL, seed=4).fit(session.graph, session.nodes, session.labels)
    bare = Bare(hidden=8, epochs=3, device="cpu", seed=4)
    bare.fit(session.graph, session.nodes, session.labels)
    for name, weight in bare._learned.weights.items():
        assert torch.equal(model._learned.weights[name], weight)


def test_scores_do_not_depend_on_the_blocks_they_are_made_in(small_graph, learn, monkeypatch):
    model = learn(PIGNN(**SMALL, lr=0.05), small_graph)
    adjacency = normalised_adjacency(small_graph.edge_index, small_graph.num_nodes)
    nodes = torch.tensor([3, 50, 17])
    plain = GCN.from_weights(model._learned.weights).scores(adjacency, small_graph.x, nodes)
    monkeypatch.setattr(propagate, "BLOCK_BYTES", 1000)  # 4 units at a time
    found = model.decision_function(small_graph, nodes)
    np.testing.assert_allclose(found, plain.numpy(), atol=1e-5)
    again = learn(PIGNN(**SMALL, lr=0.05), small_graph)
    for name, weight in model._learned.weights.items():
        torch.testing.assert_close(again._learned.weights[name], weight, atol=1e-4, rtol=1e-3)
