"""The graphs that `load` knows by name: their sizes, their raw files and where these come from.

Listing them needs no torch: what builds a graph is imported when it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from algnn.graph.download import Root, Source, locate

RANDOM_SPLIT = "random 40/10/50"
STRUCTURAL = 384  # columns of structural features, `structural.WIDTH` for each of its `HOPS`
# below the folder of ogbn-arxiv: as OGB has them
ARXIV_FILES = (
    *(f"raw/{part}.csv.gz" for part in ("edge", "node-feat", "node-label", "num-node-list")),
    *(f"split/time/{part}.csv.gz" for part in ("train", "valid", "test")),
)


@dataclass(frozen=True)
class Entry:
    """A graph that `load` knows by name.

    Its name, one line about it, its size (edges are undirected), how its nodes are split and who
    made it. `source` are its raw files; `file` is the path below a data root of an ``.npz`` that is
    used before them; one with neither is made from its sizes and a seed.
    """

    name: str
    description: str
    nodes: int
    edges: int
    features: int
    classes: int
    split: str
    origin: str
    source: Source | None = None
    file: str | None = None

    def status(self, root: Root = None) -> str:
        """``"ready"``, or what is missing: a download, scikit-learn, or its file."""
        if self.file is not None and locate(self.file, root) is not None:
            return "ready"
        if self.source is not None:
            here = all(locate(file, root) is not None for file in self.source.files)
            return "ready" if here else "download needed"
        if self.name == "digits":
            return "ready" if find_spec("sklearn") else "scikit-learn needed"
        return "ready" if self.file is None else "file needed"


def datasets() -> list[Entry]:
    """The graphs that `load` knows by name."""
    return list(_ENTRIES)


def _builder(module: str, kind: str, below: str, **options: str) -> Callable[[Path], Any]:
    """What makes a dataset from a folder of raw files, by a class or function of a module."""
    return lambda folder: getattr(import_module(module), kind)(str(folder / below), **options)


def _pyg(label: str, files: tuple[str, ...], url: str, kind: str, **options: str) -> Source:
    """Raw files of a dataset of PyTorch Geometric, which all lie in a folder of its name."""
    build = _builder("torch_geometric.datasets", kind, kind, **options)
    return Source(label, tuple(f"{kind}/{file}" for file in files), url, build)


def _planetoid(name: str) -> Source:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    files = tuple(f"{name}/raw/ind.{name.lower()}.{part}" for part in parts)
    url = "https://github.com/kimiyoung/planetoid/raw/master/data/{}"
    return _pyg(name.lower(), files, url, "Planetoid", name=name)


def _amazon(name: str) -> Source:
    file = f"{name}/raw/amazon_electronics_{name.lower()}.npz"
    url = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/{}"
    return _pyg(name.lower(), (file,), url, "Amazon", name=name)


def _heterophilous(name: str, file: str) -> Source:
    path = f"heterophilous/{file}.npz"
    url = "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data/{}"
    return Source(name, (path,), url, _builder("algnn.graph.raw", "heterophilous", path))


# addresses are those of PyTorch Geometric's own classes
_CORAFULL = "https://github.com/abojchevski/graph2gauss/raw/master/data/{}"
_REDDIT = "https://data.dgl.ai/dataset/reddit.zip"
_ARXIV = "http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
_ALL = (
    *map(_planetoid, ("Cora", "CiteSeer", "PubMed")),
    *map(_amazon, ("Computers", "Photo")),
    _heterophilous("actor", "actor"),
    _heterophilous("chameleon", "chameleon_filtered"),
    _pyg("corafull", ("cora/raw/cora.npz",), _CORAFULL, "CoraFull"),
    _pyg("reddit", ("raw/reddit_data.npz", "raw/reddit_graph.npz"), _REDDIT, "Reddit"),
    Source(
        "arxiv",
        tuple(f"ogbn_arxiv/{file}" for file in ARXIV_FILES),
        _ARXIV,
        _builder("algnn.graph.raw", "arxiv", "ogbn_arxiv"),
    ),
)
SOURCES = {source.name: source for source in _ALL}

# fmt: off
_ENTRIES = (
    Entry("digits", "handwritten digits of scikit-learn, each joined to its 10 nearest",
          1_797, 12_339, 64, 10, RANDOM_SPLIT, "scikit-learn digits",
          file="digits/digits_graph.npz"),
    Entry("cora", "citations between machine-learning papers, 7 topics",
          2_708, 5_278, 1_433, 7, "public", "PyG Planetoid", SOURCES["cora"]),
    Entry("citeseer", "citations between computer-science papers, 6 topics",
          3_327, 4_552, 3_703, 6, "public", "PyG Planetoid", SOURCES["citeseer"]),
    Entry("pubmed", "citations between papers on diabetes, 3 kinds of it",
          19_717, 44_324, 500, 3, "public", "PyG Planetoid", SOURCES["pubmed"]),
    Entry("computers", "products bought together at Amazon, 10 categories",
          13_752, 245_861, 767, 10, RANDOM_SPLIT, "PyG Amazon", SOURCES["computers"]),
    Entry("corafull", "citations between papers, the whole of Cora, 70 topics",
          19_793, 63_421, 8_710, 70, RANDOM_SPLIT, "PyG CoraFull", SOURCES["corafull"]),
    Entry("reddit", "posts joined by common commenters, 41 communities",
          232_965, 57_307_946, 602, 41, "public", "PyG Reddit", SOURCES["reddit"]),
    Entry("arxiv", "citations between arXiv papers in computer science, 40 subjects",
          169_343, 1_157_799, 128, 40, "OGB time split", "OGB raw files", SOURCES["arxiv"]),
    Entry("arxiv-graph", "arxiv without its features: structural ones instead",
          169_343, 1_157_799, STRUCTURAL, 40, "OGB time split", "OGB raw files",
          SOURCES["arxiv"], "ogbn_arxiv_nofeat/arxiv_graph.npz"),
    Entry("corafull-graph", "corafull without its features: structural ones instead",
          19_793, 63_421, STRUCTURAL, 70, RANDOM_SPLIT, "PyG CoraFull",
          SOURCES["corafull"], "CoraFull_nofeat/cora_full_graph.npz"),
    Entry("photo", "photo products bought together at Amazon, 8 categories",
          7_650, 119_081, 745, 8, RANDOM_SPLIT, "PyG Amazon", SOURCES["photo"], "more/photo.npz"),
    Entry("flickr", "users who follow each other, very wide features, 9 groups",
          7_575, 239_738, 12_047, 9, RANDOM_SPLIT, "Huang et al. 2017", file="more/flickr.npz"),
    Entry("facebook", "pages that like each other, wide features, 4 kinds",
          22_470, 170_823, 4_714, 4, RANDOM_SPLIT, "Rozemberczki et al. 2019",
          file="more/facebook.npz"),
    Entry("uai", "web pages, 19 uneven classes",
          3_067, 28_308, 4_973, 19, RANDOM_SPLIT, "UAI2010", file="more/uai.npz"),
    Entry("actor", "actors on common pages, neighbours of other classes, 5 kinds",
          7_600, 26_659, 932, 5, RANDOM_SPLIT, "Platonov et al. 2023", SOURCES["actor"],
          "more/actor.npz"),
    Entry("chameleon", "pages of Wikipedia, neighbours of other classes, 5 classes of traffic",
          890, 8_854, 2_325, 5, RANDOM_SPLIT, "Platonov et al. 2023", SOURCES["chameleon"],
          "more/chameleon.npz"),
    Entry("reddit-synthetic", "synthetic, of the size that the paper gives for Reddit: for time and"
          " memory only; its accuracy means nothing",
          232_965, 11_606_919, 602, 41, "66/10/24 of each class", "synthetic, seed 0"),
)
# fmt: on
