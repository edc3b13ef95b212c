"""Progress of long work: loops over blocks tell how far they are, and a command shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# what is being done, and of how many steps of it how many are done
Listener = Callable[[str, int, int], None]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def tell(phase: str, done: int, total: int) -> None:
    """Say how far a phase of the work is, to whoever listens."""
    listener = _listener.get()
    if listener is not None:
        listener(phase, done, total)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """While the block lasts, `listener` hears what work in this thread tells."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)
