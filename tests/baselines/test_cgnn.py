import pytest
import torch
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

import algnn
from algnn.baselines.replay import CGNN, two_hop_walks
from algnn.gcn import GCN
from algnn.graph.propagate import normalised_adjacency

SMALL = {"hidden": 16, "epochs": 20, "lr": 0.02, "device": "cpu"}


def fisher_node_by_node(weights, graph, nodes, codes):
    """The mean of squared gradients, a backward pass per node."""
    gcn = GCN.from_weights(weights)
    adjacency = normalised_adjacency(graph.edge_index, graph.num_nodes).to_dense()
    hidden = torch.relu(adjacency @ graph.x @ gcn.weight1 + gcn.bias1)
    logits = (adjacency @ hidden @ gcn.weight2 + gcn.bias2)[nodes]
    total = {name: torch.zeros_like(p) for name, p in gcn.named_parameters()}
    for row in range(len(nodes)):
        loss = cross_entropy(logits[row], codes[row])
        gradients = torch.autograd.grad(loss, list(gcn.parameters()), retain_graph=True)
        for value, gradient in zip(total.values(), gradients, strict=True):
            value += gradient.square() / len(nodes)
    return total


def test_gradients_are_those_of_replay_and_penalty(small_graph, learn, task_of):
    model = learn(CGNN(budget=6, strength=1e4, dropout=0.0, **SMALL), small_graph, 2)
    nodes, labels = [3, 7, 11], [3, 3, 3]
    task = task_of(model, small_graph, nodes, labels)
    prepared = model._prepare(task)
    # away from θ*, where the penalty pulls
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in task.gcn.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    model._loss(task, prepared).backward()
    model._adjust(task, prepared)

    memory, before = task.memory, task.before.weights
    fisher = fisher_node_by_node(before, small_graph, memory["nodes"], memory["codes"])
    copy = GCN.from_weights({name: p.detach() for name, p in task.gcn.named_parameters()})
    everyone = torch.cat([task.nodes, memory["nodes"]])
    codes = torch.cat([task.codes, memory["codes"]])
    replay = cross_entropy(copy(task.field_of(everyone)), codes)
    penalty = sum(
        (fisher[name] * (value[..., : before[name].size(-1)] - before[name]).square()).sum()
        for name, value in copy.named_parameters()
    )
    alone = torch.autograd.grad(5e3 * penalty, list(copy.parameters()), retain_graph=True)
    (replay + 5e3 * penalty).backward()
    for (name, expected), part in zip(copy.named_parameters(), alone, strict=True):
        found = task.gcn.get_parameter(name).grad
        torch.testing.assert_close(found, expected.grad, rtol=1e-3, atol=1e-6)
        # and the penalty is no small part of it
        assert part.norm() > 0.05 * found.norm()


def test_the_penalty_holds_old_weights_and_leaves_the_new_class_free(small_graph, learn, task_of):
    distances, columns = [], []
    for strength in (0.0, 0.5, 1e8):
        model = learn(CGNN(budget=6, strength=0.0, **SMALL), small_graph, 2)
        before = model._learned.weights
        start = task_of(model, small_graph, [3], [3]).gcn.weight2[:, 3].detach()
        model.strength = strength
        model.partial_fit(small_graph, [3, 7, 11, 23], [3, 3, 3, 3])
        after = model._learned.weights
        distances.append(float((after["weight1"] - before["weight1"]).norm()))
        columns.append(float((after["weight2"][:, 3] - start).norm()))
    assert distances[0] != distances[1]
    assert distances[2] < 0.7 * distances[0]
    assert columns[2] > 0.5 * columns[0]


def test_a_class_in_pieces_is_sampled_like_a_class_at_once(small_graph):
    own = (small_graph.y == 0).nonzero().squeeze(1).tolist()
    settings = {**SMALL, "epochs": 1}
    sets = []
    for pieces in ([own], [own[:5], own[5:6], own[6:]], [own[9:], own[:9]]):
        model = CGNN(budget=6, seed=5, **settings)
        model.partial_fit(small_graph, [*pieces[0], 1, 5, 9], [0] * len(pieces[0]) + [1] * 3)
        for piece in pieces[1:]:
            model.partial_fit(small_graph, piece, [0] * len(piece))
        memory = model._learned.memory
        sets.append(sorted(memory["nodes"][memory["codes"] == 0].tolist()))
    assert sets[0] == sets[1] == sets[2]
    assert len(sets[0]) == 3


def test_each_node_is_drawn_as_often():
    nodes = torch.tensor([0, 1, 2, 3, 500, 501, 502, 2**40, 2**40 + 1, 2**40 + 2])
    first = torch.stack([CGNN(seed=seed)._order(None, nodes, None)[:3] for seed in range(400)])
    # 3 of 10 each time: 120 times each, give or take 9
    assert torch.bincount(first.flatten()).min() > 85
    assert torch.bincount(first.flatten()).max() < 155
    # and neighbours are not drawn together: 2 of 3 places among 90 pairs, 27 times each
    together = [int(((first == i).any(1) & (first == i + 1).any(1)).sum()) for i in range(9)]
    assert 8 < min(together) <= max(together) < 50


def test_walks_are_powers_of_the_adjacency(make_graph):
    graph = make_graph(seed=3)
    adjacency = normalised_adjacency(graph.edge_index, graph.num_nodes)
    ones = (adjacency.to_dense() > 0).long()
    nodes = torch.tensor([7, 0, 33])
    assert torch.equal(two_hop_walks(adjacency, nodes), (ones @ ones.sum(1))[nodes])
    assert two_hop_walks(adjacency, nodes[:0]).numel() == 0


def path(length):
    x = torch.randn(length, 3, generator=torch.Generator().manual_seed(0))
    steps = torch.arange(length - 1)
    edges = torch.stack([torch.cat([steps, steps + 1]), torch.cat([steps + 1, steps])])
    return Data(x=x, edge_index=edges)


def test_detection_finds_remembered_nodes_near_new_edges_and_weighs_them_twice(task_of):
    # 0 – 1 – 2 – 3 – 4 – 5 grows by 6 at its right end, and by 7, which touches nobody
    short, grown = path(6), path(7)
    grown.x = torch.cat([grown.x, torch.ones(1, 3)])
    grown.x[:6] = short.x
    model = CGNN(dropout=0.0, strength=0.0, **SMALL)
    model.fit(short, [0, 2, 4, 5], [0, 1, 0, 1])
    task = task_of(model, grown, [6, 7], [2, 2])
    prepared = model._prepare(task)
    order = [6, 7, *task.memory["nodes"].tolist()]
    shares = dict(zip(order, prepared.shares.tolist(), strict=True))
    # the new edge is at 5; 4 has 5 for a neighbour
    expected = {0: 1, 2: 1, 4: 2, 5: 2, 6: 1, 7: 1}
    assert shares == pytest.approx({node: times / 8 for node, times in expected.items()})
    losses = cross_entropy(
        task.gcn.scores(task.adjacency, task.x, torch.tensor(order)),
        torch.cat([task.codes, task.memory["codes"]]),
        reduction="none",
    )
    by_hand = sum(shares[node] * float(loss) for node, loss in zip(order, losses, strict=True))
    assert model._loss(task, prepared).item() == pytest.approx(by_hand, rel=1e-5)
    # once learned, the graph as it is now is what a later change is measured from
    model.partial_fit(grown, [6, 7], [2, 2])
    again = model._prepare(task_of(model, grown, [1], [0]))
    assert torch.allclose(again.shares, torch.full((7,), 1 / 7))


def test_detection_finds_nothing_where_the_graph_does_not_change(small_graph, learn, task_of):
    model = learn(CGNN(budget=7, **{**SMALL, "epochs": 1}), small_graph, 1)
    for index in (1, 2):
        session = algnn.ClassStream(small_graph, base=2)[index]
        task = task_of(model, session.graph, session.nodes, session.labels)
        shares = model._prepare(task).shares
        assert torch.equal(shares, torch.full((13,), 1.0) / 13)
        model.partial_fit(session.graph, session.nodes, session.labels)
