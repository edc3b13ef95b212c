"""Methods that penalise changes of important weights: EWC, MAS and TWP."""

from math import tanh

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy, one_hot
from torch_geometric.data import Data

import algnn
from algnn.baselines import regularisation as twp
from algnn.baselines.regularisation import (
    EWC,
    MAS,
    TWP,
    QuadraticPenalty,
    node_importance,
    topology_score,
)
from algnn.baselines.training import Bare, Known, Task
from algnn.gcn import GCN
from algnn.graph import propagate
from algnn.graph.propagate import normalised_adjacency, receptive_field

SMALL = {"hidden": 8, "epochs": 10, "lr": 0.02, "device": "cpu"}
NAMES = ("weight1", "bias1", "weight2", "bias2")
# the parameters of each method, and the weight of each of its importances in the loss
METHODS = {
    EWC: ({"strength": 100.0}, [50.0]),
    MAS: ({"strength": 0.3}, [0.3]),
    TWP: ({"loss_strength": 3.0, "topology_strength": 0.2, "beta": 0.0}, [3.0, 0.2]),
}


def node_by_node(values, gcn, reduce):
    """The mean of reduced gradients, with a backward pass for each node."""
    rows = [torch.autograd.grad(v, list(gcn.parameters()), retain_graph=True) for v in values]
    means = [reduce(torch.stack(parts)).mean(0) for parts in zip(*rows, strict=True)]
    return dict(zip(NAMES, means, strict=True))


def magnitudes(value, gcn):
    gradients = torch.autograd.grad(
        value, list(gcn.parameters()), retain_graph=True, materialize_grads=True
    )
    return {name: g.abs() for name, g in zip(NAMES, gradients, strict=True)}


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


def importances(method, weights, session):
    """Those of one session, by autograd from the definitions."""
    gcn = GCN.from_weights(weights)
    if method is TWP:
        values = loss_and_topology(gcn, session.graph, session.nodes, session.labels)
        return [magnitudes(value, gcn) for value in values]
    adjacency = normalised_adjacency(session.graph.edge_index, session.graph.num_nodes)
    logits = gcn(receptive_field(adjacency, session.graph.x, session.nodes))
    if method is EWC:
        losses = cross_entropy(logits, session.labels, reduction="none")
        return [node_by_node(losses, gcn, torch.square)]
    return [node_by_node(logits.square().sum(1), gcn, torch.abs)]


@pytest.mark.parametrize("method", METHODS)
def test_the_loss_has_a_term_for_each_session(small_graph, saved, method):
    settings, strengths = METHODS[method]
    history = []  # of each session: weights after it, and its importances

    class Probe(method):
        """Compares each epoch's gradient with the formula."""

        def _loss(self, task, prepared):
            found, expected = super()._loss(task, prepared), task.loss()
            for weights, parts in history:
                # MAS holds weights where they were last
                anchor = history[-1][0] if method is MAS else weights
                for strength, importance in zip(strengths, parts, strict=True):
                    for name, value in task.gcn.named_parameters():
                        width = importance[name].size(-1)
                        moved = value[..., :width] - anchor[name][..., :width]
                        expected = expected + strength * (importance[name] * moved**2).sum()
            parameters = list(task.gcn.parameters())
            for f, e in zip(
                torch.autograd.grad(found, parameters, retain_graph=True),
                torch.autograd.grad(expected, parameters),
                strict=True,
            ):
                torch.testing.assert_close(f, e, rtol=1e-4, atol=1e-6)
            return found

    # without dropout both losses see the same logits
    model = Probe(**SMALL, **settings, dropout=0.0)
    for session in algnn.ClassStream(small_graph, base=2):
        model.partial_fit(session.graph, session.nodes, session.labels)
        weights, _ = saved(model)
        history.append((weights, importances(method, weights, session)))
    assert len(history) == 3


@pytest.mark.parametrize(
    ("method", "prefixes"), [(EWC, [""]), (MAS, [""]), (TWP, ["loss.", "topology."])]
)
def test_importances_that_are_kept_are_the_definitions(small_graph, saved, method, prefixes):
    stream = algnn.ClassStream(small_graph, base=2)
    model, total = method(**SMALL), None
    for session in (stream[0], stream[1]):
        model.partial_fit(session.graph, session.nodes, session.labels)
        weights, memory = saved(model)
        now = importances(method, weights, session)
        for part, past in zip(now, total or [], strict=False):
            for name, value in past.items():
                part[name][..., : value.size(-1)] += value
        total = now
        for prefix, part in zip(prefixes, total, strict=True):
            for name, expected in part.items():
                found = memory[f"{prefix}importance.{name}"]
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
                if method is not MAS and session.index == 0:
                    assert torch.equal(memory[f"{prefix}anchor.{name}"], weights[name])


def test_fisher_is_no_square_of_a_mean(small_graph, saved):
    base = algnn.ClassStream(small_graph)[0]
    weights, memory = saved(EWC(**SMALL).fit(base.graph, base.nodes, base.labels))
    gcn = GCN.from_weights(weights)
    loss, _ = loss_and_topology(gcn, base.graph, base.nodes, base.labels)
    for name, mean in magnitudes(loss, gcn).items():
        assert memory[f"importance.{name}"].sum() > 1.5 * mean.square().sum()


def test_omega_by_hand(saved):
    # two nodes without edges: Â = I, and node v's logits are W_2ᵀ h_v + b_2, h_v = ReLU(W_1ᵀ x_v)
    graph = Data(x=torch.eye(2), edge_index=torch.zeros(2, 0, dtype=torch.int64))
    model = MAS(hidden=3, epochs=5, seed=1, device="cpu").fit(graph, [0, 1], [0, 1])
    weights, memory = saved(model)
    found = {name: memory[f"importance.{name}"] for name in NAMES}
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


@pytest.mark.parametrize(("method", "strength"), [(EWC, 1e8), (MAS, 1e4)])
def test_old_columns_are_held_and_those_of_later_classes_are_free(
    small_graph, learn, saved, method, strength
):
    start, memory = saved(learn(method(**SMALL), small_graph, 1, step=2))
    important = memory["importance.weight2"] > 0
    # one epoch of each session: all begin with the same new columns
    first, bare, held = (
        saved(learn(model, small_graph, step=2))[0]["weight2"]
        for model in (
            Bare(**{**SMALL, "epochs": 1}),
            Bare(**SMALL),
            method(**SMALL, strength=strength),
        )
    )
    moved = [(now[:, :2] - start["weight2"])[important].abs().max() for now in (bare, held)]
    assert moved[1] < 0.2 * moved[0]
    assert (held - first)[:, 2:].abs().max() > 0.5 * (bare - first)[:, 2:].abs().max()


number = st.floats(-3, 3, width=32)
importance = st.one_of(st.just(0.0), st.floats(2**-20, 100, width=32))


@settings(max_examples=40)
@given(st.lists(st.tuples(importance, number), min_size=1, max_size=6), number)
def test_penalties_add_up_to_the_sum_of_all_sessions(sessions, at):
    gcn = GCN(1, 1, 2, 0.0, torch.Generator().manual_seed(0))
    with torch.no_grad():
        for value in gcn.parameters():
            value.fill_(at)
    total = QuadraticPenalty({}, {})
    assert total.value(gcn) == 0
    for numbers in sessions:
        parts = ({n: torch.full_like(p, v) for n, p in gcn.named_parameters()} for v in numbers)
        total = total + QuadraticPenalty(*parts)
    total.value(gcn).backward()
    slope = sum(2 * held * (at - kept) for held, kept in sessions)
    size = sum(held for held, _ in sessions)
    for value in gcn.parameters():
        expected = torch.full_like(value.grad, slope)
        torch.testing.assert_close(value.grad, expected, rtol=1e-5, atol=1e-5 * size)


# -- gradients of single nodes --------------------------------------------------------------------


def problem(graph, nodes):
    generator = torch.Generator().manual_seed(1)
    gcn = GCN(graph.x.size(1), 6, 4, dropout=0.5, generator=generator)
    with torch.no_grad():
        gcn.bias1.normal_(generator=generator)
        gcn.bias2.normal_(generator=generator)
    adjacency = normalised_adjacency(graph.edge_index, graph.num_nodes)
    return gcn, receptive_field(adjacency, graph.x, nodes)


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.integers(0, 59), min_size=1, max_size=12, unique=True),
    st.sampled_from([64 * 2**20, 2000]),
)
def test_importances_equal_a_backward_pass_for_each_node(nodes, block):
    generator = torch.Generator().manual_seed(len(nodes))
    edges = torch.randint(0, 60, (2, 150), generator=generator)
    graph = Data(x=torch.randn(60, 5, generator=generator), edge_index=edges)
    gcn, field = problem(graph, torch.tensor(nodes))
    codes = torch.tensor(nodes) % 4
    truth = one_hot(codes, 4)
    logits = gcn(field)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(propagate, "BLOCK_BYTES", block)
        squares = node_importance(gcn, field, lambda z: z.softmax(1) - truth, torch.square)
        sizes = node_importance(gcn, field, lambda z: 2 * z, torch.abs)
    losses = cross_entropy(logits, codes, reduction="none")
    for found, values, reduce in (
        (squares, losses, torch.square),
        (sizes, logits.square().sum(1), torch.abs),
    ):
        for name, expected in node_by_node(values, gcn, reduce).items():
            torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-6)


# -- TWP's topology score and β -------------------------------------------------------------------


def test_topology_score_by_hand():
    projected = torch.tensor([[1.0, -2.0], [0.5, 0.0], [0.0, 1.0]])
    # e_01 = 1·tanh(0.5), e_02 = −2·tanh(1), e_20 = 1·tanh(−2)
    found = topology_score(projected, torch.tensor([0, 0, 2]), torch.tensor([1, 2, 0]))
    assert 3 * found.item() == pytest.approx(tanh(0.5) ** 2 + (2 * tanh(1)) ** 2 + tanh(2) ** 2)


def test_the_topology_depends_on_all_weights_but_the_last_bias(small_graph, learn, saved):
    _, memory = saved(learn(TWP(**SMALL), small_graph, 1))
    assert memory["topology.importance.weight1"].any()
    assert not memory["topology.importance.bias2"].any()


@pytest.fixture
def double(small_graph, learn, saved):
    """A task in float64, fit for finite differences, and its graph."""
    base = algnn.ClassStream(small_graph, base=2)[0]
    weights, _ = saved(learn(TWP(**SMALL), small_graph, 1))
    graph = Data(x=base.graph.x.double(), edge_index=base.graph.edge_index)
    generator = torch.Generator().manual_seed(0)
    task = Task(
        gcn=GCN.from_weights({name: w.double() for name, w in weights.items()}),
        adjacency=normalised_adjacency(graph.edge_index, graph.num_nodes).to(torch.float64),
        x=graph.x,
        nodes=base.nodes,
        codes=base.labels,
        arrival=np.arange(2),
        before=Known({}, np.arange(0), 0, {}),
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

    def norm_at(value, start, change):
        with torch.no_grad():
            value.copy_(start + change)
        return norm()

    model = TWP(loss_strength=3.0, topology_strength=0.2, beta=0.5, dropout=0.0)
    found = model._loss(task, model._prepare(task))
    own = loss_and_topology(gcn, graph, task.nodes, task.codes)[0]
    assert (found - own).item() == pytest.approx(norm(), rel=1e-9)
    gradients = torch.autograd.grad(found - own, list(gcn.parameters()))
    assert all(g.abs().max() > 1e-3 for g in gradients[:3])
    generator = torch.Generator().manual_seed(1)
    for value, gradient in zip(gcn.parameters(), gradients, strict=True):
        direction = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        start, step = value.detach().clone(), 1e-6 * direction
        expected = (norm_at(value, start, step) - norm_at(value, start, -step)) / 2e-6
        norm_at(value, start, 0)
        assert (gradient * direction).sum().item() == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_cross_entropy_counts_once(double):
    # with a β that is next to nothing, what backward leaves is ∇L and no multiple of it
    model, (task, _) = TWP(beta=1e-12, dropout=0.0), double
    model._loss(task, model._prepare(task)).backward()
    found = [value.grad for value in task.gcn.parameters()]
    plain = torch.autograd.grad(task.loss(), list(task.gcn.parameters()))
    for f, expected in zip(found, plain, strict=True):
        torch.testing.assert_close(f, expected, rtol=1e-6, atol=1e-8)


def test_sparse_inputs_give_what_dense_ones_give(small_graph, learn, monkeypatch):
    outcomes = []
    for below in (0.0, 1.1):
        monkeypatch.setattr(twp, "SPARSE_BELOW", below)
        outcomes.append(learn(TWP(**SMALL), small_graph).decision_function(small_graph))
    np.testing.assert_allclose(*outcomes, rtol=1e-3, atol=1e-3)


def test_each_part_of_twp_acts(small_graph, learn):
    bare = learn(Bare(**SMALL), small_graph).decision_function(small_graph)

    def distance(loss, topology, beta):
        model = TWP(loss_strength=loss, topology_strength=topology, beta=beta, **SMALL)
        return abs(learn(model, small_graph).decision_function(small_graph) - bare).max()

    assert distance(0.0, 0.0, 1.0) == 0
    assert distance(10.0, 0.0, 0.0) > 0.01
    assert distance(0.0, 10.0, 0.0) > 0.01
    # too weak to hold anything, yet β keeps importances small while they are made
    assert distance(1e-6, 0.0, 1e4) > 0.01
    assert distance(0.0, 1e-6, 1e4) > 0.01


def test_beta_makes_the_session_less_important(small_graph, learn, saved):
    totals = []
    for beta in (0.0, 1e-3):
        _, memory = saved(learn(TWP(**SMALL, beta=beta), small_graph, 1))
        totals.append(sum(t.sum() for name, t in memory.items() if ".importance." in name))
    assert totals[1] < 0.9 * totals[0]
