"""The graphs that `load` knows by name, as ``datasets.csv`` and ``sources.csv`` list them.

A source has raw files in a folder below a data root; the address of each (``{}`` in it stands for a
file's name) or of an archive of all, which are those of PyTorch Geometric's own classes; and the
class or function that makes a dataset of the folder. That is imported when it is called: listing
graphs needs no torch.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from algnn.graph.download import Root, Source, locate

RANDOM_SPLIT = "random 40/10/50"


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
