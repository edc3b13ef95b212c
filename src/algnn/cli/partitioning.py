"""A graph on disk: `algnn partition`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Option, Typer

from algnn.cli.shared import DataRoot, check_inputs, load_torch, working
from algnn.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

commands = Typer()

TABLES = (".csv", ".gz", ".parquet", ".pq")


@commands.command()
def partition(
    graph: str = Argument(
        help="An .npz file or a dataset's name; a CSV or Parquet table, or a folder of such,"
        " with the columns source and target (and weight); or an OGB folder."
    ),
    folder: str = Argument(help="The new folder, or an fsspec address."),
    parts: int = Option(1, help="How many partitions."),
    features: Path | None = Option(
        None, help="Of a table: .npy [N, d], or CSV or Parquet with a row for each node."
    ),
    labels: Path | None = Option(None, help="Of a table: CSV or Parquet, columns node and label."),
    undirected: bool = Option(
        False, "--undirected", help="Of a table: add the reverse of each edge."
    ),
    append: bool = Option(
        False, "--append", help="Add a table's edges, and nodes, to a folder that exists."
    ),
    memory: str = Option("4GiB", help="What sorting edges may take."),
    data: DataRoot = None,
) -> None:
    """Write a graph as a folder of partitions, which may be larger than memory."""
    source = Path(graph)
    tables = source.is_dir() or source.suffix.lower() in TABLES
    if not tables:
        if features or labels or undirected or append:
            raise InputError(
                "--features, --labels, --undirected and --append are for tables of edges: an .npz"
                " holds all of these itself"
            )
        check_inputs(graphs=[graph], data=data)
    elif missing := [path for path in (source, features, labels) if path and not path.exists()]:
        raise InputError(f"{missing[0]}: there is no such file")
    elif append and labels is not None:
        raise InputError("--labels goes with a new graph: learn labels with algnn learn")
    elif not (append or features or (source / "raw").is_dir()):
        raise InputError("--features is missing: give .npy [N, d], or a table of all nodes")
    load_torch()
    common: dict[str, Any] = {"undirected": undirected, "parts": parts, "memory": memory}
    beside = _beside(folder)
    with working(f"partitioning {graph}"), tempfile.TemporaryDirectory(dir=beside) as work:
        if not tables:
            found = _from_memory(graph, folder, parts, data)
        elif (source / "raw").is_dir():
            found = _from_ogb(source, folder, Path(work), **common)
        else:
            found = _from_table(source, folder, features, labels, append, Path(work), **common)
    held = f"{found.num_nodes:,} nodes, {found.num_edges:,} edges, {found.num_features} features"
    print(f"{found.path}: {held} in {len(found.parts)} partitions")


def _from_memory(graph: str, folder: str, parts: int, data: Path | None) -> Any:
    from algnn.graph.datasets import load
    from algnn.graph.partition import write_graph

    return write_graph(load(graph, data), folder, parts)


def _from_table(
    source: Path,
    folder: str,
    features: Path | None,
    labels: Path | None,
    append: bool,
    work: Path,
    **common: Any,
) -> Any:
    import torch

    from algnn.graph.partition import append_nodes, read_edges, read_features, write_partitions
    from algnn.graph.store import read_manifest

    if features is None:
        x = torch.zeros(0, read_manifest(folder)["features"])
    else:
        x = read_features(features, work)
    if append:
        return append_nodes(folder, x, read_edges(source), undirected=common["undirected"])
    y, names = (None, None) if labels is None else _labels(labels, x.size(0))
    return write_partitions(folder, x, read_edges(source), y=y, class_names=names, **common)


def _from_ogb(source: Path, folder: str, work: Path, **common: Any) -> Any:
    """From the raw files of OGB (``raw/edge.csv.gz`` and so on), which have no header."""
    import numpy as np
    import pandas
    import torch

    from algnn.graph.partition import read_edges, read_features, write_partitions

    x = read_features(source / "raw" / "node-feat.csv.gz", work, header=False)
    y = pandas.read_csv(source / "raw" / "node-label.csv.gz", header=None)[0].fillna(-1)
    split = torch.zeros(len(x), dtype=torch.uint8)
    for code, part in enumerate(("train", "valid", "test"), 1):
        for file in source.glob(f"split/*/{part}.csv.gz"):
            split[pandas.read_csv(file, header=None)[0].to_numpy(copy=True)] = code
    return write_partitions(
        folder,
        x,
        read_edges(source / "raw" / "edge.csv.gz", header=False),
        y=torch.from_numpy(y.to_numpy(np.int64, copy=True)),
        split=split if bool(split.any()) else None,
        **common,
    )


def _labels(path: Path, nodes: int) -> tuple[Tensor, list[str] | None]:
    """`y` [N], and the names of classes that are strings."""
    import numpy as np
    import torch

    from algnn.labels import read_labels

    ids, labels = read_labels(path, nodes)
    words = labels.dtype.kind == "U"
    classes, codes = np.unique(labels, return_inverse=True)
    y = torch.full((nodes,), -1)
    y[torch.from_numpy(ids)] = torch.from_numpy(codes if words else labels)
    return y, classes.tolist() if words else None


def _beside(folder: str) -> Path | None:
    """Where large temporary files belong: on the disk of the graph, if that is one of ours."""
    from algnn.files import make_folder

    if "://" in folder:
        return None
    if Path(folder).is_file():
        raise InputError(f"{folder} is a file: give a folder, which is made")
    parent = Path(folder).absolute().parent
    make_folder(parent)
    return parent
