"""The figures that the paper prints, to stand beside ours."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class PaperFigures:
    """The paper's AP, AF and seconds of one method on one dataset.

    Each is a value and its ±, or None where the paper has no such figure.
    """

    ap: tuple[float, float | None]
    af: tuple[float, float] | None
    seconds: tuple[float, float] | None


def paper_figures(dataset: str, method: str, step: int = 1) -> PaperFigures | None:
    """The paper's figures for a method on a dataset; None where it has none.

    They hold for its stream: half of the classes first, in label order, the whole graph visible;
    `step` classes a session, 1, and for some datasets AP at 5 and 10.

    Examples
    --------
    >>> paper_figures("cora", "algnn-paper")
    PaperFigures(ap=(75.86, 1.76), af=(9.81, 2.06), seconds=(1.08, 0.11))
    >>> paper_figures("reddit", "gem", step=5)
    PaperFigures(ap=(33.82, None), af=None, seconds=None)
    """
    entry = _tables().get(dataset, {}).get(method)
    if entry is None:
        return None
    if step == 1:
        ap, af, seconds = (tuple(entry[key]) for key in ("ap", "af", "seconds"))
        return PaperFigures(ap, af, seconds)
    by_step = entry.get("ap_by_step", {})
    if str(step) not in by_step:
        return None
    return PaperFigures((by_step[str(step)], None), None, None)


def paper_datasets() -> list[str]:
    """The datasets that the paper has figures for, in its order."""
    return list(_tables())


def paper_methods() -> list[str]:
    """The methods that the paper has figures for, in its order."""
    return list(next(iter(_tables().values())))


@dataclass(frozen=True)
class PaperSpace:
    """What a method keeps between sessions, and how much in TeX, by the paper's table."""

    keeps: str
    order: str

    def __str__(self) -> str:
        return f"O({self.order})".replace(r"\bar{k}", "k̄")


def paper_space(method: str) -> PaperSpace | None:
    """The paper's account of what a method keeps; None where the paper lacks the method."""
    entry = _file()["space"].get(method)
    return None if entry is None else PaperSpace(*entry)


def _tables() -> dict[str, Any]:
    return {name: table for name, table in _file().items() if name != "space"}


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads(files("algnn.bench").joinpath("paper.toml").read_text("utf-8"))
