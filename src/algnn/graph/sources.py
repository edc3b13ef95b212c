"""Where the raw files of named graphs come from, and what makes a graph of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.datasets import Amazon, CitationFull, CoraFull, Planetoid, Reddit
from torch_geometric.utils import index_to_mask, remove_self_loops, to_undirected

from algnn.errors import DatasetError
from algnn.graph.download import Source
from algnn.graph.npz import MASKS, read_arrays


class _Arxiv(InMemoryDataset):  # type: ignore[misc]
    """ogbn-arxiv from OGB's raw files, so that neither `ogb` nor its cache is needed."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.load(self.processed_paths[0])

    @property
    def raw_dir(self) -> str:
        return str(self.root)

    @property
    def raw_file_names(self) -> list[str]:
        return list(_ARXIV_FILES)

    @property
    def processed_file_names(self) -> str:
        return "data.pt"

    def process(self) -> None:
        tables = {}
        for file in _ARXIV_FILES:
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


_ARXIV_FILES = (
    *(f"raw/{part}.csv.gz" for part in ("edge", "node-feat", "node-label", "num-node-list")),
    *(f"split/time/{part}.csv.gz" for part in ("train", "valid", "test")),
)


def _planetoid(name: str) -> Source:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    return Source(
        name.lower(),
        tuple(f"Planetoid/{name}/raw/ind.{name.lower()}.{part}" for part in parts),
        f"{Planetoid.url}/{{}}",
        lambda folder: Planetoid(str(folder / "Planetoid"), name=name),
    )


def _heterophilous(name: str, file: str) -> Source:
    """A graph of Platonov et al.: an ``.npz`` of features, labels and directed edges."""
    path = f"heterophilous/{file}.npz"

    def build(folder: Path) -> list[Data]:
        arrays = read_arrays(folder / path, ("node_features", "node_labels", "edges"))
        x, y, edges = (torch.from_numpy(array) for array in arrays.values())
        edges = to_undirected(edges.t().long(), num_nodes=y.numel())
        return [Data(x=x.float(), edge_index=remove_self_loops(edges)[0], y=y.long())]

    return Source(name, (path,), f"{_HETEROPHILOUS}/{{}}", build)


_HETEROPHILOUS = "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data"

SOURCES = {
    source.name: source
    for source in (
        *map(_planetoid, ("Cora", "CiteSeer", "PubMed")),
        Source(
            "computers",
            ("Amazon/Computers/raw/amazon_electronics_computers.npz",),
            f"{Amazon.url}{{}}",
            lambda folder: Amazon(str(folder / "Amazon"), name="Computers"),
        ),
        Source(
            "photo",
            ("Amazon/Photo/raw/amazon_electronics_photo.npz",),
            f"{Amazon.url}{{}}",
            lambda folder: Amazon(str(folder / "Amazon"), name="Photo"),
        ),
        _heterophilous("actor", "actor"),
        _heterophilous("chameleon", "chameleon_filtered"),
        Source(
            "corafull",
            ("CoraFull/cora/raw/cora.npz",),
            CitationFull.url.replace("{}.npz", "{}"),
            lambda folder: CoraFull(str(folder / "CoraFull")),
        ),
        Source(
            "reddit",
            ("Reddit/raw/reddit_data.npz", "Reddit/raw/reddit_graph.npz"),
            Reddit.url,
            lambda folder: Reddit(str(folder / "Reddit")),
        ),
        Source(
            "arxiv",
            tuple(f"ogbn_arxiv/{file}" for file in _ARXIV_FILES),
            "http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip",
            lambda folder: _Arxiv(str(folder / "ogbn_arxiv")),
        ),
    )
}
