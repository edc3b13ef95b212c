"""Where the raw files of named graphs come from, and what makes a graph of them; without torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from algnn.graph.download import Source

# below the folder of ogbn-arxiv: as OGB has them
ARXIV_FILES = (
    *(f"raw/{part}.csv.gz" for part in ("edge", "node-feat", "node-label", "num-node-list")),
    *(f"split/time/{part}.csv.gz" for part in ("train", "valid", "test")),
)


def _pyg(kind: str, below: str, **options: str) -> Callable[[Path], Any]:
    """What makes a dataset of PyTorch Geometric from a folder of raw files."""

    def build(folder: Path) -> Any:
        from torch_geometric import datasets

        return getattr(datasets, kind)(str(folder / below), **options)

    return build


def _arxiv(folder: Path) -> Any:
    from algnn.graph.arxiv import Arxiv

    return Arxiv(str(folder / "ogbn_arxiv"))


def _planetoid(name: str) -> Source:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    return Source(
        name.lower(),
        tuple(f"Planetoid/{name}/raw/ind.{name.lower()}.{part}" for part in parts),
        "https://github.com/kimiyoung/planetoid/raw/master/data/{}",
        _pyg("Planetoid", "Planetoid", name=name),
    )


def _heterophilous(name: str, file: str) -> Source:
    """A graph of Platonov et al.: an ``.npz`` of features, labels and directed edges."""
    path = f"heterophilous/{file}.npz"

    def build(folder: Path) -> Any:
        import torch
        from torch_geometric.data import Data
        from torch_geometric.utils import remove_self_loops, to_undirected

        from algnn.graph.npz import read_arrays

        arrays = read_arrays(folder / path, ("node_features", "node_labels", "edges"))
        x, y, edges = (torch.from_numpy(array) for array in arrays.values())
        edges = to_undirected(edges.t().long(), num_nodes=y.numel())
        return [Data(x=x.float(), edge_index=remove_self_loops(edges)[0], y=y.long())]

    return Source(name, (path,), f"{_HETEROPHILOUS}/{{}}", build)


_HETEROPHILOUS = "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data"

# addresses are those of PyTorch Geometric's own classes
SOURCES = {
    source.name: source
    for source in (
        *map(_planetoid, ("Cora", "CiteSeer", "PubMed")),
        Source(
            "computers",
            ("Amazon/Computers/raw/amazon_electronics_computers.npz",),
            "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/{}",
            _pyg("Amazon", "Amazon", name="Computers"),
        ),
        Source(
            "photo",
            ("Amazon/Photo/raw/amazon_electronics_photo.npz",),
            "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/{}",
            _pyg("Amazon", "Amazon", name="Photo"),
        ),
        _heterophilous("actor", "actor"),
        _heterophilous("chameleon", "chameleon_filtered"),
        Source(
            "corafull",
            ("CoraFull/cora/raw/cora.npz",),
            "https://github.com/abojchevski/graph2gauss/raw/master/data/{}",
            _pyg("CoraFull", "CoraFull"),
        ),
        Source(
            "reddit",
            ("Reddit/raw/reddit_data.npz", "Reddit/raw/reddit_graph.npz"),
            "https://data.dgl.ai/dataset/reddit.zip",
            _pyg("Reddit", "Reddit"),
        ),
        Source(
            "arxiv",
            tuple(f"ogbn_arxiv/{file}" for file in ARXIV_FILES),
            "http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip",
            _arxiv,
        ),
    )
}
