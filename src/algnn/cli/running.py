"""One method: `algnn run`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from algnn.cli.arguments import SEEDS, load_torch, parse_order, parse_seeds, say

if TYPE_CHECKING:
    import pandas as pd

commands = typer.Typer()


@commands.command()
def run(
    dataset: Annotated[str, typer.Argument(help="A dataset's name, or the path of an .npz.")],
    method: Annotated[str, typer.Option(help="As `algnn methods` lists them.")] = "algnn",
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change a setting; may be repeated."),
    ] = None,
    base: Annotated[
        int | None, typer.Option(help="Classes of the first session; half of them by default.")
    ] = None,
    step: Annotated[int, typer.Option(help="Classes of each later session.")] = 1,
    edges: Annotated[
        str, typer.Option(help="full: the whole graph is visible; seen: that of seen classes.")
    ] = "full",
    order: Annotated[str, typer.Option(help="label, random, or every class: 3,1,0,2.")] = "label",
    seeds: Annotated[str, typer.Option(help="One run for each.")] = SEEDS,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    records: Annotated[Path, typer.Option(help="Folder for a record of each run.")] = Path(
        "records"
    ),
    plot: Annotated[Path | None, typer.Option(help="Draw a picture into this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="Folder with datasets; ALGNN_DATA by default.")
    ] = None,
) -> None:
    """Teach a graph's classes session by session, and measure what is remembered."""
    load_torch()
    from algnn import methods
    from algnn.bench.plan import Plan, carry_out, make_folder
    from algnn.bench.runs import frame
    from algnn.cli.terminal import as_object, show

    plan = Plan(
        dataset=dataset,
        method=method,
        changes=methods.parse(method, changes or []),
        base=base,
        step=step,
        edges=edges,
        order=parse_order(order),
        seeds=parse_seeds(seeds),
        device=device,
        data=data,
    )
    if plot is not None:
        from algnn.plot import check_path

        make_folder(check_path(plot).parent)
    done = frame(carry_out(plan, records))
    if plot is not None:
        draw(done, plot)
    if as_json:
        print(json.dumps(as_object(done), allow_nan=False))
        return
    console = Console(highlight=False)
    show(console, done)
    say(console, f"{len(done)} record{'s' * (len(done) != 1)} below {records}")
    if plot is not None:
        say(console, f"picture: {plot}")


def draw(runs: pd.DataFrame, path: Path) -> Path:
    """Draw a picture of runs, one per seed, with the paper's figure where there is one."""
    from algnn.cli.picture import picture
    from algnn.cli.terminal import beside, title

    paper = beside(runs)
    return picture(list(runs["outcome"]), path, title(runs), paper.ap[0] if paper else None)
