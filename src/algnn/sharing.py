"""What threads share of a learner: its state and what it has made of the last graph.

Readers see one state and never wait, writers take turns.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from functools import cached_property, wraps
from threading import RLock
from typing import Any, ClassVar, Self, TypeVar, cast

import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn.checks import check_graph, check_kind, check_width, edges_of, resolve_device
from algnn.errors import InputError
from algnn.graph.memo import Memo, inputs_of
from algnn.graph.propagate import normalised_adjacency, to_csr
from algnn.graph.rows import GraphRows, MemoryRows
from algnn.graph.store import GraphStore, whole

Method = TypeVar("Method", bound=Callable[..., Any])


def changes(method: Method) -> Method:
    """A method that changes a learner: one such call at a time, others wait for their turn."""

    @wraps(method)
    def in_turn(self: Shared, /, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            return method(self, *args, **kwargs)

    return cast(Method, in_turn)


@contextmanager
def full_precision() -> Iterator[None]:
    """A context without the caller's autocast."""
    with ExitStack() as stack:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """A context in which torch learns as it does by default, whatever the caller has switched."""
    with torch.inference_mode(False), torch.enable_grad(), full_precision():
        yield


class Shared:
    """A learner's state, replaced in one step so that a view of it is always consistent.

    Graphs are checked, and Â and X of the last one cached.
    """

    device: str
    # whether a graph on disk may stay there
    _takes_stores: ClassVar[bool] = False
    # parameters that decide what the base session makes, and may not change until the next `fit`
    _fixed: ClassVar[tuple[str, ...]] = ()
    _learned: Any = None
    _learned_with: dict[str, Any] | None = None  # the values of `_fixed` then
    _lock: RLock

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """An object with its lock and its caches, also where it is copied or unpickled."""
        # not when they are first needed, so that what a view computes is there for the next one
        self = super().__new__(cls)
        self._lock = RLock()
        for name in {name for kind in cls.__mro__ for name in vars(kind)}:
            if isinstance(getattr(cls, name, None), cached_property):
                getattr(self, name)
        return self

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_lock"}

    def _view(self) -> Self:
        """The learner as it is now, which no other thread changes: for calls that only read."""
        view: Self = object.__new__(type(self))
        # in one step: what was learned, and the parameters that belong to it
        view.__dict__.update(self.__dict__)
        return view

    def _replace(self, learned: Any, **params: Any) -> None:
        """Take a new state, and parameters that belong to it, in one step."""
        fixed = {name: getattr(self, name) for name in self._fixed}
        self.__dict__.update(_learned=learned, _learned_with=fixed, **params)

    def _check_fixed(self) -> None:
        """Raise `InputError` for a parameter that was changed though the state depends on it."""
        for name, value in (self._learned_with or {}).items():
            if getattr(self, name) != value:
                raise InputError(
                    f"{name}={getattr(self, name)!r} was set after fit, which had {name}={value!r},"
                    " and what was learned depends on it: set it back, or start anew with fit"
                )

    @property
    def _device(self) -> torch.device:
        return resolve_device(self.device)

    def _check_graph(self, graph: Data | GraphStore, width: int | None) -> Data:
        """The graph, with an `edge_index`; checked once for as long as it stays the same.

        One on disk was checked when it was written.
        """
        if isinstance(graph, GraphStore):
            check_width(graph.num_features, width)
            return graph if self._takes_stores else whole(graph)
        check_kind(graph)
        adj_t = graph.get("adj_t")
        if isinstance(adj_t, Tensor) and graph.get("edge_index") is None:
            graph, packed = copy(graph), graph
            graph.update(self._memos["edges"].get((adj_t,), lambda: edges_of(packed.adj_t)))
            del graph.adj_t
        tensors = inputs_of(graph)
        if all(isinstance(t, Tensor) for t in tensors):
            self._memos["sound"].get(tensors, lambda: check_graph(graph))
        else:
            check_graph(graph)
        check_width(graph.x.size(1), width)
        return graph

    def _adjacency(self, graph: Data) -> Tensor:
        """Â on the learner's device, built once for as long as the edges stay the same."""

        def build() -> Tensor:
            edges = graph.edge_index.to(self._device)
            return normalised_adjacency(edges, graph.x.size(0), graph.get("edge_weight"))

        adjacency: Tensor = self._memos["adjacency"].get(inputs_of(graph), build)
        return adjacency

    def _rows(self, graph: Data | GraphStore) -> GraphRows:
        """The graph by blocks of rows: one block, or partitions on disk."""
        if isinstance(graph, GraphStore):
            return graph
        return MemoryRows(self._adjacency(graph), self._inputs(graph, sparse=True))

    def _inputs(self, graph: Data, *, sparse: bool = False) -> Tensor:
        """X in float32 on the learner's device, moved once for as long as it stays the same.

        Dense; where a sparse X may stay so, in CSR.
        """
        sparse = sparse and graph.x.layout != torch.strided
        made: dict[bool, Tensor] = self._memos["inputs"].get((graph.x,), dict)
        if sparse not in made:
            # detached: a tensor of its own, so that the memo does not keep its own key alive
            x: Tensor = graph.x.detach().to(self._device, torch.float32)
            made[sparse] = to_csr(x) if sparse else x.to_dense()
        return made[sparse]

    @cached_property
    def _memos(self) -> dict[str, Memo[Any]]:
        return {name: Memo() for name in ("edges", "sound", "adjacency", "inputs")}
