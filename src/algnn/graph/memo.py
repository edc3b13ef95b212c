"""Remember what was computed from a graph for as long as the graph stays what it was."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from torch import Tensor

Value = TypeVar("Value")


class Memo(Generic[Value]):
    """The last value computed from some tensors, until one of them changes or goes away.

    A stream shows a learner the same graph session after session; its features under a frozen
    encoder, and the check that they are finite, need computing only once. Tensors are compared by
    identity and by torch's own count of in-place changes. A change that torch cannot see (through
    a NumPy array that shares the memory) is not noticed: hand over a new tensor instead.

    Examples
    --------
    >>> import torch
    >>> memo, x = Memo(), torch.ones(2)
    >>> memo.get((x,), lambda: float(x.sum()))
    2.0
    >>> memo.get((x,), lambda: "not computed again")
    2.0
    >>> _ = x.add_(1)
    >>> memo.get((x,), lambda: float(x.sum()))
    4.0
    """

    def __init__(self) -> None:
        # key and value in one tuple: another thread sees both or neither
        self._entry: tuple[list[tuple[weakref.ref[Tensor], int]], Value] | None = None

    def get(self, tensors: tuple[Tensor, ...], compute: Callable[[], Value]) -> Value:
        """The remembered value if it was computed from these tensors as they are, else a new one.

        Parameters
        ----------
        tensors : tuple of Tensor
            All that the value depends on.
        compute : callable
            Gives the value. Where it raises, nothing is remembered.

        Returns
        -------
        value
        """
        if any(t.is_inference() for t in tensors):
            return compute()  # such tensors keep no count of their changes
        entry = self._entry
        if entry is not None and _matches(entry[0], tensors):
            return entry[1]
        self.clear()
        value = compute()
        # the value goes as soon as one of its tensors does, so that no graph outlives its owner
        key = [(weakref.ref(t, lambda _: self.clear()), t._version) for t in tensors]
        self._entry = (key, value)
        return value

    def peek(self, tensors: tuple[Tensor, ...]) -> Value | None:
        """The remembered value if there is one for these tensors as they are.

        Parameters
        ----------
        tensors : tuple of Tensor

        Returns
        -------
        value or None
        """
        entry = self._entry
        if entry is None or any(t.is_inference() for t in tensors):
            return None
        return entry[1] if _matches(entry[0], tensors) else None

    def clear(self) -> None:
        """Forget the value."""
        self._entry = None

    def __deepcopy__(self, _: object) -> Memo[Value]:
        return Memo()

    def __reduce__(self) -> tuple[type[Memo[Value]], tuple[()]]:
        return (Memo, ())


def _matches(key: list[tuple[weakref.ref[Tensor], int]], tensors: tuple[Tensor, ...]) -> bool:
    return len(tensors) == len(key) and all(
        ref() is tensor and version == tensor._version
        for (ref, version), tensor in zip(key, tensors, strict=True)
    )
