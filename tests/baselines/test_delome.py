"""What makes DeLoMe: gradients that match, and logits adjusted for how often a class is seen."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy

import algnn
from algnn.baselines.condensation import DeLoMe, condense, gradients_apart


def test_nodes_with_the_same_gradients_match_and_others_are_drawn_nearer():
    generator = torch.Generator().manual_seed(0)
    real = torch.rand(8, 5, generator=generator)
    codes = torch.tensor([0, 0, 0, 0, 2, 2, 2, 2])
    weights = torch.rand(5, 4, generator=generator), torch.rand(4, 3, generator=generator)
    # each node twice has the mean gradient of each once, whatever the classes in between
    twice = gradients_apart(real, codes, codes.repeat(2), classes=3)
    assert float(twice(real.repeat(2, 1), *weights).detach()) < 1e-10
    # by hand for one class: the gradients of W_2 are hᵀ(p − y)
    one = gradients_apart(real[:4], codes[:4], codes[:1], classes=3)
    x = torch.rand(1, 5, generator=generator)
    found = []
    for inputs in (real[:4], x):
        hidden = torch.relu(inputs @ weights[0])
        rest = torch.softmax(hidden @ weights[1], 1) - torch.eye(3)[[0] * len(inputs)]
        rest = rest / len(inputs)
        found.append((inputs.T @ ((rest @ weights[1].T) * (hidden > 0)), hidden.T @ rest))
    expected = sum(((a - b) ** 2).sum() for a, b in zip(*found, strict=True))
    torch.testing.assert_close(one(x, *weights).detach(), expected.detach())

    start = real[[0, 4]]
    matching = gradients_apart(real, codes, codes[[0, 4]], classes=3)
    nearer = condense(matching, start, 60, 0.05, (16, 3), torch.Generator().manual_seed(1))
    draws = [torch.rand(2, 5, 16, generator=generator), torch.rand(2, 16, 3, generator=generator)]
    before, after = (
        sum(float(matching(x, w1, w2).detach()) for w1, w2 in zip(*draws, strict=True))
        for x in (start, nearer)
    )
    assert after < before


def test_logits_are_adjusted_by_the_counts_of_memory_and_session(small_graph):
    stream = algnn.ClassStream(small_graph)  # two classes of six nodes each, then one a session
    model = DeLoMe(hidden=8, epochs=3, budget=6, condense_steps=2, temperature=2.0, device="cpu")
    model.partial_fit(stream.graph(0), *stream.nodes("train", 0))
    known = model._known
    nodes, labels = stream.nodes("train", 1)
    task = model._task(stream.graph(1), nodes, labels.numpy(), known)
    prepared = model._prepare(task)
    # of a budget of six, two nodes of each old class stay beside the session's own two
    assert prepared.codes[:4].sort().values.tolist() == [0, 0, 1, 1]
    assert prepared.codes[4:].tolist() == [2, 2]
    assert prepared.sessions.tolist() == [0, 0, 0, 0, 1, 1]
    share = torch.tensor([2.0, 2.0, 6.0]) / 10
    torch.testing.assert_close(prepared.adjustment, 2 * share.log())
    model.dropout = task.gcn.dropout = 0.0
    real = cross_entropy(task.gcn(task.field) + 2 * share.log(), task.codes)
    old = cross_entropy(task.gcn(prepared.field) + 2 * share.log(), prepared.codes[:4])
    torch.testing.assert_close(model._loss(task, prepared), real + old)


def test_each_earlier_session_has_a_mean_of_its_own(small_graph):
    stream = algnn.ClassStream(small_graph)
    model = DeLoMe(hidden=8, epochs=3, budget=8, condense_steps=2, dropout=0.0, device="cpu")
    for session in (0, 1):
        model.partial_fit(stream.graph(session), *stream.nodes("train", session))
    nodes, labels = stream.nodes("train", 2)
    task = model._task(stream.graph(2), nodes, labels.numpy(), model._known)
    prepared = model._prepare(task)
    old = prepared.sessions < 2
    # four nodes of the two classes of the first session, two of the second's
    assert prepared.sessions[old].tolist() == [0] * 4 + [1] * 2
    codes = prepared.codes[old]
    logits = task.gcn(prepared.field) + prepared.adjustment
    expected = cross_entropy(task.gcn(task.field) + prepared.adjustment, task.codes)
    expected = (
        expected + cross_entropy(logits[:4], codes[:4]) + cross_entropy(logits[4:], codes[4:])
    )
    torch.testing.assert_close(model._loss(task, prepared), expected)
