"""A lock that lets one command at a time change a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from algnn.errors import AlgnnError, InputError

PATIENCE = 60.0  # seconds that a second writer waits for the first
PAUSE = 0.02


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file's lock, so that a second writer starts from what the first has written.

    The lock ends with the process that holds it; the empty file beside `path` that carries it may
    then stay behind, and does no harm.
    """
    lock = path.with_name(f".{path.name}.lock")
    held = FileLock(lock)
    try:
        held.acquire(timeout=PATIENCE, poll_interval=PAUSE)
    except Timeout:
        raise InputError(
            f"{path} is being changed by another algnn command: wait for it, then try again"
        ) from None
    except OSError as error:
        raise AlgnnError(f"{lock} cannot be made: {error.strerror}") from error
    try:
        yield
    finally:
        # while it is held: who waits for it then finds the file gone, and makes a new one
        lock.unlink(missing_ok=True)
        held.release()
