"""What lets threads share a learner: readers see one state and never wait, writers take turns."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import RLock
from typing import Any, ClassVar, Self, TypeVar, cast

import torch

from algnn.errors import InputError
from algnn.graphs import Memo

Method = TypeVar("Method", bound=Callable[..., Any])


def changes(method: Method) -> Method:
    """A method that changes a learner: one such call at a time, others wait for their turn."""

    @wraps(method)
    def in_turn(self: "Shared", /, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            return method(self, *args, **kwargs)

    return cast(Method, in_turn)


@contextmanager
def full_precision() -> Iterator[None]:
    """A context without the caller's autocast."""
    with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """A context in which torch learns as it does by default, whatever the caller has switched."""
    with torch.inference_mode(False), torch.enable_grad(), full_precision():
        yield


class Shared:
    """An object whose state is replaced in one step, so that a view of it is always consistent."""

    # parameters that decide what the base session makes, and may not change until the next `fit`
    _fixed: ClassVar[tuple[str, ...]] = ()
    _learned: Any = None
    _learned_with: dict[str, Any] | None = None  # the values of `_fixed` then
    _lock: RLock
    _memos: dict[str, Memo[Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """An object with its lock and its caches, also where it is copied or unpickled."""
        self = super().__new__(cls)
        # not when they are first needed, so that what a view computes is there for the next one
        self._lock, self._memos = RLock(), defaultdict(Memo)
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
