"""Load a named graph, or a user's file, as a PyTorch Geometric `Data` with its provenance."""

import contextlib
import hashlib
import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch_geometric.data import Data
from torch_geometric.utils import index_to_mask, is_undirected, remove_self_loops, to_undirected

from algnn.checks import check_number
from algnn.errors import DatasetError
from algnn.graph import catalogue
from algnn.graph.catalogue import RANDOM_SPLIT, Entry, Name, Root
from algnn.graph.catalogue import datasets as datasets  # for callers: what `load` knows
from algnn.graph.npz import MASKS, class_names, read_arrays, read_npz
from algnn.graph.propagate import blocks, normalised_adjacency, spmm
from algnn.graph.store import GraphStore
from algnn.graph.synthetic import communities
from algnn.graph.tables import write_ogb

DIGITS_NEIGHBOURS = 10
TRAIN_SHARE, VAL_SHARE = 0.4, 0.1  # the paper's, where a dataset has no split of its own
# of structural features: one set for every graph and method, so that results can be compared
WIDTH, HOPS, SEED = 128, (3, 6, 9), 0
STRUCTURAL = f"structural: random projection of width {WIDTH}, hops 3 6 9, seed {SEED}"


def load(name: Name, root: Root = None, seed: int = 42) -> Data:
    """A graph by name, or from a user's ``.npz``.

    Files of named graphs that are not on this machine are downloaded into the user's cache. A graph
    without node features gets structural ones, the same for every method.

    Parameters
    ----------
    name : str or path
        A name that ``algnn datasets`` lists, such as ``digits``, ``cora`` or ``arxiv-graph``; a
        folder that `write_graph` has made, which is read into memory; or the path of
        an ``.npz`` with the arrays

        - ``edge_index`` [2, E], integers: edges as (source, target), kept as they are, so an
          undirected graph has each edge in both directions; in a directed one the target gathers
          from the source; and ``edge_weight`` [E], numbers of at least 0, optional;
        - ``y`` [N], integers (-1 = no label) or strings (``""`` = no label), which become 0, 1, …
          in sorted order, optional; and ``class_names`` [C], strings: entry c names class c;
        - ``x`` [N, d], numbers, optional; or, where most of them are zero, the arrays of a SciPy
          CSR matrix as ``x_data``, ``x_indices``, ``x_indptr`` and ``x_shape``;
        - a split, optional: for each of train, val and test a mask (``train_mask`` … [N], bool) or
          the nodes' ids (``train_idx``, ``val_idx`` or ``valid_idx``, ``test_idx``).
    root : str or path, optional
        The folder with raw files, never written to; by default the variable ``ALGNN_DATA``.
    seed : int
        Seed of the random 40/10/50 split of a graph that has no split of its own.

    Returns
    -------
    Data
        `x` [N, d] float32, `edge_index` [2, E] int64, `y` [N] int64 (-1 = no label), `train_mask`,
        `val_mask`, `test_mask` [N] bool; `provenance`, a dict of where all this comes from; and
        where the file has them `edge_weight` [E] float32 and `class_names`, a list of str. Of a
        user's graph without labels there are `x`, `edge_index` and `edge_weight` alone.

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
    check_number("seed", seed, 0, 2**63, whole=True)
    found = _resolve(name, root)
    if isinstance(found, Entry):
        return load_entry(found, root, seed)
    if isinstance(found, Path):
        graph, facts = read_npz(found, "optional"), (found.stem, found.name, "as in the file")
    else:
        place = Path(os.path.abspath(found.path)).name  # of ".", too
        graph, facts = found.in_memory, (place, place, "as in the folder")
    return inputs_alone(graph) if graph.get("y") is None else finish(graph, *facts, seed)


def load_inputs(name: Name, root: Root = None) -> Data | GraphStore:
    """The inputs alone of a graph, named as for `load`; one on disk stays there."""
    found = _resolve(name)
    if isinstance(found, GraphStore):
        return found
    graph = load(name, root) if isinstance(found, Entry) else read_npz(found, "ignored")
    return inputs_alone(graph)


def inputs_alone(graph: Data) -> Data:
    """The `x`, which may have to be made, and the edges of a graph."""
    x, edge_index = graph.x, graph.edge_index
    if x is None:
        x = structural_features(edge_index, graph.num_nodes)
    return Data(x=x, edge_index=edge_index, edge_weight=graph.get("edge_weight"))


def load_entry(entry: Entry, root: Root = None, seed: int = 42) -> Data:
    """The graph of one entry of `datasets`, which may be a changed copy (another URL, say)."""
    file, origin = catalogue.locate(entry.file, root), entry.origin
    if file is not None:
        graph, origin = read_npz(file), file.name
        graph.edge_index = to_undirected(graph.edge_index, num_nodes=graph.y.numel())
    elif entry.name == "digits":
        graph = _digits()
    elif entry.source is None and entry.file is None:
        graph = communities(entry.nodes, entry.edges, entry.features, entry.classes)
    elif entry.source is None:
        raise DatasetError(
            f"{entry.name}: {entry.file} is not on this machine, and nobody offers this version of"
            f" it for download ({entry.origin}): put the file, as load describes it, at"
            f" $ALGNN_DATA/{entry.file}"
        )
    else:
        files = catalogue.fetch(entry.source, root)
        graph, first = catalogue.process(entry.source, files), next(iter(files.values()))
        if first.suffix == ".npz":
            with contextlib.suppress(DatasetError):  # pickled names, which we do not read
                graph.class_names = class_names(read_arrays(first, ("class_names",)), graph.y)
    if entry.name.endswith("-graph"):
        graph.x = None
    if entry.split == RANDOM_SPLIT:
        # one that is in a file is a draw like any other
        names = graph.get("class_names")
        graph = Data(x=graph.x, edge_index=graph.edge_index, y=graph.y, class_names=names)
    return finish(graph, entry.name, origin, entry.split, seed, directed=False)


def available(name: Name, root: Root = None) -> bool:
    """Whether a graph, named as for `load`, can be loaded without a network."""
    found = _resolve(name)
    if isinstance(found, Entry):
        return found.status(root) == "ready"
    return isinstance(found, GraphStore) or found.exists()


def _resolve(name: Name, root: Root = None) -> Entry | Path | GraphStore:
    found = catalogue.find(name, root)
    if isinstance(found, Entry) or (isinstance(found, Path) and not found.is_dir()):
        return found
    return GraphStore(found)


def finish(
    graph: Data, name: str, source: str, split: str, seed: int, directed: bool | None = None
) -> Data:
    """Add what is missing (features, a split) and write down where everything comes from."""
    nodes, y, edge_index = graph.y.numel(), graph.y, graph.edge_index
    x, features = graph.x, "given"
    if x is None:
        x, features = structural_features(edge_index, nodes), STRUCTURAL
    masks = {key: graph[key] for key in MASKS if graph.get(key) is not None}
    if not masks:
        masks, split = _random_split(y, seed), f"{RANDOM_SPLIT}, seed {seed}"
    result = Data(x=x, edge_index=edge_index, y=y, edge_weight=graph.get("edge_weight"), **masks)
    if directed is None:
        directed = not is_undirected(edge_index, num_nodes=nodes)
    loops = int((edge_index[0] == edge_index[1]).sum())
    edges = edge_index.size(1) if directed else (edge_index.size(1) + loops) // 2
    result.provenance = {
        "name": name, "source": source, "split": split, "features": features, "nodes": nodes,
        "edges": edges, "directed": directed, "classes": torch.unique(y[y >= 0]).numel(),
        "sha256": _digest(result, features),
    }  # fmt: skip
    result.class_names = graph.get("class_names")
    return result


def structural_features(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Â^k R for each k of `HOPS`, rows of each block of length one; R [N, WIDTH] is Gaussian.

    Nodes whose k-hop neighbourhoods overlap get similar rows (Johnson–Lindenstrauss: inner products
    of rows of Â^k R estimate those of Â^k), so a linear classifier can tell communities apart.
    """
    adjacency = normalised_adjacency(edge_index, num_nodes)
    draws = np.random.Generator(np.random.Philox(SEED))
    # drawn on the CPU by numpy, so that neither device nor machine changes the features
    current = torch.from_numpy(draws.standard_normal((num_nodes, WIDTH), dtype=np.float32))
    current = current.to(edge_index.device)
    features = current.new_empty(num_nodes, len(HOPS), WIDTH)
    for hop in range(1, max(HOPS) + 1):
        current = spmm(adjacency, current)
        if hop in HOPS:
            features[:, HOPS.index(hop)] = normalize(current)
    return features.flatten(1)


def _random_split(y: Tensor, seed: int) -> dict[str, Tensor]:
    labelled = (y >= 0).nonzero().squeeze(1)
    generator = torch.Generator().manual_seed(int(seed))
    shuffled = labelled[torch.randperm(labelled.numel(), generator=generator)]
    train, val = round(TRAIN_SHARE * labelled.numel()), round(VAL_SHARE * labelled.numel())
    parts = shuffled.tensor_split([train, train + val])
    return {key: index_to_mask(part, y.numel()) for key, part in zip(MASKS, parts, strict=True)}


def _digest(graph: Data, features: str) -> str:
    # structural features count by their recipe: their last bits depend on the machine
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
            for block in blocks(part.size(0), part[:1].nbytes):  # no copy of all edges
                digest.update(part[block].contiguous().numpy())
    return digest.hexdigest()[:16]


def _digits() -> Data:
    """The digits inside scikit-learn, each joined to its nearest."""
    from sklearn.datasets import load_digits  # a second, which other graphs need not wait

    images, labels = load_digits(return_X_y=True)
    # the pixels are whole numbers, so distances are exact in float64; ties go to the lower index
    count, squares = len(images), (images**2).sum(axis=1)
    distances = squares[:, None] + squares[None, :] - 2 * images @ images.T
    ranks = distances.astype(np.int64) * count + np.arange(count)
    np.fill_diagonal(ranks, np.iinfo(np.int64).max)
    nearest = np.argpartition(ranks, DIGITS_NEIGHBOURS - 1, axis=1)[:, :DIGITS_NEIGHBOURS]
    sources = np.repeat(np.arange(count), DIGITS_NEIGHBOURS)
    edges = to_undirected(torch.from_numpy(np.stack([sources, nearest.ravel()])))
    x = torch.from_numpy((images / 16).astype(np.float32))
    return Data(x=x, edge_index=edges, y=torch.from_numpy(labels).long())


def arxiv(folder: str) -> list[Data]:
    """ogbn-arxiv from OGB's raw files, so that neither `ogb` nor its cache is needed."""
    made = Path(folder) / "graph"  # tables take long to parse
    if not catalogue.is_graph(made):
        write_ogb(Path(folder), made, undirected=True)
    graph = GraphStore(made).in_memory
    graph.edge_index = graph.edge_index.flip(0)  # sorted by source, as `to_undirected` does
    return [graph]


def heterophilous(folder: str, file: str) -> list[Data]:
    """A graph of Platonov et al.: an ``.npz`` of features, labels and directed edges."""
    arrays = read_arrays(Path(folder) / file, ("node_features", "node_labels", "edges"))
    x, y, edges = (torch.from_numpy(array) for array in arrays.values())
    edges = to_undirected(edges.t().long(), num_nodes=y.numel())
    return [Data(x=x.float(), edge_index=remove_self_loops(edges)[0], y=y.long())]
