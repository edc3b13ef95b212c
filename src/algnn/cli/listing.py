"""What there is: `algnn datasets | methods`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

commands = typer.Typer()


@commands.command()
def datasets(
    data: Annotated[
        Path | None, typer.Option(help="Folder with datasets; ALGNN_DATA by default.")
    ] = None,
) -> None:
    """List the graphs that can be named, and whether they are at hand."""
    from algnn.graph import catalogue

    # a line of figures and one of words: no terminal is wide enough for both side by side
    console = Console(highlight=False)
    widths = {"name": -17, "nodes": 8, "edges": 12, "features": 10, "classes": 9}
    heading = "".join(f"{name:{'<' if w < 0 else '>'}{abs(w)}}" for name, w in widths.items())
    console.print(heading, style="bold")
    for entry in catalogue.datasets():
        figures = "".join(f"{getattr(entry, key):>{w},}" for key, w in widths.items() if w > 0)
        status = entry.status(data)
        line = Text(f"{entry.name:<17}{figures}  ")
        line.append(
            "at hand" if status == "ready" else status, "green" if status == "ready" else ""
        )
        console.print(line, soft_wrap=True)
        console.print(f"  {entry.description}", style="dim", markup=False, soft_wrap=True)


@commands.command("methods")
def list_methods() -> None:
    """List the methods."""
    from algnn.methods import METHODS

    console = Console(highlight=False)
    console.print(f"{'name':<22}{'kind':<16}paper", style="bold")
    for entry in METHODS.values():
        console.print(f"{entry.name:<22}{entry.kind:<16}{entry.paper}", soft_wrap=True)
        console.print(f"  {entry.summary}", style="dim", soft_wrap=True)
        console.print(f"  keeps {entry.retains}", style="dim", soft_wrap=True)
