import dataclasses
import hashlib
import os
import tracemalloc

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.utils import is_undirected

import algnn
from algnn import methods
from algnn.baselines.training import Bare
from algnn.errors import InputError
from algnn.graph import propagate
from algnn.graph.datasets import available, datasets, load_entry
from algnn.graph.synthetic import communities

MASKS = ("train_mask", "val_mask", "test_mask")
KEYS = ("x", "edge_index", "y", *MASKS)
SIZES = {"nodes": 2000, "edges": 30_000, "features": 64, "classes": 8}
ENTRY = next(entry for entry in datasets() if entry.name == "reddit-synthetic")


@pytest.fixture(scope="module")
def graph():
    return communities(**SIZES)


@pytest.fixture(scope="module")
def large():
    """As many classes as Reddit, and enough nodes to see how sizes and degrees are spread."""
    return communities(nodes=40_000, edges=400_000, features=2, classes=41)


def same(a, b):
    return all(torch.equal(a[key], b[key]) for key in KEYS)


def degrees(graph):
    return torch.bincount(graph.edge_index[0], minlength=graph.num_nodes)


def homophily(graph, y=None):
    y = graph.y if y is None else y
    return float((y[graph.edge_index[0]] == y[graph.edge_index[1]]).double().mean())


def check(graph, nodes, edges, features, classes):
    """What holds for sizes of any kind."""
    assert graph.x.shape == (nodes, features)
    assert graph.x.dtype == torch.float32
    assert bool(torch.isfinite(graph.x).all())
    assert graph.edge_index.shape == (2, 2 * edges)
    assert graph.edge_index.dtype == graph.y.dtype == torch.int64
    source, target = graph.edge_index
    assert 0 <= int(source.min()) <= int(source.max()) < nodes
    # ascending pairs: none is there twice
    assert bool(((source * nodes + target).diff() > 0).all())
    assert bool((source != target).all())
    assert is_undirected(graph.edge_index, num_nodes=nodes)
    masks = torch.stack([graph[key] for key in MASKS])
    assert bool((masks.sum(dim=0) == 1).all())
    for mask in masks:
        assert torch.unique(graph.y[mask]).tolist() == list(range(classes))
    assert torch.unique(graph.y).tolist() == list(range(classes))


def test_shape(graph, large):
    check(graph, **SIZES)
    check(large, nodes=40_000, edges=400_000, features=2, classes=41)
    assert not graph.has_self_loops()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_graphs_of_any_size(data):
    classes = data.draw(st.integers(2, 9))
    nodes = data.draw(st.integers(10 * classes, 150))
    sizes = {
        "nodes": nodes,
        # from nearly none to nearly half of all pairs
        "edges": data.draw(st.integers(1, nodes * (nodes - 1) // 4)),
        "features": data.draw(st.integers(1, 5)),
        "classes": classes,
    }
    try:
        graph = communities(
            **sizes,
            seed=data.draw(st.integers(0, 2**63 - 1)),
            inside=data.draw(st.floats(0, 1, exclude_max=True)),
            strangers=data.draw(st.floats(0, 1, exclude_max=True)),
        )
    except InputError as error:
        assert "would lie between communities" in str(error)  # noqa: PT017
        return
    check(graph, **sizes)


def test_as_full_as_can_be():
    assert torch.bincount(communities(60, 1, 1, 2).y).tolist() == [10, 50]
    # half of the pairs inside the one, the other, and between them
    most = 10 * 9 // 4 + 50 * 49 // 4 + 10 * 50 // 2
    check(communities(60, most, 1, 2), 60, most, 1, 2)
    with pytest.raises(InputError, match=r"edges=885 is too many for nodes=60: 251 .* 250 fit"):
        communities(60, most + 1, 1, 2)
    # more than half of all pairs
    with pytest.raises(InputError, match="edges=1800 is too many for nodes=60"):
        communities(60, 1800, 1, 2)


# -- the same every time --------------------------------------------------------------------------


def test_a_seed_gives_one_graph(graph):
    before = torch.random.get_rng_state()
    assert same(communities(**SIZES, seed=0), graph)
    assert torch.equal(torch.random.get_rng_state(), before)
    for seed in (1, 2**63 - 1):
        other = communities(**SIZES, seed=seed)
        assert not any(torch.equal(other[key], graph[key]) for key in KEYS)


def test_a_seed_gives_the_same_graph_on_every_machine():
    graph = communities(nodes=700, edges=5000, features=7, classes=5)
    content = b"".join(graph[key].numpy().tobytes() for key in KEYS)
    assert hashlib.sha256(content).hexdigest()[:16] == "663fe4d1ffc70add"


def test_blocks_do_not_change_the_graph(monkeypatch):
    sizes = {"nodes": 300, "edges": 2000, "features": 5, "classes": 4}
    whole = communities(**sizes)
    for size in (1, 1000):
        monkeypatch.setattr(propagate, "BLOCK_BYTES", size)
        assert same(communities(**sizes), whole)


# -- what is planted ------------------------------------------------------------------------------


def test_classes_are_uneven_and_split_alike(large):
    sizes = torch.bincount(large.y)
    assert 20 < int(sizes.max()) / int(sizes.min()) < 45
    # a long tail: most classes are smaller than the mean
    assert int((sizes < sizes.double().mean()).sum()) > 41 / 2
    assert sizes.tolist() != sorted(sizes.tolist())
    assert sizes.tolist() != sorted(sizes.tolist(), reverse=True)
    for key, share in zip(MASKS, (0.66, 0.10, 0.24), strict=True):
        part = torch.bincount(large.y[large[key]], minlength=41)
        assert bool(((part - share * sizes).abs() <= 1).all())


def test_node_ids_say_nothing(large):
    by_chance = float((torch.bincount(large.y) / 40_000).square().sum())
    neighbours = float((large.y[1:] == large.y[:-1]).double().mean())
    assert neighbours == pytest.approx(by_chance, abs=0.01)
    assert float(large.train_mask[:20_000].double().mean()) == pytest.approx(0.66, abs=0.01)
    half = degrees(large)[:20_000].sum() / 800_000
    assert float(half) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("inside", [0.3, 0.9])
def test_edges_lie_inside_communities(inside):
    sizes = SIZES | {"edges": 10_000}  # room for all of them in the smallest community, too
    plain = communities(**sizes, inside=inside, strangers=0)
    assert homophily(plain) == pytest.approx(inside, abs=1e-9)
    mixed = communities(**sizes, inside=inside, strangers=0.1)
    assert inside * 0.81 < homophily(mixed) < inside * 0.81 + 0.1


def test_what_does_not_fit_into_a_community_goes_between(graph, large):
    crowded = communities(**SIZES, inside=0.999, strangers=0)
    check(crowded, **SIZES)
    assert 0.9 < homophily(crowded) < 0.99
    # and with the defaults
    assert 0.7 < homophily(large) < homophily(graph) < 0.8


def test_every_community_has_its_part_of_the_edges():
    graph = communities(nodes=2000, edges=20_000, features=1, classes=5, strangers=0)
    sizes, degree = torch.bincount(graph.y), degrees(graph).double()
    mean = torch.zeros(5, dtype=torch.double).index_add_(0, graph.y, degree) / sizes
    assert bool(((mean - 20).abs() < 2).all())


def test_degrees_have_a_heavy_tail(large):
    degree = degrees(large).sort(descending=True).values.double()
    # ∝ r^(-1/2): the first hundredth of the nodes has a tenth of the ends; 1.8 % in a random graph
    assert float(degree[:400].sum() / degree.sum()) == pytest.approx(0.1, abs=0.02)
    assert degree[0] > 20 * degree.median()
    for r in (100, 400, 1600):
        assert float(degree[r] / degree[4 * r]) == pytest.approx(2, abs=0.3)


def test_strangers_have_other_labels_and_nothing_else(graph):
    plain = communities(**SIZES, strangers=0)
    assert torch.equal(plain.x, graph.x)
    assert torch.equal(plain.edge_index, graph.edge_index)
    assert torch.equal(torch.bincount(plain.y), torch.bincount(graph.y))
    # some of the two hundred get back a label of their own kind
    assert 130 < int((plain.y != graph.y).sum()) < 200
    assert 1100 < int((communities(**SIZES, strangers=0.999).y != plain.y).sum()) < 1998


def test_features_are_a_mean_and_noise():
    sizes = SIZES | {"nodes": 10_000, "classes": 2}
    graph = communities(**sizes, strangers=0)
    means = torch.stack([graph.x[graph.y == c].mean(dim=0) for c in range(2)])
    noise = graph.x - means[graph.y]
    assert float(noise.abs().max()) < 1.2
    assert float(noise.std()) == pytest.approx(3**-0.5, abs=0.01)
    assert float(noise.mean()) == pytest.approx(0, abs=0.01)
    # two uniform means of range ±2/√d, d features: the squared distance is near 8/3
    assert 1.5 < float((means[0] - means[1]).square().sum()) < 4
    # no two features or nodes share their noise
    assert float(torch.corrcoef(noise.T).fill_diagonal_(0).abs().max()) < 0.1
    assert torch.unique(graph.x, dim=0).size(0) == 10_000


def test_a_learner_learns_something_but_not_everything(graph):
    model = Bare(hidden=32, epochs=30, lr=0.02, device="cpu")
    model.fit(graph, graph.train_mask, graph.y[graph.train_mask])
    right = model.predict(graph, graph.test_mask) == graph.y[graph.test_mask].numpy()
    most_common = float(torch.bincount(graph.y).max() / 2000)
    assert most_common + 0.2 < right.mean() < 0.97


# -- memory, names and errors ---------------------------------------------------------------------


@pytest.mark.parametrize(
    # with one feature, one community has nearly all of the edges and there is little else
    ("features", "classes", "most"),
    [(160, 20, 1.25), (1, 2, 2.0)],
)
def test_memory_is_that_of_the_graph_and_a_few_blocks(monkeypatch, features, classes, most):
    monkeypatch.setattr(propagate, "BLOCK_BYTES", 2**20)
    communities(100, 100, 2, 2)  # what is imported or cached once
    tracemalloc.start()
    try:
        graph = communities(nodes=25_000, edges=500_000, features=features, classes=classes)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    finished = sum(graph[key].nbytes for key in KEYS)
    assert finished < peak < most * finished


def test_loaded_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("ALGNN_DATA", raising=False)
    assert available("reddit-synthetic")
    assert available("Reddit-Synthetic", tmp_path)
    sizes = {"nodes": 700, "edges": 5000, "features": 7, "classes": 5}
    graph = load_entry(dataclasses.replace(ENTRY, **sizes), seed=7)
    assert same(graph, communities(**sizes))
    expected = {
        "name": "reddit-synthetic",
        "source": "synthetic, seed 0",
        "split": "66/10/24 of each class",
        "edges": 5000,
        "directed": False,
    }
    assert {key: graph.provenance[key] for key in expected} == expected
    assert os.listdir(tmp_path) == []


def test_the_table_has_the_papers_sizes_and_a_warning():
    sizes = (ENTRY.nodes, ENTRY.edges, ENTRY.features, ENTRY.classes)
    assert sizes == (232_965, 11_606_919, 602, 41)
    assert "synthetic" in ENTRY.description
    assert "for time and memory only; its accuracy means nothing" in ENTRY.description


def test_reddits_settings_apply():
    for name in methods.METHODS:
        assert methods.settings(name, "reddit-synthetic") == methods.settings(name, "reddit")
    paper = algnn.ALGNN.paper("reddit-synthetic")
    assert (paper.width, paper.epochs) == (1024, 20)
