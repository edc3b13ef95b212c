"""Progress of long work: loops over blocks tell how far they are, and a command shows it."""

import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")

# what is being done, and of how many steps of it how many are done
Listener = Callable[[str, int, int], None]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def tell(phase: str, done: int, total: int) -> None:
    """Say how far a phase of the work is, to whoever listens."""
    if (listener := _listener.get()) is not None:
        listener(phase, done, total)


def counted(phase: str, items: Sequence[Item]) -> Iterator[Item]:
    """The items one after another; each is told as a step of a phase."""
    for done, item in enumerate(items):
        tell(phase, done, len(items))
        yield item
    tell(phase, len(items), len(items))


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """While the block lasts, `listener` hears what work in this thread tells."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


class WatchedFile(io.FileIO):
    """A file, opened for reading, that tells how much of it was read."""

    def read(self, size: int | None = -1) -> bytes:
        """As of any file."""
        tell("", self.tell(), os.fstat(self.fileno()).st_size)
        return super().read(size)
