"""The file format of users' own graphs: what is read, what is written, and what is refused."""

import contextlib
import json
import pickle
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from algnn.errors import DatasetError, InputError
from algnn.graph.datasets import available, load, load_inputs, structural_features
from algnn.graph.npz import read_npz, save_npz

MASKS = ("train_mask", "val_mask", "test_mask")


def sizes(graph):
    return [int(graph[key].sum()) for key in MASKS]


def same(a, b):
    keys = ("x", "edge_index", "y", *MASKS)
    return all(a[key].dtype == b[key].dtype and torch.equal(a[key], b[key]) for key in keys)


GOOD = {
    "edge_index": np.array([[0, 1, 2, 3], [1, 0, 3, 2]]),
    "y": np.array([5, 9, 5, -1]),
    "x": np.arange(8.0).reshape(4, 2),
    "train_mask": np.array([True, False, False, True]),
    "val_mask": np.array([False, True, False, False]),
    "test_mask": np.array([False, False, True, False]),
}


def user_file(folder, leave_out=(), **changes):
    arrays = {key: value for key, value in (GOOD | changes).items() if key not in leave_out}
    np.savez(folder / "mine.npz", **arrays)
    return folder / "mine.npz"


def test_a_users_file(tmp_path):
    graph = load(user_file(tmp_path))
    assert graph.y.tolist() == [5, 9, 5, -1]
    assert graph.x.tolist() == GOOD["x"].tolist()
    assert graph.edge_index.tolist() == GOOD["edge_index"].tolist()
    # a node without a label is in no part
    assert [graph[key].nonzero().flatten().tolist() for key in MASKS] == [[0], [1], [2]]
    expected = {
        "name": "mine",
        "source": "mine.npz",
        "split": "as in the file",
        "features": "given",
        "nodes": 4,
        "edges": 2,
        "directed": False,
        "classes": 2,
    }
    assert {key: graph.provenance[key] for key in expected} == expected
    assert len(graph.provenance["sha256"]) == 16
    assert str(tmp_path) not in json.dumps(graph.provenance)


def test_a_file_by_any_name_and_as_text(tmp_path, monkeypatch):
    user_file(tmp_path).rename(tmp_path / "graph.bin")
    monkeypatch.chdir(tmp_path)
    assert load("graph.bin").provenance["source"] == "graph.bin"
    assert available("graph.bin")


def test_index_arrays_and_both_names_of_validation(tmp_path):
    masked = load(user_file(tmp_path))
    for key in ("val_idx", "valid_idx"):
        indexed = {"train_idx": [0], key: np.array([1], dtype=np.uint8), "test_idx": [2]}
        assert same(load(user_file(tmp_path, MASKS, **indexed)), masked)
    empty = load(user_file(tmp_path, MASKS, train_idx=[2, 0], val_idx=[], test_idx=[1]))
    assert sizes(empty) == [2, 0, 1]


def test_strings_become_codes_in_sorted_order(tmp_path):
    words = ["fox", "cat", "", "élan"]
    for y in (np.array(words), np.array([word.encode() for word in words])):
        graph = load(user_file(tmp_path, MASKS, y=y))
        assert graph.y.tolist() == [1, 0, -1, 2]
        assert graph.class_names == ["cat", "fox", "élan"]


def test_without_a_split_labelled_nodes_are_split_by_the_seed(tmp_path):
    y = np.where(np.arange(40) % 4 == 0, -1, np.arange(40) % 3)
    edges = np.array([[0, 1], [1, 2]])
    path = user_file(tmp_path, ("x", *MASKS), edge_index=edges, y=y)
    graph = load(path, seed=3)
    assert sizes(graph) == [12, 3, 15]
    assert bool((torch.stack([graph[key] for key in MASKS]).any(dim=0) == (graph.y >= 0)).all())
    assert graph.provenance["split"] == "random 40/10/50, seed 3"
    assert same(load(path, seed=3), graph)
    assert not torch.equal(load(path, seed=4).train_mask, graph.train_mask)
    # edges stay as they are, in one direction
    assert graph.edge_index.tolist() == edges.tolist()
    assert graph.provenance["directed"] is True
    assert graph.provenance["edges"] == 2
    assert graph.provenance["features"].startswith("structural")
    lonely = load(user_file(tmp_path, ("x",), edge_index=np.zeros((2, 0), dtype=np.int64)))
    assert lonely.provenance["edges"] == 0
    assert bool(torch.isfinite(lonely.x).all())


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, ">i4"])
def test_integers_of_any_kind(tmp_path, dtype):
    arrays = {"y": np.array([0, 1, 1, 0]).astype(dtype), "x": np.eye(4, dtype=dtype)}
    graph = load(user_file(tmp_path, edge_index=GOOD["edge_index"].astype(dtype), **arrays))
    assert graph.y.tolist() == [0, 1, 1, 0]
    assert torch.equal(graph.x, torch.eye(4))


def test_written_and_read_again(tmp_path):
    path = tmp_path / "new" / "digits.npz"
    digits = load("digits")
    digits.class_names = [f"digit {i}" for i in range(10)]
    save_npz(digits, path)
    again = load(path)
    assert same(again, digits)
    assert again.class_names == digits.class_names
    assert again.provenance["sha256"] == digits.provenance["sha256"]
    with pytest.raises(InputError, match=r"end it in \.npz"):
        save_npz(digits, path.with_suffix(".parquet"))
    assert [file.name for file in path.parent.iterdir()] == ["digits.npz"]


@pytest.mark.parametrize("features", [True, False])
def test_a_graph_without_labels_is_written_and_read(tmp_path, features):
    edges = torch.tensor([[0, 1], [1, 0]])
    graph = Data(edge_index=edges, num_nodes=3, x=torch.ones(3, 2) if features else None)
    save_npz(graph, tmp_path / "bare.npz")
    for again in (load(tmp_path / "bare.npz"), load_inputs(tmp_path / "bare.npz")):
        assert sorted(again.keys()) == ["edge_index", "x"]
        assert again.edge_index.equal(edges)
        assert again.x.size(0) == 3
    with pytest.raises(InputError, match="graph: edge_index is missing"):
        save_npz(Data(x=torch.ones(3, 2)), tmp_path / "bare.npz")
    with pytest.raises(InputError, match=r"graph\.y has no labelled node: leave it out"):
        save_npz(Data(edge_index=edges, y=torch.tensor([-1, -1])), tmp_path / "none.npz")
    with pytest.raises(InputError, match="edge_attr is not used by any learner"):
        save_npz(Data(edge_index=edges, edge_attr=torch.ones(1)), tmp_path / "none.npz")
    kinds = torch.tensor([0, 1, 1])
    with pytest.raises(InputError, match=r"graph\.node_type names several .* graph\.subgraph\("):
        save_npz(Data(edge_index=edges, node_type=kinds), tmp_path / "none.npz")
    assert not (tmp_path / "none.npz").exists()


def test_numpy_is_given_arrays_alone(tmp_path, monkeypatch):
    # any keyword of its own would be stored as an array by an older one
    given, real = [], np.savez_compressed
    monkeypatch.setattr(
        np, "savez_compressed", lambda file, **a: (given.extend(a), real(file, **a))
    )
    save_npz(Data(edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0, 1])), tmp_path / "a.npz")
    assert sorted(given) == ["edge_index", "y"]


def test_features_of_half_the_size_are_written(tmp_path):
    for x in (torch.eye(3), torch.eye(3).to_sparse_csr()):
        graph = Data(edge_index=torch.tensor([[0], [1]]), x=x.to(torch.bfloat16))
        save_npz(graph, tmp_path / "half.npz")
        assert load(tmp_path / "half.npz").x.to_dense().equal(torch.eye(3))


SPARSE = {
    "x_data": np.array([1.5, 2.0, 3.0]),
    "x_indices": np.array([2, 0, 1], dtype=np.int32),
    "x_indptr": np.array([0, 2, 2, 3, 3]),
    "x_shape": np.array([4, 3]),
}


def test_sparse_features_and_weights(tmp_path):
    weights = np.array([1, 2, 0, 1])
    graph = load(user_file(tmp_path, leave_out=["x"], **SPARSE, edge_weight=weights))
    dense = np.array([[2.0, 0, 1.5], [0, 0, 0], [0, 3, 0], [0, 0, 0]], dtype=np.float32)
    assert (graph.x.layout, graph.x.dtype) == (torch.sparse_csr, torch.float32)
    assert graph.x.to_dense().tolist() == dense.tolist()
    assert graph.edge_weight.tolist() == weights.tolist()
    save_npz(graph, tmp_path / "again.npz")
    again = load(tmp_path / "again.npz")
    assert again.x.to_dense().equal(graph.x.to_dense())
    assert again.provenance["sha256"] == graph.provenance["sha256"]
    bare = load_inputs(tmp_path / "again.npz")
    assert sorted(bare.keys()) == ["edge_index", "edge_weight", "x"]
    assert bare.x.layout == torch.sparse_csr
    # the number of nodes also where there are no labels
    arrays = {"edge_index": GOOD["edge_index"], **SPARSE}
    np.savez(tmp_path / "bare.npz", **arrays)
    assert load_inputs(tmp_path / "bare.npz").x.shape == (4, 3)
    other = load(user_file(tmp_path, leave_out=["x"], **SPARSE, edge_weight=weights[::-1]))
    assert other.provenance["sha256"] != graph.provenance["sha256"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"x": GOOD["x"]}, "x and x_data are both there"),
        ({"x_data": None}, "x_data is missing: a sparse x needs"),
        ({"x_data": np.array([1.0, np.nan, 1.0])}, "x_data holds NaN"),
        ({"x_data": np.array(["a", "b", "c"])}, "x_data .* must be numbers"),
        ({"x_indices": np.array([0, 1, 7])}, "do not fit x_shape"),
        ({"x_indices": np.array([0, 0, 1])}, "names a column twice"),
        ({"x_indptr": np.array([0, 2, 3])}, "do not fit x_shape"),
        ({"x_indptr": np.array([0, 3, 2, 3, 3])}, "do not fit x_shape"),
        ({"x_shape": np.array([5, 3])}, "x_shape gives 5 rows: there are 4 nodes"),
        ({"x_shape": np.array([4])}, "x_shape .* must be two sizes"),
        ({"edge_weight": np.ones(3)}, r"edge_weight .* must be numbers of shape \[4\]"),
        ({"edge_weight": -np.ones(4)}, "edge_weight holds negative"),
        ({"edge_weight": np.full(4, np.inf)}, "edge_weight holds NaN or infinite"),
    ],
)
def test_sparse_arrays_that_cannot_be(tmp_path, changes, problem):
    arrays = {**SPARSE, **changes}
    kept = {key: array for key, array in arrays.items() if array is not None}
    leave_out = [] if "x" in changes else ["x"]
    with pytest.raises(DatasetError, match=problem):
        load(user_file(tmp_path, leave_out=leave_out, **kept))


def test_structural_features_are_not_written(tmp_path):
    graph = load(user_file(tmp_path, ("x",)))
    save_npz(graph, tmp_path / "again.npz")
    with np.load(tmp_path / "again.npz") as stored:
        assert "x" not in stored.files
    assert same(load(tmp_path / "again.npz"), graph)
    assert load(tmp_path / "again.npz").provenance["features"] == graph.provenance["features"]


@pytest.mark.parametrize(
    "change", [lambda x: x[:, :2], lambda x: x + 1, torch.Tensor.to_sparse_csr]
)
def test_features_in_the_place_of_structural_ones_are_written(tmp_path, change):
    graph = load(user_file(tmp_path, ("x",)))
    graph.x = change(graph.x)
    save_npz(graph, tmp_path / "again.npz")
    assert load(tmp_path / "again.npz").x.to_dense().equal(graph.x.to_dense())
    # or the edges are others than those of which features were made
    graph = load(user_file(tmp_path, ("x",)))
    graph.edge_index = graph.edge_index[:, 1:]
    save_npz(graph, tmp_path / "again.npz")
    assert load(tmp_path / "again.npz").x.equal(graph.x)


MALFORMED = [
    ({}, ("edge_index",), "edge_index is missing"),
    ({"edge_index": GOOD["edge_index"].T}, (), "edge_index .*shape .*2, E"),
    ({"edge_index": GOOD["edge_index"] * 1.0}, (), "edge_index .*float64.*integers"),
    ({"edge_index": GOOD["edge_index"] - 1}, (), "edge_index names nodes -1 to 2.*0 to 3"),
    ({"edge_index": GOOD["edge_index"] + 1}, (), "edge_index names nodes 1 to 4"),
    ({"edge_index": GOOD["edge_index"].astype(object)}, (), "edge_index cannot be read"),
    ({"y": np.array([[5], [9], [5], [-1]])}, (), "y has shape .*per node"),
    ({"y": np.array([], dtype=int)}, (), "y has shape"),
    ({"y": np.array([0.5, 1.0, 1.0, 0.0])}, (), "y .*float64.* integers"),
    ({"X": GOOD["x"]}, ("x",), r"holds X, which no graph has .did you mean x\?"),
    ({"edge_attr": np.ones(4), "foo": np.ones(1)}, (), "holds edge_attr, foo, which no graph has"),
    ({"y": np.array([0, 1, -2, 0])}, (), "y .*-1 and above"),
    ({"y": np.array([2**63, 1, 1, 0], dtype=np.uint64)}, (), "y .*uint64"),
    ({"y": np.array([-1, -1, -1, -1])}, (), "y has no labelled node"),
    ({"y": np.array([b"\xff", b"a", b"b", b"c"])}, (), "y .*UTF-8"),
    ({"y": np.array(["a", "b", "a", None], dtype=object)}, (), "y cannot be read"),
    ({"x": np.zeros((3, 2))}, (), r"x .*\(3, 2\).*N = 4"),
    ({"x": np.zeros(4)}, (), "x .*shape"),
    ({"x": np.zeros((4, 0))}, (), "x .*shape"),
    ({"x": np.zeros((4, 2), dtype=complex)}, (), "x .*complex"),
    ({"x": np.full((4, 2), "a")}, (), "x .*numbers"),
    ({"x": np.full((4, 2), np.nan)}, (), "x holds NaN or infinite"),
    ({"x": np.full((4, 2), 1e300)}, (), "x holds NaN or infinite"),
    ({"train_mask": np.ones(3, dtype=bool)}, (), r"train_mask .*\(3,\).*\[4\] bool"),
    ({"test_mask": np.array([0, 0, 1, 0])}, (), "test_mask .*int64.*bool"),
    ({}, ("val_mask",), "no val_mask or val_idx or valid_idx"),
    ({"train_idx": [0]}, (), "train_mask and train_idx"),
    ({"val_idx": [0], "valid_idx": [0]}, ("val_mask",), "val_idx and valid_idx"),
    ({"test_mask": np.array([False, True, True, False])}, (), "overlap"),
    ({"train_idx": [0, 4]}, ("train_mask",), "train_idx names nodes 0 to 4: there are 4 nodes"),
    ({"train_idx": [0, 0]}, ("train_mask",), "train_idx names a node twice"),
    ({"train_idx": [0.0]}, ("train_mask",), "train_idx .*float64"),
    ({"train_idx": [[0]]}, ("train_mask",), "train_idx .*shape"),
    ({"class_names": np.array(["a"])}, (), "class_names .*0 to 9"),
    ({"class_names": np.arange(10)}, (), "class_names .*int64"),
    ({"class_names": np.array(["a"]), "y": np.array(list("abab"))}, (), "class_names .*strings"),
]


@pytest.mark.parametrize(("changes", "leave_out", "problem"), MALFORMED)
def test_malformed_files_are_named_with_the_key(tmp_path, changes, leave_out, problem):
    path = user_file(tmp_path, leave_out, **changes)
    with pytest.raises(DatasetError, match=f"mine.npz: .*{problem}") as caught:
        load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not an .npz"),
        (pickle.dumps({"y": [1]}), "not an .npz"),
        (b"\x93NUMPY", "not an .npz"),
        ({"y.npy": b"1 2 3", "edge_index.npy": b""}, "edge_index cannot be read"),
        ({"readme.txt": b"hello"}, "holds readme.txt, which no graph has"),
        ({"_readme.txt": b"hello"}, "edge_index is missing"),
    ],
)
def test_files_that_are_no_graph(tmp_path, content, problem):
    path = tmp_path / "mine.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path, "w") as members:
            for name, part in content.items():
                members.writestr(name, part)
    with pytest.raises(DatasetError, match=f"mine.npz: .*{problem}") as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    for path in (tmp_path / "none.npz", str(tmp_path / "none.npz")):
        assert not available(path)
        with pytest.raises(DatasetError, match=r"none\.npz: there is no such file"):
            load(path)
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(DatasetError, match=r"folder\.npz is no graph on disk"):
        load(tmp_path / "folder.npz")


def test_a_truncated_file_at_many_lengths(tmp_path):
    path = user_file(tmp_path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 29):
        path.write_bytes(whole[:length])
        with pytest.raises(DatasetError):
            load(path)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=6))
def test_damaged_bytes_give_a_graph_or_a_named_error(tmp_path_factory, changes):
    path = user_file(tmp_path_factory.getbasetemp())
    content = bytearray(path.read_bytes())
    for position, value in changes:
        content[position % len(content)] = value
    path.write_bytes(bytes(content))
    with contextlib.suppress(DatasetError):  # any other error fails
        assert read_npz(path).y.dtype == torch.int64


@pytest.mark.parametrize("key", ["x", "edge_index", "y", *MASKS])
def test_the_digest_tells_any_change(tmp_path, key):
    before = load(user_file(tmp_path))
    changed = {
        "x": GOOD["x"] + [[0, 0], [0, 0], [0, 0], [0, 1e-6]],
        "edge_index": GOOD["edge_index"][:, [0, 1, 3, 2]],
        "y": np.array([5, 9, 9, -1]),
    } | {mask: np.zeros(4, dtype=bool) for mask in MASKS}
    after = load(user_file(tmp_path, **{key: changed[key]}))
    assert after.provenance["sha256"] != before.provenance["sha256"]
    assert load(user_file(tmp_path)).provenance["sha256"] == before.provenance["sha256"]


# -- inputs alone, from files that need no labels --------------------------------------------------

EDGES = np.array([[0, 1], [1, 2]])
X = np.arange(6.0).reshape(3, 2)


def test_a_file_without_labels(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=X, edge_index=EDGES)
    graph = load_inputs(path)
    assert sorted(graph.keys()) == ["edge_index", "x"]
    assert graph.x.dtype == torch.float32
    assert graph.x.tolist() == X.tolist()
    assert graph.edge_index.tolist() == EDGES.tolist()


@pytest.mark.parametrize("how", [{"num_nodes": 4}, {"y": np.full(4, -1)}, {"y": [""] * 4}])
def test_without_features_they_are_structural(how, tmp_path):
    np.savez(tmp_path / "a.npz", edge_index=EDGES, **how)
    found = load_inputs(tmp_path / "a.npz")
    assert torch.equal(found.x, structural_features(torch.from_numpy(EDGES), 4))


def test_a_named_graph_shows_no_label():
    found, digits = load_inputs("digits"), load("digits")
    assert sorted(found.keys()) == ["edge_index", "x"]
    assert torch.equal(found.x, digits.x)
    assert torch.equal(found.edge_index, digits.edge_index)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X}, "edge_index is missing"),
        ({"edge_index": EDGES}, "has neither x nor y: num_nodes must then say"),
        ({"edge_index": EDGES, "num_nodes": -1}, "num_nodes"),
        ({"edge_index": EDGES, "num_nodes": 2.5}, "num_nodes"),
        ({"edge_index": EDGES, "num_nodes": [3]}, "num_nodes"),
        ({"edge_index": EDGES, "num_nodes": 2}, "names nodes 0 to 2: there are 2 nodes"),
        ({"edge_index": EDGES, "x": X[:2]}, "names nodes 0 to 2: there are 2 nodes"),
        ({"edge_index": EDGES, "x": X * np.nan}, "x holds NaN"),
        ({"edge_index": EDGES, "x": X[:, 0]}, "x .* must be numbers of shape"),
        ({"edge_index": EDGES, "x": np.zeros((0, 2))}, "num_nodes"),
    ],
)
def test_what_is_wrong_is_said(arrays, message, tmp_path):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DatasetError, match=f"a.npz: .*{message}"):
        load_inputs(tmp_path / "a.npz")
