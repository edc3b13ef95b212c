"""ogbn-arxiv from the raw files of OGB."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.utils import index_to_mask, to_undirected

from algnn.errors import DatasetError
from algnn.graph.npz import MASKS
from algnn.graph.sources import ARXIV_FILES


class Arxiv(InMemoryDataset):  # type: ignore[misc]
    """ogbn-arxiv from OGB's raw files, so that neither `ogb` nor its cache is needed."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.load(self.processed_paths[0])

    @property
    def raw_dir(self) -> str:
        """The folder itself."""
        return str(self.root)

    @property
    def raw_file_names(self) -> list[str]:
        """As OGB has them."""
        return list(ARXIV_FILES)

    @property
    def processed_file_names(self) -> str:
        """Of what `process` writes."""
        return "data.pt"

    def process(self) -> None:
        """Turn the tables into one graph."""
        tables = {}
        for file in ARXIV_FILES:
            kind = np.float32 if "feat" in file else np.int64
            frame = pd.read_csv(Path(self.root) / file, header=None, dtype=kind)
            tables[Path(file).name.removesuffix(".csv.gz")] = frame.to_numpy(copy=True)
        nodes = int(tables["num-node-list"].sum())
        x, y = torch.from_numpy(tables["node-feat"]), torch.from_numpy(tables["node-label"])
        edges = torch.from_numpy(tables["edge"]).t()
        if (x.size(0), y.numel()) != (nodes, nodes) or edges.size(0) != 2:
            raise DatasetError(
                f"{nodes} nodes, {x.size(0)} rows of features, {y.numel()} labels and edges of"
                f" {edges.size(0)} ends do not belong together"
            )
        if int(edges.min()) < 0 or int(edges.max()) >= nodes:
            raise DatasetError(f"edge.csv.gz names nodes beyond the {nodes} that there are")
        graph = Data(x=x, edge_index=to_undirected(edges, num_nodes=nodes), y=y.view(-1))
        for key, part in zip(MASKS, ("train", "valid", "test"), strict=True):
            graph[key] = index_to_mask(torch.from_numpy(tables[part]).view(-1), nodes)
        self.save([graph], self.processed_paths[0])
