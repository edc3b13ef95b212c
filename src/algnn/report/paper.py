"""The figures that the paper prints, to stand beside ours."""

import tomllib
from importlib.resources import files
from typing import Any, NamedTuple

TABLES: dict[str, Any] = tomllib.loads(files(__package__).joinpath("paper.toml").read_text("utf-8"))
# what a method keeps between sessions, and how much
SPACE: dict[str, list[str]] = TABLES.pop("space")
# what there are figures for, in the paper's order
PAPER_DATASETS, PAPER_METHODS = list(TABLES), list(next(iter(TABLES.values())))


class PaperFigures(NamedTuple):
    """The paper's AP, AF and seconds of one method on one dataset, each with its ±, if any."""

    ap: tuple[float, float | None]
    af: tuple[float, float] | None
    seconds: tuple[float, float] | None


def paper_figures(dataset: str, method: str, step: int = 1) -> PaperFigures | None:
    """The paper's figures for a method on a dataset; None where it has none.

    Its stream has half of the classes first, in label order, then `step` (5, 10: AP alone) a time.
    """
    entry = TABLES.get(dataset, {}).get(method, {})
    if step == 1 and entry:
        return PaperFigures(*(tuple(entry[key]) for key in ("ap", "af", "seconds")))
    ap = entry.get("ap_by_step", {}).get(str(step))
    return None if ap is None else PaperFigures((ap, None), None, None)
