import gc
import types

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from algnn.errors import InputError
from algnn.graph.propagate import to_csr
from algnn.graph.stream import ClassStream


def graph_of(labels: list[int], seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    y = torch.tensor(labels)
    train = torch.ones(len(labels), dtype=torch.bool)
    return Data(
        x=torch.randn(len(labels), 3, generator=generator),
        edge_index=torch.randint(0, len(labels), (2, 4 * len(labels)), generator=generator),
        y=y,
        train_mask=train,
        val_mask=~train,
        test_mask=~train,
    )


class_counts = st.integers(2, 12)


@given(class_counts, st.data(), st.integers(1, 13), st.sampled_from(["label", "random"]))
def test_every_class_comes_in_exactly_one_session(count, data, step, order):
    base = data.draw(st.none() | st.integers(1, count))
    stream = ClassStream(graph_of(list(range(count)) * 2), base, step, order, seed=3)
    assert sorted(c for members in stream.classes for c in members) == list(range(count))
    assert len(stream.classes[0]) == (-(-count // 2) if base is None else base)
    assert all(len(members) == step for members in stream.classes[1:-1])
    assert len(stream.classes) == 1 or len(stream.classes[-1]) <= step
    if order == "label":
        assert [c for members in stream.classes for c in members] == list(range(count))


@pytest.mark.parametrize(
    ("classes", "step", "sessions"), [(7, 1, 4), (6, 1, 4), (70, 1, 36), (40, 1, 21), (70, 10, 5)]
)
def test_the_papers_streams(classes, step, sessions):
    assert len(ClassStream(graph_of(list(range(classes))), step=step)) == sessions


@pytest.mark.parametrize("edges", ["full", "seen"])
def test_sessions_hold_their_own_training_nodes_and_labels(small_graph, edges):
    stream = ClassStream(small_graph, base=2, edges=edges, order=[3, 1, 0, 2])
    for session in stream:
        original = stream.original_ids(session.nodes)
        assert set(session.labels.tolist()) == set(session.classes)
        assert torch.equal(small_graph.y[original], session.labels)
        assert bool(small_graph.train_mask[original].all())
        expected = small_graph.train_mask & torch.isin(small_graph.y, torch.tensor(session.classes))
        assert session.nodes.numel() == int(expected.sum())
        assert torch.equal(session.graph.x[session.nodes], small_graph.x[original])


def reachable(root):
    """Every object one can get to from `root`, but through modules, classes and functions."""
    seen, queue = {}, [root]
    while queue:
        item = queue.pop()
        if id(item) in seen or isinstance(item, type | types.ModuleType | types.FunctionType):
            continue
        seen[id(item)] = item
        queue.extend(gc.get_referents(item))
        if isinstance(item, torch.Tensor):
            queue.extend(t for t in (item._base, item.grad) if t is not None)
    return list(seen.values())


@pytest.mark.parametrize("edges", ["full", "seen"])
def test_a_session_leads_to_no_label_but_its_own(edges):
    # labels that cannot be mistaken for anything else
    graph = graph_of([7_000_001, 7_000_002, 7_000_003] * 5)
    stream = ClassStream(graph, base=2, edges=edges)
    session = stream[0]
    found = reachable(session)
    assert stream not in found
    assert not any(item is graph for item in found)
    values = set()
    for item in found:
        if isinstance(item, torch.Tensor):
            # the whole storage, not only the part that the tensor shows
            storage = torch.tensor([], dtype=item.dtype).set_(item.untyped_storage())
            values |= set(storage.double().tolist())
        elif isinstance(item, int):
            values.add(float(item))
    assert {7_000_001.0, 7_000_002.0} <= values
    assert 7_000_003.0 not in values
    assert session.labels.untyped_storage().nbytes() == session.labels.nbytes


def test_the_graph_of_a_session_holds_features_and_edges_only(small_graph):
    for edges in ("full", "seen"):
        for session in ClassStream(small_graph, edges=edges):
            assert sorted(session.graph.keys()) == ["edge_index", "x"]


def test_one_graph_serves_every_session_of_a_full_stream(small_graph):
    stream = ClassStream(small_graph)
    assert all(session.graph.x is small_graph.x for session in stream)
    # tensors are shared; the object around them is each session's own
    stream[0].graph.note = "a learner's"
    assert "note" not in stream[1].graph


def test_a_seen_graph_grows_and_nodes_keep_their_ids(small_graph):
    stream = ClassStream(small_graph, base=2, edges="seen", order=[3, 1, 0, 2])
    sizes = [session.graph.num_nodes for session in stream]
    assert sizes == [30, 45, 60]
    first, last = stream[0].graph, stream[2].graph
    assert torch.equal(last.x[: first.num_nodes], first.x)

    def original_edges(index):
        return {tuple(e) for e in stream.original_ids(stream.graph(index).edge_index).T.tolist()}

    everything = {tuple(e) for e in small_graph.edge_index.T.tolist()}
    assert original_edges(2) == everything
    exists = set(stream.original_ids(torch.arange(30)).tolist())
    assert original_edges(0) == {e for e in everything if set(e) <= exists}
    assert {int(small_graph.y[i]) for i in exists} == {3, 1}


def test_test_nodes_of_a_session_exist_in_its_graph(small_graph):
    stream = ClassStream(small_graph, edges="seen")
    for index in range(len(stream)):
        nodes, labels = stream.nodes("test", index)
        assert nodes.numel() > 0
        assert int(nodes.max()) < stream.graph(index).num_nodes
        assert torch.equal(small_graph.y[stream.original_ids(nodes)], labels)


def test_nodes_without_a_label_are_there_from_the_start_and_never_handed_out():
    stream = ClassStream(graph_of([0, 1, -1, 2, -1, 0]), base=2, edges="seen")
    assert stream[0].graph.num_nodes == 5
    assert stream[0].nodes.numel() == 3
    assert stream[1].graph.num_nodes == 6
    assert sorted(stream.original_ids(torch.arange(5)).tolist()) == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("edges", [[[0, 1], [1, 0]], [[], []]])
def test_the_last_nodes_of_a_seen_graph_may_have_no_edge(edges):
    graph = graph_of([0, 1, 2])
    graph.edge_index = torch.tensor(edges, dtype=torch.int64)
    stream = ClassStream(graph, base=1, edges="seen")
    assert [session.graph.num_nodes for session in stream] == [1, 2, 3]
    assert stream.graph(2).edge_index.equal(graph.edge_index)


def test_class_ids_may_be_any_numbers():
    stream = ClassStream(graph_of([5, 10**12, 7, 5]), base=2)
    assert stream.classes == [(5, 7), (10**12,)]
    assert stream[1].labels.tolist() == [10**12]


def test_a_random_order_follows_its_seed(make_graph):
    graph = make_graph(classes=8)
    orders = [tuple(ClassStream(graph, order="random", seed=seed).order) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"base": 0}, "base=0"),
        ({"base": 5}, "below 5"),
        ({"base": 1.5}, "base=1.5"),
        ({"step": 0}, "step=0"),
        ({"step": "1"}, "step='1'"),
        ({"order": "alphabetical"}, "'label', 'random'"),
        ({"order": [0, 1, 2]}, "exactly once"),
        ({"order": ["a", "b", "c", "d"]}, "exactly once"),
        ({"order": [0.0, 1.5, 2.0, 3.0]}, "exactly once"),
        ({"order": None}, "exactly once"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": "a"}, "seed='a'"),
        ({"order": [0, 1, 2, 2]}, "exactly once"),
        ({"edges": "some"}, "one of full, seen"),
    ],
)
def test_bad_arguments_are_named(small_graph, arguments, words):
    with pytest.raises(InputError, match=words):
        ClassStream(small_graph, **arguments)


def test_graphs_that_cannot_be_streamed_are_refused(small_graph):
    with pytest.raises(InputError, match="test_mask"):
        ClassStream(Data(**{k: v for k, v in small_graph.to_dict().items() if k != "test_mask"}))
    one_class = small_graph.clone()
    one_class.y = torch.zeros_like(one_class.y)
    with pytest.raises(InputError, match="at least 2"):
        ClassStream(one_class)
    unlearnable = small_graph.clone()
    unlearnable.train_mask = unlearnable.train_mask & (unlearnable.y != 2)
    with pytest.raises(InputError, match="no node of class 2"):
        ClassStream(unlearnable)
    wide = small_graph.clone()
    wide.y = wide.y[:, None]
    for kind in (torch.float32, torch.complex64):
        unfit = small_graph.clone()
        unfit.y = unfit.y.to(kind)
        with pytest.raises(InputError, match=r"graph\.y has shape .* and type torch\."):
            ClassStream(unfit)
    with pytest.raises(InputError, match=r"graph\.y has shape"):
        ClassStream(wide)
    for mask in (small_graph.train_mask[:5], small_graph.train_mask.long(), None):
        masked = small_graph.clone()
        masked.train_mask = mask
        with pytest.raises(InputError, match="train_mask"):
            ClassStream(masked)
    outside = small_graph.clone()
    outside.edge_index = outside.edge_index + 30
    with pytest.raises(InputError, match="names nodes from"):
        ClassStream(outside, edges="seen")
    with pytest.raises(InputError, match="graph is a str"):
        ClassStream("digits")
    with pytest.raises(InputError, match="one of"):
        ClassStream(small_graph).nodes("training", 0)
    stream = ClassStream(small_graph)
    for at in (lambda i: stream[i], stream.graph, lambda i: stream.nodes("test", i)):
        with pytest.raises(IndexError, match="session 9 of a stream of"):
            at(9)


def test_sessions_may_be_counted_from_the_end(small_graph):
    stream = ClassStream(small_graph, edges="seen")
    last = len(stream) - 1
    assert torch.equal(stream.graph(-1).x, stream.graph(last).x)
    for one, other in zip(stream.nodes("test", -1), stream.nodes("test", last), strict=True):
        assert one.numel()
        assert torch.equal(one, other)


def test_weights_and_sparse_features_stay_with_their_nodes(small_graph):
    small_graph.edge_weight = torch.arange(small_graph.edge_index.size(1)).float()
    plain = ClassStream(small_graph, edges="seen").graph(0)
    dense = small_graph.x
    for x in (to_csr(dense), dense.to_sparse()):
        small_graph.x = x
        found = ClassStream(small_graph, edges="seen").graph(0)
        assert found.x.to_dense().equal(plain.x)
        assert found.edge_weight.equal(plain.edge_weight)
        assert found.edge_weight.numel() == found.edge_index.size(1)
        assert ClassStream(small_graph).graph(0).edge_weight is small_graph.edge_weight
