"""One chart of several methods: average performance session by session, a line for each."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from algnn.bench.runs import write_atomically

if TYPE_CHECKING:
    import pandas as pd

FIRST = "#0b6fb8"  # the method that the chart is about
OTHERS = ("#3b3b3b", "#2a9d6f", "#d9822b", "#b0b0b0", "#8d5fb3")
GAP = 4.5  # per cent between two names at the right


def draw_lines(
    runs: pd.DataFrame, methods: Sequence[str], path: Path, title: str, names: Sequence[str] = ()
) -> Path:
    """Draw a PNG of the mean of each method's runs, which must be of one stream.

    The first method's line is thick; each has its name, or that in `names`, and its last value at
    its end.
    """
    figure = Figure(figsize=(8.4, 4.4), layout="constrained")
    axes = figure.subplots()
    ends = []
    for place, (method, name) in enumerate(zip(methods, names or methods, strict=True)):
        stages = np.mean(np.stack(list(runs[runs["method"] == method]["stages"])), axis=0)
        colour = OTHERS[(place - 1) % len(OTHERS)] if place else FIRST
        width = 1.6 if place else 3.0
        axes.plot(stages, marker="o", markersize=3 + width, linewidth=width, color=colour)
        ends.append((float(stages[-1]), name, colour, "normal" if place else "bold"))
    last = len(stages) - 1
    _write_names(axes, last, ends)
    axes.set_xlim(-0.03 * last, last * 1.34 or 1)
    axes.set_ylim(0, 104)
    every = -(-(last + 1) // 12)
    axes.set_xticks(range(0, last + 1, every))
    axes.set_xlabel("session: new classes are learned in each")
    axes.set_ylabel("average accuracy so far (%)")
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=130, metadata={"Software": None})
    write_atomically(path, image.getvalue())
    return path


def _write_names(axes: Any, last: int, ends: list[tuple[float, str, str, str]]) -> None:
    """Names at the ends of lines, moved apart where they would touch."""
    height = -np.inf
    for value, name, colour, weight in sorted(ends):
        height = max(value, height + GAP)
        axes.annotate(
            f"{name} {value:.1f}",
            (last, value),
            xytext=(last + 0.03 * max(last, 1), height),
            color=colour,
            fontweight=weight,
            va="center",
        )
