"""What runs say: on a terminal, as one JSON object, or as a picture."""

import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from rich.console import Console
from rich.style import Style
from rich.text import Text

from algnn.bench.metrics import Matrix, Outcome
from algnn.bench.plan import Plan, recorded_name
from algnn.bench.progress import label
from algnn.bench.record import rows as matrix_rows
from algnn.bench.runs import Summary, frame, summarise
from algnn.bench.scheduler import Tally
from algnn.cli.shared import plain_table, plural, print_table
from algnn.methods import find
from algnn.plot import save
from algnn.report.paper import PaperFigures, paper_figures

NAMES = {
    "ap": "AP, average performance (%)",
    "af": "AF, average forgetting (%)",
    "macro": "macro, over classes (%)",
    "micro": "micro, over nodes (%)",
    "learn_seconds": "learning (s)",
    "predict_seconds": "predicting (s)",
    "ece": "ECE, calibration error",
    "novelty_auroc": "novelty, AUROC",
}
VIRIDIS = colormaps["viridis"]  # of an accuracy, in the terminal and in a picture
# widths of a cell: per cents to one decimal, whole per cents (twice), tens only (twice)
DECIMAL, WHOLE, TENS = 6, (4, 3), (2, 1)
NUMBERED = 12  # up to so many sessions a cell of a picture has room for its number
NAMED = 8  # up to so many a tick has room for the session's classes
TICKS = 12  # more labels than this along an axis would touch
LISTED = 20  # failures that are told one by one


def summaries(runs: pd.DataFrame) -> dict[str, Summary]:
    """Each figure of `NAMES` over the seeds, unless a run has not measured it."""
    return {name: summarise(runs[name]) for name in NAMES if runs[name].notna().all()}


def as_object(runs: pd.DataFrame) -> dict[str, Any]:
    """The JSON object of ``algnn run --json``, for runs that differ in their seed only."""
    rows = runs.to_dict("records")
    facts = ("dataset", "sha256", "method", "settings", "base", "step", "edges", "order")
    figures = ["seed", "matrix", "ap", "af", "macro", "micro", "learn_seconds"]
    return {
        **{name: rows[0][name] for name in facts},
        "split": rows[0]["provenance"].get("split"),
        "seeds": [row["seed"] for row in rows],
        "sessions": len(rows[0]["outcome"].sessions),
        **{
            name: {"mean": found.mean, "std": found.std, "ci95": found.ci95}
            for name, found in summaries(runs).items()
        },
        "retained_bytes": int(runs["retained_bytes"].max()),
        "runs": runs.assign(matrix=runs["outcome"].map(matrix_rows))[figures].to_dict("records"),
    }


def beside(runs: pd.DataFrame) -> PaperFigures | None:
    """The paper's figures, where the runs are of the stream that they hold for."""
    first = runs.iloc[0]
    classes = sum(map(len, first["outcome"].sessions))
    if (first["edges"], first["order"], first["base"]) != ("full", "label", -(-classes // 2)):
        return None
    return paper_figures(first["dataset"], first["method"], int(first["step"]))


def title(runs: pd.DataFrame) -> str:
    """Dataset, method and stream of runs that differ in their seed only, in a line."""
    first = runs.iloc[0]
    count = len(first["outcome"].sessions)
    later = f", then {first['step']} at a time" if count > 1 else ""
    return (
        f"{first['dataset']} · {first['method']} · {plural(count, 'session')}"
        f" ({first['base']} classes{later}) · edges {first['edges']}"
    )


def show(console: Console, runs: pd.DataFrame) -> None:
    """Print figures and the mean accuracy matrix of runs that differ in their seed only."""
    paper = beside(runs)
    printed = {"ap": paper.ap, "af": paper.af, "learn_seconds": paper.seconds} if paper else {}
    count = len(runs)
    seeds = f"mean of {count} seeds ± 95%" if count > 1 else f"seed {runs['seed'].iloc[0]}"
    table = plain_table("", seeds, *(["the paper"] if paper else []), right=slice(1, None))
    for name, summary in summaries(runs).items():
        theirs = " ± ".join(f"{v:.2f}" for v in printed.get(name) or () if v is not None)
        digits = 3 if name in ("ece", "novelty_auroc") else 2
        half = "" if summary.ci95 is None else f" ± {summary.ci95:.{digits}f}"
        table.add_row(NAMES[name], f"{summary.mean:.{digits}f}{half}", *([theirs] if paper else []))
    table.add_row("retained (MB)", f"{runs['retained_bytes'].max() / 1e6:.2f}")
    print_table(table, title(runs), console)
    if paper and paper.seconds:
        console.print("the paper's seconds are those of an RTX 3090", style="dim")
    console.print()
    matrix = np.mean([outcome.matrix for outcome in runs["outcome"]], axis=0)
    console.print(grid(matrix, console.width), no_wrap=True, crop=False)
    console.print()


def grid(matrix: Matrix, width: int = 80) -> Text:
    """The lower triangle of an accuracy matrix in per cent, as coloured cells.

    Cells hold per cents to one decimal, whole per cents, or only their tens (9 for 90 and more),
    whichever fits the width; where nothing does, sessions are left out.
    """
    count = len(matrix)
    margin = len(str(count - 1)) + 1
    cell = next((c for c in (DECIMAL, *WHOLE, *TENS) if margin + c * count <= width), 1)
    stride = max(1, -(-cell * count // max(1, width - margin)))
    # counted from the end: the last session is always shown
    shown = list(range(count - 1, -1, -stride))[::-1]
    unit = "tens of %" if cell in TENS else "%"
    drawing = Text(f"accuracy ({unit}) after session (row) on the test nodes of session (column)\n")
    heading = " " * margin
    # numbers of sessions are left out where they would touch
    for place in range(0, len(shown), -(-(len(str(shown[-1])) + 1) // cell)):
        number = f"{shown[place]}{' ' * (cell == DECIMAL)}"
        heading = heading.ljust(margin + place * cell) + number.rjust(cell)
    drawing.append(f"{heading.rstrip()}\n", style="dim")
    for t in shown:
        drawing.append(str(t).rjust(margin - 1) + " ", style="dim")
        for i in shown[: shown.index(t) + 1]:
            value = matrix[t, i]
            number = f"{value:.0f}" if cell in WHOLE else f"{min(value // 10, 9):.0f}"
            text = f"{value:.1f} " if cell == DECIMAL else number
            look = Style(color=_ink(value), bgcolor=to_hex(VIRIDIS(value / 100)))
            drawing.append(text.rjust(cell), look)
        drawing.append("\n")
    drawing.right_crop(1)
    return drawing


def _ink(value: float) -> str:
    """The colour in which an accuracy can be read on its own colour."""
    dark = np.dot(VIRIDIS(value / 100)[:3], (0.299, 0.587, 0.114)) < 0.48
    return "#ffffff" if dark else "#000000"


def draw(runs: pd.DataFrame, path: Path) -> Path:
    """Draw a picture of runs, one per seed, with the paper's figure where there is one."""
    paper = beside(runs)
    return save(figure(list(runs["outcome"]), title(runs), paper.ap[0] if paper else None), path)


def figure(outcomes: Sequence[Outcome], title: str, paper_ap: float | None) -> Figure:
    """The mean accuracy matrix of runs, one per seed; their AP by session, and the paper's last."""
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
    image = axes.imshow(matrix, cmap=VIRIDIS, vmin=0, vmax=100)
    figure.colorbar(image, ax=axes, label="accuracy (%)", shrink=0.8)
    names, shown = _names(outcomes), range(0, count, (count - 1) // TICKS + 1)
    title = "accuracy matrix" + (", mean over seeds" if len(outcomes) > 1 else "")
    below = f"test nodes of session{' (its classes)' if names else ''}"
    axes.set(title=title, xlabel=below, ylabel="after session")
    axes.set_yticks(shown, [str(i) for i in shown])
    axes.set_xticks(shown, [f"{i}\n({names[i]})" if names else str(i) for i in shown])
    axes.spines[["top", "right"]].set_visible(False)
    if count > NUMBERED:
        return
    look = {"ha": "center", "va": "center", "fontsize": 10 if count <= NAMED else 9}
    for t, i in zip(*np.tril_indices(count), strict=True):
        text = f"{matrix[t, i]:.{int(count <= NAMED)}f}"
        axes.text(i, t, text, color=_ink(matrix[t, i]), **look)


def _draw_stages(axes: Any, outcomes: Sequence[Outcome], paper_ap: float | None) -> None:
    stages = [summarise(each) for each in np.transpose([one.stagewise for one in outcomes])]
    mean, half = np.array([[stage.mean, stage.ci95 or 0.0] for stage in stages]).T
    last, many = len(mean) - 1, len(outcomes) > 1
    label = f"mean of {len(outcomes)} seeds" if many else "one seed"
    axes.plot(mean, marker="o", markersize=4, color="C0", label=label)
    if many:
        low, high = np.clip(mean - half, 0, 100), np.clip(mean + half, 0, 100)
        axes.fill_between(range(last + 1), low, high, color="C0", alpha=0.2, label="95% interval")
    if paper_ap is not None:
        text = f"paper's final AP {paper_ap:.2f}"
        axes.axhline(paper_ap, color="C3", linestyle="--", linewidth=1.2, label=text)
    # room to the right of the last point, where its value is written
    axes.set(xlim=(-0.04 * max(last, 1), last + 0.2 * max(last, 1)), ylim=(0, 102))
    # and off the paper's line, where the two are close
    ahead = 99.0 if paper_ap is None else mean[-1] - paper_ap
    shift = 0 if abs(ahead) >= 5 else 9 if ahead >= 0 else -9
    look = {"va": "center", "fontweight": "bold", "color": "C0"}
    place = {"xytext": (9, shift), "textcoords": "offset points"}
    axes.annotate(f"{mean[-1]:.2f}", (last, mean[-1]), **place, **look)
    axes.set_xticks(range(0, last + 1, last // TICKS + 1))
    axes.set(title="average performance so far", xlabel="after session", ylabel="AP (%)")
    axes.grid(alpha=0.3)
    # below the axes, where no curve can run through it
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3, frameon=False)


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


def tables(tally: Tally, plans: Sequence[Plan]) -> None:
    """Print for each step AP of every method (row) on every dataset (column)."""
    graphs = {plan.dataset: recorded_name(plan.dataset) for plan in plans}
    # the name in records, unless several have it
    alike = Counter(graphs.values())
    names = [name if alike[name] == 1 else graph for graph, name in graphs.items()]
    for step in dict.fromkeys(plan.step for plan in plans):
        here = [plan for plan in plans if plan.step == step]
        table = plain_table("", *names, right=slice(1, None))
        for method in dict.fromkeys(plan.method for plan in here):
            cells = [[p for p in here if (p.method, p.dataset) == (method, g)] for g in graphs]
            figures = (_figure(tally.of(*some), tally.wanted(*some)) for some in cells)
            table.add_row(method, *figures)
        own = [p for p in here if p.method == here[0].method]
        # a graph that comes with a split has no others, and fewer runs
        counts = {tally.wanted(*(p for p in own if p.dataset == graph)) for graph in graphs}
        most, noun = max(counts), "runs" if max(counts) > len(own[0].seeds) else "seeds"
        many = f"mean of {'' if len(counts) == 1 else 'up to '}{most} {noun} ± 95%"
        over = many if most > 1 else f"seed {own[0].seeds[0]}"
        print_table(table, f"AP, average performance (%) · step {step} · {over}")


def swept(tally: Tally, plans: Sequence[Plan], setting: str) -> None:
    """Print the figures of a sweep, a row for each value of its setting."""
    names = (setting, "AP (%)", "AF (%)", "learning (s)", "retained (MB)")
    table = plain_table(*names, right=slice(None))
    for plan in plans:
        runs = tally.of(plan)
        row = [f"{plan.changes[setting]:g}", _figure(runs, len(plan.seeds))]
        if not runs.empty:
            found, retained = summaries(runs), runs["retained_bytes"].max() / 1e6
            row += [str(found["af"]), f"{found['learn_seconds'].mean:.2f}", f"{retained:.2f}"]
        table.add_row(*row)
    first = plans[0]
    heading = f"{recorded_name(first.dataset)} · {first.method} · step {first.step}"
    print_table(table, f"{heading} · {plural(len(first.seeds), 'seed')}")


def chosen(best: pd.DataFrame) -> None:
    """Print the settings that were chosen on validation nodes."""
    names = ("", "", "AP on validation nodes (%)", "trials", "chosen")
    table = plain_table(*names, right=slice(3, 4))
    for _, row in best.iterrows():
        tried = dict.fromkeys(name for trial in find(row["method"]).grid for name in trial)
        words = ", ".join(f"{name}={row['settings'][name]}" for name in tried)
        table.add_row(row["dataset"], row["method"], f"{row['ap']:.2f}", str(row["trials"]), words)
    print()
    print_table(table)


def _figure(runs: pd.DataFrame, wanted: int) -> str:
    if runs.empty:
        return "–"
    lacking = f" ({len(runs)} of {wanted})" if len(runs) < wanted else ""
    return f"{summarise(runs['ap'])}{lacking}"


def counts(tally: Tally, folder: Path) -> None:
    """Print what failed, and how many runs did what."""
    print()
    failures = tally.failed + tally.skipped
    for failure in failures[:LISTED]:
        print(f"failed: {label(failure)}: {failure.reason}")
    if len(failures) > LISTED:
        print(f"failed: {len(failures) - LISTED} more")
    if tally.skipped:
        count, was = len(tally.skipped), "was" if len(tally.skipped) == 1 else "were"
        print(f"{count} of them failed before and {was} not tried again: --retry-failed")
    counts = f"{len(tally.done)} done, {len(tally.reused)} reused, {len(failures)} failed"
    print(f"{counts}; records below {folder}")


def print_json(tally: Tally, folder: Path) -> None:
    """Print the JSON object of ``algnn bench --json``."""
    names = ("dataset", "sha256", "method", "step", "order", "seed", "reason")
    cells = frame(tally.records).groupby("configuration", sort=False)
    found = {
        "records": str(folder),
        "done": len(tally.done),
        "reused": len(tally.reused),
        "failed": [
            {name: getattr(one, name) for name in names}
            | {"split": one.provenance.get("split"), "tried_now": one in tally.failed}
            for one in tally.failed + tally.skipped
        ],
        "results": [as_object(runs) for _, runs in cells],
    }
    print(json.dumps(found, allow_nan=False))
