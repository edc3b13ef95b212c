"""Files that are written whole or not at all, and by one writer at a time."""

import contextlib
import hashlib
import os
import re
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from algnn.errors import AlgnnError, InputError

PATIENCE = 60.0  # seconds that a second writer waits for the first
SCHEME = re.compile("[a-z][a-z0-9+.-]+:")  # how an address begins, where Path has left a slash out
LEFTOVER = 24 * 3600.0  # age in seconds at which a temporary file belongs to a writer that is dead


def make_folder(folder: Path) -> None:
    """Make a folder that can be written to, before hours of work whose result could not be."""
    above = (folder, *folder.parents)
    if any(SCHEME.fullmatch(one.name) and not one.exists() for one in above):
        raise InputError(f"{folder} is an address, where graphs alone can be: give a local folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be a folder: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise InputError(f"{folder} cannot be written to: choose another folder")


def picture_path(path: str | os.PathLike[str]) -> Path:
    """The path, if a picture can have this name."""
    if Path(path).suffix not in (".png", ".svg", ".pdf"):
        raise InputError(
            f"{os.fspath(path)!r} is no name for a picture: end it in .png, .svg or .pdf"
        )
    return Path(path)


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name what is written where a disk is full: such errors name no file."""
    try:
        yield
    except OSError as error:
        if type(error) is not OSError or error.filename:  # a network's error, or one of reading
            raise
        raise AlgnnError(f"{path} cannot be written: {error.strerror or error}") from error


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """The path of a temporary file beside `path`, which replaces it once all is on disk.

    A link is followed; a file that exists keeps its mode and, where that is allowed, its owner; a
    missing folder is made. The temporary file of a killed writer is removed by a later one.
    """
    target = Path(os.path.realpath(path))
    old = None
    with contextlib.suppress(OSError):
        old = target.stat()
    if old is not None and not stat.S_ISREG(old.st_mode):
        raise InputError(f"{path} is a folder, a pipe or a device: give the name of a file")
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target, LEFTOVER)
    temporary = target.with_name(f".{_tag(target)}-{uuid.uuid4().hex[:12]}.tmp{target.suffix}")
    try:
        # private from the start where the old file is
        temporary.touch(0o666 if old is None else 0o600, exist_ok=False)
        mode = stat.S_IMODE((temporary.stat() if old is None else old).st_mode)
        with naming(path):
            yield temporary
            if old is not None:
                with contextlib.suppress(OSError):
                    os.chown(temporary, old.st_uid, old.st_gid)
            # last: a change of owner may clear bits, and a library may have made the file anew
            temporary.chmod(mode)
            _sync(temporary)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync(target.parent)


def write_atomically(path: Path, content: bytes) -> None:
    """Put a file in its place in one step, so that no reader finds half of it."""
    try:
        with replacing(path) as draft:
            draft.write_bytes(content)
    except OSError as error:
        raise AlgnnError(f"{path} cannot be written: {error.strerror}") from error


@contextmanager
def locked(
    path: str | os.PathLike[str], patience: float | None = None, busy: str = ""
) -> Iterator[bool]:
    """Hold a file's lock, so that a second writer starts from what the first has written.

    Yields whether this thread has held it already. Who waits longer than `patience` seconds gets an
    `InputError` with the words `busy`.
    """
    # it ends with the process that holds it; the empty file that carries it may then stay behind
    target = Path(os.path.realpath(path))
    lock = target.with_name(f".{target.name}.lock")
    held = FileLock(lock, is_singleton=True)  # which counts how often a thread has taken it
    try:
        make_folder(target.parent)
        held.acquire(timeout=PATIENCE if patience is None else patience)
    except Timeout:
        usual = f"{path} is being changed by another algnn command: wait for it, then try again"
        raise InputError(busy or usual) from None
    except OSError as error:
        raise AlgnnError(f"{lock} cannot be made: {error.strerror}") from error
    try:
        if held.lock_counter == 1:
            _sweep(target, 0.0)  # whoever wrote here is dead, or does not hold the lock
        yield held.lock_counter > 1
    finally:
        if held.lock_counter == 1:
            # while it is held: who waits for it then finds the file gone, and makes a new one
            lock.unlink(missing_ok=True)
        held.release()


def _tag(target: Path) -> str:
    """A short name for a file, by which its leftovers are known."""
    return hashlib.sha256(target.name.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def _sweep(target: Path, age: float) -> None:
    """Remove temporary files of dead writers of `target`, those older than `age` seconds."""
    for left in target.parent.glob(f".{_tag(target)}-*.tmp*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime >= age:
                left.unlink()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
