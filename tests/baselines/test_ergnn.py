import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

import algnn
from algnn.baselines.replay import ERGNN, coverage_order
from algnn.graph import propagate

SMALL = {"hidden": 16, "epochs": 20, "lr": 0.02, "device": "cpu"}


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
    order = coverage_order(points, torch.zeros(5, dtype=torch.int64), 0.5)
    assert order.tolist() == [2, 4, 3, 0, 1]
    twins = torch.tensor([[1.0], [0.0], [1.0], [0.0]])
    assert coverage_order(twins, torch.zeros(4, dtype=torch.int64), 0.5).tolist() == [0, 1, 2, 3]


@settings(deadline=None, max_examples=30)
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


def test_a_session_of_one_class_is_compared_with_the_memory(make_graph, learn):
    graph = make_graph(classes=4, per_class=40, features=4)
    # classes that features do not tell apart crowd each other
    graph.x = torch.randn(graph.x.shape, generator=torch.Generator().manual_seed(0))
    model = ERGNN(budget=16, distance=0.4, **{**SMALL, "epochs": 2})
    learn(model, graph, 2)
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


@pytest.mark.parametrize(("weighting", "new_share"), [("paper", 5 / 11), ("begin", 6 / 11)])
@pytest.mark.parametrize("balanced", [False, True])
def test_the_loss_weighs_session_and_memory(
    small_graph, learn, task_of, weighting, new_share, balanced
):
    settings = {**SMALL, "dropout": 0.0, "weighting": weighting, "balanced": balanced}
    model = learn(ERGNN(budget=5, **settings), small_graph, 1)
    session = algnn.ClassStream(small_graph, base=2)[1]
    task = task_of(model, session.graph, session.nodes, session.labels)
    memory = task.memory
    # β = 5 / (5 + 6); the memory has three nodes of one class and two of the other
    assert torch.bincount(memory["codes"]).tolist() == [3, 2]
    weight = torch.tensor([1 / 3, 1 / 2, 1.0]) if balanced else None
    new, old = (
        cross_entropy(task.gcn.scores(task.adjacency, task.x, nodes), codes, weight)
        for nodes, codes in ((task.nodes, task.codes), (memory["nodes"], memory["codes"]))
    )
    found = model._loss(task, model._prepare(task))
    assert found.item() == pytest.approx(float(new_share * new + (1 - new_share) * old), rel=1e-5)


def test_coverage_is_of_attributes_or_of_embeddings_by_name(small_graph, learn):
    # attributes in which each class's first labelled nodes stand apart from all other classes
    graph = small_graph.clone()
    first = [torch.nonzero(graph.train_mask & (graph.y == c)).squeeze(1)[:2] for c in range(4)]
    graph.x = torch.randn(graph.x.shape, generator=torch.Generator().manual_seed(0)) * 0.01
    graph.x[:, 0] = 1.0
    for c, nodes in enumerate(first):
        graph.x[nodes] = torch.eye(graph.x.size(1))[c + 1]
    settings = {**SMALL, "budget": 8, "distance": 0.5, "epochs": 2}
    model = learn(ERGNN(space="attributes", **settings), graph)
    assert sorted(model._learned.memory["nodes"].tolist()) == sorted(torch.cat(first).tolist())
    other = learn(ERGNN(**settings), graph)
    assert other.space == "embeddings"
    assert not torch.equal(other._learned.memory["nodes"], model._learned.memory["nodes"])
