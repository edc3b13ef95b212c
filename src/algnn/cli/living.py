"""Commands that change a model: `algnn fit | learn | relabel | forget | merge | blank`.

A model is a file. A command that changes it holds its lock, reads it, and puts the new one in its
place in a single step: whoever reads it meanwhile sees one or the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text
from typer import Argument, Option, Typer

import algnn
from algnn.cli import shared
from algnn.errors import InputError
from algnn.files import locked
from algnn.graph.catalogue import RANDOM_SPLIT
from algnn.methods import parse

if TYPE_CHECKING:
    from algnn.models import Model as AnyModel

# what a model holds: nodes of each class, and bytes
Holdings = tuple[dict[Any, float], int]

commands = Typer()


@commands.command()
def fit(
    # a str: with -o it is the graph, and Path would turn s3://… into s3:/…
    model: Annotated[str, Argument(help=f"The model, a {shared.ENDING} file.")],
    graph: shared.Graph,
    labels: Path | None = Argument(None, help=shared.LABELS),
    out: Path | None = Option(
        None, "-o", "--out", help="The model, if it does not stand first: GRAPH LABELS -o MODEL."
    ),
    changes: shared.Settings = None,
    seed: int = Option(0, help="Of all that is random."),
    private: float | None = Option(
        None, metavar="EPSILON", help="Make sums differentially private, with this ε per session."
    ),
    device: shared.Device = "auto",
    force: shared.Force = False,
    dry_run: shared.DryRun = False,
    data: shared.DataRoot = None,
    scheduler: shared.Scheduler = None,
    workers: shared.Workers = 0,
) -> None:
    """Make a model from the first labelled nodes of a graph."""
    if out is not None and labels is None:
        graph, labels = model, Path(graph)
    elif out is None and labels is not None:
        out = Path(model)
    else:
        raise InputError("give MODEL GRAPH LABELS, or GRAPH LABELS -o MODEL")

    def make() -> AnyModel:
        shared.load_torch()
        kind = algnn.ALGNN if private is None else algnn.PrivateALGNN
        given = parse(kind, changes or [])
        if "epsilon" in given:
            raise InputError("epsilon is set twice: give it to --private alone")
        chosen = {**given, "seed": seed, "device": device}
        return kind(**chosen if private is None else {**chosen, "epsilon": private})

    session = _session("learning", out, graph, labels, None, dry_run, data, make, force)
    with session as (learner, now, *some), shared.spread(now, scheduler, workers) as there:
        learner.fit(there, *some)
    print(f"gives away: {learner.exposure()}")


@commands.command()
def learn(
    model: shared.Model,
    graph: shared.Graph,
    labels: shared.Labels,
    again: bool = Option(False, "--again", help="Skip nodes learned before with the same label."),
    device: shared.ModelDevice = None,
    dry_run: shared.DryRun = False,
    data: shared.DataRoot = None,
    scheduler: shared.Scheduler = None,
    workers: shared.Workers = 0,
) -> None:
    """Teach a model more labelled nodes, of new classes or of known ones."""
    session = _session("learning", model, graph, labels, device, dry_run, data)
    with session as (learner, now, *some), shared.spread(now, scheduler, workers) as there:
        private = isinstance(learner, algnn.PrivateALGNN)
        if private and again:
            raise InputError(f"--again: {model} is private and keeps no record to compare with")
        how: dict[str, Any] = {"repeat": "ignore"} if again else {}
        learner.partial_fit(there, *some, **how)
    if private:  # each session of a class spends more
        print(f"gives away: {learner.exposure()}")


@commands.command()
def relabel(
    model: shared.Model,
    graph: shared.Graph,
    labels: shared.Labels,
    device: shared.ModelDevice = None,
    dry_run: shared.DryRun = False,
    data: shared.DataRoot = None,
) -> None:
    """Correct the labels of nodes that were learned: forget the old ones and learn the new ones."""
    session = _session("relabelling", model, graph, labels, device, dry_run, data, every=True)
    with session as (learner, now, nodes, classes):
        exact(model, learner).relabel(now, nodes, None, classes)


@commands.command()
def forget(
    model: shared.Model,
    graph: shared.Graph,
    labels: shared.Labels,
    node: int | None = Option(
        None,
        help="Forget this node altogether, features and edges too; LABELS are then all that"
        " were learned, of which those within its reach are learned anew.",
    ),
    graph_out: Path | None = Option(None, help="With --node: the .npz for the graph without it."),
    device: shared.ModelDevice = None,
    dry_run: shared.DryRun = False,
    data: shared.DataRoot = None,
) -> None:
    """Take labelled nodes out of a model, exactly as if it had never seen their labels."""
    if (node is None) != (graph_out is None):
        raise InputError(
            "--node and --graph-out go together: name the node, and a new .npz for what is left"
        )
    if graph_out is not None and (graph_out.suffix != ".npz" or graph_out.exists()):
        raise InputError(f"--graph-out {graph_out} must be a new file that ends in .npz")
    # who asks for an erasure must not think that it was done; for a node, labels may be of all
    every = node is None
    session = _session("forgetting", model, graph, labels, device, dry_run, data, every=every)
    with session as (found, now, nodes, classes):
        import numpy as np

        from algnn.graph.npz import MASKS

        learner = exact(model, found)
        if node is None or graph_out is None:
            learner.forget(now, nodes, classes)
            return
        near = np.isin(nodes, learner.reach(now, node))
        smaller = learner.forget_node(now, node, nodes[near], classes[near])
        # with what the model was not shown; a split may be drawn again
        whole = algnn.load(graph, data)
        drawn = whole.get("provenance", {}).get("split", "").startswith(RANDOM_SPLIT)
        for key in ("y", "class_names", *(() if drawn else MASKS)):
            smaller[key] = whole.get(key)
        if not dry_run:
            # before the model: if this is all that gets done, no model has lost anything
            algnn.save_npz(smaller, graph_out)
    again = shared.plural(int((near & (nodes != node)).sum()), "labelled node")
    holds = "would hold" if dry_run else "holds"
    print(f"{graph_out} {holds} the graph without node {node}; {again} near it learned anew")


@commands.command()
def merge(
    models: Annotated[list[Path], Argument(help=f"Two or more {shared.ENDING} files.")],
    out: shared.NewModel,
    overlap: bool = Option(False, "--overlap", help="Let shared nodes count more than once."),
    force: shared.Force = False,
    dry_run: shared.DryRun = False,
) -> None:
    """Join models of the same encoder, exactly as if one had seen all that they have."""
    _check_writable(out, force)
    if len(models) < 2:
        raise InputError("merge needs at least two models: algnn merge A B -o C")
    shared.check_inputs(*models)
    with _changing(out, dry_run, force):
        first, *others = (exact(model, shared.load_model(model, None)) for model in models)
        before = _holdings(first)
        with shared.working(f"joining {shared.plural(len(models), 'model')}"):
            for other in others:
                first.merge(other, repeat="count" if overlap else "error")
        _finish(out, first, before, dry_run)


@commands.command()
def blank(model: shared.Model, out: shared.NewModel, force: shared.Force = False) -> None:
    """Copy a model's encoder and nothing that it has learned: what several sites start from."""
    _check_writable(out, force)
    shared.check_inputs(model)
    with _changing(out, False, force):
        exact(model, shared.load_model(model, None)).blank().save(out)
    print(f"{out} holds the encoder of {model}, and no class")


def exact(path: Path, found: AnyModel) -> algnn.ALGNN:
    """The model, unless it is a private one."""
    if not isinstance(found, algnn.ALGNN):
        raise InputError(
            f"{path} is a private model, with noisy sums and no record of nodes: it can learn,"
            " predict, be evaluated and be inspected, and nothing else"
        )
    return found


@contextmanager
def _session(
    doing: str,
    model: Path,
    graph: str,
    labels: Path,
    device: str | None,
    dry_run: bool,
    data: Path | None,
    make: Callable[[], AnyModel] | None = None,
    force: bool = True,
    every: bool = False,
) -> Iterator[tuple[AnyModel, Any, Any, Any]]:
    """A model, a graph, nodes and labels; what the block changes in the model is written."""
    _check_writable(model, force)
    shared.check_inputs(*([] if make else [model]), graphs=[graph], data=data, table=labels)
    new = make() if make else None
    with _changing(model, dry_run, force):
        learner = shared.load_model(model, device) if new is None else new
        before, seen = (_holdings(learner), learner.classes_) if new is None else (({}, 0), None)
        now, count = shared.load_graph(graph, data)
        nodes, classes = shared.load_labels(labels, count, seen, every=every)
        with shared.working(f"{doing} {shared.plural(nodes.size, 'node')}"):
            yield learner, now, nodes, classes
        _finish(model, learner, before, dry_run)


@contextmanager
def _changing(path: Path, dry_run: bool, force: bool) -> Iterator[None]:
    """Nobody else changes the model meanwhile; where nothing is written, nobody is kept waiting."""
    shared.load_torch()  # before the lock, for which others may wait
    with nullcontext() if dry_run else locked(path):
        _check_writable(path, force)  # by now another may have made it
        yield


def _check_writable(path: Path, force: bool) -> None:
    from algnn.checkpoint import check_path

    check_path(path, shared.ENDING)
    if path.exists() and not force:
        raise InputError(f"{path} exists: give another name, or --force to replace it")


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
    # of a private model, each rehearsal would give away counts with another noise
    hidden = dry_run and not isinstance(learner, algnn.ALGNN)
    table = shared.plain_table("class", "before", "after", "", right=slice(1, 3), pad=True)
    for name in sorted({*old, *new}):
        was, is_now = old.get(name, 0), new.get(name, 0)
        if was != is_now:
            remark = "new" if not was else "gone" if not is_now else ""
            # where old sessions count for less, nodes are counted in fractions
            after = "more" if hidden else f"{is_now:,.6g}"
            table.add_row(Text(str(name)), f"{was:,.6g}", after, remark)
    if table.rows:
        shared.print_table(table)
    would = "would hold" if dry_run else "holds"
    nodes = "more nodes" if hidden else shared.plural(sum(new.values()), "node")
    held = f"{shared.plural(len(new), 'class')}, {nodes}"
    was_bytes = f" ({old_bytes:,} before)" if old_bytes else ""
    print(f"{path.name} {would} {held}, {new_bytes:,} bytes{was_bytes}")
    if dry_run:
        print("nothing was written (--dry-run)")
