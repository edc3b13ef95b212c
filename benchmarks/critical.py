"""Average ranks over graphs with Nemenyi's critical difference, as a figure and as a table.

    python benchmarks/critical.py docs/records/gpu docs/ranks.svg [ap|micro|mean_ap] [METHOD ...]

Runs with each method's own settings at step 1 are ranked, on the graphs that all methods ran on.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from algnn.bench.runs import read_runs, write_atomically
from algnn.bench.significance import Ranking, rank
from algnn.methods import METHODS, settings


def own(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs at step 1, with the whole graph visible, of each method's own settings."""
    runs = runs.query("step == 1 and edges == 'full'")
    runs = runs[runs["method"].isin(list(METHODS))]
    usual = []
    for _, row in runs.iterrows():
        wanted = settings(row["method"], row["dataset"])
        # a setting that did not exist yet was off
        off = {name: value for name, value in wanted.items() if not value}
        usual.append(off | row["settings"] == wanted)
    return runs[usual]


def draw(ranking: Ranking) -> Figure:
    """Methods by average rank on one line; a bar joins those that are not told apart."""
    names, count = list(ranking.average.index), len(ranking.average)
    half, groups = -(-count // 2), ranking.cliques()
    # rows below the axis: first the bars, then the names, half on each side
    top = 0.5 * (len(groups) + 1)
    figure = Figure(figsize=(7.5, 0.9 + 0.24 * (half + len(groups))), layout="constrained")
    axes = figure.subplots()
    axes.set_xlim(0.5, count + 0.5)
    axes.set_ylim(top + half + 0.5, -1.8)
    axes.set_axis_off()
    axes.plot([1, count], [0, 0], color="black", linewidth=1)
    for tick in range(1, count + 1):
        axes.plot([tick, tick], [0, -0.15], color="black", linewidth=1)
        axes.text(tick, -0.25, str(tick), ha="center", va="bottom", fontsize=8)
    for place, group in enumerate(groups, start=1):
        ends = [ranking.average[group[0]] - 0.05, ranking.average[group[-1]] + 0.05]
        axes.plot(ends, [0.5 * place] * 2, color="black", linewidth=3, solid_capstyle="round")
    for place, name in enumerate(names):
        left = place < half
        height = top + (place if left else count - 1 - place) + 0.5
        value, edge = ranking.average[name], 1 if left else count
        axes.plot([value, value, edge], [0, height, height], color="grey", linewidth=0.7)
        words = f"{name}  {value:.2f}" if left else f"{value:.2f}  {name}"
        axes.text(
            edge, height, f" {words} ", ha="right" if left else "left", va="center", fontsize=8
        )
    low = 1.0
    axes.plot([low, low + ranking.critical_difference], [-1.3, -1.3], color="black", linewidth=1.5)
    words = f"critical difference {ranking.critical_difference:.2f} (5%)"
    axes.text(low, -1.4, words, ha="left", va="bottom", fontsize=8)
    return figure


def table(ranking: Ranking) -> str:
    """Average ranks, and the mean figure on each graph, as a Markdown table."""
    graphs = list(ranking.means.index)
    lines = [
        f"| method | average rank | {' | '.join(graphs)} |",
        "| --- " * (len(graphs) + 2) + "|",
    ]
    for name, value in ranking.average.items():
        figures = " | ".join(f"{ranking.means.loc[graph, name]:.1f}" for graph in graphs)
        lines.append(f"| `{name}` | {value:.2f} | {figures} |")
    return "\n".join(lines)


if __name__ == "__main__":
    folder, out, *rest = sys.argv[1:]
    given = own(read_runs(folder))
    found = rank(given, rest[0] if rest else "ap", rest[1:] or None)
    mpl.rcParams["svg.hashsalt"] = "algnn"  # the same bytes each time
    buffer = io.BytesIO()
    kind = Path(out).suffix.removeprefix(".")
    draw(found).savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    write_atomically(Path(out), buffer.getvalue())
    print(f"Friedman p = {found.p_value:.2g}, {len(found.means)} graphs\n\n{table(found)}")
