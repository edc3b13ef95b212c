"""One picture of a few runs: the accuracy matrix, and average performance session by session."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from algnn.bench.protocol import Outcome
from algnn.bench.runs import summarise
from algnn.errors import InputError
from algnn.plot import check_path, save

COLOURS = "viridis"
NUMBERED = 12  # up to so many sessions a cell has room for its number
NAMED = 8  # up to so many a tick has room for the session's classes
TICKS = 12  # more labels than this along an axis would touch


def picture(
    outcomes: Sequence[Outcome],
    path: str | os.PathLike[str],
    title: str = "",
    paper_ap: float | None = None,
) -> Path:
    """Draw the mean accuracy matrix of some runs, one per seed, and their AP by session.

    The file, ``.png``, ``.svg`` or ``.pdf``, is replaced in a single step; `paper_ap`, the paper's
    final AP, is drawn as a dashed line.
    """
    target = check_path(path)
    if len({len(outcome.sessions) for outcome in outcomes}) != 1:
        raise InputError("outcomes must be at least one run, all of streams of the same length")
    return save(_figure(outcomes, title, paper_ap), target)


def _figure(outcomes: Sequence[Outcome], title: str, paper_ap: float | None) -> Figure:
    # a Figure of its own: pyplot and the user's choice of backend are not touched
    figure = Figure(figsize=(12, 5.6), layout="constrained")
    if title:
        figure.suptitle(textwrap.fill(title, 100), parse_math=False)
    left, right = figure.subplots(1, 2, gridspec_kw={"wspace": 0.08})
    _draw_matrix(figure, left, outcomes)
    _draw_stages(right, outcomes, paper_ap)
    return figure


def _draw_matrix(figure: Figure, axes: Any, outcomes: Sequence[Outcome]) -> None:
    matrix = np.mean([outcome.matrix for outcome in outcomes], axis=0)
    count = len(matrix)
    image = axes.imshow(matrix, cmap=COLOURS, vmin=0, vmax=100)
    figure.colorbar(image, ax=axes, label="accuracy (%)", shrink=0.8)
    axes.set_title("accuracy matrix" + (", mean over seeds" if len(outcomes) > 1 else ""))
    axes.set_ylabel("after session")
    names = _names(outcomes)
    axes.set_xlabel(f"test nodes of session{' (its classes)' if names else ''}")
    shown = _shown(count)
    axes.set_yticks(shown, [str(i) for i in shown])
    axes.set_xticks(shown, [f"{i}\n({names[i]})" if names else str(i) for i in shown])
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if count > NUMBERED:
        return
    for t, i in zip(*np.tril_indices(count), strict=True):
        red, green, blue, _ = image.cmap(image.norm(matrix[t, i]))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        axes.text(
            i,
            t,
            f"{matrix[t, i]:.1f}" if count <= NAMED else f"{matrix[t, i]:.0f}",
            ha="center",
            va="center",
            color="white" if dark else "black",
            fontsize=10 if count <= NAMED else 9,
        )


def _draw_stages(axes: Any, outcomes: Sequence[Outcome], paper_ap: float | None) -> None:
    stages = np.array([outcome.stagewise for outcome in outcomes])
    summaries = [summarise(column) for column in stages.T]
    mean = np.array([summary.mean for summary in summaries])
    sessions = np.arange(len(mean))
    label = f"mean of {len(outcomes)} seeds" if len(outcomes) > 1 else "one seed"
    axes.plot(sessions, mean, marker="o", markersize=4, color="C0", label=label)
    if len(outcomes) > 1:
        half = np.array([summary.ci95 for summary in summaries], dtype=float)
        low, high = np.clip(mean - half, 0, 100), np.clip(mean + half, 0, 100)
        axes.fill_between(sessions, low, high, color="C0", alpha=0.2, label="95% interval")
    if paper_ap is not None:
        text = f"paper's final AP {paper_ap:.2f}"
        axes.axhline(paper_ap, color="C3", linestyle="--", linewidth=1.2, label=text)
    axes.set_ylim(0, 102)
    # room to the right of the last point, where its value is written
    span = max(len(mean) - 1, 1)
    axes.set_xlim(-0.04 * span, len(mean) - 1 + 0.2 * span)
    # and off the paper's line, where the two are close
    near = paper_ap is not None and abs(mean[-1] - paper_ap) < 5
    shift = 0 if not near else 9 if mean[-1] >= float(paper_ap or 0) else -9
    axes.annotate(
        f"{mean[-1]:.2f}",
        (sessions[-1], mean[-1]),
        xytext=(9, shift),
        textcoords="offset points",
        va="center",
        fontweight="bold",
        color="C0",
    )
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
    names = [_name(members) for members in sessions]
    return names if len(names) * max(map(len, names)) <= 36 else []


def _name(members: Sequence[int]) -> str:
    first, last = members[0], members[-1]
    if len(members) > 2 and list(members) == list(range(first, last + 1)):
        return f"{first}–{last}"
    return ",".join(map(str, members))
