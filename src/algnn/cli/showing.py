"""The whole of it on a small scale: `algnn demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from algnn.cli.arguments import parse_seeds, say
from algnn.cli.benching import carry_out, show_table, start_workers_early
from algnn.cli.running import draw

# the graphs of the demo, as far as they are at hand: the first needs no data
GRAPHS = ("digits", "cora")
SLOW = ("cat-long", "joint-appnp", "joint-sage", "joint-appnp-balanced", "joint-sage-balanced")

commands = typer.Typer()


@commands.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page, pictures and records.")] = Path(
        "demo"
    ),
    seeds: Annotated[str, typer.Option(help="One run for each.")] = "42",
    methods: Annotated[
        str | None, typer.Option(help="By default all but two slow references.")
    ] = None,
) -> None:
    """Compare all methods, class after class, on handwritten digits (and Cora if at hand)."""
    numbers = parse_seeds(seeds)
    start_workers_early()
    from algnn.bench.plan import cross
    from algnn.graph.datasets import available
    from algnn.methods import METHODS
    from algnn.report.data import read
    from algnn.report.export import write

    names = [n for n in METHODS if n not in SLOW] if methods is None else methods.split(",")
    graphs = [name for name in GRAPHS if available(name)]
    plans = cross(graphs, {name: {} for name in names}, [1], numbers)
    # the slowest methods stand last in the registry: started first, they keep no worker waiting
    tally = carry_out(plans[::-1], out / "records", None, True)
    console = Console(highlight=False)
    show_table(console, tally, plans)
    console.print()
    for graph in graphs:
        ours = tally.of(next(p for p in plans if (p.dataset, p.method) == (graph, names[0])))
        if len(ours):
            say(console, f"picture: {draw(ours, out / f'{graph}.png')}")
    say(console, f"page: {write(read([out / 'records']), out)}")
    if tally.failed:
        raise typer.Exit(1)
