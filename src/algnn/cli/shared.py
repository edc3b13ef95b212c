"""What several commands share: options, how they are read, and the progress of their work."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

import algnn
from algnn import progress
from algnn.errors import InputError
from algnn.files import make_folder, picture_path
from algnn.graph.catalogue import check_name

ENDING = ".safetensors"
SEEDS = "42,43,44"


def checked_picture(path: Path | None) -> Path | None:
    """Before any work: whether a picture can be written there."""
    if path is not None:
        make_folder(picture_path(path).parent)
    return path


AsJson = Annotated[bool, Option("--json", help="Print one JSON object.")]
Base = Annotated[int | None, Option(help="Classes of the first session; half of them by default.")]
DataRoot = Annotated[Path | None, Option(help="Folder with datasets; ALGNN_DATA by default.")]
Dataset = Annotated[str, Argument(help="A dataset's name, or the path of an .npz.")]
Device = Annotated[str, Option(help="auto, cpu or cuda.")]
DryRun = Annotated[bool, Option("--dry-run", help="Say what would change, and write nothing.")]
Edges = Annotated[str, Option(help="full: the whole graph is visible; seen: that of seen classes.")]
Force = Annotated[bool, Option("--force", help="Replace a file that exists.")]
Graph = Annotated[str, Argument(help="An .npz, a partitioned folder, or a dataset's name.")]
LABELS = "CSV or Parquet with the columns node (from 0) and label."
Labels = Annotated[Path, Argument(help=LABELS)]
Model = Annotated[Path, Argument(help=f"The model, a {ENDING} file.")]
ModelDevice = Annotated[str | None, Option(help="auto, cpu or cuda; by default as it was.")]
NewModel = Annotated[Path, Option("-o", "--out", help=f"The new model, a {ENDING} file.")]
Order = Annotated[str, Option(help="label, random, random-1, or every class: 3,1,0,2.")]
Plot = Annotated[
    Path | None, Option(help="Draw it into this .png, .svg or .pdf.", callback=checked_picture)
]
Records = Annotated[Path, Option(help="Folder for a record of each run.")]
Scheduler = Annotated[str | None, Option(help="A Dask scheduler, tcp://…, on a shared folder.")]
Seeds = Annotated[str, Option(help="One run for each.")]
Settings = Annotated[
    list[str] | None,
    Option("--set", metavar="NAME=VALUE", help="Change a setting where it exists; repeatable."),
]
Step = Annotated[int, Option(help="Classes of each later session.")]
Workers = Annotated[int, Option(min=0, help="Or a Dask cluster of so many processes here.")]


def parts(text: str) -> list[str]:
    """Different words as they are typed, with commas between them."""
    return list(dict.fromkeys(part.strip() for part in text.split(",")))


def whole_numbers(option: str, text: str, example: str, words: str = "whole numbers") -> list[int]:
    """Numbers as they are typed, with commas between them."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} {text!r} must be {words}, such as {example}") from None


def parse_seeds(text: str) -> list[int]:
    """Seeds as they are typed."""
    seeds = whole_numbers("--seeds", text, SEEDS)
    if len(set(seeds)) < len(seeds) or not all(0 <= seed < 2**32 for seed in seeds):
        raise InputError(f"--seeds {text!r} must be different numbers from 0 to 2**32 - 1")
    return seeds


def parse_order(text: str) -> str | list[int]:
    """An order of classes as it is typed."""
    words = "label, random, random-1 (of that seed), or every class in turn"
    named = re.fullmatch(r"label|random(-\d+)?", text)
    return text if named else whole_numbers("--order", text, "3,1,0,2", words)


def plain_table(*names: str, right: slice = slice(0), pad: bool = False) -> Table:
    """A table without lines, some of whose columns hold numbers."""
    table = Table(*names, box=None, pad_edge=pad)
    for column in table.columns[right]:
        column.justify, column.overflow = "right", "fold"  # no digit is left out
    return table


def print_table(table: Table, heading: str = "", console: Console | None = None) -> None:
    """Print a table, below a heading that may hold brackets."""
    console = console or Console(highlight=False)
    if heading:
        console.print(f"\n{heading}\n", style="bold", markup=False, soft_wrap=True)
    if not console.is_terminal:  # but a file or another program, for which nothing is cut
        console = Console(file=console.file, width=10**4)
    console.print(table)


def plural(number: float, noun: str) -> str:
    """A number with its noun; of nodes that count in part, to one decimal."""
    many = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    shown = f"{number:,}" if isinstance(number, int) else f"{number:,.1f}"
    return f"{shown} {noun if number == 1 else many}"


@dataclass
class Work:
    """What a command is doing: for how long, how far it is, and how much time that still takes."""

    what: str
    began: float = field(default_factory=monotonic)
    phase: str = ""
    done: int = 0
    total: int | None = None  # None where nobody knows how long it takes
    own: bool = False  # whether the command counts steps itself
    since: tuple[float, int] = (0.0, 0)  # when the phase began, and with how many steps done
    ends: float | None = None  # when it will be over, once one of its steps is done

    def tell(self, done: int = 0, total: int | None = None, words: str | None = None) -> None:
        """Steps done and all steps, or other words; before any steps, phases below are shown."""
        self.what, self.own = words or self.what, total is not None
        self.hear("", done, total, own=True)

    def hear(self, phase: str, done: int, total: int | None, own: bool = False) -> None:
        """How far a phase of the work below is; not shown where the command counts by itself."""
        if self.own and not own:
            return
        now = monotonic()
        if phase != self.phase or done < self.done or self.total is None:
            self.since = now, done
        self.phase, self.done = phase, done
        self.total = None if done == total else total
        steps, ahead = done - self.since[1], (total or done) - done
        self.ends = now + (now - self.since[0]) / steps * ahead if steps and ahead else None

    def left(self) -> float | None:
        """Seconds that the phase under way still takes, as far as that is known."""
        return None if self.ends is None else max(self.ends - monotonic(), 0.0)

    def __rich__(self) -> Table:
        """A line: the work and how long it has gone on; the phase and how long it still takes."""
        left = self.left()
        line = Table.grid(padding=(0, 1))
        line.add_row(
            Text(self.what, no_wrap=True, overflow="ellipsis"),
            Text(str(timedelta(seconds=round(monotonic() - self.began))), "yellow"),
            self.phase,
            ProgressBar(self.total, self.done, width=12, pulse=self.total is None),
            "" if left is None else Text(f"{timedelta(seconds=round(left))} left", "cyan"),
        )
        return line


@contextmanager
def working(what: str) -> Iterator[Callable[..., None]]:
    """Show on a terminal what takes a while, and how far it is; yields `Work.tell` of it."""
    console, work = Console(stderr=True), Work(what)
    # predictions go to stdout meanwhile, which may be a file
    live = Live(work, console=console, transient=True, redirect_stdout=False)
    with live if console.is_terminal else nullcontext(), progress.heard_by(work.hear):
        yield work.tell


def load_torch() -> None:
    """Import torch and the learners, and say so meanwhile: it takes seconds."""
    if "algnn.models" not in sys.modules:
        with working("loading"):
            import algnn.models  # noqa: F401


def check_inputs(
    *models: Path,
    graphs: Sequence[str] = (),
    data: Path | None = None,
    table: Path | None = None,
    columns: Sequence[str] = ("node", "label"),
) -> None:
    """Before torch is loaded, which takes seconds: whether files are there and look right."""
    with working("loading"):
        from algnn.checkpoint import peek
        from algnn.labels import check_table

        for model in models:
            peek(model)
        for graph in graphs:
            check_name(graph, data)
        if table is not None:
            check_table(table, *columns)


def load_model(path: Path, device: str | None) -> algnn.ALGNN | algnn.PrivateALGNN:
    """The model in a file, exact or private."""
    load_torch()
    from algnn import models

    with working(f"reading {path.name}"):
        return models.load_model(path, device)


def load_graph(name: str, data: Path | None) -> tuple[Any, int]:
    """The inputs of a graph, and how many nodes it has; one on disk stays there."""
    from algnn.graph.datasets import load_inputs
    from algnn.graph.store import node_count

    with working(f"reading {Path(name).name}"):
        graph = load_inputs(name, data)
        return graph, node_count(graph)


def load_labels(path: Path, count: int, seen: Any = None, every: bool = False) -> tuple[Any, Any]:
    """The nodes and labels of a table, beside classes that were seen before."""
    from algnn.labels import read_labels

    with working(f"reading {path.name}"):
        nodes, labels, without = read_labels(path, count, seen, every=every)
    if without:
        print(f"{path}: {plural(without, 'row')} without a label left out", file=sys.stderr)
    return nodes, labels


@contextmanager
def cluster(scheduler: str | None, workers: int = 0) -> Iterator[Any]:
    """A client of a Dask cluster that exists, or of one of some processes here."""
    try:
        import distributed
    except ImportError as error:
        raise InputError(f"a cluster needs dask ({error}): install algnn[cluster]") from error
    here, failure = {}, f"--scheduler {scheduler} cannot be reached"
    if scheduler is None:
        here = {"n_workers": workers, "threads_per_worker": 1}
        failure = f"--workers {workers} cannot be started"
    try:
        client = distributed.Client(scheduler, **here)
    except (OSError, ValueError) as error:
        raise InputError(f"{failure}: {error}") from error
    with client:
        print(f"dashboard: {client.dashboard_link}", file=sys.stderr)
        yield client


@contextmanager
def spread(graph: Any, scheduler: str | None, workers: int) -> Iterator[Any]:
    """The graph as a Dask cluster works on it, where one is asked for."""
    if scheduler is None and not workers:
        yield graph
        return
    if scheduler and workers:
        raise InputError("--scheduler and --workers are two clusters: leave one of them out")
    if not isinstance(graph, algnn.GraphStore):
        raise InputError(
            "--scheduler and --workers are for a graph on disk: make a folder of this one with"
            " algnn partition, and name the folder in its place"
        )
    with cluster(scheduler, workers) as client:
        yield algnn.on_cluster(graph, client)
