"""A graph on disk: `algnn partition`."""

from pathlib import Path
from typing import Any

from typer import Argument, Option, Typer

import algnn
from algnn.cli.shared import DataRoot, check_inputs, load_torch, plural, working
from algnn.errors import InputError
from algnn.graph.catalogue import MANIFEST

commands = Typer()

TABLES = (".csv", ".gz", ".parquet", ".pq")


@commands.command()
def partition(
    graph: str = Argument(
        help="An .npz file or a dataset's name; a CSV or Parquet table, or a folder of such,"
        " with the columns source and target (and weight); or an OGB folder."
    ),
    folder: str = Argument(help="The new folder, or an fsspec address."),
    parts: int = Option(1, help="How many partitions of a new graph."),
    features: Path | None = Option(
        None, help="Of a table: .npy [N, d], or CSV or Parquet with a row for each node."
    ),
    labels: Path | None = Option(None, help="Of a table: CSV or Parquet, columns node and label."),
    undirected: bool = Option(False, "--undirected", help="Of a table: add each edge's reverse."),
    append: bool = Option(False, "--append", help="Add edges, and nodes, to a folder that exists."),
    memory: str = Option("4GiB", help="What sorting edges may take."),
    data: DataRoot = None,
) -> None:
    """Write a graph as a folder of partitions, which may be larger than memory."""
    source = Path(graph)
    tables = source.is_dir() or source.suffix.lower() in TABLES
    ogb = (source / "raw").is_dir()
    if not tables:
        if features or labels or undirected or append:
            raise InputError(
                "--features, --labels, --undirected and --append are for tables of edges: an .npz"
                " holds all of these itself"
            )
        check_inputs(graphs=[graph], data=data)
    elif missing := [path for path in (source, features, labels) if path and not path.exists()]:
        raise InputError(f"{missing[0]}: there is no such file")
    elif ogb and (features or labels or append):
        raise InputError(
            "--features, --labels and --append are for tables of edges: an OGB folder is a whole"
            " graph, so leave them out"
        )
    elif append and labels is not None:
        raise InputError("--labels goes with a new graph: learn labels with algnn learn")
    elif append and parts != 1:
        raise InputError("--parts goes with a new graph: --append adds one partition")
    elif (source / MANIFEST).is_file():
        raise InputError(f"{graph} is a folder of partitions already: use it as it is")
    elif not (append or features or ogb):
        raise InputError("--features is missing: give .npy [N, d], or a table of all nodes")
    if not folder.strip():
        raise InputError("FOLDER is empty: give a name")
    if Path(folder).is_file():
        raise InputError(f"{folder} is a file: give a folder, which is made")
    load_torch()
    from algnn.graph.store import parse_bytes
    from algnn.graph.tables import write_ogb, write_tables

    parse_bytes(memory)  # before anything is read
    common: dict[str, Any] = {"undirected": undirected, "parts": parts, "memory": memory}
    with working(f"partitioning {graph}"):
        if not tables:
            found = algnn.write_graph(algnn.load(graph, data), folder, parts, memory=memory)
        elif ogb:
            found = write_ogb(source, folder, **common)
        else:
            found = write_tables(source, folder, features, labels, append, **common)
    held = f"{found.num_nodes:,} nodes, {found.num_edges:,} edges, {found.num_features} features"
    print(f"{found.path}: {held} in {plural(len(found.parts), 'partition')}")
