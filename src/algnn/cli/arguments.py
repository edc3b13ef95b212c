"""Arguments and output that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from algnn.errors import InputError

SEEDS = "42,43,44"


def parse_seeds(text: str) -> list[int]:
    """Seeds as they are typed, with commas between them."""
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--seeds {text!r} must be whole numbers, such as {SEEDS}") from None
    if len(set(seeds)) < len(seeds) or not all(0 <= seed < 2**32 for seed in seeds):
        raise InputError(f"--seeds {text!r} must be different numbers from 0 to 2**32 - 1")
    return seeds


def parse_order(text: str) -> str | list[int]:
    """An order of classes as it is typed."""
    if text in ("label", "random"):
        return text
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--order {text!r} must be label, random, or every class in turn, such as 3,1,0,2"
        ) from None


def say(console: Console, line: str) -> None:
    """Print a line as it is: without markup, which a file's name may contain, and unwrapped."""
    console.print(line, markup=False, soft_wrap=True)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Say what takes a while, and for how long it has; on a terminal only, and gone at the end."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        bar.add_task(what)
        yield


def load_torch() -> None:
    """Import torch, and say so meanwhile: it takes seconds."""
    if "torch_geometric.data" not in sys.modules:
        with working("loading torch"):
            import torch_geometric.data  # noqa: F401


def progress_bar() -> Callable[[int, int], None]:
    """Shows on stderr, where that is a terminal, how far encoding is and the time left."""
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    shown = Progress(
        TextColumn("encoding"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = shown.add_task("")

    def tell(done: int, total: int) -> None:
        if not shown.live.is_started and shown.console.is_terminal and done < total:
            shown.start()
        shown.update(task, completed=done, total=total)
        if done == total:
            shown.stop()

    return tell
