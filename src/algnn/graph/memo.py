"""A cache of what was computed from a graph, for as long as the graph stays the same."""

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn.graph.store import GraphStore

Value = TypeVar("Value")


class Last(Generic[Value]):
    """The last value computed for an object, which is told by its identity."""

    def __init__(self) -> None:
        # key and value in one tuple: another thread sees both or neither
        self._entry: tuple[Any, Value] | None = None

    def get(self, owner: Any, compute: Callable[[], Value]) -> Value:
        """The cached value for this object, else a new one."""
        entry = self._entry  # read once: another thread may replace it meanwhile
        if entry is None or entry[0] is not owner:
            self._entry = entry = (owner, compute())
        return entry[1]

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return (type(self), ())  # copied and pickled empty


class Memo(Last[Value]):
    """The last value computed from some tensors, until one of them changes or is deleted.

    A change that torch does not count (through NumPy, in shared memory) is not noticed.
    """

    def get(self, owner: tuple[Tensor, ...], compute: Callable[[], Value]) -> Value:
        """The cached value for these tensors as they are, else a new one."""
        if any(t.is_inference() for t in owner):
            return compute()  # such tensors do not count their changes
        entry = self._entry
        versions = [(id(t), t._version) for t in owner]
        if entry is not None and versions == [(id(ref()), version) for ref, version in entry[0]]:
            return entry[1]
        self._entry = None
        with torch.inference_mode(False):  # a cached value may be used outside of it later
            value = compute()
        # the value is dropped with the first of its tensors, so that no graph outlives its owner
        key = [(weakref.ref(t, self._drop), t._version) for t in owner]
        self._entry = (key, value)
        return value

    def _drop(self, _: weakref.ref[Tensor]) -> None:
        self._entry = None


def inputs_of(graph: Data | GraphStore) -> tuple[Tensor, ...]:
    """The tensors of a graph that a learner looks at, as a key; of one on disk, its token."""
    if isinstance(graph, GraphStore):
        return (graph.token,)
    weight = graph.get("edge_weight")
    return (graph.x, graph.edge_index, *(() if weight is None else (weight,)))
