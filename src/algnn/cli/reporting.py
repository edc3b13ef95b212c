"""What runs say: `algnn report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from algnn.cli.arguments import load_torch
from algnn.errors import InputError

commands = typer.Typer()


@commands.command()
def report(
    records: Annotated[
        list[Path] | None, typer.Option(help="Folder of records; may be repeated.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("report"),
    markdown: Annotated[
        Path | None,
        typer.Option(help="Write only this Markdown file, and its pictures beside it."),
    ] = None,
) -> None:
    """Make one page of all runs, and the same as Markdown, LaTeX and CSV."""
    load_torch()
    from algnn.bench.plan import make_folder
    from algnn.report.data import read
    from algnn.report.export import write, write_markdown

    if markdown is not None and markdown.suffix != ".md":
        raise InputError(f"--markdown {markdown} is no name for a Markdown file: end it in .md")
    study = read(records or [Path("records")])
    make_folder(out if markdown is None else markdown.parent)
    path = write(study, out) if markdown is None else write_markdown(study, markdown)
    console = Console(highlight=False)
    count = len(study.runs)
    failed = f", {len(study.failures):,} failed" if len(study.failures) else ""
    console.print(f"{count:,} run{'s' * (count != 1)}{failed}", markup=False)
    console.print(f"report: {path}", markup=False, soft_wrap=True)
