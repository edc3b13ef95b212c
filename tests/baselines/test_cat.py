"""CaT: class means are matched, the budget is kept, and training sees the memory alone."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

import algnn
from algnn.baselines.condensation import CaT, condense, edge_free, embeddings_apart
from algnn.baselines.training import Bare
from algnn.errors import InputError
from algnn.gcn import GCN, glorot
from algnn.graph.propagate import normalised_adjacency, receptive_field

SMALL = {"hidden": 8, "epochs": 3, "condense_steps": 4, "device": "cpu"}


def memory(model):
    known = model._learned
    return known.memory["x"], known.memory["codes"]


def encoder(inputs, hidden, seed):
    generator = torch.Generator().manual_seed(seed)
    return glorot(inputs, hidden, generator), glorot(hidden, hidden, generator)


def test_the_matching_loss_is_that_of_its_formula(small_graph):
    nodes = small_graph.train_mask.nonzero().squeeze(1)[:-3]
    codes = small_graph.y[nodes]
    dense = normalised_adjacency(small_graph.edge_index, small_graph.num_nodes).to_dense()
    weight1, weight2 = encoder(small_graph.x.size(1), 6, seed=1)
    real = dense @ torch.relu(dense @ small_graph.x @ weight1) @ weight2
    # class 3 has no synthetic node: the budget had no room for it
    synthetic = torch.tensor([2, 0, 0, 1, 2, 2])
    x = torch.randn(6, small_graph.x.size(1), generator=torch.Generator().manual_seed(2))
    isolated = torch.relu(x @ weight1) @ weight2
    expected = 0.0
    for c in range(3):
        ours, theirs = (
            torch.stack([row / row.norm() for row in rows]).mean(0)
            for rows in (real[nodes][codes == c], isolated[synthetic == c])
        )
        apart = ours - theirs
        expected += float((codes == c).float().mean() * apart.square().sum())

    adjacency = normalised_adjacency(small_graph.edge_index, small_graph.num_nodes)
    matching = embeddings_apart(receptive_field(adjacency, small_graph.x, nodes), codes, synthetic)
    assert float(matching(x, weight1, weight2)) == pytest.approx(expected, rel=1e-4)


def test_the_matching_loss_falls(small_graph):
    nodes = small_graph.train_mask.nonzero().squeeze(1)
    adjacency = normalised_adjacency(small_graph.edge_index, small_graph.num_nodes)
    synthetic = torch.arange(4)
    field = receptive_field(adjacency, small_graph.x, nodes)
    matching = embeddings_apart(field, small_graph.y[nodes], synthetic)
    start = small_graph.x[[int(nodes[small_graph.y[nodes] == c][0]) for c in range(4)]]
    kept = start.clone()
    found = condense(matching, start, 100, 0.1, (32, 32), torch.Generator().manual_seed(0))
    # judged by encoders that the condensation has not drawn
    judges = [encoder(start.size(1), 32, seed) for seed in range(100, 120)]
    before = sum(float(matching(start, *judge)) for judge in judges)
    after = sum(float(matching(found, *judge)) for judge in judges)
    assert after < 0.2 * before
    assert torch.equal(start, kept)


def test_it_trains_in_memory_only(make_graph):
    """Bare, taught the memory as a graph without edges, comes to the same weights bit for bit."""
    stream = algnn.ClassStream(make_graph(per_class=20), base=2)  # 8 labelled nodes in each class
    model = CaT(**{**SMALL, "epochs": 10, "seed": 3})
    twin = Bare(hidden=8, epochs=10, seed=3, device="cpu")
    for session in stream:
        model.partial_fit(session.graph, session.nodes, session.labels)
        x, codes = memory(model)
        no_edges = torch.empty(2, 0, dtype=torch.int64)
        twin.partial_fit(Data(x=x, edge_index=no_edges), torch.arange(len(codes)), codes)
        for name, weight in twin._learned.weights.items():
            assert torch.equal(model._learned.weights[name], weight)


def test_every_class_counts_the_same(small_graph):
    nodes = torch.arange(13)
    labels = small_graph.y[nodes]
    few = torch.cat([nodes[labels == 0], nodes[labels == 1][:1], nodes[labels == 2][:2]])
    model = CaT(**SMALL, dropout=0.0)
    task = model._task(small_graph, few, small_graph.y[few].numpy(), None)
    bank = model._prepare(task)
    assert torch.bincount(bank.codes).tolist() == [4, 1, 2]
    logits = GCN.from_weights(dict(task.gcn.named_parameters()))(edge_free(bank.x))
    by_class = [
        cross_entropy(logits[bank.codes == c], bank.codes[bank.codes == c]) for c in (0, 1, 2)
    ]
    expected = sum(by_class).item() / 3
    assert model._loss(task, bank).item() == pytest.approx(expected, rel=1e-5)


def test_a_long_stream_stays_within_the_budget(make_graph, saved):
    stream = algnn.ClassStream(make_graph(classes=12, features=24), base=2)
    model = CaT(**SMALL, budget=30)
    for session in stream:
        model.partial_fit(session.graph, session.nodes, session.labels)
        _, kept = saved(model)
        seen = session.index + 2
        assert set(kept) == {"x", "codes"}
        x, codes = kept["x"], kept["codes"]
        assert x.shape == (min(30, 6 * seen), 24)
        assert codes.shape == (x.size(0),)
        held = torch.bincount(codes, minlength=seen)
        assert held.max() - held.min() <= 1


def test_a_session_is_condensed_once(make_graph):
    """What a session left in memory never changes; it is only dropped, the last rows first."""
    stream = algnn.ClassStream(make_graph(classes=6), base=2)
    model = CaT(**SMALL, budget=20)
    ever = {}
    for session in stream:
        model.partial_fit(session.graph, session.nodes, session.labels)
        x, codes = memory(model)
        for c in range(session.index + 2):
            rows = x[codes == c]
            first = ever.setdefault(c, rows)
            assert 0 < len(rows) <= len(first)
            assert torch.equal(rows, first[: len(rows)])
    assert [len(ever[c]) for c in range(6)] == [6, 6, 6, 5, 4, 3]


def test_synthetic_nodes_start_from_two_hops_and_are_nobodys(small_graph, learn):
    dense = normalised_adjacency(small_graph.edge_index, small_graph.num_nodes).to_dense()
    hops = [small_graph.x, dense @ small_graph.x, dense @ dense @ small_graph.x]

    def nearest(x, rows):
        return torch.cdist(x, rows).min(1).values

    start, codes = memory(learn(CaT(**{**SMALL, "condense_steps": 0}), small_graph))
    for c in range(4):
        own = hops[2][small_graph.train_mask & (small_graph.y == c)]
        assert nearest(start[codes == c], own).max() < 1e-4
    x, _ = memory(learn(CaT(**{**SMALL, "condense_steps": 20}), small_graph))
    assert x.shape == start.shape
    for rows in hops:
        assert nearest(x, rows).min() > 1e-2


def test_a_class_that_comes_back_keeps_old_and_new(small_graph):
    graph = Data(x=small_graph.x, edge_index=small_graph.edge_index)
    zeros = (small_graph.y == 0).nonzero().squeeze(1)
    ones = (small_graph.y == 1).nonzero().squeeze(1)
    model = CaT(**SMALL, budget=8)
    model.fit(graph, torch.cat([zeros[:6], ones[:6]]), [0] * 6 + [1] * 6)
    before, _ = memory(model)
    model.partial_fit(graph, zeros[6:], [0] * len(zeros[6:]))
    x, codes = memory(model)
    assert codes.tolist().count(0) == codes.tolist().count(1) == 4
    old = (x[:, None] == before[None]).all(2).any(1)
    assert old[codes == 1].all()
    assert int(old[codes == 0].sum()) == 2


@pytest.mark.parametrize("budget", [1, 300])
def test_odd_sessions(small_graph, budget):
    graph = Data(x=small_graph.x, edge_index=small_graph.edge_index)
    names = np.array(["a", "b", "c", "d"])[small_graph.y]
    model = CaT(**SMALL, budget=budget)
    # two classes; one node of a new class; one of an old class; old and new together
    for nodes in ([0, 1, 4, 5], [2], [8], [9, 3, 7]):
        model.partial_fit(graph, nodes, names[nodes])
        x, codes = memory(model)
        assert len(x) == len(codes) <= budget
        assert torch.isfinite(x).all()
    assert model.classes_.tolist() == ["a", "b", "c", "d"]
    assert set(model.predict(graph)) <= set("abcd")
    if budget == 300:
        assert sorted(codes.tolist()) == [0, 0, 0, 1, 1, 1, 2, 3, 3]


def test_condensation_has_a_clock_of_its_own(small_graph, learn, tmp_path):
    stream = algnn.ClassStream(small_graph, base=2)
    model = learn(CaT(**SMALL), small_graph)
    seconds = model.selection_seconds_
    assert len(seconds) == 3
    assert min(seconds) > 0
    with pytest.raises(InputError):
        model.partial_fit(stream[0].graph, [], [])
    assert model.selection_seconds_ == seconds
    path = tmp_path / "model.safetensors"
    model.save(path)
    assert CaT.load(path).selection_seconds_ == ()
    model.fit(stream[0].graph, stream[0].nodes, stream[0].labels)
    assert len(model.selection_seconds_) == 1
