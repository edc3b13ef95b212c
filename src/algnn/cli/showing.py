"""The whole of it on a small scale: `algnn demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from algnn.cli.arguments import parse_seeds, say, working
from algnn.cli.benching import carry_out, show_table, start_workers_early

if TYPE_CHECKING:
    import pandas as pd

# what takes half a minute: ours, no defence, a penalty, and two ways of replaying old nodes
QUICK = ("algnn", "bare", "ewc", "ergnn", "gem")
# the graphs of the whole demo, as far as they are at hand: the first needs no data
GRAPHS = ("digits", "cora")
SLOW = ("cat-long", "joint-appnp", "joint-sage", "joint-appnp-balanced", "joint-sage-balanced")
NAMES = {"bare": "fine-tuning (bare)"}

commands = typer.Typer()


@commands.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page, the chart and records.")] = Path(
        "demo"
    ),
    seeds: Annotated[str, typer.Option(help="One run for each.")] = "42",
    methods: Annotated[
        str | None, typer.Option(help=f"By default {', '.join(QUICK)}; as algnn methods lists.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="All methods, on Cora too if at hand: many minutes.")
    ] = False,
) -> None:
    """Learn ten handwritten digits class after class, and compare with other methods."""
    numbers = parse_seeds(seeds)
    start_workers_early()
    from algnn.bench.plan import cross
    from algnn.cli.lines import draw_lines
    from algnn.graph.datasets import available
    from algnn.methods import METHODS
    from algnn.report.data import read
    from algnn.report.export import write

    names = list(QUICK) if methods is None else methods.split(",")
    if full and methods is None:
        names = [name for name in METHODS if name not in SLOW]
    graphs = [name for name in GRAPHS[: None if full else 1] if available(name)]
    plans = cross(graphs, {name: {} for name in names}, [1], numbers, confidence=full)
    console = Console(highlight=False)
    # the slowest methods stand last in the registry: started first, they keep no worker waiting
    tally = carry_out(plans[::-1] if full else plans, out / "records", None, True)
    show_table(console, tally, plans)
    say(console, "")
    study = read([out / "records"])
    for graph in graphs:
        runs = study.runs[(study.runs["dataset"] == graph) & study.runs["method"].isin(names)]
        shown = [name for name in names if (runs["method"] == name).any()]
        if shown:
            say(console, _sentence(graph, runs, shown))
            labels = [NAMES.get(name, name) for name in shown[:5]]
            title = f"{graph}: new classes arrive, old ones are kept or lost"
            say(
                console,
                f"chart: {draw_lines(runs, shown[:5], out / f'{graph}.png', title, labels)}",
            )
    with working("making the page"):
        page = write(study, out)
    say(console, f"page: {page}")
    if tally.failed:
        raise typer.Exit(1)


def _sentence(graph: str, runs: pd.DataFrame, methods: list[str]) -> str:
    """What there is to see, in one sentence with its figures."""
    ap = runs.groupby("method")["ap"].mean()
    classes = sum(map(len, runs["outcome"].iloc[0].sessions))
    said = (
        f"{graph}: {methods[0]} answers {ap[methods[0]]:.1f}% right over {classes} classes learned"
        " one after another"
    )
    if "bare" in methods[1:]:
        said += f"; fine-tuning kept {ap['bare']:.1f}%"
    return said + " (average over sessions)."
