"""The command line: `algnn run | datasets | methods | demo`.

Imports of torch and matplotlib stand inside the commands, so that ``algnn --help`` does not wait
for them.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from algnn.errors import AlgnnError, InputError

if TYPE_CHECKING:
    from algnn.bench.records import Record

SEEDS = "42,43,44"


class _InterruptedError(Exception):
    """Ctrl-C, on its way past click, which would print a line of its own."""


class _Group(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _InterruptedError from None


app = typer.Typer(cls=_Group, add_completion=False, pretty_exceptions_enable=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process by default.

    Returns
    -------
    int
        0; 2 for anything that the user can mend, said in one line on stderr; 130 after Ctrl-C.

    Examples
    --------
    >>> main(["--version"])
    algnn ...
    0
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        code = app(arguments, prog_name="algnn", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except AlgnnError as error:
        return _complain(str(error))
    except (_InterruptedError, KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", 130)
    except (MemoryError, RuntimeError) as error:
        lines = str(error).lower()
        if not isinstance(error, MemoryError) and "memory" not in lines:
            raise
        return _complain("out of memory: use smaller settings (width, hidden) or a smaller graph")
    except OSError as error:
        # a full disk, or a reader of our output who has seen enough
        _drop_output()
        return 1 if isinstance(error, BrokenPipeError) else _complain(str(error))
    except SystemExit as leaving:  # typer and rich leave so where stdout is closed
        return leaving.code if isinstance(leaving.code, int) else 1
    except Exception as error:
        # click's errors by what they can do: some versions of typer carry a click of their own
        if not (hasattr(error, "format_message") and hasattr(error, "exit_code")):
            raise
        return _complain(error.format_message())
    return code if isinstance(code, int) else 0


def _drop_output() -> None:
    """Let what stdout could not take go: Python would try once more, and complain, at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str, code: int = 2) -> int:
    print("algnn:", " ".join(message.split()), file=sys.stderr)
    return code


# -- commands -------------------------------------------------------------------------------------


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Learn the classes of a graph one after another, without forgetting."""
    if version:
        from algnn import __version__

        print("algnn", __version__)
    elif context.invoked_subcommand is None:
        # with rich it is printed already, and nothing is left to say
        print(context.get_help(), end="")


@app.command()
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
    from algnn import methods
    from algnn.bench.plan import Plan, carry_out, make_folder
    from algnn.bench.terminal import as_object, show

    plan = Plan(
        dataset=dataset,
        method=method,
        changes=methods.parse(method, changes or []),
        base=base,
        step=step,
        edges=edges,
        order=_parse_order(order),
        seeds=_parse_seeds(seeds),
        device=device,
        data=data,
    )
    if plot is not None:
        from algnn.bench.figures import check_path

        make_folder(check_path(plot).parent)
    done = carry_out(plan, records)
    if plot is not None:
        _draw(done, plot)
    if as_json:
        print(json.dumps(as_object(done), allow_nan=False))
        return
    console = Console(highlight=False)
    show(console, done)
    _say(console, f"{len(done)} records below {records}")
    if plot is not None:
        _say(console, f"picture: {plot}")


@app.command()
def datasets(
    data: Annotated[
        Path | None, typer.Option(help="Folder with datasets; ALGNN_DATA by default.")
    ] = None,
) -> None:
    """List the graphs that can be named, and whether they are at hand."""
    from algnn.graph import datasets as graphs

    # a line of figures and one of words: no terminal is wide enough for both side by side
    console = Console(highlight=False)
    widths = {"name": -15, "nodes": 8, "edges": 12, "features": 10, "classes": 9}
    heading = "".join(f"{name:{'<' if w < 0 else '>'}{abs(w)}}" for name, w in widths.items())
    console.print(heading, style="bold")
    for entry in graphs.datasets():
        figures = "".join(f"{getattr(entry, key):>{w},}" for key, w in widths.items() if w > 0)
        status = entry.status(data)
        line = Text(f"{entry.name:<15}{figures}  ")
        line.append(
            "at hand" if status == "ready" else status, "green" if status == "ready" else ""
        )
        console.print(line, soft_wrap=True)
        console.print(f"  {entry.description}", style="dim", markup=False, soft_wrap=True)


@app.command("methods")
def list_methods() -> None:
    """List the methods."""
    from algnn.methods import METHODS

    table = Table("name", "kind", "what it does", "what it retains", "paper", box=None)
    table.columns[0].no_wrap = True
    for entry in METHODS.values():
        table.add_row(entry.name, entry.kind, entry.summary, entry.retains, entry.paper)
    Console(highlight=False).print(table)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for pictures and records.")] = Path("demo"),
    seeds: Annotated[str, typer.Option(help="One run for each.")] = SEEDS,
) -> None:
    """Show class after class being learned: on handwritten digits, and on Cora if it is at hand."""
    from algnn.bench.plan import Plan, carry_out
    from algnn.bench.terminal import show
    from algnn.graph.datasets import available

    console = Console(highlight=False)
    pictures = []
    for name in ("digits", "cora"):
        if not available(name):
            continue
        plan = Plan(dataset=name, method="algnn-paper", seeds=_parse_seeds(seeds))
        done = carry_out(plan, out / "records")
        show(console, done)
        pictures.append(_draw(done, out / f"{name}.png"))
    _say(console, f"records: {out / 'records'}")
    _say(console, f"picture{'s' * (len(pictures) > 1)}: {', '.join(map(str, pictures))}")


# -- their parts ---------------------------------------------------------------------------------


def _parse_seeds(text: str) -> list[int]:
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--seeds {text!r} must be whole numbers, such as {SEEDS}") from None
    if len(set(seeds)) < len(seeds) or not all(0 <= seed < 2**32 for seed in seeds):
        raise InputError(f"--seeds {text!r} must be different numbers from 0 to 2**32 - 1")
    return seeds


def _parse_order(text: str) -> str | list[int]:
    if text in ("label", "random"):
        return text
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--order {text!r} must be label, random, or every class in turn, such as 3,1,0,2"
        ) from None


def _draw(done: Sequence[Record], path: Path) -> Path:
    from algnn.bench.figures import picture
    from algnn.bench.terminal import beside, title

    paper = beside(done[0])
    return picture(done, path, title(done), paper.ap[0] if paper else None)


def _say(console: Console, line: str) -> None:
    """A line as it is: a file's name may hold what rich takes for markup, and must not be split."""
    console.print(line, markup=False, soft_wrap=True)
