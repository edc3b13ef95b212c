"""Inputs of every make: a right answer, or a named error and a learner as it was.

A thousand of them, others in each run; ``ALGNN_FUZZ=10000`` (or ``make stress``) for more.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
from collections import deque
from enum import Enum, IntEnum
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import ToSparseTensor

import algnn
from algnn.cli import main
from algnn.errors import AlgnnError

COUNT = 24
RING = torch.arange(COUNT)
EDGES = torch.stack([torch.cat([RING, (RING + 3) % COUNT]), torch.cat([(RING + 3) % COUNT, RING])])
GRAPH = Data(x=torch.eye(COUNT, 6) + 0.1 * torch.sin(RING)[:, None], edge_index=EDGES, y=RING % 3)
SMALL = {"width": 48, "head": "ridge", "gamma": 0.1, "device": "cpu"}


# -- what stands for the same nodes, labels and graph, and what stands for none ------------------

GOOD_NODES = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "int32": lambda ids: np.array(ids, dtype=np.int32),
    "big-endian": lambda ids: np.array(ids, dtype=">i8"),
    "tensor": torch.tensor,
    "int16 tensor": lambda ids: torch.tensor(ids, dtype=torch.int16),
    "series": pd.Series,
    "strided": lambda ids: np.repeat(ids, 2)[::2],
    "scalars": lambda ids: [np.int64(i) for i in ids],
}
BAD_NODES = {
    "floats": lambda ids: [i + 0.5 for i in ids],
    "whole floats": lambda ids: np.array(ids, dtype=float),
    "words": lambda ids: [str(i) for i in ids],
    "table": lambda ids: [ids],
    "one too many": lambda ids: [*ids, COUNT],
    "negative": lambda ids: [*ids, -1],
    "huge": lambda ids: [*ids, 2**64],
    "none": lambda ids: [*ids, None],
    "nothing": lambda ids: [],
    "byte mask": lambda ids: torch.zeros(COUNT, dtype=torch.uint8).scatter(0, torch.tensor(ids), 1),
    "int mask": lambda ids: np.isin(np.arange(COUNT), ids).astype(int),
    "short mask": lambda ids: np.ones(COUNT - 1, dtype=bool),
    "complex": lambda ids: np.array(ids, dtype=complex),
    "dict": lambda ids: dict.fromkeys(ids),
    "graph": lambda ids: GRAPH,
}
GOOD_LABELS = {
    "list": list,
    "array": np.array,
    "tensor": torch.tensor,
    "bytes": lambda c: np.array(c, dtype=np.uint8),
    "whole floats": lambda c: np.array(c, dtype=float),
    "float32 tensor": lambda c: torch.tensor(c, dtype=torch.float32),
    "objects": lambda c: np.array(c, dtype=object),
    "nullable": lambda c: pd.Series(c, dtype="Int64"),
    "scalars": lambda c: [np.int8(i) for i in c],
}
BAD_LABELS = {
    "words": lambda c: [str(i) for i in c],
    "no label": lambda c: [*c[:-1], -1],
    "none": lambda c: [*c[:-1], None],
    "nan": lambda c: np.array([*c[:-1], np.nan]),
    "gap": lambda c: pd.Series([*c[:-1], None], dtype="Int64"),
    "empty": lambda c: [*c[:-1], ""],
    "halves": lambda c: [i + 0.5 for i in c],
    "mixed": lambda c: [*c, "a"][1:],
    "too many": lambda c: [*c, 0],
    "too few": lambda c: c[:-1],
    "table": lambda c: [c],
    "infinite": lambda c: np.array([*c[:-1], np.inf]),
    "missing": lambda c: None,
    "objects": lambda c: [object() for _ in c],
    "dates": lambda c: np.array(["2026-01-01"] * len(c), dtype="M8[D]"),
    "complex": lambda c: np.array(c, dtype=complex),
}


def changed(**parts):
    return Data(**{"x": GRAPH.x, "edge_index": GRAPH.edge_index, **parts})


PACKED = ToSparseTensor()(changed())
GOOD_GRAPHS = {
    "plain": changed(),
    "with labels": GRAPH,
    "double": changed(x=GRAPH.x.double()),
    "strided": changed(x=GRAPH.x.repeat(1, 2)[:, :6]),
    "packed": PACKED,
    "one kind": changed(edge_type=torch.zeros(GRAPH.num_edges), node_type=torch.ones(COUNT)),
    "ones as weights": changed(edge_weight=torch.ones(GRAPH.num_edges)),
}
BAD_GRAPHS = {
    "none": None,
    "array": GRAPH.x.numpy(),
    "hetero": HeteroData(),
    "empty": Data(),
    "no edges": Data(x=GRAPH.x),
    "no features": Data(edge_index=GRAPH.edge_index),
    "nan": changed(x=GRAPH.x.clone().fill_diagonal_(torch.nan)),
    "narrow": changed(x=GRAPH.x[:, :3]),
    "complex": changed(x=GRAPH.x + 0j),
    "turned": changed(edge_index=GRAPH.edge_index.t().contiguous()),
    "floats": changed(edge_index=GRAPH.edge_index.float()),
    "beyond": changed(edge_index=GRAPH.edge_index + 1),
    "attributes": changed(edge_attr=torch.ones(GRAPH.num_edges, 2)),
    "kinds of edges": changed(edge_type=torch.arange(GRAPH.num_edges) % 2),
    "kinds of nodes": changed(node_type=RING % 2),
    "kinds in a list": changed(node_type=["user", "item"] * (COUNT // 2)),
    "weights": changed(edge_weight=-torch.ones(GRAPH.num_edges)),
    "dense": Data(x=GRAPH.x, adj_t=torch.eye(COUNT)),
}


def some(good, bad):
    """A way to give something, and whether it is right: mostly so."""
    right = st.sampled_from(sorted(good)).map(lambda name: (good[name], True))
    return st.one_of(right, right, st.sampled_from(sorted(bad)).map(lambda n: (bad[n], False)))


CASES = st.tuples(
    st.sampled_from(["learn", "again", "forget", "relabel", "predict", "novelty", "score"]),
    st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=4, unique=True),
    st.lists(st.integers(0, 4), min_size=4, max_size=4),
    some(GOOD_GRAPHS, BAD_GRAPHS),
    some(GOOD_NODES, BAD_NODES),
    some(GOOD_LABELS, BAD_LABELS),
)
# without looking for the smallest case, which would take minutes
QUICK = {"suppress_health_check": list(HealthCheck), "phases": [Phase.generate]}
INPUTS = int(os.environ.get("ALGNN_FUZZ", "1000"))
BATCH, COMMANDS = 25, INPUTS // 50


@settings(max_examples=(INPUTS - COMMANDS) // BATCH, **QUICK)
@given(cases=st.lists(CASES, min_size=BATCH, max_size=BATCH))
def test_the_python_api(cases):
    model = algnn.ALGNN(**SMALL).fit(GRAPH, range(12), GRAPH.y[:12])
    held = dict(enumerate(GRAPH.y[:12].tolist()))
    for what, ids, codes, (graph, sound), (as_nodes, exact), (as_labels, known) in cases:
        codes = [held.get(n, c) if what in ("forget", "again") else c for n, c in zip(ids, codes)]  # noqa: B905
        asked = what in ("predict", "novelty")
        before = model._learned
        try:
            nodes, labels = as_nodes(ids), as_labels(codes)
            if what in ("learn", "again"):
                model.partial_fit(
                    graph, nodes, labels, repeat="error" if what == "learn" else "ignore"
                )
            elif what == "forget":
                model.forget(graph, nodes, labels)
            elif what == "relabel":
                model.relabel(graph, nodes, None, labels)
            elif what == "score":
                assert 0 <= model.score(graph, nodes, labels) <= 1
            else:
                found = getattr(model, what)(graph, nodes)
        except AlgnnError as error:
            assert model._learned is before
            assert "\n" not in str(error)  # noqa: PT017
            assert len(str(error)) < 600  # noqa: PT017
            continue
        # nothing that is wrong was taken, but what has no nodes can be asked about
        assert sound
        assert exact or (asked and len(nodes) == 0)
        assert known or asked
        if asked:
            expected = getattr(model, what)(GRAPH, ids if exact else [])
            assert np.array_equal(found, expected) or np.allclose(found, expected)
        for node, label in zip(ids, codes, strict=True):
            if what in ("learn", "again", "relabel"):
                assert (node in held) == (what == "relabel") or held[node] == label
                held[node] = label
            elif what == "forget":
                assert held.pop(node) == label
    if held:
        expected = model.blank().partial_fit(GRAPH, list(held), list(held.values()))
        assert model.classes_.tolist() == expected.classes_.tolist()
        assert torch.equal(model.statistics_.n, expected.statistics_.n)
        error = float((model.weights_ - expected.weights_).norm())
        assert error <= 1e-6 * float(expected.weights_.norm())


# -- the shell ------------------------------------------------------------------------------------

CELLS = st.one_of(
    st.integers(0, COUNT - 1).map(str),
    st.integers(0, COUNT - 1).map(str),
    st.sampled_from(["", "-1", "3.0", "a", "007", " 2 ", "1e3", "nan", '"', "\x00", "٣", "9" * 30]),
)
TABLES = st.tuples(
    st.sampled_from(["node,label"] * 9 + ["node", "label,node", "", "node;label"]),
    st.lists(st.tuples(CELLS, CELLS), max_size=4),
)


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("desk")
    algnn.save_npz(GRAPH, folder / "graph.npz")
    algnn.ALGNN(**SMALL).fit(GRAPH, range(12), GRAPH.y[:12]).save(folder / "whole.safetensors")
    return folder


@settings(max_examples=COMMANDS, **QUICK)
@given(command=st.sampled_from(["learn", "forget", "relabel", "predict"]), table=TABLES)
def test_the_shell(desk, command, table):
    path, labels = desk / "m.safetensors", desk / "labels.csv"
    shutil.copy(desk / "whole.safetensors", path)
    header, rows = table
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    labels.write_text(f"{header}\n{text.getvalue()}", encoding="utf-8")
    arguments = [command, str(path), str(desk / "graph.npz")]
    arguments += ["--nodes", str(labels)] if command == "predict" else [str(labels)]
    before = path.read_bytes()
    code = main(arguments)
    assert code in (0, 2)
    if code == 2 or command == "predict":
        assert path.read_bytes() == before
    else:
        found = algnn.ALGNN.load(path)
        node, label = (1, 0) if header == "label,node" else (0, 1)
        named = {int(row[node]) for row in rows if row[label].strip() not in ("", "-1")}
        change = {"learn": len(named), "forget": -len(named), "relabel": 0}[command]
        assert int(found.statistics_.n.sum()) == 12 + change
    assert not list(Path(desk).glob(".*"))


class Fraud(str, Enum):  # noqa: UP042, which StrEnum is not: its str() is Fraud.CARD
    CARD = "card"
    LOAN = "loan"


Level = IntEnum("Level", ["LOW", "HIGH"])
OBJECTS = partial(np.array, dtype=object)


@pytest.mark.parametrize("as_labels", [list, deque, OBJECTS, pd.Series, pd.Categorical])
def test_members_of_an_enum_are_their_values(as_labels):
    kinds, levels = ([list(kind)[i % 2] for i in range(COUNT)] for kind in (Fraud, Level))
    values = [kind.value for kind in kinds]
    model = algnn.ALGNN(**SMALL).fit(GRAPH, RING[:12], as_labels(kinds[:12]))
    model.partial_fit(GRAPH, RING[12:], as_labels(kinds[12:]))
    assert list(map(repr, model.classes_.tolist())) == ["'card'", "'loan'"]
    assert model.score(GRAPH, RING, as_labels(kinds)) == model.score(GRAPH, RING, values)
    assert model.explain(GRAPH, 0, Fraud.LOAN).label == "loan"
    assert model.forget(GRAPH, [0], as_labels(kinds[:1])).statistics_.n.tolist() == [11, 12]
    assert algnn.ALGNN(**SMALL).fit(GRAPH, RING, as_labels(levels)).classes_.tolist() == [1, 2]


def test_names_of_classes_may_be_members_of_an_enum(tmp_path):
    algnn.save_npz(changed(y=RING % 2, class_names=list(Fraud)), tmp_path / "named.npz")
    assert algnn.load(tmp_path / "named.npz").class_names == ["card", "loan"]


def test_an_empty_selection_of_every_library():
    model = algnn.ALGNN(**SMALL).fit(GRAPH, RING, GRAPH.y)
    for nothing in ([], pd.Index([]), pd.Series([], dtype=object)):
        assert model.predict(GRAPH, nothing).shape == (0,)
        with pytest.raises(AlgnnError, match="nodes is empty: a session needs"):
            model.fit(GRAPH, nothing, [])


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="NumPy 1 has none")
def test_strings_of_numpy_2():
    labels = np.array(["a", "long name", "b"])[RING % 3].astype(np.dtypes.StringDType())
    model = algnn.ALGNN(**SMALL).fit(GRAPH, RING, labels)
    assert model.classes_.tolist() == ["a", "b", "long name"]
    labels[4] = ""
    with pytest.raises(AlgnnError, match="at place 4"):
        model.fit(GRAPH, RING, labels)
