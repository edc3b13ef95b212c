import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy

import algnn
from algnn.baselines.ewc import EWC
from algnn.baselines.springs import Springs
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
    """The tensors of a saved model: its weights, and its memory."""
    model.save(path / "model.safetensors")
    tensors = load_file(path / "model.safetensors")
    return tuple(
        {name.removeprefix(part): t for name, t in tensors.items() if name.startswith(part)}
        for part in ("weights.", "memory.")
    )


def gradients_of_nodes(weights, session):
    """∇ℓ_v by autograd, a backward pass for each node."""
    gcn = GCN.from_weights(weights)
    adjacency = normalised_adjacency(session.graph.edge_index, session.graph.num_nodes)
    logits = gcn(receptive_field(adjacency, session.graph.x, session.nodes))
    losses = cross_entropy(logits, session.labels, reduction="none")
    rows = [torch.autograd.grad(v, list(gcn.parameters()), retain_graph=True) for v in losses]
    names = [name for name, _ in gcn.named_parameters()]
    return {
        name: torch.stack(parts) for name, parts in zip(names, zip(*rows, strict=True), strict=True)
    }


def test_fisher_is_the_mean_of_squared_gradients_of_single_nodes(small_graph, tmp_path):
    base = algnn.ClassStream(small_graph)[0]
    model = EWC(**SMALL).fit(base.graph, base.nodes, base.labels)
    weights, memory = saved(model, tmp_path)
    for name, rows in gradients_of_nodes(weights, base).items():
        fisher = memory[f"importance.{name}"]
        torch.testing.assert_close(fisher, rows.square().mean(0), rtol=1e-4, atol=1e-9)
        torch.testing.assert_close(memory[f"anchor.{name}"], weights[name], rtol=0, atol=0)
        # the square of the mean is something else, and smaller
        assert fisher.sum() > 1.5 * rows.mean(0).square().sum()


class Probe(EWC):
    """Compares each epoch's loss with the method's own formula, session by session."""

    def _prepare(self, task):
        self.history = getattr(self, "history", [])
        return super()._prepare(task)

    def _loss(self, task, prepared):
        terms = [
            (fisher * (value[..., : fisher.size(-1)] - kept[name]).square()).sum()
            for kept, fishers in self.history
            for name, value in task.gcn.named_parameters()
            for fisher in [fishers[name]]
        ]
        loss = task.loss() + self.strength / 2 * sum(terms)
        found = super()._loss(task, prepared)
        parameters = list(task.gcn.parameters())
        for f, e in zip(
            torch.autograd.grad(found, parameters, retain_graph=True),
            torch.autograd.grad(loss, parameters),
            strict=True,
        ):
            torch.testing.assert_close(f, e, rtol=1e-4, atol=1e-6)
        return found


def test_loss_has_a_term_for_each_session(small_graph, tmp_path):
    # without dropout both losses see the same logits
    model = Probe(**SMALL, dropout=0.0, strength=100.0)
    for session in algnn.ClassStream(small_graph, base=2):
        model.partial_fit(session.graph, session.nodes, session.labels)
        weights, _ = saved(model, tmp_path)
        rows = gradients_of_nodes(weights, session)
        model.history.append((weights, {name: r.square().mean(0) for name, r in rows.items()}))
    assert len(model.history) == 3


number = st.floats(-3, 3, width=32)
stiffness = st.one_of(st.just(0.0), st.floats(2**-20, 100, width=32))


@given(st.lists(st.tuples(stiffness, number), min_size=1, max_size=6), number)
def test_springs_add_up_to_the_sum_of_all_sessions(sessions, at):
    gcn = GCN(1, 1, 2, 0.0, torch.Generator().manual_seed(0))
    names = [name for name, _ in gcn.named_parameters()]
    with torch.no_grad():
        for value in gcn.parameters():
            value.fill_(at)
    total = None
    for stiff, kept in sessions:
        one = Springs(
            *(
                {name: torch.full_like(p, v) for name, p in gcn.named_parameters()}
                for v in (stiff, kept)
            )
        )
        total = one if total is None else total + one
    total.energy(gcn).backward()
    slope = sum(2 * stiff * (at - kept) for stiff, kept in sessions)
    size = sum(stiff for stiff, _ in sessions)
    for name in names:
        gradient = getattr(gcn, name).grad
        torch.testing.assert_close(
            gradient, torch.full_like(gradient, slope), rtol=1e-5, atol=1e-5 * size
        )


def test_columns_of_later_classes_are_free(small_graph, tmp_path):
    stream = algnn.ClassStream(small_graph, base=2, step=2)
    base = EWC(**SMALL).fit(stream[0].graph, stream[0].nodes, stream[0].labels)
    start, memory = saved(base, tmp_path)
    stiff = memory["importance.weight2"] > 0
    bare = saved(learn(Bare(**SMALL), stream), tmp_path)[0]["weight2"]
    held = saved(learn(EWC(**SMALL, strength=1e8), stream), tmp_path)[0]["weight2"]
    moved = [(after[:, :2] - start["weight2"])[stiff].abs().max() for after in (bare, held)]
    assert moved[1] < 0.2 * moved[0]
    # both began with the same new columns, and both have gone on with them
    first = saved(learn(Bare(**{**SMALL, "epochs": 1}), stream), tmp_path)[0]["weight2"]
    assert (held - first)[:, 2:].abs().max() > 0.5 * (bare - first)[:, 2:].abs().max()


def test_without_strength_it_is_bare_and_with_it_is_not(small_graph):
    stream = algnn.ClassStream(small_graph, base=2)
    everyone = [
        learn(model, stream).decision_function(small_graph)
        for model in (Bare(**SMALL), EWC(strength=0.0, **SMALL), EWC(strength=1e4, **SMALL))
    ]
    assert (everyone[0] == everyone[1]).all()
    assert abs(everyone[0] - everyone[2]).max() > 0.1


def test_it_keeps_two_numbers_for_each_weight_whatever_the_sessions(small_graph, tmp_path):
    model = EWC(**SMALL)
    for session in algnn.ClassStream(small_graph, base=2):
        before = dict(model._known.memory) if session.index else {}
        copies = {name: t.clone() for name, t in before.items()}
        model.partial_fit(session.graph, session.nodes, session.labels)
        weights, memory = saved(model, tmp_path)
        expected = {
            f"{kind}.{n}": t.shape for kind in ("importance", "anchor") for n, t in weights.items()
        }
        assert {name: t.shape for name, t in memory.items()} == expected
        assert model.retained_bytes() == 3 * sum(t.nbytes for t in weights.values())
        assert all(torch.equal(before[name], copy) for name, copy in copies.items())


def test_odd_sessions(small_graph):
    model = EWC(**SMALL, strength=1e3).fit(small_graph, [0, 1, 4, 5], ["a", "b", "a", "b"])
    model.partial_fit(small_graph, [8], ["a"])
    model.partial_fit(small_graph, [2], ["c"])
    model.partial_fit(small_graph, [9, 6, 3], ["b", "c", "d"])
    assert torch.isfinite(torch.from_numpy(model.decision_function(small_graph))).all()
    assert model.classes_.tolist() == ["a", "b", "c", "d"]


def test_it_learns_a_graph_that_grows(small_graph):
    stream = algnn.ClassStream(small_graph, base=2, edges="seen")
    model = learn(EWC(**SMALL, strength=1e3), stream)
    assert set(model.predict(stream.graph(2))) <= set(range(4))


@pytest.mark.parametrize("strength", [-1.0, float("nan"), float("inf"), "much"])
def test_a_bad_strength_is_refused(small_graph, strength):
    with pytest.raises(InputError, match="strength"):
        EWC(strength=strength, device="cpu").fit(small_graph, [0, 1], [0, 1])


@pytest.mark.parametrize("spoil", [lambda t: None, lambda t: t[:-1], lambda t: t.double()])
def test_a_file_with_another_memory_is_refused(small_graph, tmp_path, spoil):
    path = tmp_path / "model.safetensors"
    EWC(**SMALL).fit(small_graph, [0, 1], [0, 1]).save(path)
    with safe_open(path, "pt") as file:
        facts = file.metadata()
    tensors = load_file(path)
    spoilt = spoil(tensors.pop("memory.importance.weight1"))
    if spoilt is not None:
        tensors["memory.importance.weight1"] = spoilt.contiguous()
    save_file(tensors, path, facts)
    with pytest.raises(CheckpointError, match=r"importance\.weight1"):
        EWC.load(path)
