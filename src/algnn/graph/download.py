"""The raw files of a named graph: their location, download and processing.

Files are looked for in the data root (an argument, or the variable ``ALGNN_DATA``), then in the
user's cache; what is in neither is downloaded into the cache. The data root is never written to.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import sys
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import wrap_file

from algnn.errors import DatasetError
from algnn.files import replacing

if TYPE_CHECKING:
    from torch_geometric.data import Data

Root = str | os.PathLike[str] | None

TIMEOUT = 20.0  # seconds for connecting, and for each chunk
CHUNK = 1 << 18
# what a network, a disk and a damaged archive raise
FAILURES = (OSError, HTTPException, zipfile.BadZipFile, zlib.error, RuntimeError, DatasetError)


@dataclass(frozen=True)
class Source:
    """The raw files behind named graphs: paths below a data root, and where to get them.

    `url` is an archive when it ends in ``.zip``, otherwise ``{}`` in it stands for a file's name.
    `build` makes the dataset of one graph from the folder that holds the files.
    """

    name: str
    files: tuple[str, ...]
    url: str
    build: Callable[[Path], Any]


def cache_dir() -> Path:
    """The user's cache, ``$XDG_CACHE_HOME/algnn`` or ``~/.cache/algnn``; it need not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "algnn"


def folders(root: Root = None) -> list[Path]:
    """The folders in which raw files are looked for: the data root, if any, then the cache."""
    chosen = root or os.environ.get("ALGNN_DATA")
    return ([Path(chosen).expanduser()] if chosen else []) + [cache_dir() / "raw"]


def locate(file: str, root: Root = None) -> Path | None:
    """The path of a raw file, named by its path below a data root, if it is on this machine."""
    return next((path / file for path in folders(root) if (path / file).is_file()), None)


def fetch(source: Source, root: Root = None) -> dict[str, Path]:
    """The paths of all raw files of a source, downloaded where they are missing."""
    missing = [file for file in source.files if locate(file, root) is None]
    if missing:
        try:
            _download(source, missing, cache_dir() / "raw")
        except FAILURES as error:
            *data_root, kept = (str(path / missing[0]) for path in folders(root))
            given = data_root[0] if data_root else f"$ALGNN_DATA/{missing[0]}"
            reason = one_line(error).removeprefix("<urlopen error ").removesuffix(">")
            raise DatasetError(
                f"{source.name}: {missing[0]} is not on this machine and cannot be downloaded"
                f" ({reason}): put the file at {given} or {kept}"
            ) from error
    return {file: locate(file, root) or cache_dir() / "raw" / file for file in source.files}


def process(source: Source, files: dict[str, Path]) -> Data:
    """The graph that PyTorch Geometric makes of raw files; made once, then read from the cache.

    Its classes write beside the raw files, so they get a folder of links in the cache. The folder's
    name is a digest of the files, and it gets that name only when it is complete: neither other
    files, nor an interruption, nor a second process can spoil it.
    """
    final = cache_dir() / "processed" / f"{source.name}-{_fingerprint(files)}"
    if final.is_dir():
        return _build(source, final, f"delete {final}, which is damaged")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=final.parent, prefix=".unfinished-") as temporary:
            folder = Path(temporary) / "graph"
            for file, path in files.items():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).symlink_to(path.resolve())
            first = next(iter(files.values()))
            graph = _build(source, folder, f"replace the files beside {first}")
            with contextlib.suppress(OSError):  # a second process was faster: keep its folder
                folder.rename(final)
            return graph
    except OSError as error:
        raise DatasetError(
            f"{source.name}: the cache {final.parent} cannot be written ({one_line(error)}):"
            " set XDG_CACHE_HOME to a folder that can"
        ) from error


def one_line(error: BaseException) -> str:
    """An error's message without line breaks, or its type where it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def _download(source: Source, missing: list[str], target: Path) -> None:
    if not source.url.endswith(".zip"):
        for file in missing:
            with replacing(target / file) as temporary, temporary.open("wb") as out:
                _stream(source.url.format(Path(file).name), out)
        return
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=target) as archive:
        _stream(source.url, archive)
        _extract(archive, missing, target)


def _stream(url: str, out: IO[bytes]) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "algnn"})
    console = Console(stderr=True)  # standard output belongs to the caller's results
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        expected = response.length or 0  # 0 where the server does not say
        name = Path(url).name
        with wrap_file(
            response, expected, description=name, console=console, transient=True
        ) as body:
            shutil.copyfileobj(body, out, CHUNK)
    if expected and out.tell() != expected:
        raise DatasetError(f"{url} ended after {out.tell()} of {expected} bytes")


def _extract(archive: IO[bytes], missing: list[str], target: Path) -> None:
    # only members we name, to paths we name: a path inside the archive is never used as a path
    with zipfile.ZipFile(archive) as members:
        by_name = {Path(member).name: member for member in members.namelist()}
        for name, path in ((Path(file).name, target / file) for file in missing):
            if name not in by_name:
                raise DatasetError(f"the archive holds no {name}")
            with (
                members.open(by_name[name]) as member,
                replacing(path) as temporary,
                temporary.open("wb") as out,
            ):
                shutil.copyfileobj(member, out, CHUNK)


def _fingerprint(files: dict[str, Path]) -> str:
    import torch_geometric

    # PyTorch Geometric's version too: another one may process, or store, in another way
    parts = [torch_geometric.__version__]
    for file, path in files.items():
        facts = path.stat()
        parts.append(f"{file}|{path.resolve()}|{facts.st_size}|{facts.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _build(source: Source, folder: Path, remedy: str) -> Data:
    said = io.StringIO()  # PyTorch Geometric says 'Processing...' and 'Done!'
    console = Console(file=sys.stderr)
    try:
        with (
            console.status(f"reading {source.name}, the first time for long …"),
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
        ):
            return source.build(folder)[0]
    except MemoryError:
        raise
    except Exception as error:  # whatever unpickling, unzipping or parsing damaged files may raise
        raise DatasetError(
            f"{source.name}: its files cannot be read ({type(error).__name__}: {one_line(error)}):"
            f" {remedy}"
        ) from error
