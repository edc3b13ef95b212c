from itertools import combinations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

import algnn
from algnn.baselines.replay import GEM, project

SMALL = {"hidden": 16, "epochs": 20, "lr": 0.02, "device": "cpu"}


@st.composite
def gradients(draw, most=4, nearly=False):
    """A gradient and some to respect, of any length; being whole, many are zero or parallel."""
    size, rows = draw(st.integers(1, 5)), draw(st.integers(1, most))
    whole = st.lists(st.integers(-3, 3), min_size=size, max_size=size)
    g, *memory = np.array([draw(whole) for _ in range(rows + 1)], dtype=float)
    if nearly:
        # parallel or opposite, but for a little
        tilt = 10.0 ** -draw(st.integers(3, 16)) * np.arange(size)
        memory.append(draw(st.sampled_from([-1, 1])) * memory[0] + tilt)
    scales = [10.0 ** draw(st.integers(-9, 3)) for _ in memory]
    return torch.from_numpy(g), torch.from_numpy(np.array(scales)[:, None] * memory)


def directions(memory):
    """The rows at length 1; where they are zero, zero."""
    return memory / memory.norm(dim=1, keepdim=True).clamp(min=1e-300)


def nearest_by_enumeration(g, memory):
    """The nearest feasible point is the projection onto the border of some of the half-spaces."""
    rows = directions(memory)
    best = None
    for size in range(len(rows) + 1):
        for active in combinations(range(len(rows)), size):
            border = rows[list(active)]
            point = g - torch.linalg.pinv(border, rtol=1e-12) @ (border @ g) if size else g
            feasible = (rows @ point).min() >= -1e-9
            if feasible and (best is None or (point - g).norm() < (best - g).norm()):
                best = point
    return best


@settings(deadline=None, max_examples=100)
@given(gradients() | gradients(nearly=True), st.sampled_from([0.0, 0.5, 3.0]))
def test_the_projected_gradient_satisfies_every_constraint(problem, margin):
    g, memory = problem
    found = project(g, memory, margin)
    scale = float(g.norm() + margin * memory.norm(dim=1).sum()) + 1e-300
    assert ((directions(memory) @ found) / scale).min() >= -1e-7
    # a projection onto a cone is never longer than what is projected
    assert float(found.norm()) <= (1 + 1e-6) * scale
    # a product of 0 may be rounded to either side of it, but for that with a row of zeros
    clear = directions(memory) @ g > 1e-12 * g.norm()
    if (clear | (memory == 0).all(1)).all():
        assert found is g


@settings(deadline=None, max_examples=100)
@given(gradients(most=3), st.sampled_from([0.0, 0.5]))
def test_it_is_the_nearest_such_vector(problem, margin):
    g, memory = problem
    if (memory @ g).min() >= 0:
        return
    wanted = g + margin * memory.sum(0)
    expected = nearest_by_enumeration(wanted, memory)
    found = project(g, memory, margin)
    scale = float(wanted.norm()) + 1e-300
    assert abs(float((found - wanted).norm() - (expected - wanted).norm())) / scale < 1e-6


def test_float32_gradients_of_very_different_lengths():
    generator = torch.Generator().manual_seed(0)
    g = torch.randn(1000, generator=generator)
    memory = torch.randn(3, 1000, generator=generator) - g
    expected = project(g.double(), memory.double())
    # the last of these lengths is below what float32 can square, or divide by
    for scales in ([1.0, 1.0, 1.0], [1e-20, 1e20, 1.0], [1e-41, 1.0, 1.0]):
        found = project(g, memory * torch.tensor(scales)[:, None])
        tolerance = 1e-5 if min(scales) > 1e-38 else 1e-2
        torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


def test_the_margin_adds_at_least_so_much_of_each_gradient():
    past = torch.tensor([[1.0, 0.0]])
    # the multiplier that just suffices is 0.1, then 4
    assert torch.allclose(project(torch.tensor([-0.1, 1.0]), past, 0.5), torch.tensor([0.4, 1.0]))
    assert torch.allclose(project(torch.tensor([-4.0, 1.0]), past, 0.5), torch.tensor([0.0, 1.0]))


def memory_losses(task):
    memory, losses = task.memory, []
    for session in memory["sessions"].unique():
        own = memory["sessions"] == session
        logits = task.gcn.scores(task.adjacency, task.x, memory["nodes"][own])
        losses.append(float(cross_entropy(logits.double(), memory["codes"][own])))
    return np.array(losses)


def fourth_task(task_of, model, graph):
    session = algnn.ClassStream(graph, base=2)[3]
    return task_of(model, session.graph, session.nodes, session.labels)


def test_a_small_step_raises_no_memory_loss_where_a_plain_one_would(make_graph, learn, task_of):
    graph = make_graph(classes=5, features=8)
    model = learn(GEM(margin=0.0, **{**SMALL, "dropout": 0.0}), graph, 3)
    change = {}
    for projected in (False, True):
        task = fourth_task(task_of, model, graph)
        prepared = model._prepare(task)
        before = memory_losses(task)
        model._loss(task, prepared).backward()
        if projected:
            model._adjust(task, prepared)
        with torch.no_grad():
            for parameter in task.gcn.parameters():
                parameter -= 1e-3 * parameter.grad
        change[projected] = memory_losses(task) - before
    assert change[True].shape == (3,)
    assert change[False].max() > 1e-5
    # to first order they stay or fall
    assert change[True].max() < 0.01 * change[False].max()


def test_a_gradient_that_harms_nobody_is_left_alone(make_graph, learn, task_of):
    graph = make_graph(classes=5)
    model = learn(GEM(margin=3.0, **SMALL), graph, 3)
    task = fourth_task(task_of, model, graph)
    prepared = model._prepare(task)
    # a step on the memory itself
    memory = task.memory
    logits = task.gcn(task.field_of(memory["nodes"]))
    cross_entropy(logits, memory["codes"]).backward()
    before = [p.grad.clone() for p in task.gcn.parameters()]
    model._adjust(task, prepared)
    assert all(torch.equal(p.grad, b) for p, b in zip(task.gcn.parameters(), before, strict=True))


def test_more_of_an_old_class_has_a_share_of_its_own(small_graph):
    model = GEM(budget=6, **{**SMALL, "epochs": 1})
    model.partial_fit(small_graph, [0, 4, 8, 1, 5, 9], [0, 0, 0, 1, 1, 1])
    model.partial_fit(small_graph, [12, 16, 20], [0, 0, 0])
    memory = model._learned.memory
    groups = list(zip(memory["sessions"].tolist(), memory["codes"].tolist(), strict=True))
    assert sorted(groups) == [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 0)]
    # a node that comes again counts once, and with the session that brought it last
    again = int(memory["nodes"][0])
    model.partial_fit(small_graph, [again], [int(memory["codes"][0])])
    memory = model._learned.memory
    assert memory["sessions"][memory["nodes"] == again].tolist() == [2]
