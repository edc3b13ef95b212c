"""One writer at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from algnn.errors import AlgnnError, InputError

PATIENCE = 60.0  # seconds that a second writer waits for the first
PAUSE = 0.02


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file's lock, so that a second writer starts from what the first has written.

    The lock is the system's and goes with the process that holds it, however that ends; the empty
    file beside `path` that carries it may stay behind then, and does no harm.

    Parameters
    ----------
    path : Path
        The file that will be written, in a folder that exists.

    Raises
    ------
    InputError
        Another process has held the lock for too long.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> with locked(path):
    ...     [file.name for file in path.parent.iterdir()]
    ['.model.safetensors.lock']
    >>> list(path.parent.iterdir())
    []
    """
    lock = path.with_name(f".{path.name}.lock")
    give_up = time.monotonic() + PATIENCE
    while (descriptor := _take(lock)) is None:
        if time.monotonic() > give_up:
            raise InputError(
                f"{path} is being changed by another algnn command: wait for it, then try again"
            )
        time.sleep(PAUSE)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _take(lock: Path) -> int | None:
    """A descriptor that holds the lock, or None while somebody else has it."""
    import fcntl

    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise AlgnnError(f"{lock} cannot be made: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # who held it before has removed the file: a lock on what nobody finds any more is none
        if os.stat(lock).st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError as error:
        os.close(descriptor)
        raise AlgnnError(f"{lock} cannot be locked: {error.strerror}") from error
    os.close(descriptor)
    return None
