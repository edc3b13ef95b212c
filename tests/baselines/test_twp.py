from math import tanh

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

import algnn
from algnn.baselines import twp
from algnn.baselines.training import Bare, Task
from algnn.baselines.twp import TWP, topology_score
from algnn.errors import CheckpointError, InputError
from algnn.gcn import GCN
from algnn.graph.propagate import normalised_adjacency

SMALL = {"hidden": 8, "epochs": 10, "lr": 0.02, "device": "cpu"}
NAMES = ("weight1", "bias1", "weight2", "bias2")


def learn(model, stream):
    for session in stream:
        model.partial_fit(session.graph, session.nodes, session.labels)
    return model


def saved(model, path):
    """The tensors of a saved model: its weights, and its memory."""
    model.save(path / "model.safetensors")
    tensors = load_file(path / "model.safetensors")
    return tuple(
        {name.removeprefix(part): t for name, t in tensors.items() if name.startswith(part)}
        for part in ("weights.", "memory.")
    )


def loss_and_topology(gcn, graph, nodes, codes):
    """L and T from their definitions, on the whole graph, edge by edge."""
    dense = normalised_adjacency(graph.edge_index, graph.num_nodes).to_dense().to(graph.x.dtype)
    hidden = torch.relu(dense @ graph.x @ gcn.weight1 + gcn.bias1)
    projected = hidden @ gcn.weight2
    loss = cross_entropy((dense @ projected + gcn.bias2)[nodes], codes)
    scores = [
        projected[v] @ torch.tanh(projected[m])
        for v in nodes.tolist()
        for m in dense[v].nonzero().flatten().tolist()
    ]
    return loss, torch.stack(scores).square().sum() / len(scores)


def magnitudes(value, gcn):
    gradients = torch.autograd.grad(
        value, list(gcn.parameters()), retain_graph=True, materialize_grads=True
    )
    return {name: g.abs() for name, g in zip(NAMES, gradients, strict=True)}


def test_topology_score_by_hand():
    projected = torch.tensor([[1.0, -2.0], [0.5, 0.0], [0.0, 1.0]])
    # e_01 = 1·tanh(0.5), e_02 = −2·tanh(1), e_20 = 1·tanh(−2)
    found = topology_score(projected, torch.tensor([0, 0, 2]), torch.tensor([1, 2, 0]))
    assert 3 * found.item() == pytest.approx(tanh(0.5) ** 2 + (2 * tanh(1)) ** 2 + tanh(2) ** 2)


def test_two_importances_are_kept_apart(small_graph, tmp_path):
    base = algnn.ClassStream(small_graph)[0]
    model = TWP(**SMALL).fit(base.graph, base.nodes, base.labels)
    weights, memory = saved(model, tmp_path)
    gcn = GCN.from_weights(weights)
    values = loss_and_topology(gcn, base.graph, base.nodes, base.labels)
    for kind, value in zip(("loss", "topology"), values, strict=True):
        for name, expected in magnitudes(value, gcn).items():
            found = memory[f"{kind}.importance.{name}"]
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)
            assert torch.equal(memory[f"{kind}.anchor.{name}"], weights[name])
    assert memory["topology.importance.weight1"].any()
    assert not memory["topology.importance.bias2"].any()


@pytest.fixture
def double(small_graph, tmp_path):
    """A task in float64, fit for finite differences, and its graph."""
    base = algnn.ClassStream(small_graph)[0]
    weights, _ = saved(TWP(**SMALL).fit(base.graph, base.nodes, base.labels), tmp_path)
    graph = Data(x=base.graph.x.double(), edge_index=base.graph.edge_index)
    generator = torch.Generator().manual_seed(0)
    task = Task(
        gcn=GCN.from_weights({name: w.double() for name, w in weights.items()}),
        adjacency=normalised_adjacency(graph.edge_index, graph.num_nodes).to(torch.float64),
        x=graph.x,
        nodes=base.nodes,
        codes=base.labels,
        arrival=np.arange(2),
        before=None,
        initial=generator,
        masks=generator,
    )
    return task, graph


@pytest.mark.parametrize("sparse_below", [0.0, 1.1])
def test_beta_acts_through_the_current_importance(double, monkeypatch, sparse_below):
    monkeypatch.setattr(twp, "SPARSE_BELOW", sparse_below)
    task, graph = double
    gcn = task.gcn

    def norm():
        """β ‖λ_l |∇L| + λ_t |∇T|‖₁ from the definitions."""
        loss, topology = loss_and_topology(gcn, graph, task.nodes, task.codes)
        first, second = magnitudes(loss, gcn), magnitudes(topology, gcn)
        return 0.5 * sum(float((3 * first[n] + 0.2 * second[n]).sum()) for n in NAMES)

    model = TWP(loss_strength=3.0, topology_strength=0.2, beta=0.5, dropout=0.0)
    found = model._loss(task, model._prepare(task))
    own = loss_and_topology(gcn, graph, task.nodes, task.codes)[0]
    assert (found - own).item() == pytest.approx(norm(), rel=1e-9)
    gradients = torch.autograd.grad(found - own, list(gcn.parameters()))
    assert all(g.abs().max() > 1e-3 for g in gradients[:3])
    generator = torch.Generator().manual_seed(1)
    for value, gradient in zip(gcn.parameters(), gradients, strict=True):
        direction = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        step = 1e-6
        with torch.no_grad():
            value += step * direction
        above = norm()
        with torch.no_grad():
            value -= 2 * step * direction
        below = norm()
        with torch.no_grad():
            value += step * direction
        expected = (above - below) / (2 * step)
        assert (gradient * direction).sum().item() == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_cross_entropy_counts_once(double):
    # with a β that is next to nothing, what backward leaves is ∇L and no multiple of it
    model = TWP(beta=1e-12, dropout=0.0)
    task, _ = double
    model._loss(task, model._prepare(task)).backward()
    found = [value.grad for value in task.gcn.parameters()]
    plain = torch.autograd.grad(task.loss(), list(task.gcn.parameters()))
    for f, expected in zip(found, plain, strict=True):
        torch.testing.assert_close(f, expected, rtol=1e-6, atol=1e-8)


class Probe(TWP):
    """Compares each epoch's gradient with the formula, a term for each session."""

    def _prepare(self, task):
        self.history = getattr(self, "history", [])
        return super()._prepare(task)

    def _loss(self, task, prepared):
        found = super()._loss(task, prepared)
        expected = task.loss()
        for kept, loss, topology in self.history:
            for name, value in task.gcn.named_parameters():
                stiff = self.loss_strength * loss[name] + self.topology_strength * topology[name]
                held = value[..., : kept[name].size(-1)]
                expected = expected + (stiff * (held - kept[name]) ** 2).sum()
        parameters = list(task.gcn.parameters())
        for f, e in zip(
            torch.autograd.grad(found, parameters, retain_graph=True),
            torch.autograd.grad(expected, parameters),
            strict=True,
        ):
            torch.testing.assert_close(f, e, rtol=1e-4, atol=1e-6)
        return found


def test_loss_has_a_term_for_each_session(small_graph, tmp_path):
    model = Probe(**SMALL, dropout=0.0, loss_strength=3.0, topology_strength=0.2, beta=0.0)
    for session in algnn.ClassStream(small_graph, base=2):
        model.partial_fit(session.graph, session.nodes, session.labels)
        weights, _ = saved(model, tmp_path)
        gcn = GCN.from_weights(weights)
        values = loss_and_topology(gcn, session.graph, session.nodes, session.labels)
        model.history.append((weights, *(magnitudes(value, gcn) for value in values)))
    assert len(model.history) == 3


def test_sparse_inputs_give_what_dense_ones_give(small_graph, monkeypatch):
    stream = algnn.ClassStream(small_graph, base=2)
    outcomes = []
    for below in (0.0, 1.1):
        monkeypatch.setattr(twp, "SPARSE_BELOW", below)
        outcomes.append(learn(TWP(**SMALL), stream).decision_function(small_graph))
    np.testing.assert_allclose(*outcomes, rtol=1e-3, atol=1e-3)


def test_each_part_acts_and_without_them_it_is_bare(small_graph):
    stream = algnn.ClassStream(small_graph, base=2)
    bare = learn(Bare(**SMALL), stream).decision_function(small_graph)

    def distance(loss_strength, topology_strength, beta):
        model = TWP(
            loss_strength=loss_strength, topology_strength=topology_strength, beta=beta, **SMALL
        )
        return abs(learn(model, stream).decision_function(small_graph) - bare).max()

    assert distance(0.0, 0.0, 0.0) == 0
    assert distance(0.0, 0.0, 1.0) == 0
    assert distance(10.0, 0.0, 0.0) > 0.01
    assert distance(0.0, 10.0, 0.0) > 0.01
    # too weak to hold anything, yet β keeps importances small while they are made
    assert distance(1e-6, 0.0, 1e4) > 0.01
    assert distance(0.0, 1e-6, 1e4) > 0.01


def test_beta_makes_the_session_less_important(small_graph, tmp_path):
    base = algnn.ClassStream(small_graph)[0]
    totals = []
    for beta in (0.0, 1e-3):
        model = TWP(**SMALL, beta=beta).fit(base.graph, base.nodes, base.labels)
        _, memory = saved(model, tmp_path)
        totals.append(sum(t.sum() for name, t in memory.items() if ".importance." in name))
    assert totals[1] < 0.9 * totals[0]


def test_it_keeps_four_numbers_for_each_weight_whatever_the_sessions(small_graph, tmp_path):
    model = TWP(**SMALL)
    for session in algnn.ClassStream(small_graph, base=2):
        before = dict(model._known.memory) if session.index else {}
        copies = {name: t.clone() for name, t in before.items()}
        model.partial_fit(session.graph, session.nodes, session.labels)
        weights, memory = saved(model, tmp_path)
        kinds = [
            f"{kind}.{part}" for kind in ("loss", "topology") for part in ("importance", "anchor")
        ]
        expected = {f"{kind}.{name}": w.shape for kind in kinds for name, w in weights.items()}
        assert {name: t.shape for name, t in memory.items()} == expected
        assert model.retained_bytes() == 5 * sum(t.nbytes for t in weights.values())
        assert all(torch.equal(before[name], copy) for name, copy in copies.items())


def test_same_seed_same_result(small_graph):
    stream = algnn.ClassStream(small_graph, base=2)
    state = torch.random.get_rng_state()
    first, second = (learn(TWP(**SMALL), stream).decision_function(small_graph) for _ in range(2))
    assert (first == second).all()
    assert torch.equal(state, torch.random.get_rng_state())


def test_odd_sessions(small_graph):
    model = TWP(**SMALL).fit(small_graph, [0, 1, 4, 5], ["a", "b", "a", "b"])
    model.partial_fit(small_graph, [8], ["a"])
    model.partial_fit(small_graph, [2], ["c"])
    model.partial_fit(small_graph, [9, 6, 3], ["b", "c", "d"])
    assert np.isfinite(model.decision_function(small_graph)).all()
    assert model.classes_.tolist() == ["a", "b", "c", "d"]


def test_it_learns_a_graph_that_grows(small_graph):
    stream = algnn.ClassStream(small_graph, base=2, edges="seen")
    assert set(learn(TWP(**SMALL), stream).predict(stream.graph(2))) <= set(range(4))


@pytest.mark.parametrize("bad", ["loss_strength", "topology_strength", "beta"])
def test_bad_parameters_are_refused(small_graph, bad):
    with pytest.raises(InputError, match=bad):
        TWP(**{bad: -1.0}, device="cpu").fit(small_graph, [0, 1], [0, 1])


@pytest.mark.parametrize("spoil", [lambda t: None, lambda t: t[:-1], lambda t: t.double()])
def test_a_file_with_another_memory_is_refused(small_graph, tmp_path, spoil):
    path = tmp_path / "model.safetensors"
    TWP(**SMALL).fit(small_graph, [0, 1], [0, 1]).save(path)
    with safe_open(path, "pt") as file:
        facts = file.metadata()
    tensors = load_file(path)
    spoilt = spoil(tensors.pop("memory.topology.importance.weight1"))
    if spoilt is not None:
        tensors["memory.topology.importance.weight1"] = spoilt.contiguous()
    save_file(tensors, path, facts)
    with pytest.raises(CheckpointError, match=r"importance\.weight1"):
        TWP.load(path)
