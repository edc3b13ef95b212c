"""What several commands take and say."""

from __future__ import annotations

from rich.console import Console

from algnn.errors import InputError

SEEDS = "42,43,44"


def parse_seeds(text: str) -> list[int]:
    """Seeds as they are typed, with commas between them.

    Parameters
    ----------
    text : str

    Returns
    -------
    list of int

    Examples
    --------
    >>> parse_seeds("42,43")
    [42, 43]
    """
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--seeds {text!r} must be whole numbers, such as {SEEDS}") from None
    if len(set(seeds)) < len(seeds) or not all(0 <= seed < 2**32 for seed in seeds):
        raise InputError(f"--seeds {text!r} must be different numbers from 0 to 2**32 - 1")
    return seeds


def parse_order(text: str) -> str | list[int]:
    """An order of classes as it is typed.

    Parameters
    ----------
    text : str

    Returns
    -------
    str or list of int

    Examples
    --------
    >>> parse_order("random"), parse_order("2,0,1")
    ('random', [2, 0, 1])
    """
    if text in ("label", "random"):
        return text
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--order {text!r} must be label, random, or every class in turn, such as 3,1,0,2"
        ) from None


def say(console: Console, line: str) -> None:
    """A line as it is: a file's name may hold what rich takes for markup, and must not be split.

    Parameters
    ----------
    console : Console
    line : str

    Examples
    --------
    >>> say(Console(highlight=False), "records: [bold]")
    records: [bold]
    """
    console.print(line, markup=False, soft_wrap=True)
