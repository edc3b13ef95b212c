"""The graphs that `load` knows by name, as ``datasets.csv`` and ``sources.csv`` list them.

A source has raw files in a folder below a data root; the address of each (``{}`` in it stands for a
file's name) or of an archive of all, which are those of PyTorch Geometric's own classes; and the
class or function that makes a dataset of the folder. That is imported when it is called: listing
graphs needs no torch.
"""

from __future__ import annotations

import csv
import difflib
import os
import zipfile
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from algnn.errors import DatasetError, InputError
from algnn.graph.download import Root, Source, locate
from algnn.progress import WatchedFile

RANDOM_SPLIT = "random 40/10/50"
MANIFEST = "manifest.json"  # of a graph in a folder

Name = str | os.PathLike[str]


@dataclass(frozen=True)
class Entry:
    """A graph that `load` knows by name.

    Its name, one line about it, its size (edges are undirected), how its nodes are split and who
    made it. `source` are its raw files; `file` is the path below a data root of an ``.npz`` that is
    used before them; one with neither is made from its sizes and a seed.
    """

    name: str
    description: str
    nodes: int
    edges: int
    features: int
    classes: int
    split: str
    origin: str
    source: Source | None = None
    file: str | None = None

    def status(self, root: Root = None) -> str:
        """``"ready"``, or what is missing: a download, scikit-learn, or its file."""
        if self.file is not None and locate(self.file, root) is not None:
            return "ready"
        if self.source is not None:
            here = all(locate(file, root) is not None for file in self.source.files)
            return "ready" if here else "download needed"
        if self.name == "digits":
            return "ready" if find_spec("sklearn") else "scikit-learn needed"
        return "ready" if self.file is None else "file needed"


def datasets() -> list[Entry]:
    """The graphs that `load` knows by name."""
    return list(_ENTRIES)


def find(name: Name, root: Root = None) -> Entry | Path | str:
    """The graph of a name: one that is known, a file's or folder's path, or an fsspec address."""
    if root is not None and not Path(root).expanduser().is_dir():
        raise DatasetError(f"root={str(root)!r} is not a folder: give the one that holds raw files")
    known = {entry.name: entry for entry in datasets()}
    if isinstance(name, str) and name.lower() in known:
        return known[name.lower()]
    if "://" in str(name):
        return str(name)
    path = Path(name).expanduser()
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
    if isinstance(found, Path) and found.suffix.lower() in (".csv", ".parquet") and found.exists():
        raise DatasetError(
            f"{found} is a table: algnn partition, or algnn.from_pandas and algnn.save_npz, make a"
            " graph of its edges"
        )
    if isinstance(found, Path) and not is_graph(found):
        try:
            open_npz(found).close()
        except DatasetError as error:
            raise DatasetError(f"{found}: {error}") from error.__cause__


def is_graph(path: Name) -> bool:
    """Whether a graph in partitions is in a folder, or at an address for fsspec."""
    if "://" not in str(path):
        return (Path(path) / MANIFEST).is_file()
    system, place = filesystem(str(path))
    return bool(system.exists(f"{place}/{MANIFEST}"))


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


def _rows(file: str) -> list[dict[str, str]]:
    """The rows of a table beside this module, without their empty cells."""
    with Path(__file__).with_name(file).open(encoding="utf-8", newline="") as lines:
        return [{k: v for k, v in row.items() if v} for row in csv.DictReader(lines)]


def _source(name: str, folder: str, files: str, url: str, build: str, options: str = "") -> Source:
    module, _, kind = build.rpartition(".")
    given = dict(option.split("=") for option in options.split())

    def make(root: Path) -> Any:
        return getattr(import_module(module), kind)(str(root / folder), **given)

    return Source(name, tuple(f"{folder}/{file}" for file in files.split()), url, make)


def _entry(row: dict[str, Any]) -> Entry:
    sizes = {key: int(row[key]) for key in ("nodes", "edges", "features", "classes")}
    return Entry(**{**row, **sizes, "source": SOURCES.get(row.get("source", ""))})


SOURCES = {row["name"]: _source(**row) for row in _rows("sources.csv")}
_ENTRIES = [_entry(row) for row in _rows("datasets.csv")]
