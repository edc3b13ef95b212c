"""Write a graph in partitions: from memory, or from chunks of edges that need not fit there."""

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn.checks import NO_LABEL, check_graph, check_number
from algnn.errors import InputError
from algnn.files import locked, make_folder, naming
from algnn.graph import store
from algnn.graph.catalogue import MANIFEST, Name, filesystem, is_graph
from algnn.graph.npz import MASKS, NUMBERS, as_array, check_stored
from algnn.graph.propagate import take_rows, to_csr
from algnn.graph.store import GraphStore
from algnn.progress import counted

CHUNKS = "chunks (sources, targets, weights or None), arrays [e] of one length"
SORT_COPIES = 6  # arrays of the size of a partition's edges that sorting them takes
KINDS = {"source": np.int64, "target": np.int64, "weight": np.float32}

Ints = npt.NDArray[np.int64]
# sources, targets and, if edges have them, weights
Edges = tuple[Ints, Ints, npt.NDArray[np.float32] | None]


def write_graph(
    graph: Data, path: Name, parts: int = 1, *, memory: str | int = store.DEFAULT_MEMORY
) -> GraphStore:
    """Write a graph as a folder of partitions.

    Parameters
    ----------
    graph : Data
        With `x` [N, d], dense or sparse, and `edge_index` [2, E]; `edge_weight`, `y`, the masks and
        `class_names` are written where it has them.
    path : str or path
        The folder, which must not hold a graph yet; or an address that fsspec knows.
    parts : int
        How many partitions, of about as many nodes each.
    memory : str or int
        What sorting the edges of a partition may take, such as "8GiB".

    Returns
    -------
    GraphStore

    Examples
    --------
    >>> import algnn, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_graph(algnn.load("digits"), folder + "/digits", parts=4).parts[0]
    slice(0, 449, None)
    """
    check_graph(graph)
    edges = (*graph.edge_index, graph.get("edge_weight"))
    x = graph.x.detach().cpu().float()
    x = x if x.layout == torch.strided else to_csr(x)
    known = check_stored(graph, x.size(0))
    if known.keys() >= set(MASKS):
        known["split"] = sum(code * known.pop(key).byte() for code, key in enumerate(MASKS, 1))
    return write_partitions(path, x, [edges], parts=parts, memory=memory, **known)


def write_partitions(
    path: Name,
    x: Tensor,
    edges: Iterable[Edges],
    *,
    parts: int = 1,
    undirected: bool = False,
    y: Tensor | None = None,
    split: Tensor | None = None,
    class_names: list[str] | None = None,
    memory: str | int = store.DEFAULT_MEMORY,
) -> GraphStore:
    """Write a graph whose edges come in chunks (see `append_nodes`) and need not fit into memory.

    `x` [N, d] may be mapped from a file, or CSR; `y` and `split` are as in `store`. Edges are put
    into a file for each partition, and each is sorted in memory, which takes `memory` bytes.
    """
    check_number("parts", parts, 1, whole=True)
    nodes = x.size(0)
    bounds = np.linspace(0, nodes, parts + 1).astype(np.int64)
    rows = [slice(int(a), int(b)) for a, b in pairwise(bounds)]
    limit = store.parse_bytes(memory)
    with _local_folder(path) as folder:
        if is_graph(path):
            raise InputError(f"{path} holds a graph already: give another folder, or append to it")
        for left in folder.glob(".sorting-*"):  # by a command that was killed
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".sorting-") as work:
            weighted = bool(_distribute(edges, undirected, rows, Path(work), None))
            manifest: dict[str, Any] = {"format": "algnn graph", "version": store.VERSION}
            manifest |= {"nodes": nodes, "edges": 0, "features": x.size(1)}
            manifest |= {"sparse": x.layout != torch.strided, "weighted": weighted}
            manifest |= {"labelled": y is not None, "split": split is not None}
            manifest |= {"class_names": class_names, "partitions": []}
            known = {name: one for name, one in (("y", y), ("split", split)) if one is not None}
            for number, part in enumerate(counted("partitions", rows)):
                mine = _sorted(Path(work), number, weighted, limit, merge=undirected)
                own = take_rows(x, torch.arange(part.start, part.stop))
                more = {name: one[part] for name, one in known.items()}
                _write_partition(folder, manifest, part, mine, own, **more)
        store.write_manifest(folder, manifest)
    return GraphStore(path)


def append_nodes(
    path: Name,
    x: Tensor,
    edges: Iterable[Edges],
    *,
    undirected: bool = False,
    y: Tensor | None = None,
    memory: str | int = store.DEFAULT_MEMORY,
) -> GraphStore:
    """Add nodes, edges or both to a graph on disk as one more partition; no file is rewritten.

    Parameters
    ----------
    path, memory
        As for `write_graph`.
    x : Tensor [m, d]
        Features of the new nodes, whose ids follow those that are there; m may be 0.
    edges : iterable of (sources, targets, weights)
        Chunks: arrays int64 [e], int64 [e], and float32 [e] or, in all of them, None. Both ends may
        be old nodes or new ones.
    undirected : bool
        Whether to add the reverse of each edge; an edge that then occurs twice is kept once, with
        the sum of the weights.
    y : Tensor [m], int64, optional
        Labels of the new nodes; -1, for none, by default.

    Returns
    -------
    GraphStore

    Examples
    --------
    >>> import algnn, numpy as np, tempfile, torch
    >>> graph = algnn.load("digits")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = algnn.write_graph(graph, folder + "/digits")
    ...     edge = (np.array([0]), np.array([1797]), None)
    ...     append_nodes(folder + "/digits", torch.zeros(1, 64), [edge], undirected=True)
    GraphStore('...', nodes=1798, edges=24680, features=64, parts=2)
    """
    limit = store.parse_bytes(memory)
    store.read_manifest(path)  # before a lock is put into a folder that holds no graph
    with _local_folder(path) as folder:
        # of two that append at once, the second starts from what the first has written
        manifest = store.read_manifest(path)
        first, weighted, width = (manifest[key] for key in ("nodes", "weighted", "features"))
        real = isinstance(x, Tensor) and not x.is_complex()
        if not real or x.ndim != 2 or x.size(1) != width:
            words = f"{getattr(x, 'dtype', type(x).__name__)}, shape {list(np.shape(x))}"
            raise InputError(f"x ({words}) must be a tensor [m, {width}] of real numbers")
        part = slice(first, first + x.size(0))
        known = _new_labels(y, manifest, x.size(0))
        with tempfile.TemporaryDirectory() as work:
            rows = [slice(0, first), part]  # edges that end in old nodes, and in new ones
            _distribute(edges, undirected, rows, Path(work), weighted)
            old, new = (_sorted(Path(work), n, weighted, limit, merge=undirected) for n in (0, 1))
        x = x.detach().cpu().float()
        x = to_csr(x) if manifest["sparse"] else x.to_dense()
        manifest["nodes"], more = part.stop, dict(zip(store.MORE, old, strict=True))
        _write_partition(folder, manifest, part, new, x, **more, **known)
        store.write_manifest(folder, manifest)
    return GraphStore(path)


def _new_labels(y: Tensor | None, manifest: dict[str, Any], nodes: int) -> dict[str, Any]:
    """What a graph holds of labels and split, for new nodes."""
    if y is not None and not manifest["labelled"]:
        raise InputError("y is given and the graph has no labels: leave it out")
    if y is None and manifest["labelled"]:
        y = torch.full((nodes,), NO_LABEL)
    known = check_stored({"y": y}, nodes)
    if "class_names" in known:
        raise InputError("y holds strings: give ints, the classes that the graph has")
    names = manifest["class_names"]
    if names and "y" in known and bool((known["y"] >= len(names)).any()):
        raise InputError(
            f"y holds class {int(known['y'].max())}: class_names of the graph has {len(names)}, so"
            f" give 0 to {len(names) - 1}"
        )
    if manifest["split"]:
        known["split"] = np.zeros(nodes, np.uint8)
    return known


def _distribute(
    edges: Iterable[Edges], undirected: bool, rows: list[slice], work: Path, weighted: bool | None
) -> bool | None:
    """Append each edge, checked, to the files of its target's partition; whether edges weigh."""
    if not isinstance(edges, Iterable):
        raise InputError(f"edges is a {type(edges).__name__}: give {CHUNKS}")
    for chunk in edges:
        arrays = _check_chunk(chunk, rows[-1].stop)
        if weighted not in (None, len(arrays) == 3):
            wanted = f"edges must have {'' if weighted else 'no '}weights"
            raise InputError(f"{wanted}, as those of the graph, or before")
        weighted = len(arrays) == 3
        _put_aside(arrays, rows, work)
        if undirected:
            source, target, *weight = arrays
            apart = source != target
            _put_aside([one[apart] for one in (target, source, *weight)], rows, work)
    return weighted


def _put_aside(arrays: list[npt.NDArray[Any]], rows: list[slice], work: Path) -> None:
    part_of = np.searchsorted([part.stop for part in rows], arrays[1], side="right")
    ends = np.cumsum(np.bincount(part_of, minlength=len(rows)))
    for part, mine in enumerate(np.split(np.argsort(part_of, kind="stable"), ends[:-1])):
        for name, array in zip(KINDS, arrays, strict=False):
            if mine.size:
                with naming(work), (work / f"{part}-{name}").open("ab") as file:
                    file.write(array[mine].data)  # tofile does not notice a full disk


def _check_chunk(chunk: Any, nodes: int) -> list[npt.NDArray[Any]]:
    """A chunk as arrays of the types of `KINDS`; `InputError` for one that cannot be used."""
    if not isinstance(chunk, tuple | list) or len(chunk) != 3:
        raise InputError(f"edges holds a {type(chunk).__name__}: give {CHUNKS}")
    arrays = [as_array("edges", part) for part in chunk if part is not None]
    shapes = [array.shape for array in arrays]
    if any(part is None for part in chunk[:2]) or {(arrays[0].size,)} != set(shapes):
        raise InputError(f"edges holds a chunk of shapes {shapes}: give {CHUNKS}")
    for name, ends in zip(("source", "target"), arrays, strict=False):
        if ends.size and ends.dtype.kind not in "iu":  # an empty list is float
            raise InputError(f"edges: each {name} is {ends.dtype}: give ids, whole numbers")
        if ends.size and (ends.min() < 0 or ends.max() >= nodes):
            raise InputError(
                f"edges name {name} {ends.min()} to {ends.max()}: ids are 0 to {nodes - 1}, the"
                " rows of the features"
            )
    if len(arrays) == 3 and arrays[2].dtype.kind not in NUMBERS:
        raise InputError(f"edge weights are {arrays[2].dtype}: give numbers")
    with np.errstate(over="ignore"):  # what float32 cannot hold is found as infinite just below
        kinds = zip(arrays, KINDS.values(), strict=False)
        arrays = [array.astype(kind, copy=False) for array, kind in kinds]
    if not all((np.isfinite(weight) & (weight >= 0)).all() for weight in arrays[2:]):
        raise InputError("edge weights must be finite and at least 0")
    return arrays


def _sorted(work: Path, part: int, weighted: bool, limit: int, *, merge: bool) -> Edges:
    """The edges put aside for a partition, by target, then by source; equal ones may be merged."""
    files = [work / f"{part}-{name}" for name in KINDS]
    for file in files:
        file.touch()  # a partition may have no edges
    size = files[0].stat().st_size
    if SORT_COPIES * size > limit:
        more = -(-SORT_COPIES * size // limit)
        raise InputError(
            f"memory={limit:,} bytes is too little to sort the {size // 8:,} edges of a partition:"
            f" give {more} times as much, or so many times as many parts to a new graph"
        )
    kinds = list(zip(files, KINDS.values(), strict=True))[: 2 + weighted]
    arrays: list[Any] = [np.fromfile(file, kind) for file, kind in kinds]
    for file in files:
        file.unlink()
    order = np.lexsort(arrays[:2])
    for place in range(len(arrays)):  # one at a time: `memory` is for few copies
        arrays[place] = arrays[place][order]
    del order
    if merge and arrays[0].size:
        apart = (np.diff(one) != 0 for one in arrays[:2])
        first = np.flatnonzero(np.append(True, np.logical_or(*apart)))
        for place, array in enumerate(arrays):
            arrays[place] = array[first] if place < 2 else np.add.reduceat(array, first)
    return arrays[0], arrays[1], arrays[2] if weighted else None


def _write_partition(
    folder: Path, manifest: dict[str, Any], part: slice, edges: Edges, x: Tensor, **more: Any
) -> None:
    """Write a partition's edges, rows of X and `more`, but None; add them to the manifest."""
    source, target, weight = edges
    degrees = np.bincount(target - part.start, minlength=part.stop - part.start)
    starts = np.append(0, np.cumsum(degrees))
    indices = source.astype(np.int32 if manifest["nodes"] < 2**31 else np.int64)
    values = (x.values() if manifest["sparse"] else x).float()
    if not bool(torch.isfinite(values).all()):
        place = f"among nodes {part.start} to {part.stop - 1}"
        raise InputError(f"x holds NaN or infinite values {place}: replace them")
    arrays: dict[str, Any] = {"indptr": starts, "indices": indices, "weights": weight}
    if manifest["sparse"]:
        arrays |= {"x_indptr": x.crow_indices(), "x_indices": x.col_indices(), "x_data": values}
    else:
        arrays["x"] = values
    name, files = f"part-{len(manifest['partitions']):05d}", {}
    for key, array in (arrays | more).items():
        if array is not None:
            files[f"{key}.npy"] = store.save_array(folder / name / f"{key}.npy", array)
    count = source.size + len(more.get(store.MORE[0], ()))
    entry = {"name": name, "nodes": [part.start, part.stop], "edges": count, "files": files}
    manifest["partitions"].append(entry)
    manifest["edges"] += count


@contextmanager
def _local_folder(path: Name) -> Iterator[Path]:
    """The folder to write to, where a failure leaves nothing new; a remote one is filled last."""
    if "://" in str(path):
        system, place = filesystem(str(path))
        with tempfile.TemporaryDirectory() as work:
            yield (folder := Path(work))
            for file in sorted(folder.rglob("*.npy")):
                system.makedirs(f"{place}/{file.parent.name}", exist_ok=True)
                system.put_file(str(file), f"{place}/{file.relative_to(folder).as_posix()}")
            system.put_file(str(folder / MANIFEST), f"{place}/{MANIFEST}")
        return
    folder, was_there = Path(path), Path(path).is_dir()
    make_folder(folder)
    try:
        # of two that write at once, neither removes what the other has written
        with locked(folder / MANIFEST):
            there = set(folder.iterdir())
            try:
                yield folder
            except BaseException:
                for new in set(folder.iterdir()) - there:
                    shutil.rmtree(new, ignore_errors=True)  # which leaves files as they are
                raise
    finally:
        if not was_there:
            with suppress(OSError):  # where it holds anything
                folder.rmdir()
