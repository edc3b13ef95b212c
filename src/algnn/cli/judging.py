"""How good a model is: `algnn evaluate`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from algnn.cli.arguments import load_torch, say
from algnn.cli.given import DataRoot, Device, Graph, Labels, Model, Plot, checked_picture

if TYPE_CHECKING:
    import pandas as pd

commands = typer.Typer()


class Kind(StrEnum):
    """What a picture of a model shows."""

    CONFUSION = "confusion"
    ACCURACY = "accuracy"
    MAP = "map"


@commands.command()
def evaluate(
    model: Model,
    graph: Graph,
    labels: Labels,
    plot: Plot = None,
    kind: Annotated[
        Kind, typer.Option(help="Of the picture: what is confused, accuracy by age, or a map.")
    ] = Kind.CONFUSION,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    device: Device = None,
    data: DataRoot = None,
) -> None:
    """Compare a model's answers with true labels, class by class."""
    picture = checked_picture(plot)
    load_torch()
    from algnn.graph.datasets import load_inputs
    from algnn.graph.store import node_count
    from algnn.labels import read_labels
    from algnn.models import load_model

    learner = load_model(model, device)
    now = load_inputs(graph, data)
    some = read_labels(labels, node_count(now), learner.classes_)
    table = learner.evaluate(now, *some)
    if as_json:
        rows = table.reset_index().to_json(orient="records", double_precision=6)
        total = ", ".join(f'"{name}": {value:.6g}' for name, value in table.attrs.items())
        print(f'{{{total}, "classes": {rows}}}')
    else:
        _show(Console(highlight=False), table)
    if picture is not None:
        from algnn import plot as drawing

        draw = {Kind.CONFUSION: drawing.confusion, Kind.ACCURACY: drawing.accuracy}
        figure = draw.get(kind, drawing.class_map)(learner, now, *some)
        drawing.save(figure, picture)


def _show(console: Console, table: pd.DataFrame) -> None:
    shown = Table("class", "nodes", "accuracy", "confidence", "mistaken for", "session", box=None)
    for column in shown.columns[1:4]:
        column.justify = "right"
    words = table[["mistaken_for", "session"]].astype("string").fillna("")
    for row, wrong, session in zip(
        table.itertuples(), words.mistaken_for, words.session, strict=True
    ):
        numbers = (f"{row.n:,}", f"{100 * row.accuracy:.1f}%", f"{row.confidence:.3f}")
        shown.add_row(Text(str(row.Index)), *numbers, Text(wrong), session)
    console.print(shown)
    total = table.attrs
    say(
        console,
        f"accuracy {100 * total['accuracy']:.2f}% over {total['n']:,} nodes,"
        f" {100 * total['macro']:.2f}% over {len(table):,} classes,"
        f" mean confidence {total['confidence']:.3f}",
    )
