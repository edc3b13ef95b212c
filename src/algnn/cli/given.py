"""What the commands on a model are given: its file, a graph, tables, a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from algnn.cli.arguments import load_torch, progress_bar, say, working
from algnn.errors import InputError

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from algnn.models import Model as AnyModel

ENDING = ".safetensors"

Model = Annotated[Path, typer.Argument(help=f"The model, a {ENDING} file.")]
Graph = Annotated[str, typer.Argument(help="An .npz, a partitioned folder, or a dataset's name.")]
Labels = Annotated[
    Path, typer.Argument(help="CSV or Parquet with the columns node (from 0) and label.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would change, and write nothing.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that exists.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda; by default as it was.")]
Plot = Annotated[Path | None, typer.Option(help="Draw it into this .png, .svg or .pdf.")]
Scheduler = Annotated[
    str | None, typer.Option(help="A Dask scheduler, tcp://…, whose workers share the folder.")
]
Workers = Annotated[int, typer.Option(help="Or a Dask cluster of so many processes here.")]
DataRoot = Annotated[Path | None, typer.Option(help="Folder with datasets; ALGNN_DATA by default.")]


def check_table(path: Path | None) -> None:
    """Before any work: whether the predictions can be written there."""
    if path is None:
        return
    from algnn.bench.plan import make_folder
    from algnn.labels import PARQUET, parquet

    if path.suffix.lower() not in (".csv", *PARQUET) or path.is_dir():
        raise InputError(f"--out {path} is no name for a table: end it in .csv or .parquet")
    if path.suffix.lower() in PARQUET:
        parquet(path)
    make_folder(path.parent)


def checked_picture(path: Path | None) -> Path | None:
    """Before any work: whether a picture can be written there."""
    if path is not None:
        from algnn.bench.plan import make_folder
        from algnn.plot import check_path

        make_folder(check_path(path).parent)
    return path


def load_model(path: Path, device: str | None) -> AnyModel:
    """The model in a file, exact or private."""
    load_torch()
    from algnn import models

    return models.load_model(path, device)


def busy(graph: Any, what: str) -> AbstractContextManager[None]:
    """Says what takes a while, unless the graph shows progress of its own."""
    return nullcontext() if hasattr(graph, "progress") else working(what)


def load_graph(name: str, data: Path | None) -> Data:
    """The inputs of a graph; one on disk stays there, and shows how far its encoding is."""
    from algnn.graph.datasets import load_inputs
    from algnn.graph.store import GraphStore

    with working(f"reading {name}"):
        found = load_inputs(name, data)
    if isinstance(found, GraphStore):
        found.progress = progress_bar()
    return found


@contextmanager
def spread(graph: Any, scheduler: str | None, workers: int) -> Iterator[Any]:
    """The graph as a Dask cluster works on it, where one is asked for."""
    if scheduler is None and not workers:
        yield graph
        return
    from algnn import on_cluster

    try:
        import distributed
    except ImportError as error:
        raise InputError(f"a cluster needs dask ({error}): install algnn[cluster]") from error
    dask: Any = distributed  # its functions have no types
    with ExitStack() as stack:
        where: Any = scheduler
        if scheduler is None:
            where = stack.enter_context(dask.LocalCluster(workers, threads_per_worker=1))
        try:
            client = stack.enter_context(dask.Client(where))
        except (OSError, ValueError) as error:
            raise InputError(f"--scheduler {scheduler} cannot be reached: {error}") from error
        say(Console(highlight=False, stderr=True), f"dashboard: {client.dashboard_link}")
        yield on_cluster(graph, client)
