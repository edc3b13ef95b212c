"""A cache of what was computed from a graph, for as long as the graph stays the same."""

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn.graph.store import GraphStore

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
        # the value is dropped with the first of its owners, so that it outlives no graph
        key = [(weakref.ref(o, self._drop), getattr(o, "_version", 0)) for o in owners]
        self._entry = (key, value)
        return value

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return (type(self), ())  # copied and pickled empty

    def _drop(self, _: weakref.ref[Any]) -> None:
        self._entry = None


def inputs_of(graph: Data | GraphStore) -> tuple[Tensor, ...]:
    """The tensors of a graph that a learner looks at, as a key; of one on disk, its token."""
    if isinstance(graph, GraphStore):
        return (graph.token,)
    weight = graph.get("edge_weight")
    return (graph.x, graph.edge_index, *(() if weight is None else (weight,)))
