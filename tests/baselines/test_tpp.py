"""What makes TPP: a frozen network, a prototype that names the task, a prompt and a head for it."""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.data import Data

import algnn
from algnn.baselines.isolation import TPP, _contrast


def test_the_nearest_prototype_names_the_task_by_hand():
    # three pairs and a loose end: Â averages a pair, so a profile is its mean over √2
    x = torch.tensor([[0.0, 2.0], [0, 4], [2, 0], [4, 0], [9, 9], [9, 9], [3.5, 0.5]])
    edges = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 0, 3, 2, 5, 4]])
    graph = Data(x=x, edge_index=edges)
    model = TPP(hidden=4, pretrain=1, epochs=1, device="cpu").fit(graph, [0, 2], ["a", "b"])
    model.partial_fit(graph, [4], ["c"])
    first, second = (part["prototype"] for part in model._known.parts)
    torch.testing.assert_close(first, torch.tensor([1.5, 1.5]) / 2**0.5)
    torch.testing.assert_close(second, torch.tensor([9.0, 9.0]) / 2**0.5)
    # the loose end has degree 1, and is nearer to the first task than to the second
    assert set(model.predict(graph, [1, 3, 6])) <= {"a", "b"}
    assert model.predict(graph, [5]).tolist() == ["c"]


def test_a_profile_is_over_the_root_of_the_degree_whatever_a_self_loop_weighs():
    edges, weight = torch.tensor([[0, 1, 0], [1, 0, 0]]), torch.tensor([1.0, 1.0, 4.0])
    graph = Data(x=torch.eye(2), edge_index=edges, edge_weight=weight)
    _, profiles = TPP(device="cpu")._smoothed(graph)
    degrees = torch.tensor([5.0, 2.0])
    spread = torch.tensor([[4.0, 1], [1, 1]]) / (degrees[:, None] * degrees).sqrt()
    expected = torch.linalg.matrix_power(spread, 3) / degrees.sqrt()[:, None]
    torch.testing.assert_close(profiles, expected)


def test_a_new_task_leaves_the_network_and_earlier_tasks_alone(make_graph):
    graph = make_graph(classes=6)
    stream = algnn.ClassStream(graph, step=3)
    model = TPP(hidden=8, pretrain=2, epochs=5, device="cpu")
    model.partial_fit(stream.graph(0), *stream.nodes("train", 0))
    before = model._known
    answers = model.decision_function(graph)
    model.partial_fit(stream.graph(1), *stream.nodes("train", 1))
    after = model._known
    assert after.parts[0] is before.parts[0]
    assert after.encoder is before.encoder
    assert "prompt" not in after.parts[0]
    assert after.parts[1]["prompt"].shape == (3, graph.x.size(1))
    # within its task a node has the scores that it had; which task it is, distances say
    found = model.decision_function(graph)
    own = found[:, :3].max(1) > found[:, 3:].max(1)
    np.testing.assert_allclose(found[own, :3], answers[own], rtol=1e-5)
    assert own[np.isin(graph.y, [0, 1, 2])].mean() > 0.6 > own[np.isin(graph.y, [3, 4, 5])].mean()


def test_the_contrast_by_hand():
    one, two = torch.eye(2), torch.eye(2)
    # each node: itself across (e²), the other within and across (1 each)
    expected = -torch.log(torch.tensor(np.e**2 / (np.e**2 + 1 + 1)))
    torch.testing.assert_close(_contrast(one, two), expected.float())


def test_answers_in_inference_mode_do_not_stand_in_the_way_of_learning(small_graph):
    model = TPP(hidden=8, pretrain=2, epochs=2, device="cpu")
    model.fit(small_graph, [0, 1, 4, 5], [0, 1, 0, 1])
    grown = small_graph.clone()
    grown.x = small_graph.x.double()  # of which a copy is made, and kept
    with torch.inference_mode():
        model.predict(grown)
    assert model.partial_fit(grown, [2, 6], [2, 2]).classes_.tolist() == [0, 1, 2]
