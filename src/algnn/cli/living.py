"""A model through its life: `algnn fit | learn | forget | predict | explain | merge | …`.

A model is a file. A command that changes it holds its lock, reads it, and puts the new one in its
place in a single step: whoever reads it meanwhile sees one or the other.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from algnn.cli.arguments import load_torch, say
from algnn.cli.given import (
    ENDING,
    DataRoot,
    Device,
    DryRun,
    Force,
    Graph,
    Labels,
    Model,
    Plot,
    Scheduler,
    Workers,
    busy,
    check_table,
    checked_picture,
    load_graph,
    load_model,
    spread,
)
from algnn.errors import InputError
from algnn.files import locked, replacing

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from algnn import ALGNN
    from algnn.models import Model as AnyModel

PREDICTED_AT_ONCE = 2**16  # nodes whose predictions are in memory at a time
# what a model holds: nodes of each class, and bytes
Holdings = tuple[dict[Any, float], int]

commands = typer.Typer()


@commands.command()
def fit(
    model: Model,
    graph: Graph,
    labels: Labels,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change a setting; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all that is random.")] = 0,
    private: Annotated[
        float | None,
        typer.Option(
            metavar="EPSILON",
            help="Make a model with differentially private sums, of this ε for each session.",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    force: Force = False,
    dry_run: DryRun = False,
    data: DataRoot = None,
    scheduler: Scheduler = None,
    workers: Workers = 0,
) -> None:
    """Make a model from the first labelled nodes of a graph."""
    path = _writable(model)
    load_torch()
    from algnn import ALGNN, PrivateALGNN
    from algnn.graph.store import node_count
    from algnn.labels import read_labels
    from algnn.methods import parse

    apart: dict[str, Any] = {"seed": seed, "device": device}
    learner: AnyModel
    if private is None:
        learner = ALGNN(**{**parse(ALGNN, changes or []), **apart})
    else:
        chosen = parse(PrivateALGNN, changes or [])
        learner = PrivateALGNN(**{**chosen, **apart, "epsilon": private})
    with ExitStack() as stack:
        stack.enter_context(_changing(path, dry_run))
        _check_free(path, force)
        now = stack.enter_context(spread(load_graph(graph, data), scheduler, workers))
        nodes, classes = read_labels(labels, node_count(now))
        with busy(now, f"learning {_count(nodes.size, 'node')}"):
            learner.fit(now, nodes, classes)
        _finish(path, learner, ({}, 0), dry_run)
    say(Console(highlight=False), f"gives away: {learner.exposure()}")


@commands.command()
def learn(
    model: Model,
    graph: Graph,
    labels: Labels,
    again: Annotated[
        bool,
        typer.Option("--again", help="Skip nodes that were learned before with the same label."),
    ] = False,
    device: Device = None,
    dry_run: DryRun = False,
    data: DataRoot = None,
) -> None:
    """Teach a model more labelled nodes, of new classes or of known ones."""

    def step(learner: AnyModel, *some: Any) -> None:
        from algnn import PrivateALGNN

        if not isinstance(learner, PrivateALGNN):
            learner.partial_fit(*some, repeat="ignore" if again else "error")
        elif again:
            raise InputError(f"--again: {model} is private and keeps no record to compare with")
        else:
            learner.partial_fit(*some)

    _change(model, graph, labels, device, dry_run, data, step)


@commands.command()
def relabel(
    model: Model,
    graph: Graph,
    labels: Labels,
    device: Device = None,
    dry_run: DryRun = False,
    data: DataRoot = None,
) -> None:
    """Correct the labels of nodes that were learned: forget the old ones and learn the new ones."""

    def step(learner: AnyModel, now: Data, nodes: Any, classes: Any) -> None:
        _exact(model, learner).relabel(now, nodes, None, classes)

    _change(model, graph, labels, device, dry_run, data, step)


@commands.command()
def forget(
    model: Model,
    graph: Graph,
    labels: Labels,
    node: Annotated[
        int | None,
        typer.Option(
            help="Forget this node altogether, features and edges too; LABELS are then all that"
            " were learned, of which those within its reach are learned anew."
        ),
    ] = None,
    graph_out: Annotated[
        Path | None, typer.Option(help="With --node: the .npz for the graph without it.")
    ] = None,
    device: Device = None,
    dry_run: DryRun = False,
    data: DataRoot = None,
) -> None:
    """Take labelled nodes out of a model, exactly as if it had never seen their labels."""
    if (node is None) != (graph_out is None):
        raise InputError("--node and --graph-out go together: without a node the graph changes too")
    if node is None or graph_out is None:

        def plainly(learner: AnyModel, *some: Any) -> None:
            _exact(model, learner).forget(*some)

        _change(model, graph, labels, device, dry_run, data, plainly)
        return
    out, again = _free_graph(graph_out), 0

    def without_node(found: AnyModel, now: Data, nodes: Any, classes: Any) -> None:
        import numpy as np

        nonlocal again
        learner = _exact(model, found)
        near = np.isin(nodes, learner.reach(now, node))
        smaller = learner.forget_node(now, node, nodes[near], classes[near])
        again = int((near & (nodes != node)).sum())
        if not dry_run:
            # before the model: if this is all that gets done, no model has lost anything
            _save_graph(out, smaller)

    _change(model, graph, labels, device, dry_run, data, without_node)
    told = f"{out} would hold" if dry_run else f"{out} holds"
    say(
        Console(highlight=False),
        f"{told} the graph without node {node}; {_count(again, 'labelled node')} that could see it"
        " learned anew",
    )


@commands.command()
def predict(
    model: Model,
    graph: Graph,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="CSV or Parquet; stdout by default.")
    ] = None,
    nodes: Annotated[
        Path | None, typer.Option(help="CSV or Parquet with a column node; all by default.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Add the probability of every class.")
    ] = False,
    novelty: Annotated[
        bool, typer.Option(help="The novelty of each node, which takes most of the time.")
    ] = True,
    novel_above: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Add a column novel: whether novelty is above this."),
    ] = None,
    plot: Plot = None,
    device: Device = None,
    data: DataRoot = None,
    scheduler: Scheduler = None,
    workers: Workers = 0,
) -> None:
    """Write each node's label, how probable it is, and how new the node looks."""
    load_torch()
    check_table(out)
    picture = checked_picture(plot)
    import numpy as np

    from algnn.graph.store import node_count
    from algnn.labels import read_nodes, write_table

    learner = load_model(model, device)
    now = load_graph(graph, data)
    count = node_count(now)
    chosen = np.arange(count) if nodes is None else read_nodes(nodes, count)
    if novel_above is not None and not novelty:
        raise InputError("--novel-above needs the novelty of each node: leave out --no-novelty")

    def columns(some: Any) -> dict[str, Any]:
        probabilities = learner.predict_proba(now, some)
        found = {"node": some, "label": learner.predict(now, some)}
        found["probability"] = probabilities.max(axis=1)
        if novelty:
            found["novelty"] = learner.novelty(now, some)
        if novel_above is not None:
            found["novel"] = found["novelty"] > novel_above
        if everything:
            names = (f"p_{name}" for name in learner.classes_)
            found.update(zip(names, probabilities.T, strict=True))
        return found

    pieces = range(0, max(chosen.size, 1), PREDICTED_AT_ONCE)
    shown = busy(now, f"predicting {_count(chosen.size, 'node')}")
    with shown, spread(now, scheduler, workers) as now:
        write_table(out, (columns(chosen[at : at + PREDICTED_AT_ONCE]) for at in pieces))
    if out is not None:
        say(Console(highlight=False), f"{out}: {_count(chosen.size, 'node')}")
    if picture is not None:
        from algnn import plot as pictures

        found = pictures.novelty(learner, now, chosen, threshold=novel_above)
        pictures.save(found, picture)


@commands.command()
def explain(
    model: Model,
    graph: Graph,
    node: Annotated[int, typer.Argument(help="The node's id, from 0.")],
    label: Annotated[
        str | None, typer.Option(help="The class; by default the one that is predicted.")
    ] = None,
    plot: Plot = None,
    device: Device = None,
    data: DataRoot = None,
) -> None:
    """Say which features and which neighbours moved a node's score."""
    picture = checked_picture(plot)
    learner = _exact(model, load_model(model, device))
    now = load_graph(graph, data)
    named = {str(name): name for name in learner.classes_.tolist()}
    wanted = None if label is None else named.get(label, label)
    say(Console(highlight=False), str(learner.explain(now, node, wanted)))
    if picture is not None:
        from algnn.plot import explanation, save

        save(explanation(learner, now, node, wanted), picture)


@commands.command()
def merge(
    models: Annotated[list[Path], typer.Argument(help=f"Two or more {ENDING} files.")],
    out: Annotated[Path, typer.Option("-o", "--out", help=f"The new model, a {ENDING} file.")],
    overlap: Annotated[
        bool,
        typer.Option("--overlap", help="Let nodes that models share count more than once."),
    ] = False,
    force: Force = False,
    dry_run: DryRun = False,
) -> None:
    """Join models of the same encoder, exactly as if one had seen all that they have."""
    path = _writable(out)
    if len(models) < 2:
        raise InputError("merge needs at least two models: algnn merge A B -o C")
    load_torch()
    with _changing(path, dry_run):
        _check_free(path, force)
        first, *others = (_exact(model, load_model(model, None)) for model in models)
        before = _holdings(first)
        for other in others:
            first.merge(other, repeat="count" if overlap else "error")
        _finish(path, first, before, dry_run)


@commands.command()
def blank(
    model: Model,
    out: Annotated[Path, typer.Option("-o", "--out", help=f"The new model, a {ENDING} file.")],
    force: Force = False,
) -> None:
    """Copy a model's encoder and nothing that it has learned: what several sites start from."""
    path = _writable(out)
    load_torch()
    with _changing(path, dry_run=False):
        _check_free(path, force)
        _exact(model, load_model(model, None)).blank().save(path)
    say(Console(highlight=False), f"{out} holds the encoder of {model}, and no class")


@commands.command()
def inspect(
    model: Model,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Read all of it: check its SHA-256, add the condition number and the encoder's.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what a model knows and all that was ever done to it."""
    from algnn.analytic.lifecycle.glance import Summary, glance

    found: Summary | dict[str, str] = glance(model)
    if full:
        learner = load_model(model, None)
        if isinstance(found, Summary):
            found = _exact(model, learner).summary()
        else:
            found |= learner._described()
    if isinstance(found, Summary):
        facts, text = dataclasses.asdict(found), str(found)
    else:
        facts, text = found, "\n".join(f"{name:<22}  {value}" for name, value in found.items())
    if as_json:
        print(json.dumps(facts))
    else:
        say(Console(highlight=False), text)


# -- what the commands share ----------------------------------------------------------------------


def _change(
    model: Path,
    graph: str,
    labels: Path,
    device: str | None,
    dry_run: bool,
    data: Path | None,
    step: Callable[[AnyModel, Any, Any, Any], object],
) -> None:
    """Read a model, let it learn or forget some labelled nodes, and write it."""
    path = _writable(model)
    load_torch()
    from algnn.graph.store import node_count
    from algnn.labels import read_labels

    with _changing(path, dry_run):
        learner = load_model(path, device)
        before = _holdings(learner)
        now = load_graph(graph, data)
        nodes, classes = read_labels(labels, node_count(now), learner.classes_)
        with busy(now, f"working on {_count(nodes.size, 'node')}"):
            step(learner, now, nodes, classes)
        _finish(path, learner, before, dry_run)


@contextmanager
def _changing(path: Path, dry_run: bool) -> Iterator[None]:
    """Nobody else changes the model meanwhile; where nothing is written, nobody is kept waiting."""
    if dry_run:
        yield
        return
    from algnn.bench.plan import make_folder

    make_folder(path.parent)
    with locked(path):
        yield


def _writable(path: Path) -> Path:
    """The path of a model that is to be written, if it looks like one: a link's is its target's."""
    if path.suffix != ENDING or path.is_dir():
        raise InputError(f"{path} is no name for a model: give a file that ends in {ENDING}")
    return path.resolve() if path.is_symlink() else path


def _check_free(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise InputError(f"{path} exists: give another name, or --force to replace it")


def _exact(path: Path, found: AnyModel) -> ALGNN:
    from algnn import ALGNN

    if not isinstance(found, ALGNN):
        raise InputError(
            f"{path} is a private model, with noisy sums and no record of nodes: it can learn,"
            " predict and be inspected, and nothing else"
        )
    return found


def _free_graph(path: Path) -> Path:
    if path.suffix != ".npz" or path.exists():
        raise InputError(f"--graph-out {path} must be a new file that ends in .npz")
    return path


def _save_graph(path: Path, graph: Data) -> None:
    from algnn.graph.npz import input_arrays, write_arrays

    with replacing(path) as temporary, temporary.open("wb") as file:
        write_arrays(file, input_arrays(graph))


def _holdings(learner: AnyModel) -> Holdings:
    from algnn.analytic.state import State, per_class

    known = learner._known
    sums = known.statistics if isinstance(known, State) else known.shown
    return per_class(sums), learner.retained_bytes()


def _finish(path: Path, learner: AnyModel, before: Holdings, dry_run: bool) -> None:
    """Write the model, unless this is a rehearsal, and say what has changed."""
    if not dry_run:
        learner.save(path)
    (old, old_bytes), (new, new_bytes) = before, _holdings(learner)
    table = Table("class", "before", "after", "", box=None)
    for column in table.columns[1:3]:
        column.justify = "right"
    for name in sorted({*old, *new}):
        was, is_now = old.get(name, 0), new.get(name, 0)
        if was != is_now:
            remark = "new" if not was else "gone" if not is_now else ""
            # where old sessions count for less, nodes are counted in fractions
            table.add_row(Text(str(name)), f"{was:,.6g}", f"{is_now:,.6g}", remark)
    console = Console(highlight=False)
    if table.rows:
        console.print(table)
    would = "would hold" if dry_run else "holds"
    held = f"{_count(len(new), 'class')}, {_count(sum(new.values()), 'node')}"
    was_bytes = f" ({old_bytes:,} before)" if old_bytes else ""
    say(console, f"{path.name} {would} {held}, {new_bytes:,} bytes{was_bytes}")
    if dry_run:
        say(console, "nothing was written (--dry-run)")


def _count(number: float, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    shown = f"{number:,}" if isinstance(number, int) else f"{number:,.1f}"
    return f"{shown} {noun if number == 1 else plural}"
