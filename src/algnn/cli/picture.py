"""A picture of runs: the accuracy matrix beside AP by session."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from algnn.bench.protocol import Outcome
from algnn.bench.runs import summarise
from algnn.plot import save

if TYPE_CHECKING:
    import pandas as pd

NUMBERED = 12  # up to so many sessions a cell has room for its number
NAMED = 8  # up to so many a tick has room for the session's classes
TICKS = 12  # more labels than this along an axis would touch


def draw(runs: pd.DataFrame, path: Path) -> Path:
    """Draw a picture of runs, one per seed, with the paper's figure where there is one."""
    from algnn.cli.terminal import beside, title

    paper = beside(runs)
    return save(figure(list(runs["outcome"]), title(runs), paper.ap[0] if paper else None), path)


def figure(outcomes: Sequence[Outcome], title: str, paper_ap: float | None) -> Figure:
    """The mean accuracy matrix of some runs, one per seed, and their AP by session.

    `paper_ap`, the paper's final AP, is a dashed line.
    """
    # a Figure of its own: pyplot and the user's choice of backend are not touched
    both = Figure(figsize=(12, 5.6), layout="constrained")
    both.suptitle(textwrap.fill(title, 100), parse_math=False)
    left, right = both.subplots(1, 2, gridspec_kw={"wspace": 0.08})
    _draw_matrix(both, left, outcomes)
    _draw_stages(right, outcomes, paper_ap)
    return both


def _draw_matrix(figure: Figure, axes: Any, outcomes: Sequence[Outcome]) -> None:
    matrix = np.mean([outcome.matrix for outcome in outcomes], axis=0)
    count = len(matrix)
    image = axes.imshow(matrix, cmap="viridis", vmin=0, vmax=100)
    figure.colorbar(image, ax=axes, label="accuracy (%)", shrink=0.8)
    axes.set_title("accuracy matrix" + (", mean over seeds" if len(outcomes) > 1 else ""))
    axes.set_ylabel("after session")
    names, shown = _names(outcomes), _shown(count)
    axes.set_xlabel(f"test nodes of session{' (its classes)' if names else ''}")
    axes.set_yticks(shown, [str(i) for i in shown])
    axes.set_xticks(shown, [f"{i}\n({names[i]})" if names else str(i) for i in shown])
    axes.spines[["top", "right"]].set_visible(False)
    if count > NUMBERED:
        return
    look = {"ha": "center", "va": "center", "fontsize": 10 if count <= NAMED else 9}
    for t, i in zip(*np.tril_indices(count), strict=True):
        red, green, blue, _ = image.cmap(image.norm(matrix[t, i]))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        text = f"{matrix[t, i]:.{int(count <= NAMED)}f}"
        axes.text(i, t, text, color="white" if dark else "black", **look)


def _draw_stages(axes: Any, outcomes: Sequence[Outcome], paper_ap: float | None) -> None:
    summaries = [summarise(each) for each in np.transpose([one.stagewise for one in outcomes])]
    mean = np.array([summary.mean for summary in summaries])
    last, many = len(mean) - 1, len(outcomes) > 1
    label = f"mean of {len(outcomes)} seeds" if many else "one seed"
    axes.plot(mean, marker="o", markersize=4, color="C0", label=label)
    if many:
        half = np.array([summary.ci95 for summary in summaries], dtype=float)
        low, high = np.clip(mean - half, 0, 100), np.clip(mean + half, 0, 100)
        axes.fill_between(range(last + 1), low, high, color="C0", alpha=0.2, label="95% interval")
    if paper_ap is not None:
        text = f"paper's final AP {paper_ap:.2f}"
        axes.axhline(paper_ap, color="C3", linestyle="--", linewidth=1.2, label=text)
    axes.set_ylim(0, 102)
    # room to the right of the last point, where its value is written
    axes.set_xlim(-0.04 * max(last, 1), last + 0.2 * max(last, 1))
    # and off the paper's line, where the two are close
    ahead = 99.0 if paper_ap is None else mean[-1] - paper_ap
    shift = 0 if abs(ahead) >= 5 else 9 if ahead >= 0 else -9
    look = {"va": "center", "fontweight": "bold", "color": "C0"}
    place = {"xytext": (9, shift), "textcoords": "offset points"}
    axes.annotate(f"{mean[-1]:.2f}", (last, mean[-1]), **place, **look)
    axes.set_xticks(_shown(len(mean)))
    axes.set_xlabel("after session")
    axes.set_ylabel("AP (%)")
    axes.set_title("average performance so far")
    axes.grid(alpha=0.3)
    # below the axes, where no curve can run through it
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3, frameon=False)


def _shown(count: int) -> range:
    """The sessions that get a tick."""
    return range(0, count, -(-count // TICKS))


def _names(outcomes: Sequence[Outcome]) -> list[str]:
    """What to call each session's classes; empty where runs differ in them or there is no room."""
    sessions = outcomes[0].sessions
    if len(sessions) > NAMED or any(outcome.sessions != sessions for outcome in outcomes):
        return []
    names = [
        f"{some[0]}–{some[-1]}"
        if len(some) > 2 and list(some) == list(range(some[0], some[-1] + 1))
        else ",".join(map(str, some))
        for some in sessions
    ]
    return names if len(names) * max(map(len, names)) <= 36 else []
