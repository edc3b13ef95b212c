"""Commands that ask a model: `algnn predict | explain | evaluate | inspect`."""

import dataclasses
import json
from enum import StrEnum
from pathlib import Path
from typing import Any

from rich.text import Text
from typer import Argument, Option, Typer

import algnn
from algnn.cli import shared
from algnn.cli.living import exact
from algnn.errors import InputError
from algnn.files import make_folder

commands = Typer()
# what a picture of a model shows
Kind = StrEnum("Kind", ["confusion", "accuracy", "map"])


@commands.command()
def predict(
    model: shared.Model,
    graph: shared.Graph,
    out: Path | None = Option(None, "-o", "--out", help="CSV or Parquet; stdout by default."),
    nodes: Path | None = Option(None, help="CSV or Parquet with a column node; all by default."),
    everything: bool = Option(False, "--all", help="Add the probability of every class."),
    novelty: bool = Option(True, help="The novelty of each node, which takes most of the time."),
    novel_above: float | None = Option(
        None, min=0, max=1, help="Add a column novel: whether novelty is above this."
    ),
    plot: shared.Plot = None,
    device: shared.ModelDevice = None,
    data: shared.DataRoot = None,
    scheduler: shared.Scheduler = None,
    workers: shared.Workers = 0,
) -> None:
    """Write each node's label, how probable it is, and how new the node looks."""
    if novel_above is not None and not novelty:
        raise InputError("--novel-above needs the novelty of each node: leave out --no-novelty")
    shared.check_inputs(model, graphs=[graph], data=data, table=nodes, columns=["node"])
    from algnn.labels import is_parquet, read_nodes, write_table

    # before any work: whether the predictions can be written there
    if out is not None:
        if out.is_dir() or not (is_parquet(out) or out.suffix.lower() == ".csv"):
            raise InputError(f"--out {out} is no name for a table: end it in .csv or .parquet")
        if nodes is not None and out.exists() and out.samefile(nodes):
            raise InputError(f"--out {out} is the table of --nodes: give another name")
        make_folder(out.parent)
    learner = shared.load_model(model, device)
    now, count = shared.load_graph(graph, data)
    chosen = range(count) if nodes is None else read_nodes(nodes, count)

    def answers(some: Any) -> dict[str, Any]:
        probabilities = learner.predict_proba(now, some)
        found = {"node": some, "label": learner.classes_[probabilities.argmax(axis=1)]}
        found["probability"] = probabilities.max(axis=1)
        if novelty:
            found["novelty"] = learner.novelty(now, some)
        if novel_above is not None:
            found["novel"] = found["novelty"] > novel_above
        names = [f"p_{name}" for name in learner.classes_] if everything else []
        return found | dict(zip(names, probabilities.T, strict=False))

    def pieces() -> Any:
        answers(chosen[:1])  # encoding, above all, which later answers do not take
        # few at a time, so that the time left is known soon, or as many as keep a cluster busy
        size = 2**16 if scheduler or workers else 2**12
        for at in range(0, max(len(chosen), 1), size):
            tell(at, len(chosen))
            yield answers(chosen[at : at + size])

    amount = shared.plural(len(chosen), "node")
    shown = shared.working(f"predicting {amount}")
    with shown as tell, shared.spread(now, scheduler, workers) as now:
        write_table(out, pieces())
        if plot is not None:
            tell(words=f"drawing {plot}")
            figure = algnn.plot.novelty(learner, now, chosen, threshold=novel_above)
            algnn.plot.save(figure, plot)
    if out is not None:
        print(f"{out}: {amount}")


@commands.command()
def explain(
    model: shared.Model,
    graph: shared.Graph,
    node: int = Argument(help="The node's id, from 0."),
    label: str | None = Option(None, help="The class; by default the one that is predicted."),
    plot: shared.Plot = None,
    device: shared.ModelDevice = None,
    data: shared.DataRoot = None,
) -> None:
    """Say which features and which neighbours moved a node's score."""
    shared.check_inputs(model, graphs=[graph], data=data)
    learner = exact(model, shared.load_model(model, device))
    now, _ = shared.load_graph(graph, data)
    named = {str(name): name for name in learner.classes_.tolist()}
    wanted = None if label is None else named.get(label, label)
    with shared.working(f"explaining node {node}"):
        found = learner.explain(now, node, wanted)
        if plot is not None:
            algnn.plot.save(algnn.plot.explanation(learner, now, node, wanted), plot)
    print(found)


@commands.command()
def inspect(
    model: shared.Model,
    full: bool = Option(
        False, "--full", help="Check its SHA-256 too; add the condition number and the encoder's."
    ),
    as_json: shared.AsJson = False,
) -> None:
    """Say what a model knows and all that was ever done to it."""
    from algnn.analytic.lifecycle.glance import Summary, glance

    found: Summary | dict[str, str] = glance(model)
    learner = shared.load_model(model, None) if full else None
    if isinstance(found, Summary):
        found = exact(model, learner).summary() if learner else found
        facts, text = dataclasses.asdict(found), str(found)
    else:
        facts = found | (learner._described() if learner else {})
        text = "\n".join(f"{name:<22}  {value}" for name, value in facts.items())
    print(json.dumps(facts) if as_json else text)


@commands.command()
def evaluate(
    model: shared.Model,
    graph: shared.Graph,
    labels: shared.Labels,
    plot: shared.Plot = None,
    kind: Kind | None = Option(
        None, help="Of the picture: confusion by default, accuracy by age, a map."
    ),
    as_json: shared.AsJson = False,
    device: shared.ModelDevice = None,
    data: shared.DataRoot = None,
) -> None:
    """Compare a model's answers with true labels, class by class."""
    if kind is not None and plot is None:
        raise InputError("--kind is that of a picture: say by --plot where to write it")
    shared.check_inputs(model, graphs=[graph], data=data, table=labels)
    learner = shared.load_model(model, device)
    now, count = shared.load_graph(graph, data)
    some = shared.load_labels(labels, count, learner.classes_)
    with shared.working(f"predicting {shared.plural(some[0].size, 'node')}"):
        table = learner.evaluate(now, *some)
        if plot is not None:
            name = "class_map" if kind is Kind.map else kind or Kind.confusion
            algnn.plot.save(getattr(algnn.plot, name)(learner, now, *some), plot)
    if as_json:
        rows = table.reset_index().to_json(orient="records", double_precision=6)
        total = {k: round(v, 6) if isinstance(v, float) else v for k, v in table.attrs.items()}
        print(json.dumps(total | {"classes": json.loads(rows)}))
    else:
        heading = ("class", "nodes", "accuracy", "confidence", "mistaken for", "session")
        shown = shared.plain_table(*heading, right=slice(1, 4), pad=True)
        words = ["mistaken_for", "session"]
        for row in table.assign(**table[words].astype("string").fillna("")).itertuples():
            numbers = (f"{row.n:,}", f"{100 * row.accuracy:.1f}%", f"{row.confidence:.3f}")
            shown.add_row(Text(str(row.Index)), *numbers, Text(row.mistaken_for), row.session)
        shared.print_table(shown)
        whole = table.attrs
        print(
            f"accuracy {100 * whole['accuracy']:.2f}% over {shared.plural(whole['n'], 'node')},"
            f" {100 * whole['macro']:.2f}% over {shared.plural(len(table), 'class')},"
            f" mean confidence {whole['confidence']:.3f}"
        )
        if unknown := [str(name) for name in table.index if name not in learner.classes_]:
            named = shared.plural(len(unknown), "class")
            print(f"{named} never learned, whose nodes count as wrong: {', '.join(unknown)}")
