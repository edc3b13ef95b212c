"""The figures that the paper prints, to stand beside ours."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class PaperFigures:
    """What the paper prints for one method on one dataset.

    Attributes
    ----------
    ap, af, seconds : (float, float or None) or None
        Value and ±; None where the paper has no such figure.

    Examples
    --------
    >>> paper_figures("arxiv", "cgnn").ap
    (28.05, 0.41)
    """

    ap: tuple[float, float | None]
    af: tuple[float, float] | None
    seconds: tuple[float, float] | None


def paper_figures(dataset: str, method: str, step: int = 1) -> PaperFigures | None:
    """The paper's figures for a method on a dataset.

    They hold for its stream: half of the classes first, in label order, the whole graph visible.

    Parameters
    ----------
    dataset, method : str
        Names as `algnn.load` and the registry of methods know them.
    step : int
        How many classes a session brings; the paper has 1, and for some datasets AP at 5 and 10.

    Returns
    -------
    PaperFigures or None
        None where the paper has no figure.

    Examples
    --------
    >>> paper_figures("cora", "algnn-paper")
    PaperFigures(ap=(75.86, 1.76), af=(9.81, 2.06), seconds=(1.08, 0.11))
    >>> paper_figures("reddit", "gem", step=5)
    PaperFigures(ap=(33.82, None), af=None, seconds=None)
    >>> paper_figures("digits", "algnn-paper") is None
    True
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
    """The datasets that the paper has figures for.

    Returns
    -------
    list of str
        In the paper's order.

    Examples
    --------
    >>> paper_datasets()
    ['cora', 'citeseer', 'corafull', 'reddit', 'arxiv', 'computers']
    """
    return list(_tables())


def paper_methods() -> list[str]:
    """The methods that the paper has figures for.

    Returns
    -------
    list of str
        In the paper's order.

    Examples
    --------
    >>> paper_methods()[-1], len(paper_methods())
    ('algnn-paper', 11)
    """
    return list(next(iter(_tables().values())))


@dataclass(frozen=True)
class PaperSpace:
    r"""What a method keeps between sessions, as the paper's table of complexities has it.

    Attributes
    ----------
    keeps : str
        In words.
    order : str
        How much, in TeX, without the O.

    Examples
    --------
    >>> print(paper_space("cat").order)
    M_c(d+\bar{k})
    """

    keeps: str
    order: str

    def __str__(self) -> str:
        return f"O({self.order})".replace(r"\bar{k}", "k̄")


def paper_space(method: str) -> PaperSpace | None:
    """The paper's words on what a method keeps.

    Parameters
    ----------
    method : str
        A name of the registry.

    Returns
    -------
    PaperSpace or None
        None where the paper does not have the method.

    Examples
    --------
    >>> print(paper_space("ergnn"))
    O(Md+E_M)
    >>> paper_space("joint") is None
    True
    """
    entry = _file()["space"].get(method)
    return None if entry is None else PaperSpace(*entry)


def _tables() -> dict[str, Any]:
    return {name: table for name, table in _file().items() if name != "space"}


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads(files("algnn.bench").joinpath("paper.toml").read_text("utf-8"))
