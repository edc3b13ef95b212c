"""Load a named graph, or a user's file, as a PyTorch Geometric `Data` with its provenance."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.datasets import Amazon, CitationFull, CoraFull, Planetoid, Reddit
from torch_geometric.utils import index_to_mask, is_undirected, to_undirected

from algnn.errors import DatasetError, InputError
from algnn.graph.download import Root, Source, fetch, locate, process
from algnn.graph.npz import MASKS, class_names, read_arrays, read_inputs, read_npz, weights_of
from algnn.graph.npz import save_npz as save_npz  # for callers: the other half of `load`
from algnn.graph.propagate import blocks
from algnn.graph.store import GraphStore, is_graph_folder
from algnn.graph.structural import HOPS, WIDTH, description, structural_features
from algnn.graph.synthetic import SEED, communities

DIGITS_NEIGHBOURS = 10
TRAIN_SHARE, VAL_SHARE = 0.4, 0.1  # the paper's, where a dataset has no split of its own
RANDOM_SPLIT = "random 40/10/50"


@dataclass(frozen=True)
class Entry:
    """A graph that `load` knows by name.

    Attributes
    ----------
    name, description : str
        What to call it, and one line about it.
    nodes, edges, features, classes : int
        Its size; edges are undirected.
    split : str
        How its nodes are split, in words.
    origin : str
        Who made the graph, in words.
    source : Source, optional
        Its raw files; none for the digits, which come with scikit-learn, and where `make` is.
    file : str, optional
        Path below a data root of an ``.npz`` that holds the graph, which is used before `source`
        (for the digits: where there is no scikit-learn).
    make : callable, optional
        Makes the graph from its four sizes, each time anew: it has no files.

    Examples
    --------
    >>> [entry.name for entry in datasets() if entry.classes == 70]
    ['corafull', 'corafull-graph']
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
    make: Callable[[int, int, int, int], Data] | None = None

    def status(self, root: Root = None) -> str:
        """``"ready"``, or what is missing: ``"download needed"`` or ``"scikit-learn needed"``."""
        if self.make is not None:
            return "ready"
        if self.file is not None and locate(self.file, root) is not None:
            return "ready"
        if self.source is None:
            return "ready" if importlib.util.find_spec("sklearn") else "scikit-learn needed"
        here = all(locate(file, root) is not None for file in self.source.files)
        return "ready" if here else "download needed"


def load(name: str | os.PathLike[str], root: Root = None, seed: int = 42) -> Data:
    """A graph by name, or from a user's ``.npz``.

    Named graphs are read from files on this machine where these are at hand (see `datasets`), and
    downloaded into the user's cache otherwise. A graph without node features gets structural ones
    (`structural_features`), the same for every method.

    Parameters
    ----------
    name : str or path
        ``digits``, ``cora``, ``citeseer``, ``pubmed``, ``computers``, ``corafull``, ``reddit``,
        ``arxiv``, ``arxiv-graph`` and ``corafull-graph`` (the two without their features),
        ``reddit-synthetic`` (made from a seed, of Reddit's size, to measure time and memory), or
        the path of an ``.npz`` with the arrays

        - ``edge_index`` [2, E], integers: edges as (source, target), kept as they are, so an
          undirected graph has each edge in both directions; in a directed one the target gathers
          from the source;
        - ``edge_weight`` [E], numbers of at least 0, optional;
        - ``y`` [N], integers (-1 = no label) or strings (``""`` = no label), which become 0, 1, …
          in sorted order;
        - ``x`` [N, d], numbers, optional; or, where most of them are zero, its CSR arrays
          ``x_data``, ``x_indices``, ``x_indptr`` and ``x_shape`` (of a SciPy matrix its ``data``,
          ``indices``, ``indptr`` and ``shape``), which become a sparse tensor;
        - a split, optional: for each of train, val and test either a mask (``train_mask`` … [N],
          bool) or the nodes' ids (``train_idx``, ``val_idx`` or ``valid_idx``, ``test_idx``); nodes
          without a label are left out of it;
        - ``class_names`` [C], strings, optional: entry c names class c;

        or a folder that `write_graph` has made, with labels, which is read into memory.
    root : str or path, optional
        The data root: a folder with raw files. By default the variable ``ALGNN_DATA``. Never
        written to.
    seed : int
        Seed of the random 40/10/50 split of a graph that has no split of its own.

    Returns
    -------
    Data
        `x` [N, d] float32, `edge_index` [2, E] int64, `y` [N] int64 (-1 = no label), `train_mask`,
        `val_mask`, `test_mask` [N] bool; `provenance`, a dict of where all this comes from; and
        where the file has them `edge_weight` [E] float32 and `class_names`, a list of str.

    Raises
    ------
    DatasetError
        The name is unknown, files are missing and cannot be downloaded, or a file is malformed.

    Examples
    --------
    >>> graph = load("digits")
    >>> graph.x.shape, int(graph.train_mask.sum()), graph.provenance["split"]
    (torch.Size([1797, 64]), 719, 'random 40/10/50, seed 42')
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise InputError(f"seed={seed!r} must be a whole number from 0 to 2**63 - 1")
    if root is not None and not Path(root).expanduser().is_dir():
        raise DatasetError(f"root={str(root)!r} is not a folder: give the one that holds raw files")
    found = _find(name)
    if isinstance(found, Entry):
        return load_entry(found, root, seed)
    if found.is_dir():
        graph = GraphStore(found).in_memory
        if graph.get("y") is None:
            raise DatasetError(f"{found} holds no labels, which a benchmark needs")
        return _finish(graph, found.name, found.name, "as in the folder", seed)
    graph = read_npz(found)
    return _finish(graph, found.stem, found.name, "as in the file", seed)


def load_inputs(name: str | os.PathLike[str], root: Root = None) -> Data | GraphStore:
    """The `x` and `edge_index` of a graph, for prediction; a user's file needs no labels.

    A graph on disk (a folder that `algnn partition` has made) stays there.

    Parameters
    ----------
    name, root
        As for `load`. An ``.npz`` without ``x`` gets structural features; its number of nodes comes
        from ``y`` or ``num_nodes``.

    Returns
    -------
    Data or GraphStore
        `x` [N, d] float32, `edge_index` [2, E], and `edge_weight` [E] where the file has it.

    Examples
    --------
    >>> sorted(load_inputs("digits").keys())
    ['edge_index', 'x']
    """
    if is_graph_folder(name):
        return GraphStore(name)
    found = _find(name)
    graph = load(name, root) if isinstance(found, Entry) else read_inputs(found)
    x, edge_index = graph.x, graph.edge_index
    if x is None:
        x = structural_features(edge_index, graph.num_nodes)
    return Data(x=x, edge_index=edge_index, **weights_of(graph))


def load_entry(entry: Entry, root: Root = None, seed: int = 42) -> Data:
    """The graph of one entry of `datasets`, which may be a changed copy (another URL, say)."""
    file = locate(entry.file, root) if entry.file is not None else None
    if entry.make is not None:
        graph = entry.make(entry.nodes, entry.edges, entry.features, entry.classes)
        origin = entry.origin
    elif entry.source is None:
        graph, origin = _digits(entry, file)
    elif file is not None:
        graph, origin = read_npz(file), file.name
        graph.edge_index = to_undirected(graph.edge_index, num_nodes=graph.y.numel())
    else:
        files = fetch(entry.source, root)
        graph, origin = process(entry.source, files), entry.origin
        first = next(iter(files.values()))
        if first.suffix == ".npz":
            with contextlib.suppress(DatasetError):  # pickled names, which we do not read
                names = class_names(read_arrays(first, ("class_names",)), graph.y)
                graph.update({"class_names": names} if names else {})
    if entry.name.endswith("-graph"):
        graph.x = None
    return _finish(graph, entry.name, origin, entry.split, seed, directed=False)


def datasets() -> list[Entry]:
    """The graphs that `load` knows by name.

    Returns
    -------
    list of Entry

    Examples
    --------
    >>> entry = datasets()[0]
    >>> entry.name, entry.nodes, entry.classes, entry.status()
    ('digits', 1797, 10, 'ready')
    """
    return list(_ENTRIES)


def available(name: str | os.PathLike[str], root: Root = None) -> bool:
    """Whether a graph, named as for `load`, can be loaded without a network."""
    found = _find(name)
    return found.status(root) == "ready" if isinstance(found, Entry) else found.exists()


def _find(name: str | os.PathLike[str]) -> Entry | Path:
    known = {entry.name: entry for entry in _ENTRIES}
    if isinstance(name, str) and name.lower() in known:
        return known[name.lower()]
    path = Path(name).expanduser()
    if path.suffix in (".pt", ".pth", ".pkl", ".pickle"):
        raise DatasetError(
            f"{path} is a pickle, which can run code and is never opened here: load it yourself"
            " and write the graph with algnn.save_npz(graph, 'graph.npz')"
        )
    if path.suffix == ".npz" or path.is_file() or is_graph_folder(path):
        return path
    near = difflib.get_close_matches(str(name).lower(), known, 1)
    guess = f" (did you mean {near[0]}?)" if near else ""
    raise DatasetError(
        f"{str(name)!r} is no known graph{guess}: use one of {', '.join(known)}, or the path of an"
        " .npz, or of a folder that algnn partition has made"
    )


# -- what every graph goes through ----------------------------------------------------------------


def _finish(
    graph: Data, name: str, source: str, split: str, seed: int, directed: bool | None = None
) -> Data:
    """Add what is missing (features, a split) and write down where everything comes from."""
    nodes, y, edge_index = graph.y.numel(), graph.y, graph.edge_index
    x, features = graph.x, "given"
    if x is None:
        x, features = structural_features(edge_index, nodes), description()
    masks = {key: graph[key] for key in MASKS if graph.get(key) is not None}
    if not masks:
        masks, split = _random_split(y, seed), f"{RANDOM_SPLIT}, seed {seed}"
    result = Data(x=x, edge_index=edge_index, y=y, **weights_of(graph), **masks)
    if directed is None:
        directed = not is_undirected(edge_index, num_nodes=nodes)
    loops = int((edge_index[0] == edge_index[1]).sum())
    result.provenance = {
        "name": name,
        "source": source,
        "split": split,
        "features": features,
        "nodes": nodes,
        "edges": edge_index.size(1) if directed else (edge_index.size(1) + loops) // 2,
        "directed": directed,
        "classes": torch.unique(y[y >= 0]).numel(),
        "sha256": _digest(result, features),
    }
    if graph.get("class_names"):
        result.class_names = graph.class_names
    return result


def _random_split(y: Tensor, seed: int) -> dict[str, Tensor]:
    labelled = (y >= 0).nonzero().squeeze(1)
    generator = torch.Generator().manual_seed(int(seed))
    shuffled = labelled[torch.randperm(labelled.numel(), generator=generator)]
    train, val = round(TRAIN_SHARE * labelled.numel()), round(VAL_SHARE * labelled.numel())
    parts = shuffled.tensor_split([train, train + val])
    return {key: index_to_mask(part, y.numel()) for key, part in zip(MASKS, parts, strict=True)}


def _digest(graph: Data, features: str) -> str:
    """A digest of the graph's content; structural features count by their recipe.

    The last bits of structural features depend on the machine.
    """
    digest = hashlib.sha256(features.encode())
    for key in ("x", "edge_index", "y", *MASKS, "edge_weight"):
        if (key == "x" and features != "given") or graph.get(key) is None:
            continue
        tensor = graph[key].t() if key == "edge_index" else graph[key]
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
        parts = [tensor]
        if tensor.layout == torch.sparse_csr:
            parts = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
        for part in parts:
            for block in blocks(part.size(0), part[:1].nbytes):
                digest.update(part[block].contiguous().numpy())
    return digest.hexdigest()[:16]


# -- where the named graphs come from -------------------------------------------------------------


def _digits(entry: Entry, file: Path | None) -> tuple[Data, str]:
    """The digits inside scikit-learn, or a graph of them that came from a machine that has it."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        if file is None:
            raise DatasetError(
                f"{entry.name}: scikit-learn cannot be imported ({error}): install it, or put"
                f" {entry.file}, written elsewhere by save_npz, into the data root"
            ) from error
        graph = read_npz(file)
        return Data(x=graph.x, edge_index=graph.edge_index, y=graph.y), file.name
    images, labels = load_digits(return_X_y=True)
    x = torch.from_numpy((images / 16).astype(np.float32))
    return Data(x=x, edge_index=_nearest(images), y=torch.from_numpy(labels).long()), entry.origin


def _nearest(points: npt.NDArray[np.float64]) -> Tensor:
    """Edges between each point and its nearest ones, in both directions.

    The pixels are whole numbers, so distances are exact in float64; ties go to the lower index.
    The edges are the same on every machine.
    """
    count = len(points)
    squares = (points**2).sum(axis=1)
    distances = squares[:, None] + squares[None, :] - 2 * points @ points.T
    ranks = distances.astype(np.int64) * count + np.arange(count)
    np.fill_diagonal(ranks, np.iinfo(np.int64).max)
    nearest = np.argpartition(ranks, DIGITS_NEIGHBOURS - 1, axis=1)[:, :DIGITS_NEIGHBOURS]
    sources = np.repeat(np.arange(count), DIGITS_NEIGHBOURS)
    edges: Tensor = to_undirected(torch.from_numpy(np.stack([sources, nearest.ravel()])))
    return edges


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
          169_343, 1_157_799, WIDTH * len(HOPS), 40, "OGB time split", "OGB raw files",
          SOURCES["arxiv"], "ogbn_arxiv_nofeat/arxiv_graph.npz"),
    Entry("corafull-graph", "corafull without its features: structural ones instead",
          19_793, 63_421, WIDTH * len(HOPS), 70, RANDOM_SPLIT, "PyG CoraFull",
          SOURCES["corafull"], "CoraFull_nofeat/cora_full_graph.npz"),
    Entry("reddit-synthetic", "synthetic, of the size that the paper gives for Reddit: for time and"
          " memory only; its accuracy means nothing",
          232_965, 11_606_919, 602, 41, "66/10/24 of each class", f"synthetic, seed {SEED}",
          make=communities),
)
# fmt: on
