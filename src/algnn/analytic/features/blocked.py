"""The blocked encoder: views of all nodes, a block of columns and a block of rows at a time.

It is the same from memory and from disk, in one process and on a cluster. For each block of columns
three arrays [N, k] in float64 are held: the inputs, and what a hop reads and writes. A hop is one
product for each block of rows (a partition), and these are independent of each other. How wide a
block of columns is follows from the memory that may be used, and no digit depends on it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache, partial
from itertools import count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from algnn.errors import InputError
from algnn.files import make_folder, replacing
from algnn.graph.propagate import GPU_BLOCK_BYTES, blocks, csr, spmm, without_diagonal
from algnn.graph.store import FLOAT, GraphRows, GraphStore, MemoryRows, mapped
from algnn.progress import tell

if TYPE_CHECKING:
    from algnn.analytic.features.hops import HopEncoder

PAGERANK_RETURN = 0.1  # PageRank's chance of going back to the node itself at each of its steps
PAGERANK_STEPS = 10
# Bytes of the three arrays of a block of columns, for a graph in memory. At a million nodes this is
# 134 columns; in blocks of two, a column takes many times as long (docs/scale/columns.json).
MEMORY_BYTES = 3072 * 2**20
# Of the memory that a graph on disk allows, these arrays get all but this, and this share at least:
# the wider a block of columns, the fewer times is each row of another node looked up.
OTHER_BYTES = 400 * 2**20
STORE_SHARE = 0.6
ARRAYS = 3
# Nodes so many ids apart on average are on pages of their own, and reading ahead finds none of
# them; so many threads wait for the disk at once. 5,000 of ten million nodes, none of them in the
# page cache, take 2 s; 5 s by one thread, and 19 s by one that reads ahead (docs/scale/cold.json).
SCATTERED = 256
READERS = 32

# an array of all nodes: a tensor, or an .npy file that every worker can map
Array = Tensor | Path


class Views:
    """Views and sizes of every node of a graph on disk; indexed by nodes, it gives rows of them.

    They are an ``.npy`` file [N, k] for each view and block of columns, and one for the sizes, each
    written whole or not at all. A block's name has both its ends: processes that cut columns in
    other ways can work in the same folder. Rows are made of length one when they are read.
    """

    def __init__(self, encoder: HopEncoder, step: int, device: Any, folder: Path):
        self.encoder, self.device, self.folder = encoder, torch.device(device), folder
        self.sizes = folder / "sizes.npy"
        self.columns = _columns(encoder, self._agreed(step))
        self._mapped = cache(mapped)

    def lacking(self, columns: list[slice]) -> list[slice]:
        """Those of some blocks of columns that are not there in all views."""
        return [c for c in columns if not all(file.exists() for file in self.files([c]))]

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Views and sizes [n, prepared_width] of some nodes, float32."""
        encoder, here = self.encoder, rows.cpu()
        found = torch.empty(rows.numel(), encoder.prepared_width, dtype=torch.float32)
        scattered = here.numel() > 0 and int(here.max() - here.min()) // here.numel() > SCATTERED
        files = self.files(self.columns)
        files |= {self.sizes: slice(encoder.breadth, None)} if encoder.sizes else {}
        with ThreadPoolExecutor(READERS if scattered else 1) as pool:
            parts = pool.map(lambda file: self._mapped(file, scattered=scattered)[here], files)
            for place, part in zip(files.values(), parts, strict=True):
                found[:, place] = part
        return encoder.unit(found).to(self.device)

    def files(self, columns: list[slice]) -> dict[Path, slice]:
        """The files of blocks of columns of all views, each with its place among all columns."""
        views = range(len(self.encoder.views))
        places = {self.file(v, c): _place(self.encoder, v, c) for c in columns for v in views}
        return {file: place for file, place in places.items() if place.start < place.stop}

    def file(self, view: int, columns: slice) -> Path:
        """The file of a block of columns of a view."""
        return self.folder / f"{view}-{columns.start}-{columns.stop}.npy"

    def _agreed(self, step: int) -> int:
        """The step by which columns were cut before, unless that takes more memory than we have."""
        # finished views take none; what was cut otherwise stays: another process may be at it
        firsts = self.folder.glob("0-0-*.npy")  # of each way to cut, the file that is written first
        before = [int(file.stem.split("-")[2]) for file in firsts]
        done = [b for b in before if not self.lacking(_columns(self.encoder, b))]
        return max(done or [b for b in before if b <= step], default=step)


# the views of all nodes, from which rows can be taken
Prepared = Tensor | Views


class Here:
    """Runs the steps of encoding in this process, one block of rows after another."""

    def __init__(self, graph: GraphRows) -> None:
        self.graph = graph

    def __call__(self, step: Callable[..., None], *args: Any) -> None:
        """Do a step for every block of rows."""
        for part in range(len(self.graph.parts)):
            step(self.graph, part, *args)

    def array(self, name: str, columns: int) -> Array:
        """An array of all nodes, [N, columns], in float64."""
        shape, device = (self.graph.shape[0], columns), self.graph.device
        if device.type == "cpu":
            # NumPy asks for huge pages, which matter where rows are gathered from all over
            return torch.from_numpy(np.empty(shape))
        return torch.empty(shape, dtype=FLOAT, device=device)

    def close(self) -> None:
        """Nothing is left behind."""


def encoded(encoder: HopEncoder, graph: GraphRows, device: Any = "cpu") -> Prepared:
    """Views and sizes of every node: computed, or found where an earlier call has put them."""
    nodes, width = graph.shape[0], encoder.prepared_width
    if not isinstance(graph, GraphStore):
        most = GPU_BLOCK_BYTES if graph.device.type == "cuda" else MEMORY_BYTES
        columns = _columns(encoder, _step(encoder.view_width, nodes, most))
        found = torch.empty(nodes, width, dtype=torch.float32, device=graph.device)
        run = Here(graph)
        if encoder.sizes:
            run(fill, encoder.size_columns, found[:, encoder.breadth :])
        for view, some, array in computed(encoder, run, columns):
            run(keep, array, found[:, _place(encoder, view, some)])
        return encoder.unit(found)
    most = max(int(STORE_SHARE * graph.memory), graph.memory - OTHER_BYTES)
    step = _step(encoder.view_width, nodes, most)
    views = Views(encoder, step, device, graph.folder / f"views-{encoder.fingerprint[:16]}")
    measured, lacking = not encoder.sizes or views.sizes.exists(), views.lacking(views.columns)
    if lacking or not measured:
        try:
            make_folder(views.folder)
        except InputError as error:
            remedy = "algnn.open_graph(..., cache=FOLDER) puts what is computed elsewhere"
            raise InputError(f"the cache {error}; {remedy}") from error
    with closing(graph.runner or Here(graph)) as run:
        if not measured:
            with replacing(views.sizes) as target:
                new_file(target, (nodes, width - encoder.breadth), np.float32)
                run(fill, encoder.size_columns, target)
        for view, some, array in computed(encoder, run, lacking):
            with replacing(views.file(view, some)) as target:
                place = _place(encoder, view, some)
                new_file(target, (nodes, place.stop - place.start), np.float32)
                run(keep, array, target)
    return views


def computed(
    encoder: HopEncoder, run: Any, blocks_of_columns: list[slice]
) -> Iterator[tuple[int, slice, Array]]:
    """Each view, and each of some blocks of its columns, with the array that holds them."""
    # An open walk goes on from an open one before it: `gone` are the hops that it finds done.
    # Before the first view stands X itself, the view "0".
    pairs = pairwise(("0", *encoder.views))
    gone = [steps(a) if a.startswith("open") and b.startswith("open") else 0 for a, b in pairs]
    hops = [steps(view) - start for view, start in zip(encoder.views, gone, strict=True)]
    starts = [columns.start for columns in blocks_of_columns]
    needed = sum(h for s in starts for h, w in zip(hops, encoder.widths, strict=True) if s < w)
    total, done = len(starts) + needed, count()

    def step(*args: Any) -> None:
        tell("neighbourhoods", next(done), total)
        run(*args)

    for columns in blocks_of_columns:
        X, *free = (run.array(name, columns.stop - columns.start) for name in "xab")
        step(fill, partial(encoder.source, columns), X)
        current = X
        for at, view in enumerate(encoder.views):
            if columns.start >= encoder.widths[at]:
                continue
            current = walk(step, view, X, free, current if gone[at] else X, hops[at])
            yield at, columns, current


def walk(run: Any, view: str, X: Array, free: list[Array], current: Array, hops: int) -> Array:
    """So many more hops of a view that starts from X, with two arrays to write to."""
    for _ in range(hops):
        out = free[1] if current is free[0] else free[0]
        run(hop, view.startswith("open"), current, out, X if view == "pagerank" else None)
        current = out
    return current


def polynomial(view: str, adjacency: Tensor, x: Tensor) -> Tensor:
    """A view's polynomial of Â, given whole, applied to X [N, k] in float64."""
    run = Here(MemoryRows(adjacency, x))
    free = [run.array(name, x.size(1)) for name in "ab"]
    return opened(walk(run, view, x, free, x, steps(view)))


def steps(view: str) -> int:
    """How many hops away a view looks: the degree of its polynomial."""
    return PAGERANK_STEPS if view == "pagerank" else int(view.removeprefix("open"))


# -- the steps, for one block of rows -------------------------------------------------------------


def fill(graph: GraphRows, part: int, made_of: Callable[[Tensor], Tensor], out: Array) -> None:
    """What is made of rows of X, a block of them after another."""
    into, rows = opened(out, write=True), graph.parts[part]
    # by X in float32: each block reads all of the matrix that wide features are reduced by
    for block in blocks(rows.stop - rows.start, 4 * graph.shape[1], graph.device):
        place = slice(rows.start + block.start, rows.start + block.stop)
        some = graph.take(torch.arange(place.start, place.stop, device=graph.device))
        into[place] = made_of(some)


def hop(
    graph: GraphRows, part: int, without_self: bool, source: Array, out: Array, beside: Array | None
) -> None:
    """A block of rows of Â, or of Â without its diagonal, times an array.

    A walk that returns has its start, `beside`, in it by a share.
    """
    x, into = opened(source), opened(out, write=True)
    start = None if beside is None else opened(beside)
    first, matrix = graph.parts[part].start, graph.adjacency(part)
    starts = matrix.crow_indices()
    for block in blocks(matrix.size(0), 8 * x.size(1), x.device):
        a, b = block.start, block.stop
        entries = slice(int(starts[a]), int(starts[b]))
        columns, values = matrix.col_indices()[entries], matrix.values()[entries].to(FLOAT)
        some = csr(starts[a : b + 1] - starts[a], columns, values, (b - a, matrix.size(1)))
        some = without_diagonal(some, first + a) if without_self else some
        rows = slice(first + a, first + b)
        into[rows] = spmm(some, x, None if start is None else start[rows], PAGERANK_RETURN)


def keep(graph: GraphRows, part: int, source: Array, target: Array) -> None:
    """An array, rounded to the type of the target, as a block of columns of a view."""
    rows = graph.parts[part]
    into = opened(target, write=True)
    into[rows] = opened(source)[rows, : into.size(1)]


def opened(array: Array, *, write: bool = False) -> Tensor:
    """An array as a tensor; one that is a file is mapped."""
    if isinstance(array, Tensor):
        return array
    return torch.from_numpy(np.load(array, mmap_mode="r+")) if write else mapped(array)


def new_file(path: Path, shape: tuple[int, int], kind: Any) -> None:
    """An ``.npy`` file of zeros, with room on disk: a full one kills who writes to mapped pages."""
    np.lib.format.open_memmap(path, mode="w+", dtype=kind, shape=shape)
    if hasattr(os, "posix_fallocate"):
        try:
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error


def _columns(encoder: HopEncoder, step: int) -> list[slice]:
    ends = pairwise([*range(0, encoder.view_width, step), encoder.view_width])
    return [slice(*pair) for pair in ends]


def _place(encoder: HopEncoder, view: int, columns: slice) -> slice:
    """Where a view's columns are among those of all views; empty beyond a narrow view's last."""
    first, width = sum(encoder.widths[:view]), encoder.widths[view]
    return slice(first + min(columns.start, width), first + min(columns.stop, width))


def _step(width: int, count: int, most: int) -> int:
    """Columns in a block: about the same in all blocks, and as many as memory allows."""
    widest = max(1, most // (ARRAYS * 8 * max(1, count)))
    return -(-width // -(-width // widest))
