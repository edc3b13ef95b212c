"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write to a temporary file beside `path`, which takes its name once all is on disk.

    Whoever reads `path` sees the old file or the new one, never part of one, even if the process
    is killed or the machine goes down half-way.

    Parameters
    ----------
    path : str or path
        The file to write; its folder is made where it is missing.

    Yields
    ------
    Path
        Where to write; removed again where the block raises. It keeps the ending of `path`.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "a.txt") as temporary:
    ...     _ = temporary.write_text("whole")
    >>> [(file.name, file.read_text()) for file in folder.iterdir()]
    [('a.txt', 'whole')]
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{uuid.uuid4().hex[:12]}.tmp{target.suffix}")
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync(target.parent)


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open a folder
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
