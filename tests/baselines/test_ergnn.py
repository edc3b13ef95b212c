import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

import algnn
from algnn.baselines.ergnn import ERGNN, coverage_order
from algnn.baselines.training import Bare
from algnn.errors import InputError
from algnn.graph import propagate

SMALL = {"hidden": 16, "epochs": 20, "lr": 0.02, "device": "cpu"}


def learned(model, graph, sessions=None, **stream):
    stream = algnn.ClassStream(graph, base=2, **stream)
    for index in range(len(stream) if sessions is None else sessions):
        session = stream[index]
        model.partial_fit(session.graph, session.nodes, session.labels)
    return model


def test_coverage_prefers_nodes_clear_of_other_classes():
    #                  class 0: alone, beside one, between two | class 1 | class 2
    points = torch.tensor([[9.0, 0.0], [0.0, 0.0], [2.0, 0.0], [1.6, 0.0], [0.4, 0.0], [2.4, 0.0]])
    codes = torch.tensor([0, 0, 0, 1, 1, 2])
    order = coverage_order(points, codes, distance=0.5).tolist()
    assert [i for i in order if codes[i] == 0] == [0, 1, 2]
    # nodes of its own class do not crowd a node
    assert coverage_order(points[:3], codes[:3], distance=100.0)[0] == 2


def test_ties_go_to_the_node_nearest_its_class_mean_then_to_the_first():
    points = torch.tensor([[4.0], [0.0], [2.5], [3.5], [1.5]])
    # mean 2.3; nobody of another class
    assert coverage_order(points, torch.zeros(5, dtype=torch.int64), 0.5).tolist() == [
        2,
        4,
        3,
        0,
        1,
    ]
    twins = torch.tensor([[1.0], [0.0], [1.0], [0.0]])
    assert coverage_order(twins, torch.zeros(4, dtype=torch.int64), 0.5).tolist() == [0, 1, 2, 3]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_the_order_is_that_of_counting_one_by_one(data):
    count = data.draw(st.integers(1, 15))
    grid = st.lists(st.integers(-3, 3), min_size=count, max_size=count)
    points = torch.tensor([data.draw(grid), data.draw(grid)], dtype=torch.float32).T
    codes = torch.tensor(data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))
    distance = data.draw(st.sampled_from([0.0, 1.5, 2.5, 9.0]))
    crowd = [
        sum(
            float((points[i] - points[j]).norm()) < distance and bool(codes[i] != codes[j])
            for j in range(count)
        )
        for i in range(count)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(propagate, "BLOCK_BYTES", data.draw(st.sampled_from([100, 2**20])))
        order = coverage_order(points, codes, distance).tolist()
    assert sorted(order) == list(range(count))
    assert [crowd[i] for i in order] == sorted(crowd)


def choice_by_hand(model, graph, nodes, codes, quotas):
    """CM from the definition: dense matrices, every pair of nodes."""
    adjacency = propagate.normalised_adjacency(graph.edge_index, graph.num_nodes).to_dense()
    weights = model._learned.weights
    hidden = torch.relu(adjacency @ graph.x @ weights["weight1"] + weights["bias1"])[nodes]
    hidden = hidden / hidden.norm(dim=1, keepdim=True)
    near = torch.cdist(hidden, hidden, compute_mode="donot_use_mm_for_euclid_dist")
    crowd = ((near < model.distance) & (codes[:, None] != codes)).sum(1)
    fewest = [sorted(crowd[codes == c].tolist())[:quota] for c, quota in enumerate(quotas)]
    return crowd, fewest


def test_a_session_of_one_class_is_compared_with_the_memory(make_graph):
    graph = make_graph(classes=4, per_class=40, features=4)
    # classes that features do not tell apart crowd each other
    graph.x = torch.randn(graph.x.shape, generator=torch.Generator().manual_seed(0))
    model = ERGNN(budget=16, distance=0.4, **{**SMALL, "epochs": 2})
    learned(model, graph, 2)
    before = model._learned.memory
    session = algnn.ClassStream(graph, base=2)[2]
    assert session.labels.unique().numel() == 1
    model.partial_fit(session.graph, session.nodes, session.labels)
    nodes = torch.cat([session.nodes, before["nodes"]])
    codes = graph.y[nodes]
    crowd, wanted = choice_by_hand(model, graph, nodes, codes, [4, 4, 4, 4])
    # the case is one in which choosing matters
    assert crowd[codes == 3].unique().numel() > 2
    kept = model._learned.memory
    assert torch.bincount(kept["codes"]).tolist() == [4, 4, 4, 4]
    crowd_of = dict(zip(nodes.tolist(), crowd.tolist(), strict=True))
    for code, counts in enumerate(wanted):
        chosen = kept["nodes"][kept["codes"] == code].tolist()
        assert sorted(crowd_of[node] for node in chosen) == counts


def test_old_classes_make_room_and_the_budget_is_kept(make_graph, tmp_path):
    graph = make_graph(classes=5)  # 6 training nodes of each class
    model = ERGNN(budget=10, **{**SMALL, "epochs": 1})
    known = set()
    for session in algnn.ClassStream(graph, base=2):
        model.partial_fit(session.graph, session.nodes, session.labels)
        model.save(tmp_path / "ergnn.safetensors")
        file = load_file(tmp_path / "ergnn.safetensors")
        memory = {name.removeprefix("memory."): t for name, t in file.items() if "memory." in name}
        assert set(memory) == {"nodes", "codes"}
        assert torch.equal(graph.y[memory["nodes"]], memory["codes"])
        counts = torch.bincount(memory["codes"]).tolist()
        assert sum(counts) == 10
        assert max(counts) - min(counts) <= 1
        # what was dropped stays dropped
        assert set(memory["nodes"].tolist()) <= known | set(session.nodes.tolist())
        known = set(memory["nodes"].tolist())


def test_the_loss_weighs_session_and_memory_by_their_nodes(small_graph):
    model = learned(ERGNN(budget=5, dropout=0.0, **SMALL), small_graph, 1)
    session = algnn.ClassStream(small_graph, base=2)[1]
    task = model._checked_task(session.graph, session.nodes, session.labels.numpy(), model._learned)
    memory = task.memory
    new, old = (
        cross_entropy(task.gcn.scores(task.adjacency, task.x, nodes), codes)
        for nodes, codes in ((task.nodes, task.codes), (memory["nodes"], memory["codes"]))
    )
    beta = 5 / (5 + 6)
    found = model._loss(task, model._prepare(task))
    assert found.item() == pytest.approx(float((1 - beta) * new + beta * old), rel=1e-5)


def test_it_forgets_less_than_bare_and_equals_it_without_memory(small_graph):
    bare, replay, none = (
        learned(model, small_graph)
        for model in (Bare(**SMALL), ERGNN(budget=8, **SMALL), ERGNN(budget=0, **SMALL))
    )
    old = (small_graph.test_mask & (small_graph.y < 2)).nonzero().squeeze(1)
    truth = small_graph.y[old].numpy()
    right = [(model.predict(small_graph, old) == truth).mean() for model in (bare, replay)]
    assert right[1] > right[0] + 0.3
    assert np.array_equal(bare.decision_function(small_graph), none.decision_function(small_graph))


def test_a_node_that_comes_again_counts_once_with_its_last_label(small_graph):
    model = ERGNN(budget=9, **{**SMALL, "epochs": 2})
    model.partial_fit(small_graph, [0, 4, 1, 5], [0, 0, 1, 1])
    model.partial_fit(small_graph, [4], [2])
    memory = model._learned.memory
    pairs = zip(memory["nodes"].tolist(), memory["codes"].tolist(), strict=True)
    assert sorted(pairs) == [(0, 0), (1, 1), (4, 2), (5, 1)]


@pytest.mark.parametrize("edges", ["full", "seen"])
def test_streams_of_one_class_a_session(make_graph, edges):
    graph = make_graph(classes=5)
    model = learned(ERGNN(budget=3, **{**SMALL, "epochs": 2}), graph, edges=edges)
    assert model._learned.memory["nodes"].numel() == 3
    assert np.isfinite(model.decision_function(algnn.ClassStream(graph, base=2).graph(3))).all()


@pytest.mark.parametrize("wrong", [{"budget": -1}, {"budget": 2.5}, {"distance": -0.1}])
def test_wrong_parameters_are_named(small_graph, wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        learned(ERGNN(**wrong), small_graph)
