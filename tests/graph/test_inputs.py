"""Graphs as a learner sees them: features and edges, from files that need hold no labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from algnn.errors import DatasetError
from algnn.graph.datasets import load, load_inputs
from algnn.graph.structural import structural_features

EDGES = np.array([[0, 1], [1, 2]])
X = np.arange(6.0).reshape(3, 2)


def test_a_file_without_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=X, edge_index=EDGES)
    graph = load_inputs(path)
    assert sorted(graph.keys()) == ["edge_index", "x"]
    assert graph.x.dtype == torch.float32
    assert graph.x.tolist() == X.tolist()
    assert graph.edge_index.tolist() == EDGES.tolist()


@pytest.mark.parametrize("how", [{"num_nodes": 4}, {"y": np.full(4, -1)}, {"y": [""] * 4}])
def test_without_features_they_are_structural(how: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", edge_index=EDGES, **how)
    found = load_inputs(tmp_path / "a.npz")
    assert torch.equal(found.x, structural_features(torch.from_numpy(EDGES), 4))


def test_a_named_graph_shows_no_label() -> None:
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
def test_what_is_wrong_is_said(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DatasetError, match=f"a.npz: .*{message}"):
        load_inputs(tmp_path / "a.npz")
