"""What runs say: `algnn report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from algnn.errors import InputError

commands = typer.Typer()


@commands.command()
def report(
    records: Annotated[
        list[Path] | None, typer.Option(help="Folder of records; may be repeated.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the page.")] = Path("report"),
    markdown: Annotated[
        Path | None,
        typer.Option(help="Write this Markdown file instead, and its pictures beside it."),
    ] = None,
    latex: Annotated[
        Path | None, typer.Option(help="Write the tables into this .tex file instead.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write runs and tables as CSV into this folder instead.")
    ] = None,
) -> None:
    """Make a leaderboard of all runs, one page; when asked for, Markdown, LaTeX or CSV."""
    console = Console(highlight=False)
    for name, path, ending in (("markdown", markdown, ".md"), ("latex", latex, ".tex")):
        if path is not None and path.suffix != ending:
            raise InputError(f"--{name} {path} is no name for such a file: end it in {ending}")
    with Console(stderr=True).status("loading") as line:
        from algnn.files import make_folder
        from algnn.report import export
        from algnn.report.data import read

        line.update("reading records")
        study = read(records or [Path("records")])
        count = len(study.runs)
        runs = f"{count:,} run{'s' * (count != 1)}"
        line.update(f"{runs}: making the report")

        def tell(words: str) -> None:
            line.update(f"{runs}: {words}")

        written = []
        if markdown is not None:
            make_folder(markdown.parent)
            written.append(export.write_markdown(study, markdown, tell))
        if latex is not None:
            make_folder(latex.parent)
            written.append(export.write_latex(study, latex))
        if csv is not None:
            make_folder(csv)
            written.append(export.write_csv(study, csv))
        if not written:
            make_folder(out)
            written.append(export.write(study, out))
    failed = f", {len(study.failures):,} failed" if len(study.failures) else ""
    console.print(f"{runs}{failed}", markup=False)
    for path in written:
        console.print(f"report: {path}", markup=False, soft_wrap=True)
