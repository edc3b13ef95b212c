"""The graphs that `load` knows by name, as ``datasets.toml`` lists them.

Listing them needs no torch: what builds a graph is imported when it is called.
"""

from __future__ import annotations

import tomllib
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


def _source(name: str, row: dict[str, Any]) -> Source:
    folder, (module, _, kind) = row["folder"], row["build"].rpartition(".")

    def build(root: Path) -> Any:
        return getattr(import_module(module), kind)(str(root / folder), **row.get("options", {}))

    return Source(name, tuple(f"{folder}/{file}" for file in row["files"]), row["url"], build)


_TABLES = tomllib.loads(Path(__file__).with_name("datasets.toml").read_text("utf-8"))
SOURCES = {name: _source(name, row) for name, row in _TABLES.pop("sources").items()}
_ENTRIES = [
    Entry(name, **{**row, "source": SOURCES.get(row.get("source"))})
    for name, row in _TABLES.items()
]
