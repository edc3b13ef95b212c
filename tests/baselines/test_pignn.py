"""PI-GNN: frozen blocks do not move, say nothing of later classes, and new ones do not shrink."""

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

import algnn
from algnn.baselines.pignn import PIGNN, joined
from algnn.baselines.training import Bare
from algnn.errors import CheckpointError, InputError
from algnn.gcn import GCN
from algnn.graph import propagate
from algnn.graph.propagate import normalised_adjacency

SMALL = {"hidden": 8, "block": 3, "epochs": 3, "device": "cpu"}


def learned(model, stream):
    for session in stream:
        model.partial_fit(session.graph, session.nodes, session.labels)
    return model


def test_frozen_blocks_do_not_move_by_a_bit(make_graph):
    stream = algnn.ClassStream(make_graph(classes=6), base=2)
    # a weight decay that would move anything it reaches
    model = PIGNN(**{**SMALL, "epochs": 10, "lr": 0.05, "weight_decay": 0.5})
    before = None
    for session in stream:
        model.partial_fit(session.graph, session.nodes, session.labels)
        now = model._learned.weights
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


def test_frozen_blocks_say_nothing_of_later_classes_until_taught(make_graph):
    """Without a step, no unit of an earlier session adds a thing to the logit of a later class."""
    graph = make_graph(classes=6)
    stream = algnn.ClassStream(graph, base=2)
    model = learned(PIGNN(**SMALL, lr=0.0), stream)
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


def test_blocks_keep_their_width_over_20_sessions(make_graph):
    stream = algnn.ClassStream(make_graph(classes=21, features=24), base=2)
    assert len(stream) == 20
    model = PIGNN(**{**SMALL, "epochs": 1})
    for session in stream:
        model.partial_fit(session.graph, session.nodes, session.labels)
        units, classes = model._learned.weights["weight2"].shape
        assert (units, classes) == (8 + 3 * session.index, 2 + session.index)
        assert model._learned.weights["weight1"].shape == (24, units)
        assert model._learned.weights["weight1"][:, -3:].any(0).all()


def test_the_loss_is_that_of_its_formula(make_graph):
    """Against a plain GCN of all blocks over the whole graph."""
    graph = make_graph(classes=5)
    stream = algnn.ClassStream(graph, base=2)
    model = PIGNN(**SMALL, lr=0.05, dropout=0.0, retrain=0.7, budget=7)
    for session in list(stream)[:3]:
        model.partial_fit(session.graph, session.nodes, session.labels)
    before, session = model._learned, stream[3]
    task = model._checked_task(session.graph, session.nodes, session.labels.numpy(), before)
    with torch.no_grad():
        for parameter in task.gcn.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(5))
    whole = joined(before.weights, {n: p.detach() for n, p in task.gcn.named_parameters()})
    adjacency = normalised_adjacency(graph.edge_index, graph.num_nodes)
    logits = GCN.from_weights(whole).scores(adjacency, graph.x, torch.arange(graph.num_nodes))
    old = before.memory["nodes"]
    assert old.numel() == 7
    expected = cross_entropy(logits[session.nodes], session.labels)
    expected = expected + 0.7 * cross_entropy(logits[old], graph.y[old])
    found = model._loss(task, model._prepare(task))
    assert found.item() == pytest.approx(expected.item(), rel=1e-4)


def test_retraining_acts_on_old_classes(small_graph):
    stream = algnn.ClassStream(small_graph, base=3)
    test = small_graph.test_mask & (small_graph.y < 3)

    def after(retrain):
        model = PIGNN(hidden=16, block=16, lr=0.02, epochs=40, retrain=retrain, device="cpu")
        found = learned(model, stream).predict(stream[0].graph, test)
        return float((found == small_graph.y[test].numpy()).mean())

    assert after(0.0) < 0.5 < 0.9 < after(1.0)


def test_the_base_session_is_bares(small_graph):
    session = algnn.ClassStream(small_graph)[0]
    model = PIGNN(**SMALL, seed=4).fit(session.graph, session.nodes, session.labels)
    bare = Bare(hidden=8, epochs=3, device="cpu", seed=4)
    bare.fit(session.graph, session.nodes, session.labels)
    for name, weight in bare._learned.weights.items():
        assert torch.equal(model._learned.weights[name], weight)


def test_it_keeps_nodes_and_codes_within_the_budget(make_graph, tmp_path):
    graph = make_graph(classes=6)
    stream = algnn.ClassStream(graph, base=2, order=[5, 1, 0, 4, 2, 3])
    model = PIGNN(**SMALL, budget=11)
    path = tmp_path / "model.safetensors"
    taught = set()
    for session in stream:
        model.partial_fit(session.graph, session.nodes, session.labels)
        taught |= set(session.nodes.tolist())
        model.save(path)
        saved = load_file(path)
        kept = {name: t for name, t in saved.items() if name.startswith("memory")}
        assert set(kept) == {"memory.nodes", "memory.codes"}
        nodes, codes = kept["memory.nodes"], kept["memory.codes"]
        assert nodes.numel() == codes.numel() == min(11, len(taught))
        assert set(nodes.tolist()) <= taught
        assert np.array_equal(model._learned.arrival[codes], graph.y[nodes])
        held = torch.bincount(codes, minlength=session.index + 2)
        assert held.max() - held.min() <= 1
        assert model.retained_bytes() == sum(t.nbytes for t in saved.values())


def test_a_node_that_comes_again_is_kept_once_by_its_last_label(small_graph):
    graph = Data(x=small_graph.x, edge_index=small_graph.edge_index)
    model = PIGNN(**SMALL)
    model.fit(graph, [0, 1, 4, 5], [0, 1, 0, 1])
    model.partial_fit(graph, [4, 2], [1, 2])
    memory = model._learned.memory
    pairs = dict(zip(memory["nodes"].tolist(), memory["codes"].tolist(), strict=True))
    assert memory["nodes"].numel() == 5
    assert pairs == {0: 0, 1: 1, 4: 1, 5: 1, 2: 2}


def test_odd_sessions(small_graph):
    graph = Data(x=small_graph.x, edge_index=small_graph.edge_index)
    names = np.array(["a", "b", "c", "d"])[small_graph.y]
    model = PIGNN(**SMALL, budget=3)
    # two classes; one node of a new class; one of an old class; old and new together
    for count, nodes in enumerate(([0, 1, 4, 5], [2], [8], [9, 3, 7])):
        model.partial_fit(graph, nodes, names[nodes])
        assert model._learned.memory["nodes"].numel() == 3
        assert model._learned.weights["weight1"].size(1) == 8 + 3 * count
    assert model.classes_.tolist() == ["a", "b", "c", "d"]
    assert set(model.predict(graph)) <= set("abcd")


def test_a_graph_that_grows(small_graph):
    stream = algnn.ClassStream(small_graph, base=2, edges="seen")
    model = learned(PIGNN(**SMALL), stream)
    nodes, labels = model._learned.memory["nodes"], model._learned.memory["codes"]
    assert np.array_equal(small_graph.y[stream.original_ids(nodes)], labels)


def test_scores_do_not_depend_on_the_blocks_they_are_made_in(small_graph, monkeypatch):
    stream = algnn.ClassStream(small_graph, base=2)
    model = learned(PIGNN(**SMALL, lr=0.05), stream)
    adjacency = normalised_adjacency(small_graph.edge_index, small_graph.num_nodes)
    nodes = torch.tensor([3, 50, 17])
    plain = GCN.from_weights(model._learned.weights).scores(adjacency, small_graph.x, nodes)
    monkeypatch.setattr(propagate, "BLOCK_BYTES", 1000)  # 4 units at a time
    found = model.decision_function(stream[0].graph, nodes)
    np.testing.assert_allclose(found, plain.numpy(), atol=1e-5)
    again = learned(PIGNN(**SMALL, lr=0.05), stream)
    for name, weight in model._learned.weights.items():
        torch.testing.assert_close(again._learned.weights[name], weight, atol=1e-4, rtol=1e-3)


def test_a_loaded_learner_goes_on_as_if_never_stopped(small_graph, tmp_path):
    stream = algnn.ClassStream(small_graph, base=2)
    model = PIGNN(**SMALL, budget=9)
    path = tmp_path / "model.safetensors"
    for session in stream:
        model.partial_fit(session.graph, session.nodes, session.labels)
        model.save(path)
        model = PIGNN.load(path)
    straight = learned(PIGNN(**SMALL, budget=9), stream)
    for part in ("weights", "memory"):
        for name, tensor in getattr(straight._learned, part).items():
            assert torch.equal(getattr(model._learned, part)[name], tensor)


def test_a_damaged_memory_is_named(small_graph, tmp_path):
    path = tmp_path / "model.safetensors"
    learned(PIGNN(**SMALL), algnn.ClassStream(small_graph)).save(path)
    with safe_open(path, "pt") as file:
        header = file.metadata()
    tensors = load_file(path)
    tensors["memory.nodes"] = tensors["memory.nodes"][1:].contiguous()
    save_file(tensors, path, metadata=header)
    with pytest.raises(CheckpointError, match="nodes is"):
        PIGNN.load(path)


@pytest.mark.parametrize(("name", "value"), [("block", 0), ("retrain", -0.1), ("budget", 2.5)])
def test_bad_parameters_are_named(small_graph, name, value):
    session = algnn.ClassStream(small_graph)[0]
    with pytest.raises(InputError, match=name):
        PIGNN(**{**SMALL, name: value}).fit(session.graph, session.nodes, session.labels)
