"""A cache of what was computed from a graph, for as long as the graph stays the same."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn.graph.store import GraphStore

Value = TypeVar("Value")


class Memo(Generic[Value]):
    """The last value computed from some tensors, until one of them changes or is deleted.

    A stream shows a learner the same graph session after session: the normalised adjacency, the
    features under a frozen encoder and the check that they are finite are computed once. Tensors
    are compared by identity and by torch's count of in-place changes. A change that torch cannot
    see (through a NumPy array that shares the memory) is not noticed.
    """

    def __init__(self) -> None:
        # key and value in one tuple: another thread sees both or neither
        self._entry: tuple[list[tuple[weakref.ref[Tensor], int]], Value] | None = None

    def get(self, tensors: tuple[Tensor, ...], compute: Callable[[], Value]) -> Value:
        """The cached value for these tensors as they are, else a new one."""
        if any(t.is_inference() for t in tensors):
            return compute()  # such tensors do not count their changes
        entry = self._entry
        if entry is not None and _matches(entry[0], tensors):
            return entry[1]
        self.clear()
        with torch.inference_mode(False):  # a cached value may be used outside of it later
            value = compute()
        # the value is dropped with the first of its tensors, so that no graph outlives its owner
        key = [(weakref.ref(t, lambda _: self.clear()), t._version) for t in tensors]
        self._entry = (key, value)
        return value

    def peek(self, tensors: tuple[Tensor, ...]) -> Value | None:
        """The cached value for these tensors as they are, or None."""
        entry = self._entry
        if entry is None or any(t.is_inference() for t in tensors):
            return None
        return entry[1] if _matches(entry[0], tensors) else None

    def clear(self) -> None:
        """Drop the value."""
        self._entry = None

    # copied and pickled empty
    def __reduce__(self) -> tuple[type[Memo[Value]], tuple[()]]:
        return (Memo, ())


class Last(Generic[Value]):
    """The last value computed for an object, which is told by its identity."""

    def __init__(self) -> None:
        self._entry: tuple[object, Value] | None = None

    def get(self, owner: object, compute: Callable[[], Value]) -> Value:
        """The cached value for this object, else a new one."""
        entry = self._entry  # read once: another thread may replace it meanwhile
        if entry is None or entry[0] is not owner:
            self._entry = entry = (owner, compute())
        return entry[1]

    # copied and pickled empty
    def __reduce__(self) -> tuple[type[Last[Value]], tuple[()]]:
        return (Last, ())


def inputs_of(graph: Data | GraphStore) -> tuple[Tensor, ...]:
    """The tensors of a graph that a learner looks at, as a key; of one on disk, its token."""
    if isinstance(graph, GraphStore):
        return (graph.token,)
    weight = graph.get("edge_weight")
    return (graph.x, graph.edge_index, *(() if weight is None else (weight,)))


def _matches(key: list[tuple[weakref.ref[Tensor], int]], tensors: tuple[Tensor, ...]) -> bool:
    return len(tensors) == len(key) and all(
        ref() is tensor and version == tensor._version
        for (ref, version), tensor in zip(key, tensors, strict=True)
    )
