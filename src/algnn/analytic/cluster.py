"""Encoding, sums and scores on a Dask cluster.

A hop is a task for each partition: it maps the rows that it needs from the array of the hop before
and writes its own rows of the next one. Sums of a session, and scores, are a task for some thousand
nodes; sums are added up in pairs in an order that follows from the nodes alone, so that neither the
number of workers nor one that dies and is replaced changes a bit.
"""

import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from algnn.analytic.features.blocked import Array, encoded, new_file
from algnn.analytic.features.hops import HopEncoder
from algnn.analytic.heads import Affine
from algnn.analytic.lifecycle.membership import Sketch
from algnn.analytic.statistics import Masks, Statistics, with_session
from algnn.errors import DatasetError, InputError
from algnn.files import LEFTOVER
from algnn.graph.propagate import blocks
from algnn.graph.store import GraphStore

RETRIES = 3  # of a task that fails, before the whole does
CHUNK_NODES = 8192  # nodes in a task of sums or scores
MOST_CHUNKS = 32  # tasks of sums, each of which holds a Gram matrix

# path, memory and cache, by which a worker opens the graph, and the fingerprint that it must have
Where = tuple[str, int, str, str]
# G, Q, n and classes of both sums: Dask sends these as they lie in memory, where it would pickle
# the tensors of a class
Sums = list[tuple[Any, ...]]


def on_cluster(graph: GraphStore, client: Any) -> GraphStore:
    """The same graph on disk, worked on by a Dask cluster.

    `ALGNN` gives the same answers with it; views are computed, sums added up and classes scored by
    the cluster's workers, and weights solved here.

    Parameters
    ----------
    graph : GraphStore
        As `algnn.open_graph` gives it, on a file system that all workers share under the same
        path, and so its cache. Its `memory` is what encoding may take on each worker.
    client : distributed.Client

    Returns
    -------
    GraphStore

    Examples
    --------
    >>> import algnn, distributed  # doctest: +SKIP
    >>> client = distributed.Client("tcp://head:8786")  # doctest: +SKIP
    >>> there = algnn.on_cluster(algnn.open_graph("graph"), client)  # doctest: +SKIP
    >>> algnn.ALGNN.load("model.safetensors").predict(there)  # doctest: +SKIP
    """
    if not isinstance(graph, GraphStore):
        raise InputError(
            f"graph is a {type(graph).__name__}: a cluster works on a graph on disk, which"
            " algnn.write_graph makes and algnn.open_graph opens"
        )
    if not hasattr(client, "submit"):
        raise InputError(f"client is a {type(client).__name__}: give a distributed.Client")
    there = copy(graph)
    there.runner = Cluster(graph, client)
    return there


class Cluster:
    """Runs the steps of encoding, sums and scores as Dask tasks."""

    def __init__(self, graph: GraphStore, client: Any) -> None:
        self.graph, self.client = graph, client
        # workers may run in other folders
        path = graph.path if graph.remote else str(Path(graph.path).absolute())
        self.where: Where = (path, graph.memory, str(graph.cache.absolute()), graph.fingerprint)
        self._scratch = graph.folder / f"scratch-{uuid.uuid4().hex[:12]}"
        self._steps = 0

    def __call__(self, step: Callable[..., None], *args: Any) -> None:
        """Do a step of encoding for every partition."""
        self._steps += 1
        current, new = self._scratch / "step", self._scratch / "next"
        # whole or not at all, but not synchronised: that would wait for the arrays, too
        self._scratch.mkdir(parents=True, exist_ok=True)
        new.write_text(str(self._steps), "utf-8")
        new.replace(current)
        turn = current.absolute(), self._steps
        parts = range(len(self.graph.parts))
        tasks = [self._submit(_do, turn, step, self.where, part, *args) for part in parts]
        self.client.gather(tasks)

    def array(self, name: str, columns: int) -> Array:
        """A file [N, columns] that all workers see."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        path = self._scratch / f"{name}.npy"
        new_file(path, (self.graph.num_nodes, columns), np.float64)
        return path.absolute()

    def close(self) -> None:
        """Remove the files of `array`, and those of clients that were killed."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        for left in self.graph.folder.glob("scratch-*"):
            with suppress(OSError):  # where another client has just removed it
                # each step writes its number there: without one for a day, the client is dead
                if time.time() - left.stat().st_mtime >= LEFTOVER:
                    shutil.rmtree(left, ignore_errors=True)

    def sums(
        self, encoder: HopEncoder, nodes: Tensor, labels: npt.NDArray[Any], masks: Masks, key: str
    ) -> tuple[Statistics, Statistics, list[Tensor]]:
        """G, Q and n of some nodes, those of each half, and sketches of their features."""
        tasks = []
        for at in _pieces(nodes.numel(), MOST_CHUNKS):
            some = nodes[at], labels[at], masks[:, at]
            tasks.append(self._submit(_sums, self.where, encoder, *some, key))
        # kept apart from the sums, which stay with the workers until they are one
        tree, sketches = ([self._submit(itemgetter(at), task) for task in tasks] for at in (0, 1))
        while len(tree) > 1:
            mid = len(tree) // 2  # of a power of two
            tree = [self._submit(_join, a, b) for a, b in zip(tree[:mid], tree[mid:], strict=True)]
        found, *parts = self.client.gather([*tree, *sketches])
        sums, half_sums = (Statistics(*some) for some in found)
        return sums, half_sums, [part for some in parts for part in some]

    def scores(self, encoder: HopEncoder, nodes: Tensor, W: Tensor, b: Tensor) -> Tensor:
        """Scores [n, C] of some nodes."""
        # a task, not data scattered to workers: what a worker held that dies is then made again
        head = self._submit(tuple, (W.cpu(), b.cpu()))
        pieces = _pieces(nodes.numel(), nodes.numel())
        tasks = [self._submit(_scores, self.where, encoder, nodes[at], head) for at in pieces]
        return torch.cat([W.cpu()[:0], *self.client.gather(tasks)]).to(W.device)

    def _submit(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.client.submit(function, *args, pure=False, retries=RETRIES)


def _pieces(count: int, most: int) -> list[slice]:
    """A session, or a question, in pieces of at most `CHUNK_NODES` nodes, or in `most` of them."""
    wanted = -(-count // CHUNK_NODES)
    # a power of two, which two, four or eight workers share evenly
    pieces = min(most, 1 << (wanted - 1).bit_length()) if count else 0
    cuts = np.linspace(0, count, pieces + 1).astype(int).tolist()
    return [slice(a, b) for a, b in pairwise(cuts)]


# -- tasks ----------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _opened(where: Where) -> GraphStore:
    path, memory, cache, fingerprint = where
    graph = GraphStore(path, memory=memory, cache=cache)
    if graph.fingerprint != fingerprint:
        raise DatasetError(
            f"{path} is not the graph that was opened: open it again if it has been changed since;"
            " workers must see it under the same path"
        )
    return graph


def _do(
    turn: tuple[Path, int], step: Callable[..., None], where: Where, part: int, *args: Any
) -> None:
    # Dask may do a task again long after its step, where the worker that held its result has died:
    # it must not write into arrays that later steps use
    current, mine = turn
    if int(current.read_text("utf-8")) <= mine:
        step(_opened(where), part, *args)


def _features(where: Where, encoder: HopEncoder, nodes: Tensor) -> Iterator[Tensor]:
    views = encoded(encoder, _opened(where))
    for block in blocks(nodes.numel(), 8 * encoder.width):
        yield encoder(views[nodes[block]])


def _sums(
    where: Where, encoder: HopEncoder, nodes: Tensor, labels: Any, masks: Masks, key: str
) -> tuple[Sums, list[Tensor]]:
    sketch = Sketch(key)
    features = sketch.watch(_features(where, encoder, nodes))
    nothing = Statistics.empty(encoder.width)
    halves = Statistics.empty(encoder.width, ways=len(masks))
    both = with_session(nothing, halves, features, labels, masks)
    return [_parts(sums) for sums in both], sketch.parts


def _join(one: Sums, other: Sums) -> Sums:
    pairs = zip(one, other, strict=True)
    return [_parts(Statistics(*ours).merged(Statistics(*theirs))) for ours, theirs in pairs]


def _parts(sums: Statistics) -> tuple[Any, ...]:
    return sums.G, sums.Q, sums.n, sums.classes


def _scores(where: Where, encoder: HopEncoder, nodes: Tensor, head: Affine) -> Tensor:
    W, b = head
    return torch.cat([torch.addmm(b, Z, W) for Z in _features(where, encoder, nodes)])
