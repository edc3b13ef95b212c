from __future__ import annotations

from enum import Enum, IntEnum

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch

import algnn
from algnn.errors import InputError

EDGES = pd.DataFrame(
    {
        "payer": ["d", "a", "a", "b", "a"],
        "payee": ["c", "b", "b", "a", "c"],
        "euro": [1.0, 2, 3, 4, 0.5],
    }
)
NAMES = {"source": "payer", "target": "payee"}
DATES = pd.Categorical(pd.to_datetime(["2026-01-01"] * 4))
FEATURES = pd.DataFrame({"age": [1, 2, 3, 4], "debt": [0.5, 0.0, 1.5, 2.5]}, index=list("dbca"))


def edges_of(graph):
    """Weights by the names of both ends."""
    names = graph.node_names
    weights = graph.get("edge_weight")
    weights = [1.0] * graph.edge_index.size(1) if weights is None else weights.tolist()
    ends = ((names[a], names[b]) for a, b in graph.edge_index.t().tolist())
    return dict(zip(ends, weights, strict=True))


def both_ways(pairs):
    return pairs | {(b, a): w for (a, b), w in pairs.items()}


def test_names_become_ids_in_the_order_of_the_features():
    graph = algnn.from_pandas(EDGES, FEATURES, **NAMES)
    assert graph.node_names == list("dbca")
    assert torch.equal(graph.x, torch.tensor(FEATURES.to_numpy(), dtype=torch.float32))
    wanted = dict.fromkeys([("d", "c"), ("a", "b"), ("a", "c")], 1.0)
    assert edges_of(graph) == both_ways(wanted)
    assert "y" not in graph


def test_nodes_of_an_earlier_graph_keep_their_ids_and_features():
    before = algnn.from_pandas(EDGES, **NAMES)
    assert before.node_names == list("abcd")
    more = pd.DataFrame({"payer": ["Zoe", "e"], "payee": ["e", "Zoe"]})
    edges = pd.concat([more, EDGES])
    after = algnn.from_pandas(edges, labels=pd.Series({"0": 1}), nodes=before.node_names, **NAMES)
    assert after.node_names == [*"abcd", "0", "Zoe", "e"]
    torch.testing.assert_close(after.x[:4], before.x)  # there is no edge to the new ones
    assert edges_of(after).keys() == edges_of(algnn.from_pandas(edges, **NAMES)).keys()
    without = algnn.from_pandas(more, nodes=before.node_names, **NAMES)
    assert without.node_names == [*"abcd", "Zoe", "e"]  # though no edge names them any more
    assert algnn.from_pandas(EDGES, nodes=[], **NAMES).node_names == list("abcd")
    ints = pd.DataFrame({"payer": [5, 2], "payee": [2, 9]})
    assert algnn.from_pandas(ints, nodes=[9, 2], **NAMES).node_names == [9, 2, 5]
    large = 2**53
    mixed = pd.DataFrame({"payer": [large + 1, large], "payee": [2.5, 1.0]})
    names = algnn.from_pandas(mixed, **NAMES).node_names
    assert algnn.from_pandas(mixed, nodes=names, **NAMES).node_names == names
    for given in (np.array(["b", "a"]), pd.Index(["b", "a"]), ("b", "a")):
        found = algnn.from_pandas(EDGES, nodes=given, **NAMES).node_names
        assert found == list("bacd")
        assert {type(name) for name in found} == {str}


def test_weights_of_parallel_edges_add_up():
    directed = algnn.from_pandas(EDGES, weight="euro", directed=True, **NAMES)
    wanted = {("d", "c"): 1.0, ("a", "b"): 5.0, ("b", "a"): 4.0, ("a", "c"): 0.5}
    assert edges_of(directed) == wanted
    graph = algnn.from_pandas(EDGES, weight="euro", **NAMES)
    assert edges_of(graph) == both_ways({("d", "c"): 1.0, ("a", "b"): 9.0, ("a", "c"): 0.5})


@pytest.mark.parametrize(
    ("labels", "y", "names"),
    [
        ({"a": "owl", "c": "fox", "d": None}, [1, -1, 0, -1], ["fox", "owl"]),
        ({"a": 3, "b": 0, "c": np.nan}, [3, 0, -1, -1], None),
        ({"a": np.True_, "b": np.False_, "c": None}, [1, 0, -1, -1], None),
        ({"a": 3, "b": 0, "c": -1}, [3, 0, -1, -1], None),
        ({"a": "owl", "b": "fox", "c": "-1", "d": ""}, [1, 0, -1, -1], ["fox", "owl"]),
        ({"a": "owl", "b": "-1.0"}, [1, 0, -1, -1], ["-1.0", "owl"]),  # a name
    ],
)
def test_labels(labels, y, names):
    graph = algnn.from_pandas(EDGES, labels=pd.Series(labels), **NAMES)
    assert graph.y.tolist() == y
    assert graph.get("class_names") == names
    assert graph.provenance["features"].startswith("structural")
    assert int((graph.train_mask | graph.val_mask | graph.test_mask).sum()) == 2


@pytest.mark.parametrize("dtype", ["float32", "Float32"])
def test_floats_that_may_be_rounded_are_no_labels(dtype):
    day = pd.Series({"a": 20240101, "b": 20240103}, dtype=dtype)
    with pytest.raises(InputError, match="floats that are not whole, or"):
        algnn.from_pandas(EDGES, labels=day, **NAMES)
    assert algnn.from_pandas(EDGES, labels=day // 2, **NAMES).y.tolist()[:2] == [10120050, 10120052]


def test_floats_that_may_be_rounded_name_no_node():
    large = 1450000000000000000
    gap = pd.DataFrame({"payer": [large + 1, large + 3], "payee": [float(large + 2), 5.0]})
    days = pd.DataFrame({"payer": [20240101, 1], "payee": [20240102, 2]}, dtype="float32")
    for edges in (gap, days):
        with pytest.raises(InputError, match="may have rounded: read names as Int64"):
            algnn.from_pandas(edges, **NAMES)
    halves = pd.DataFrame({"payer": [0.5, 1.0], "payee": [1.0, 2.5]})
    assert algnn.from_pandas(halves, **NAMES).node_names == [0.5, 1.0, 2.5]


@pytest.mark.parametrize(
    ("kind", "y", "names"),
    [
        (Enum("Fraud", {"CARD": "card", "LOAN": "loan"}, type=str), [0, 1], ["card", "loan"]),
        (IntEnum("Level", {"LOW": 3, "HIGH": 5}), [3, 5], None),
    ],
)
def test_members_of_an_enum_are_their_values(kind, y, names):
    labels = dict(zip("ab", kind, strict=True))
    given = nx.Graph([("a", "b")])
    nx.set_node_attributes(given, labels, "kind")
    tables = algnn.from_pandas(EDGES, labels=pd.Series(labels), **NAMES)
    for graph in (algnn.from_networkx(given, y="kind"), tables):
        assert (graph.y[:2].tolist(), graph.get("class_names")) == (y, names)


def test_ints_stay_as_they_are():
    large = 2**53 + 1
    graph = algnn.from_pandas(EDGES, labels=pd.Series({"a": large, "b": 0}), **NAMES)
    assert graph.y.tolist() == [large, 0, -1, -1]


def test_large_ids_of_several_types_stay_apart():
    large = 2**53
    edges = pd.DataFrame(
        {"source": np.array([large + 1, large], "u8"), "target": np.array([1, 2], "i8")}
    )
    for labels in (None, pd.Series([0, 1], [2.0, 1.0])):
        graph = algnn.from_pandas(edges, labels=labels)
        assert graph.node_names == [1, 2, large, large + 1]
    assert graph.y.tolist() == [1, 0, -1, -1]
    features = pd.DataFrame({"age": range(4)}, [large, large + 1, 1, 2])
    graph = algnn.from_pandas(edges.astype({"target": float}), features, directed=True)
    assert graph.edge_index.tolist() == [[0, 1], [3, 2]]
    nodes = [2**60, 2**60 + 1, 0.5]
    graph = algnn.from_networkx(nx.DiGraph([nodes[:2], nodes[1:]]))
    assert (graph.node_names, graph.edge_index.tolist()) == (nodes, [[0, 1], [1, 2]])


def test_columns_of_features_may_have_one_name():
    twice = pd.concat([FEATURES, FEATURES[["age"]]], axis=1)
    graph = algnn.from_pandas(EDGES, twice, **NAMES)
    assert graph.x.tolist() == twice.to_numpy().tolist()


def test_a_graph_of_tables_is_learned_saved_and_loaded(tmp_path):
    generator = np.random.default_rng(0)
    kinds = np.repeat(["cat", "dog", "owl"], 20)
    ends = generator.integers(0, 60, (2, 300))
    same = kinds[ends[0]] == kinds[ends[1]]
    edges = pd.DataFrame({"source": ends[0][same], "target": ends[1][same]})
    features = pd.DataFrame(generator.normal(size=(60, 6)) + 3 * (kinds == "owl")[:, None])
    graph = algnn.from_pandas(edges, features, pd.Series(kinds))
    model = algnn.ALGNN()
    for session in algnn.ClassStream(graph, base=2):
        model.partial_fit(session.graph, session.nodes, session.labels)
    assert model.classes_.tolist() == [0, 1, 2]
    with pytest.raises(InputError, match="ids, which are rows"):
        model.predict(graph, ["rex"])
    algnn.save_npz(graph, tmp_path / "mine.npz")
    again = algnn.load(tmp_path / "mine.npz")
    assert again.provenance["sha256"] == graph.provenance["sha256"]
    assert again.class_names == ["cat", "dog", "owl"]


def test_lists_of_arrow_are_no_numbers():
    pyarrow = pytest.importorskip("pyarrow")
    kind = pd.ArrowDtype(pyarrow.list_(pyarrow.float64()))
    lists = pd.Series([[1.0]] * 4, FEATURES.index, dtype=kind)
    with pytest.raises(InputError, match=r"features\['age'\] holds list.* values: give numbers"):
        algnn.from_pandas(EDGES, FEATURES.assign(age=lists), **NAMES)


def test_networkx():
    given = nx.Graph()
    given.add_node(("x", 1), x=[1.0, 2.0], kind="fox")
    given.add_node("b", x=[3.0, 4.0])
    given.add_edge("b", ("x", 1), w=2.5)
    graph = algnn.from_networkx(given, x="x", y="kind", weight="w")
    assert graph.node_names == [("x", 1), "b"]
    assert graph.x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert (graph.y.tolist(), graph.class_names) == ([0, -1], ["fox"])
    assert (graph.edge_index.tolist(), graph.edge_weight.tolist()) == ([[0, 1], [1, 0]], [2.5, 2.5])
    directed = algnn.from_networkx(nx.DiGraph([(0, 1)]))
    assert directed.edge_index.tolist() == [[0], [1]]
    assert algnn.from_networkx(nx.empty_graph(2)).edge_index.shape == (2, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edges": EDGES.to_dict()}, "edges is a dict"),
        ({"edges": EDGES[:0]}, "edges is empty"),
        ({"source": "from"}, "no column 'from', it has payer, payee, euro"),
        ({"features": FEATURES[1:]}, r"edges\['payer'\] names 'd' in row 0"),
        ({"features": pd.concat([FEATURES, FEATURES[:1]])}, "'d' twice"),
        ({"features": FEATURES, "labels": pd.Series({"a": 0, "zz": -1})}, "labels names 'zz'"),
        ({"features": FEATURES.assign(age="old")}, r"features\['age'\] holds .*get_dummies"),
        ({"features": FEATURES.assign(age=["0012", "7", "1e3", "4"])}, "holds .* give numbers"),
        ({"features": FEATURES.assign(age=[b"1", 2, 3, 4])}, "holds object values: give numbers"),
        ({"features": FEATURES, "nodes": list("abcd")}, "both fix the order .* leave nodes out"),
        ({"nodes": list("aba")}, "nodes holds 'a' twice"),
        ({"nodes": [1, 2]}, "by numbers and by strings"),
        ({"nodes": "abcd"}, "nodes is a str: give the node_names"),
        ({"nodes": set("abcd")}, "nodes is a set: give the node_names"),
        ({"nodes": ["a", None]}, "nodes holds None: give the node_names"),
        ({"nodes": [["a"], "b"]}, r"nodes holds \['a'\]: give the node_names"),
        ({"features": FEATURES.assign(age=DATES)}, "give numbers"),
        ({"features": FEATURES.assign(age=pd.Timestamp(0))}, r"holds datetime.* values: give numb"),
        ({"features": FEATURES.assign(age=1j)}, "holds complex128 values: give numbers"),
        ({"features": FEATURES.assign(age=np.nan)}, r"features\['age'\] holds missing"),
        ({"features": FEATURES[[]]}, "x .* must be numbers of shape"),
        ({"labels": ["owl"]}, "labels is a list"),
        ({"labels": pd.Series({"z": "owl"}), "features": FEATURES}, "labels names 'z' in row 0"),
        ({"labels": pd.Series({"a": "owl", "b": 3})}, "labels mixes strings with 3: give only"),
        ({"labels": pd.Series({"a": 1.5})}, "floats that are not whole, or"),
        ({"labels": pd.Series({"a": -7})}, "y .* must hold integers"),
        ({"labels": pd.Series({"a": np.inf})}, "floats that are not whole, or"),
        ({"labels": pd.Series({"a": 1e300})}, "floats that are not whole, or"),
        ({"labels": pd.Series({"a": [1, 2], "b": [3, 4]})}, r"\[1, 2\] and the like: give only"),
        ({"labels": pd.Series({"a": [1, 2], "b": [3]})}, r"\[1, 2\] and the like: give only"),
        ({"labels": pd.Series({"a": 1j})}, "labels has type complex128: give ints or strings"),
        ({"labels": pd.Series({"a": "owl\0", "b": "owl"})}, "ends in NUL"),
        ({"labels": pd.Series({"a": 2**70})}, "labels holds ints beyond 64 bits"),
        ({"labels": pd.Series({"a": 2**63})}, "labels holds ints beyond 64 bits"),
        ({"labels": pd.Series({1: "owl"})}, "by numbers and by strings"),
        ({"edges": pd.concat([EDGES, EDGES[["payer"]]], axis=1)}, "'payer' more than once"),
        ({"features": FEATURES.set_index("age", append=True)}, "features has an index of 2 levels"),
        ({"labels": pd.Series([1], pd.MultiIndex.from_tuples([(1, 2)]))}, "labels has an index"),
        ({"seed": "x"}, "seed='x' must be a whole number"),
        ({"weight": "payee"}, r"edges\['payee'\] holds"),
        ({"edges": EDGES.assign(euro=-1.0), "weight": "euro"}, "edge_weight holds negative"),
    ],
)
def test_what_is_wrong_is_named(changes, message):
    with pytest.raises(InputError, match=message):
        algnn.from_pandas(**{"edges": EDGES, **NAMES, **changes})


@pytest.mark.parametrize(
    ("graph", "options", "message"),
    [
        ([(0, 1)], {}, "give a networkx.Graph"),
        (nx.path_graph(3), {"weight": "w"}, "weight='w' is no attribute of any edge"),
        (nx.Graph(), {}, "no nodes"),
        (nx.path_graph(2), {"x": "age"}, "node 0 has no attribute 'age'"),
        (nx.path_graph(2), {"x": []}, r"x=\[\] names no attribute"),
        (nx.path_graph(2), {"y": "kind"}, "no attribute of any node"),
        (nx.Graph([(0, 1, {"w": "much"})]), {"weight": "w"}, "weight='w' holds .*: give numbers"),
        (nx.path_graph(2), {"seed": -1}, "seed=-1 must be"),
    ],
)
def test_what_is_wrong_with_a_graph_of_networkx(graph, options, message):
    with pytest.raises(InputError, match=message):
        algnn.from_networkx(graph, **options)
