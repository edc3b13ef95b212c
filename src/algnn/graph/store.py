"""A graph in a folder, in partitions of consecutive nodes that are mapped into memory.

The folder holds ``manifest.json`` (version, shapes, SHA-256 of each file) and for each partition a
folder of ``.npy`` files:

- ``indptr`` [b + 1], ``indices`` [e] and, if edges have weights, ``weights`` [e]: the sources of
  the edges that end in each of its b nodes;
- ``x`` [b, d] float32, or ``x_indptr``, ``x_indices``, ``x_data`` where features are sparse;
- ``y`` [b] (-1 = no label) and ``split`` [b] (1, 2, 3 = train, val, test; 0 = none), if known;
- ``more_targets``, ``more_sources``, ``more_weights``: edges, sorted, that came with this partition
  and end in nodes of earlier ones. So a graph grows and no file is ever written again.
"""

import contextlib
import hashlib
import json
import mmap
import os
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn.errors import DatasetError, InputError
from algnn.files import replacing, write_atomically
from algnn.graph.catalogue import MANIFEST, Name, cache_dir, filesystem
from algnn.graph.npz import MASKS
from algnn.graph.propagate import csr, inverse_roots, looped_rows, scaled_rows, take_rows

VERSION = 1
FLOAT = torch.float64
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
DEFAULT_MEMORY = "4GiB"
KEYS = {"version", "nodes", "edges", "features", "sparse", "weighted", "labelled", "split"}
KEYS |= {"class_names", "partitions"}
MORE = ("more_sources", "more_targets", "more_weights")


class GraphStore:
    """A graph on disk, which `algnn partition` or `write_graph` has made; also named `open_graph`.

    Only the manifest is read. `ALGNN` takes it wherever it takes a graph in memory, and gives the
    same answers.

    Parameters
    ----------
    path : str or path
        The folder; or an address that fsspec knows, such as ``s3://bucket/graph``, of which files
        are copied into `cache` when they are first needed.
    memory : str or int
        Bytes that encoding may take (``"4GiB"``, ``"500MB"``); pages of mapped files, which the
        system may drop at any time, are not counted.
    cache : str or path, optional
        A folder for what is computed from the graph, such as the views of an encoder, which later
        calls and processes use again. By default beside the graph, with the ending ``.cache``; of a
        remote graph, in the user's cache.
    verify : bool
        Whether to compare each file with its SHA-256; sizes are compared in any case.

    Attributes
    ----------
    num_nodes, num_edges, num_features : int
        N, E (directed), and the width of X.
    parts : list of slice
        The nodes of each partition: consecutive, and together 0 … N - 1.

    Examples
    --------
    >>> import algnn, tempfile
    >>> graph = algnn.load("digits")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = algnn.write_graph(graph, folder + "/digits", parts=3)
    ...     again = algnn.open_graph(folder + "/digits")
    ...     model = algnn.ALGNN().fit(again, range(200), graph.y[:200])
    ...     bool((model.predict(again) == model.predict(graph)).all())
    True
    """

    def __init__(
        self,
        path: Name,
        *,
        memory: str | int = DEFAULT_MEMORY,
        cache: Name | None = None,
        verify: bool = False,
    ) -> None:
        self.path = os.fspath(path).rstrip("/")
        self.memory = parse_bytes(memory)
        self.remote = "://" in self.path
        beside = cache_dir() / "graphs" if self.remote else Path(self.path + ".cache")
        self.cache = beside if cache is None else Path(cache)
        self.manifest = read_manifest(self.path)
        self.partitions: list[dict[str, Any]] = self.manifest["partitions"]
        self.parts = [slice(*part["nodes"]) for part in self.partitions]
        self.num_nodes, self.num_edges = self.manifest["nodes"], self.manifest["edges"]
        self.num_features: int = self.manifest["features"]
        self.shape: tuple[int, int] = (self.num_nodes, self.num_features)  # of X
        self.device = torch.device("cpu")
        self.runner: Any = None  # what runs the steps of encoding elsewhere, if anything does
        for name in self._files if verify or not self.remote else ():
            self._check(self.local(name), name, verify)

    def __repr__(self) -> str:
        return (
            f"GraphStore({self.path!r}, nodes={self.num_nodes}, edges={self.num_edges},"
            f" features={self.num_features}, parts={len(self.parts)})"
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of features and edges and of how they are partitioned; labels do not count."""
        labels = ("y.npy", "split.npy")
        named = [(n, f["sha256"]) for n, f in self._files.items() if not n.endswith(labels)]
        return hashlib.sha256(json.dumps(named).encode()).hexdigest()

    @property
    def folder(self) -> Path:
        """Where what is computed from this graph, as it is now, is kept."""
        return self.cache / self.fingerprint[:16]

    def take(self, rows: Tensor) -> Tensor:
        """Some rows of X, float32, dense or CSR as they are stored."""
        part_of = torch.bucketize(rows, torch.tensor([p.stop for p in self.parts]), right=True)
        places = {part: part_of == part for part in np.unique(part_of).tolist() or [0]}
        mine = {part: rows[there] - self.parts[part].start for part, there in places.items()}
        if not self.manifest["sparse"]:
            found = torch.empty(rows.numel(), self.num_features, dtype=torch.float32)
            for part, there in places.items():
                found[there] = self._map(part, "x")[mine[part]]
            return found
        some = [take_rows(self._sparse_x(part), local) for part, local in mine.items()]
        counts = torch.cat([rows.new_zeros(1), *(one.crow_indices().diff() for one in some)])
        columns = torch.cat([one.col_indices() for one in some])
        values = torch.cat([one.values() for one in some])
        joined = csr(counts.cumsum(0), columns, values, (rows.numel(), self.num_features))
        # from the order of partitions back to the one asked for
        return take_rows(joined, torch.argsort(torch.argsort(part_of, stable=True)))

    def edges(self, part: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Sources, targets and weights of all edges that end in a partition, by target."""
        rows, weighted = self.parts[part], self.manifest["weighted"]
        target = torch.repeat_interleave(self._map(part, "indptr").diff()) + rows.start
        found = [[self._map(part, "indices").long(), target, self._map(part, "weights")]]
        ends = torch.tensor([rows.start, rows.stop])
        for later in range(part + 1, len(self.parts)):
            if (targets := self._map(later, "more_targets")) is not None:
                mine = slice(*torch.searchsorted(targets, ends).tolist())
                found.append([self._map(later, name)[mine] for name in MORE[: 2 + weighted]])
        arrays = [torch.cat(some) for some in list(zip(*found, strict=False))[: 2 + weighted]]
        if len(found) > 1:
            order = torch.argsort(arrays[1], stable=True)
            arrays = [array[order] for array in arrays]
        return arrays[0], arrays[1], arrays[2] if weighted else None

    def adjacency(self, part: int) -> Tensor:
        """A partition's rows of Â in CSR, float32, mapped from the cache, where they are put."""
        names = [self.folder / "adjacency" / f"{part}-{name}.npy" for name in ("p", "i", "v")]
        if not all(name.exists() for name in names):
            rows = scaled_rows(self._looped(part), self.parts[part].start, self._roots)
            # torch wants both kinds of indices of one type
            large = max(self.num_nodes, rows.values().numel()) >= 2**31
            kind = torch.int64 if large else torch.int32
            parts = (rows.crow_indices().to(kind), rows.col_indices().to(kind), rows.values())
            for name, array in zip(names, parts, strict=True):
                save_array(name, array)
        starts, columns, values = map(mapped, names)
        return csr(starts, columns, values, (starts.numel() - 1, self.num_nodes))

    def labels(self) -> Tensor | None:
        """`y` [N] in int64, -1 for no label; None where labels are not stored."""
        return self._joined("y") if self.manifest["labelled"] else None

    @cached_property
    def in_memory(self) -> Data:
        """The whole graph as a `Data`, for methods that need it so."""
        sources, targets, weights = zip(*map(self.edges, range(len(self.parts))), strict=True)
        graph = Data(
            x=self.take(torch.arange(self.num_nodes)),
            edge_index=torch.stack([torch.cat(sources), torch.cat(targets)]),
            edge_weight=torch.cat(weights) if self.manifest["weighted"] else None,
            y=self.labels(),
            class_names=self.manifest["class_names"],
        )
        if self.manifest["split"]:
            split = self._joined("split")
            graph.update({key: split == code for code, key in enumerate(MASKS, 1)})
        return graph

    def local(self, name: str) -> Path:
        """The path on this machine of a file of the graph, which is fetched where it is remote."""
        if not self.remote:
            return Path(self.path) / name
        # by its content: no copy is ever out of date
        here = self.cache / "files" / f"{self._files[name]['sha256'][:32]}.npy"
        if not here.exists():
            system, place = filesystem(self.path)
            with replacing(here) as temporary:
                with contextlib.suppress(FileNotFoundError):  # which the next line says better
                    system.get_file(f"{place}/{name}", str(temporary))
                self._check(temporary, name, verify=True)
        return here

    @cached_property
    def _files(self) -> dict[str, dict[str, Any]]:
        """Each file by its name: bytes, SHA-256, shape and type."""
        return {f"{p['name']}/{n}": f for p in self.partitions for n, f in p["files"].items()}

    def _check(self, path: Path, name: str, verify: bool) -> None:
        facts, remedy = self._files[name], "partition it again"
        if not path.is_file():
            raise DatasetError(f"{name} is missing from the graph: {remedy}")
        if path.stat().st_size != facts["bytes"] or (verify and _digest(path) != facts["sha256"]):
            raise DatasetError(f"{name} is not as it was written (it is damaged): {remedy}")

    def _map(self, part: int, name: str) -> Any:
        """An array of a partition, mapped; None where it has none of that name."""
        facts, file = self.partitions[part], f"{name}.npy"
        return mapped(self.local(f"{facts['name']}/{file}")) if file in facts["files"] else None

    def _joined(self, name: str) -> Tensor:
        """An array of all partitions, one after another."""
        return torch.cat([self._map(part, name) for part in range(len(self.parts))])

    def _sparse_x(self, part: int) -> Tensor:
        names = ("x_indptr", "x_indices", "x_data")
        starts, columns, values = (self._map(part, name) for name in names)
        return csr(starts, columns, values, (starts.numel() - 1, self.num_features))

    @cached_property
    def _roots(self) -> Tensor:
        """D^(-1/2) [N]."""
        place = self.folder / "adjacency" / "roots.npy"
        if not place.exists():
            found = [inverse_roots(self._looped(part)) for part in range(len(self.parts))]
            save_array(place, torch.cat(found))
        return mapped(place)

    def _looped(self, part: int) -> Tensor:
        return looped_rows(*self.edges(part), self.parts[part], self.num_nodes)


open_graph = GraphStore


class MemoryRows:
    """A graph in memory, as a single block of rows of Â and X, for the blocked encoder."""

    def __init__(self, adjacency: Tensor, x: Tensor) -> None:
        self._adjacency, self._x = adjacency, x
        self.parts, self.device = [slice(0, x.size(0))], x.device
        self.shape = (x.size(0), x.size(1))

    def take(self, rows: Tensor) -> Tensor:
        """Some rows of X, dense or CSR."""
        return take_rows(self._x, rows)

    def adjacency(self, part: int) -> Tensor:
        """Â, in CSR; it is the one block there is."""
        return self._adjacency


GraphRows = MemoryRows | GraphStore


def node_count(graph: Data | GraphStore) -> int:
    """N, of a graph in memory or on disk."""
    return graph.num_nodes if isinstance(graph, GraphStore) else int(graph.x.size(0))


def whole(graph: Data | GraphStore) -> Data:
    """A graph in memory, also where it was on disk."""
    return graph.in_memory if isinstance(graph, GraphStore) else graph


def read_manifest(path: Name) -> dict[str, Any]:
    """The checked manifest of a graph on disk."""
    name = os.fspath(path).rstrip("/")  # to an object store, a second slash is another name
    place = f"{name}/{MANIFEST}"
    try:
        if "://" in name:
            system, there = filesystem(place)
            found = json.loads(system.cat_file(there))
        else:
            found = json.loads(Path(place).read_bytes())
    except FileNotFoundError:
        raise DatasetError(
            f"{name} is no graph on disk (it has no {MANIFEST}): make one with algnn partition"
        ) from None
    except (ValueError, OSError) as error:
        raise DatasetError(f"{place} cannot be read: {error}") from error
    if not isinstance(found, dict) or found.get("format") != "algnn graph":
        raise DatasetError(f"{place} is not the manifest of a graph")
    if (version := found.get("version", VERSION)) != VERSION:
        raise DatasetError(
            f"{name} has version {version} of the format and this algnn reads {VERSION}"
        )
    try:
        sound = _consistent(found)
    except (LookupError, TypeError, AttributeError, ValueError):
        sound = False
    if not sound:
        raise DatasetError(f"{place} is not as it was written (it is damaged): partition it again")
    return found


def _consistent(manifest: dict[str, Any]) -> bool:
    """Whether the sizes, flags, partitions and files of a manifest belong together."""
    end = edges = 0
    for part in manifest["partitions"]:
        (start, stop), files = part["nodes"], part["files"]
        rows, count = stop - start, files["indices.npy"]["shape"]
        wanted = {"indptr.npy": [rows + 1]}
        if manifest["sparse"]:
            wanted |= {"x_indptr.npy": [rows + 1], "x_data.npy": files["x_indices.npy"]["shape"]}
        else:
            wanted["x.npy"] = [rows, manifest["features"]]
        flags = {"weighted": ("weights", count), "labelled": ("y", [rows])}
        flags["split"] = ("split", [rows])
        wanted |= {f"{name}.npy": shape for flag, (name, shape) in flags.items() if manifest[flag]}
        shapes = {name: facts["shape"] for name, facts in files.items()}
        known = all({"bytes", "sha256"} <= facts.keys() for facts in files.values())
        if start != end or rows < 0 or not known or not wanted.items() <= shapes.items():
            return False
        end, edges = stop, edges + part["edges"]
    return end == manifest["nodes"] and edges == manifest["edges"] and manifest.keys() >= KEYS


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest: the last step of a change, by which it counts."""
    write_atomically(folder / MANIFEST, json.dumps(manifest, indent=1).encode())


def parse_bytes(size: str | int) -> int:
    """A size in bytes from words such as ``"4GiB"`` or ``"500MB"``."""
    text = str(size).strip()
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:i?B)?", text, re.IGNORECASE)
    found = 0 if match is None else int(float(match[1]) * UNITS[match[2].upper()])
    if isinstance(size, bool) or not found:
        raise InputError(f"memory={size!r} is no size: give bytes, or words such as '4GiB'")
    return found


def mapped(path: Path, *, scattered: bool = False) -> Tensor:
    """An ``.npy`` file as a tensor over its mapped pages; what is written to it stays in memory.

    Of one that is read here and there (`scattered`), the system is told to read nothing ahead.
    """
    try:
        array = np.load(path, mmap_mode="c", allow_pickle=False)
    except FileNotFoundError:
        raise DatasetError(f"{path} is missing") from None
    except (EOFError, ValueError) as error:
        remedy = "delete it if it is in a cache, where it is made again, or else partition again"
        raise DatasetError(f"{path} is no whole array ({error}): {remedy}") from error
    if scattered and hasattr(mmap, "MADV_RANDOM"):
        array._mmap.madvise(mmap.MADV_RANDOM)
    return torch.from_numpy(array)


def save_array(path: Path, array: Tensor | npt.NDArray[Any]) -> dict[str, Any]:
    """Write an array as ``.npy``, whole or not at all; returns its line in a manifest."""
    values = np.ascontiguousarray(array.numpy() if isinstance(array, Tensor) else array)
    with replacing(path) as temporary:
        # to be read as well: else NumPy hands it to C, which does not notice a full disk
        with temporary.open("w+b") as file:
            np.save(file, values, allow_pickle=False)
        facts = {"bytes": temporary.stat().st_size, "sha256": _digest(temporary)}
    return {"shape": list(values.shape), "dtype": str(values.dtype), **facts}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
