"""What a learner makes of a graph before it learns: checks, Â and X, once for each graph."""

import weakref
from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar, Generic, TypeVar, cast

import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn.checks import check_graph, check_kind, check_width, edges_of, resolve_device
from algnn.graph.propagate import normalised_adjacency, to_csr
from algnn.graph.store import GraphRows, GraphStore, MemoryRows, whole

Value = TypeVar("Value")


class Memo(Generic[Value]):
    """The last value computed from some objects, until a tensor of them changes or one is deleted.

    A change that torch does not count (through NumPy, in shared memory) is not noticed.
    """

    def __init__(self) -> None:
        # key and value in one tuple: another thread sees both or neither
        self._entry: tuple[Any, Value] | None = None

    def get(self, owners: tuple[Any, ...], compute: Callable[[], Value]) -> Value:
        """The cached value for these objects as they are, else a new one."""
        if any(isinstance(o, Tensor) and o.is_inference() for o in owners):
            return compute()  # such tensors do not count their changes
        entry = self._entry  # read once: another thread may replace it meanwhile
        versions = [(id(o), getattr(o, "_version", 0)) for o in owners]  # only tensors have any
        if entry is not None and versions == [(id(ref()), version) for ref, version in entry[0]]:
            return entry[1]
        self._entry = None
        with torch.inference_mode(False):  # a cached value may be used outside of it later
            value = compute()
        # the value is dropped with the first of its owners, so that it outlives no graph; and it is
        # of the versions from before, which another thread may have changed meanwhile
        refs = (weakref.ref(o, self._drop) for o in owners)
        self._entry = ([(r, v) for r, (_, v) in zip(refs, versions, strict=True)], value)
        return value

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return (type(self), ())  # copied and pickled empty

    def _drop(self, _: weakref.ref[Any]) -> None:
        self._entry = None


def inputs_of(graph: Data | GraphStore) -> tuple[Any, ...]:
    """The tensors of a graph that a learner looks at, as a key; one on disk stands for itself."""
    if isinstance(graph, GraphStore):
        return (graph,)
    weight = graph.get("edge_weight")
    return (graph.x, graph.edge_index, *(() if weight is None else (weight,)))


class GraphCache:
    """The part of a learner that checks graphs, and caches Â and X of the last one."""

    device: str
    _memos: dict[str, Memo[Any]]
    # whether a graph on disk may stay there
    _takes_stores: ClassVar[bool] = False

    @property
    def _device(self) -> torch.device:
        return resolve_device(self.device)

    def _check_graph(self, graph: Data | GraphStore, width: int | None) -> Data:
        """The graph, with an `edge_index`; checked once for as long as it stays the same."""
        if isinstance(graph, GraphStore):  # which was checked when it was written
            check_width(graph.num_features, width)
            return graph if self._takes_stores else whole(graph)
        check_kind(graph)
        adj_t = graph.get("adj_t")
        if adj_t is not None and graph.get("edge_index") is None:
            graph, packed = copy(graph), graph
            graph.update(self._memos["edges"].get((adj_t,), lambda: edges_of(packed)))
            del graph.adj_t
        self._memos["sound"].get(inputs_of(graph), lambda: check_graph(graph))
        check_width(graph.x.size(1), width)
        return graph

    def _adjacency(self, graph: Data) -> Tensor:
        """Â on the learner's device, built once for as long as the edges stay the same."""

        def build() -> Tensor:
            edges = graph.edge_index.to(self._device)
            return normalised_adjacency(edges, graph.x.size(0), graph.get("edge_weight"))

        return cast(Tensor, self._memos["adjacency"].get(inputs_of(graph), build))

    def _rows(self, graph: Data | GraphStore) -> GraphRows:
        """The graph by blocks of rows: one block, or partitions on disk."""
        if isinstance(graph, GraphStore):
            return graph
        return MemoryRows(self._adjacency(graph), self._inputs(graph, sparse=True))

    def _inputs(self, graph: Data, *, sparse: bool = False) -> Tensor:
        """X in float32 on the learner's device, moved once: dense or, where it may stay so, CSR."""
        sparse = sparse and graph.x.layout != torch.strided

        def build() -> Tensor:
            # detached: a tensor of its own, so that the memo does not keep its own key alive
            x: Tensor = graph.x.detach().to(self._device, torch.float32)
            return to_csr(x) if sparse else x.to_dense()

        memo = self._memos["sparse inputs" if sparse else "inputs"]
        return cast(Tensor, memo.get((graph.x,), build))
