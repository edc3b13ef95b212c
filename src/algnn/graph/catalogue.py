"""The graphs that `load` knows by name: what there is, their raw files, and the download of these.

``datasets.csv`` and ``sources.csv`` list them. A source has raw files in a folder below a data
root; the address of each (``{}`` stands for a file's name) or of a ``.zip`` of all; and the class
or function that makes a dataset of the folder, imported only then: listing graphs needs no torch.

Files are looked for in the data root (an argument, or the variable ``ALGNN_DATA``), then in the
user's cache; what is in neither is downloaded into the cache. The data root is never written to.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
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
from pkgutil import resolve_name
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import wrap_file

from algnn.errors import DatasetError, InputError
from algnn.files import replacing
from algnn.progress import WatchedFile

if TYPE_CHECKING:
    from torch_geometric.data import Data

RANDOM_SPLIT = "random 40/10/50"
MANIFEST = "manifest.json"  # of a graph in a folder

Name = str | os.PathLike[str]
Root = Name | None

TIMEOUT = 20.0  # seconds for connecting, and for each chunk
# what a network, a disk and a damaged archive raise
FAILURES = (OSError, HTTPException, zipfile.BadZipFile, zlib.error, RuntimeError, DatasetError)


@dataclass(frozen=True)
class Source:
    """The raw files behind named graphs: paths below a data root, and where to get them."""

    name: str
    files: tuple[str, ...]
    url: str
    build: Callable[[Path], Any]


@dataclass(frozen=True)
class Entry:
    """A graph that `load` knows by name; one with neither source nor file is made here."""

    name: str
    description: str
    nodes: int
    edges: int  # undirected
    features: int
    classes: int
    split: str
    origin: str
    source: Source | None = None
    file: str | None = None  # the path below a data root of an .npz that is used before the source

    def status(self, root: Root = None) -> str:
        """``"ready"``, or what is missing: a download, or its file."""
        if locate(self.file, root) is not None:
            return "ready"
        if self.source is None:
            return "ready" if self.file is None else "file needed"
        here = all(locate(file, root) is not None for file in self.source.files)
        return "ready" if here else "download needed"


def datasets() -> list[Entry]:
    """The graphs that `load` knows by name."""
    return list(_ENTRIES)


def find(name: Name, root: Root = None) -> Entry | Path | str:
    """The graph of a name: one that is known, a file's or folder's path, or an fsspec address."""
    if root is not None and not Path(os.path.expanduser(root)).is_dir():
        raise DatasetError(f"root={str(root)!r} is not a folder: give the one that holds raw files")
    known = {entry.name: entry for entry in datasets()}
    if isinstance(name, str) and name.lower() in known:
        if is_graph(name) or zipfile.is_zipfile(name):
            raise DatasetError(
                f"{name!r} is a known graph, and one in this folder too: write ./{name} for that"
                " one, or go to another folder"
            )
        return known[name.lower()]
    if "://" in str(name):
        return str(name)
    path = Path(os.path.expanduser(name))  # which leaves a user nobody knows as it is
    if path.suffix in (".pt", ".pth", ".pkl", ".pickle"):
        raise DatasetError(
            f"{path} is a pickle, which can run code and is never opened here: load it yourself"
            " and write the graph with algnn.save_npz(graph, 'graph.npz')"
        )
    if path.suffix == ".npz" or path.is_file() or is_graph(path):
        return path
    near = difflib.get_close_matches(str(name).lower(), known, 1)
    guess = f" (did you mean {near[0]}?)" if near else ""
    raise DatasetError(
        f"{str(name)!r} is no known graph{guess}: use one of {', '.join(known)}, or the path of an"
        " .npz, or of a folder that algnn partition has made"
    )


def check_name(name: Name, root: Root = None) -> None:
    """Raise `DatasetError` for a name that stands for no graph, or for a file that holds none."""
    found = find(name, root)
    if not isinstance(found, Path) or is_graph(found):
        return
    if found.suffix.lower() in (".csv", ".parquet"):
        raise DatasetError(
            f"{found} is a table: algnn partition, or algnn.from_pandas and algnn.save_npz, make a"
            " graph of its edges"
        )
    try:
        open_npz(found).close()
    except DatasetError as error:
        raise DatasetError(f"{found}: {error}") from error.__cause__


def is_graph(path: Name) -> bool:
    """Whether a graph in partitions is in a folder, or at an address for fsspec."""
    if "://" not in str(path):
        return (Path(path) / MANIFEST).is_file()
    system, place = filesystem(f"{str(path).rstrip('/')}/{MANIFEST}")
    return bool(system.exists(place))


def filesystem(address: str) -> tuple[Any, str]:
    """The fsspec file system of an address, and the path in it."""
    try:
        from fsspec.core import url_to_fs

        system, place = url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise InputError(
            f"{address} cannot be opened ({error}): install algnn[cluster], or check the address"
        ) from error
    return system, place


def open_npz(path: Name) -> WatchedFile:
    """An ``.npz`` file, open; `DatasetError` if it is none."""
    try:
        file = WatchedFile(path)
    except FileNotFoundError as error:
        raise DatasetError("there is no such file") from error
    except OSError as error:
        raise DatasetError(f"cannot be read: {error.strerror}") from error
    if not zipfile.is_zipfile(file):
        file.close()
        raise DatasetError("is not an .npz file, or is cut short: write it with save_npz")
    file.seek(0)
    return file


def cache_dir() -> Path:
    """The user's cache, ``$XDG_CACHE_HOME/algnn`` or ``~/.cache/algnn``; it need not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "algnn"


def folders(root: Root = None) -> list[Path]:
    """The folders in which raw files are looked for: the data root, if any, then the cache."""
    chosen = root or os.environ.get("ALGNN_DATA")
    return ([Path(os.path.expanduser(chosen))] if chosen else []) + [cache_dir() / "raw"]


def locate(file: str | None, root: Root = None) -> Path | None:
    """The path of a raw file, named by its path below a data root, if it is on this machine."""
    return next((path / file for path in folders(root) if file and (path / file).is_file()), None)


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
    """The graph that PyTorch Geometric makes of raw files; made once, then read from the cache."""
    import torch_geometric

    # Its classes write beside the raw files, so they get a folder of links in the cache. Its name
    # is a digest of the files and of the version, which may process in another way, and it gets it
    # when it is complete: no other file, interruption or second process can spoil it.
    facts = [torch_geometric.__version__]
    for file, path in files.items():
        stat = path.stat()
        facts.append(f"{file}|{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    final = cache_dir() / "processed" / f"{source.name}-{digest}"
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
        # only members we name, to paths we name: a path inside the archive is never used as a path
        with zipfile.ZipFile(archive) as members:
            by_name = {Path(member).name: member for member in members.namelist()}
            for file in missing:
                if (name := Path(file).name) not in by_name:
                    raise DatasetError(f"the archive holds no {name}")
                with replacing(target / file) as temporary, temporary.open("wb") as out:
                    shutil.copyfileobj(members.open(by_name[name]), out)


def _stream(url: str, out: IO[bytes]) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "algnn"})
    console = Console(stderr=True)  # standard output belongs to the caller's results
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        expected = response.length or 0  # 0 where the server does not say
        look: Any = {"description": Path(url).name, "console": console, "transient": True}
        with wrap_file(response, expected, **look) as body:
            shutil.copyfileobj(body, out)
    if expected and out.tell() != expected:
        raise DatasetError(f"{url} ended after {out.tell()} of {expected} bytes")


def _build(source: Source, folder: Path, remedy: str) -> Data:
    said = io.StringIO()  # PyTorch Geometric says 'Processing...' and 'Done!'
    shown = Console(file=sys.stderr).status(f"reading {source.name}, the first time for long …")
    try:
        with shown, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            return source.build(folder)[0]
    except MemoryError:
        raise
    except Exception as error:  # whatever unpickling, unzipping or parsing damaged files may raise
        raise DatasetError(
            f"{source.name}: its files cannot be read ({type(error).__name__}: {one_line(error)}):"
            f" {remedy}"
        ) from error


def _rows(file: str) -> list[dict[str, str]]:
    """The rows of a table beside this module, without their empty cells."""
    with Path(__file__).with_name(file).open(encoding="utf-8", newline="") as lines:
        return [{k: v for k, v in row.items() if v} for row in csv.DictReader(lines)]


def _source(name: str, folder: str, files: str, url: str, build: str, options: str = "") -> Source:
    given = dict(option.split("=") for option in options.split())
    paths = tuple(f"{folder}/{file}" for file in files.split())
    return Source(name, paths, url, lambda root: resolve_name(build)(str(root / folder), **given))


def _entry(row: dict[str, Any]) -> Entry:
    sizes = {key: int(row[key]) for key in ("nodes", "edges", "features", "classes")}
    return Entry(**{**row, **sizes, "source": SOURCES.get(row.get("source", ""))})


SOURCES = {row["name"]: _source(**row) for row in _rows("sources.csv")}
_ENTRIES = [_entry(row) for row in _rows("datasets.csv")]
