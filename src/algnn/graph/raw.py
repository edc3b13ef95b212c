"""Graphs from raw files for which PyTorch Geometric has no class, or one that needs more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch_geometric.data import Data
from torch_geometric.utils import index_to_mask, remove_self_loops, to_undirected

from algnn.errors import DatasetError
from algnn.files import replacing
from algnn.graph.npz import MASKS, read_arrays


def arxiv(folder: str) -> list[Data]:
    """ogbn-arxiv from OGB's raw files, so that neither `ogb` nor its cache is needed."""
    made = Path(folder) / "graph.pt"  # tables take long to parse
    if not made.exists():
        with replacing(made) as temporary:
            torch.save(_parsed(Path(folder)).to_dict(), temporary)
    return [Data.from_dict(torch.load(made, weights_only=True))]


def heterophilous(folder: str, file: str) -> list[Data]:
    """A graph of Platonov et al.: an ``.npz`` of features, labels and directed edges."""
    arrays = read_arrays(Path(folder) / file, ("node_features", "node_labels", "edges"))
    x, y, edges = (torch.from_numpy(array) for array in arrays.values())
    edges = to_undirected(edges.t().long(), num_nodes=y.numel())
    return [Data(x=x.float(), edge_index=remove_self_loops(edges)[0], y=y.long())]


def _parsed(folder: Path) -> Data:
    tables = {}
    for file in folder.rglob("*.csv.gz"):
        kind = np.float32 if "feat" in file.name else np.int64
        frame = pd.read_csv(file, header=None, dtype=kind)
        tables[file.name.removesuffix(".csv.gz")] = torch.from_numpy(frame.to_numpy(copy=True))
    nodes = int(tables["num-node-list"].sum())
    x, y, edges = tables["node-feat"], tables["node-label"], tables["edge"].t()
    if (x.size(0), y.numel()) != (nodes, nodes) or edges.size(0) != 2:
        raise DatasetError(
            f"{nodes} nodes, {x.size(0)} rows of features, {y.numel()} labels and edges of"
            f" {edges.size(0)} ends do not belong together"
        )
    if int(edges.min()) < 0 or int(edges.max()) >= nodes:
        raise DatasetError(f"edge.csv.gz names nodes beyond the {nodes} that there are")
    graph = Data(x=x, edge_index=to_undirected(edges, num_nodes=nodes), y=y.view(-1))
    for key, part in zip(MASKS, ("train", "valid", "test"), strict=True):
        graph[key] = index_to_mask(tables[part].view(-1), nodes)
    return graph
