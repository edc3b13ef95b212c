import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch_geometric.data import Data

import algnn
from algnn.baselines.mas import MAS
from algnn.baselines.training import Bare
from algnn.errors import CheckpointError, InputError
from algnn.gcn import GCN
from algnn.graph.propagate import normalised_adjacency, receptive_field

SMALL = {"hidden": 8, "epochs": 10, "lr": 0.02, "device": "cpu"}


def learn(model, stream):
    for session in stream:
        model.partial_fit(session.graph, session.nodes, session.labels)
    return model


def saved(model, path):
    """The weights and Ω of a saved model; that it holds nothing else."""
    model.save(path / "model.safetensors")
    tensors = load_file(path / "model.safetensors")
    names = ("weight1", "bias1", "weight2", "bias2")
    parts = ("weights.", "memory.importance.")
    assert set(tensors) == {part + name for part in parts for name in names}
    return tuple({name: tensors[part + name] for name in names} for part in parts)


def omega(weights, session):
    """1/n Σ_v |∇‖z_v‖²| by autograd, a backward pass for each node."""
    gcn = GCN.from_weights(weights)
    adjacency = normalised_adjacency(session.graph.edge_index, session.graph.num_nodes)
    norms = gcn(receptive_field(adjacency, session.graph.x, session.nodes)).square().sum(1)
    rows = [torch.autograd.grad(v, list(gcn.parameters()), retain_graph=True) for v in norms]
    names = [name for name, _ in gcn.named_parameters()]
    return {
        name: torch.stack(parts).abs().mean(0)
        for name, parts in zip(names, zip(*rows, strict=True), strict=True)
    }


def test_omega_by_hand(tmp_path):
    # two nodes without edges: Â = I, and node v's logits are W_2ᵀ h_v + b_2, h_v = ReLU(W_1ᵀ x_v)
    graph = Data(x=torch.eye(2), edge_index=torch.zeros(2, 0, dtype=torch.int64))
    model = MAS(hidden=3, epochs=5, seed=1, device="cpu").fit(graph, [0, 1], [0, 1])
    weights, found = saved(model, tmp_path)
    hidden = (weights["weight1"] + weights["bias1"]).clamp(min=0)
    logits = hidden @ weights["weight2"] + weights["bias2"]
    assert (logits != 0).any()
    # ∂‖z_v‖²/∂b_2 = 2 z_v, and ∂‖z_v‖²/∂W_2 = 2 h_v z_vᵀ
    torch.testing.assert_close(found["bias2"], (2 * logits).abs().mean(0))
    outer = 2 * hidden[:, :, None] * logits[:, None, :]
    torch.testing.assert_close(found["weight2"], outer.abs().mean(0))
    # row v of W_1 is node v's own: ∂‖z_v‖²/∂W_1[v] = 2 W_2 z_v where a unit is on, over two nodes
    slopes = (2 * logits @ weights["weight2"].T * (hidden > 0)).abs()
    torch.testing.assert_close(found["weight1"], slopes / 2)
    torch.testing.assert_close(found["bias1"], slopes.mean(0))


def test_omega_adds_up_over_sessions(small_graph, tmp_path):
    model, total = MAS(**SMALL), None
    for session in algnn.ClassStream(small_graph, base=2):
        before = dict(model._known.memory) if session.index else {}
        copies = {name: t.clone() for name, t in before.items()}
        model.partial_fit(session.graph, session.nodes, session.labels)
        weights, found = saved(model, tmp_path)
        now = omega(weights, session)
        for name, past in (total or {}).items():
            now[name][..., : past.size(-1)] += past
        total = now
        for name, expected in total.items():
            torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-6)
        # one number for each weight, whatever the sessions
        assert model.retained_bytes() == 2 * sum(t.nbytes for t in weights.values())
        assert all(torch.equal(before[name], copy) for name, copy in copies.items())


class Probe(MAS):
    """Compares each epoch's loss with the formula, for the weights and Ω of the session before."""

    def _loss(self, task, prepared):
        found = super()._loss(task, prepared)
        expected = task.loss()
        if task.before is not None:
            for name, value in task.gcn.named_parameters():
                kept, stiff = task.before.weights[name], task.memory[f"importance.{name}"]
                held = value if kept.shape == value.shape else value[..., : task.old]
                expected = expected + self.strength * (stiff * (held - kept) ** 2).sum()
        torch.testing.assert_close(found, expected)
        self.epochs_seen += 1
        return found


def test_loss_is_that_of_the_paper(small_graph):
    model = Probe(**SMALL, dropout=0.0, strength=0.3)
    model.epochs_seen = 0
    learn(model, algnn.ClassStream(small_graph, base=2))
    assert model.epochs_seen == 30


def test_without_strength_it_is_bare_and_with_it_weights_stay(small_graph, tmp_path):
    stream = algnn.ClassStream(small_graph, base=2, step=2)
    start, stiff = saved(MAS(**SMALL).fit(*base(stream)), tmp_path)
    bare, none, held = (
        learn(model, stream)
        for model in (Bare(**SMALL), MAS(strength=0.0, **SMALL), MAS(strength=1e4, **SMALL))
    )
    assert (bare.decision_function(small_graph) == none.decision_function(small_graph)).all()
    moved = [
        (saved(model, tmp_path)[0]["weight1"] - start["weight1"])[stiff["weight1"] > 0].abs().max()
        for model in (none, held)
    ]
    assert moved[1] < 0.2 * moved[0]


def base(stream):
    return stream[0].graph, stream[0].nodes, stream[0].labels


def test_odd_sessions(small_graph):
    model = MAS(**SMALL).fit(small_graph, [0, 1, 4, 5], ["a", "b", "a", "b"])
    model.partial_fit(small_graph, [8], ["a"])
    model.partial_fit(small_graph, [2], ["c"])
    model.partial_fit(small_graph, [9, 6, 3], ["b", "c", "d"])
    assert torch.isfinite(torch.from_numpy(model.decision_function(small_graph))).all()
    assert model.classes_.tolist() == ["a", "b", "c", "d"]


def test_it_learns_a_graph_that_grows(small_graph):
    stream = algnn.ClassStream(small_graph, base=2, edges="seen")
    assert set(learn(MAS(**SMALL), stream).predict(stream.graph(2))) <= set(range(4))


@pytest.mark.parametrize("strength", [-1.0, float("nan"), "much"])
def test_a_bad_strength_is_refused(small_graph, strength):
    with pytest.raises(InputError, match="strength"):
        MAS(strength=strength, device="cpu").fit(small_graph, [0, 1], [0, 1])


@pytest.mark.parametrize("spoil", [lambda t: None, lambda t: t[:-1], lambda t: t.double()])
def test_a_file_with_another_memory_is_refused(small_graph, tmp_path, spoil):
    path = tmp_path / "model.safetensors"
    MAS(**SMALL).fit(small_graph, [0, 1], [0, 1]).save(path)
    with safe_open(path, "pt") as file:
        facts = file.metadata()
    tensors = load_file(path)
    spoilt = spoil(tensors.pop("memory.importance.weight1"))
    if spoilt is not None:
        tensors["memory.importance.weight1"] = spoilt.contiguous()
    save_file(tensors, path, facts)
    with pytest.raises(CheckpointError, match=r"importance\.weight1"):
        MAS.load(path)
