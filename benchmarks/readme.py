"""The figures of README.md and docs/performance.md, and docs/stages.png, anew from records.

    python benchmarks/readme.py

A document marks the place of figures by two comments, ``<!-- figures short -->`` and
``<!-- end -->``; `refresh` writes between them what the records below docs/records say. The runs
are those that `algnn report` compares methods by; marks are those of its paired test.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from algnn.bench.runs import summarise, write_atomically
from algnn.methods import METHODS
from algnn.report.data import Study, read
from algnn.report.paper import paper_figures
from algnn.report.table import listed
from algnn.report.verdicts import best_network, best_of, mark, rivals, standing, summary

ROOT = Path(__file__).parent.parent
DOCUMENTS = ("README.md", "docs/performance.md")
PLACE = re.compile(r"(<!-- figures (\w+) -->\n).*?(\n?<!-- end -->)", re.DOTALL)
# the README's seven: the first of these that `algnn` has been run on
GRAPHS = (
    *("cora", "citeseer", "pubmed", "computers", "corafull-graph", "arxiv-graph", "chameleon"),
    *("photo", "actor", "facebook", "flickr", "uai", "digits"),
)
ROWS = 7
REPLAY = tuple(name for name, method in METHODS.items() if method.kind == "replay")
CHART = "cora"
COLOURS = ("#0b6fb8", "#3b3b3b", "#2a9d6f", "#d9822b", "#b0b0b0")
GAP = 4.5  # per cent between two names at the right of the chart


def graphs(study: Study) -> list[str]:
    """The graphs that the default learner has been run on."""
    return [graph for graph in GRAPHS if len(study.anywhere(graph, "algnn"))]


def short(study: Study) -> str:
    """The README's table: AP ± 95%, micro in brackets, and the verdict of the paired test."""
    names = ["graph", "`algnn`", "best other, class by class", "fine-tuning", "joint, all labels"]
    lines = [_line(names), _line(["---"] * 5)]
    for graph in graphs(study)[:ROWS]:
        other, joint = best_of(study, graph, rivals(study, graph)), best_network(study, graph)
        shown = [_named(study, graph, other), _cell(study, graph, "bare")]
        lines.append(
            _line([graph, _cell(study, graph, "algnn"), *shown, _named(study, graph, joint)])
        )
    return "".join(lines).rstrip("\n")


def long(study: Study) -> str:
    """The table of docs/performance.md: both defaults, the paper's method and joint training."""
    names = ["graph", "`algnn`", "`algnn-nodes`", "`algnn-paper`", "the paper's AP", "joint"]
    lines = [_line([*names, "s", "MB"]), _line(["---"] * 8)]
    for graph in graphs(study):
        paper, ours = paper_figures(graph, "algnn-paper"), study.anywhere(graph, "algnn")
        cells = [_cell(study, graph, name) for name in ("algnn", "algnn-nodes", "algnn-paper")]
        cells.append("–" if paper is None else f"{paper.ap[0]:.2f}")
        cells.append(_named(study, graph, best_network(study, graph)))
        alone = ours[ours["alone"]]
        cells.append(f"{alone['learn_seconds'].mean():.2f}" if len(alone) else "–")
        cells.append(f"{ours['retained_bytes'].mean() / 1e6:.1f}")
        lines.append(_line([graph, *cells]))
    return "".join(lines).rstrip("\n")


def verdicts(study: Study) -> str:
    """The first paragraph of the report, sentence by sentence, and where the rest is."""
    rest = "[What the verdicts rest on](docs/results.md#what-the-verdicts-rest-on) has the details."
    return "\n\n".join([*summary(study), rest])


def trained(study: Study) -> str:
    """What training an encoder without labels brings, and costs, in three sentences."""
    names = ("algnn", "algnn-ssl")
    runs = {g: [study.anywhere(g, name) for name in names] for g in graphs(study)}
    both = {graph: pair for graph, pair in runs.items() if all(map(len, pair))}
    means = [summarise(pair[at]["ap"].mean() for pair in both.values()).mean for at in (0, 1)]
    found = {graph: standing(study, graph, [names[1]]) for graph in both}
    units = {test.units for g in both if (test := study.against(g, names[1], "ap"))}
    once = "; each of these verdicts rests on one split and one order of classes" * (units == {1})
    # the verdicts are those on `algnn`
    ahead, behind = ([g for g in found if found[g] == one] for one in ("trails", "leads"))
    alone = {g: [some[some["alone"]] for some in pair] for g, pair in both.items()}
    timed = [pair for pair in alone.values() if all(map(len, pair))]
    clocks = [[some["learn_seconds"].mean() for some in pair] for pair in timed]
    ratios = [after / before for before, after in clocks]
    where = sorted({hardware for pair in timed for some in pair for hardware in some["hardware"]})
    return (
        f'`ALGNN(encoder="self-supervised")` (`{names[1]}`) first trains a GCN on the graph without'
        f" labels, and puts its embedding beside the views: mean AP over {len(both)} graphs"
        f" {means[1]:.1f} instead of {means[0]:.1f}. By the same test it leads the default on"
        f" {_graphs(ahead)}, and trails it on {_graphs(behind)}{once}. Learning all classes takes"
        f" {min(ratios):.1f} to {max(ratios):.1f} times as long ({len(timed)} graphs,"
        f" one run each, {listed(where)})."
    )


def costs(study: Study) -> str:
    """What Cora costs on each machine that ran it alone, in two sentences."""
    runs = study.select(dataset="cora", method="algnn", step=1)
    runs = runs[runs["alone"]]
    found = []
    for where, some in runs.groupby("hardware"):
        clocks = [outcome.learn_seconds for outcome in some["outcome"]]
        first = summarise(one[0] for one in clocks).mean
        later = summarise(second for one in clocks for second in one[1:]).mean
        found.append(f"{first:.2g} s and {later:.2g} s ({where})")
    kept = study.anywhere("cora", "algnn")["retained_bytes"].mean() / 1e6
    return (
        f"Cora's first four classes and each further class take {'; '.join(found)}, respectively,"
        f" without the start-up time of the device. At the end the model keeps {kept:.1f} MB beside"
        " its frozen encoder."
    )


def confidence(study: Study) -> str:
    """Calibration and novelty over all graphs, in two sentences."""
    runs = {graph: study.anywhere(graph, "algnn") for graph in graphs(study)}
    parts = []
    for name, words, worst in (
        ("ece", "Expected calibration error: mean", max),
        ("novelty_auroc", "AUROC of novelty: mean", min),
    ):
        found = {graph: summarise(some[name]).mean for graph, some in runs.items()}
        far = worst(found, key=lambda graph: found[graph])
        mean = summarise(found.values()).mean
        parts.append(f"{words} {mean:.2f} over {len(found)} graphs, {found[far]:.2f} on {far}")
    return f"{'. '.join(parts)}, each the worst of them."


KINDS = {
    "short": short, "long": long, "verdicts": verdicts, "trained": trained, "costs": costs,
    "confidence": confidence,
}  # fmt: skip


def refresh(text: str, study: Study) -> str:
    """A document with every figure in it written anew."""
    return PLACE.sub(lambda place: f"{place[1]}{KINDS[place[2]](study)}\n<!-- end -->", text)


def chart(study: Study, path: Path) -> None:
    """Five lines: ours, joint training, the best replay, EWC, and no defence."""
    named = {
        "algnn": "algnn",
        best_network(study, CHART): "joint, all labels",
        best_of(study, CHART, REPLAY): "best replay",
        "ewc": "EWC",
        "bare": "fine-tuning",
    }
    wanted = {name: text for name, text in named.items() if name}
    runs = {name: study.anywhere(CHART, name) for name in wanted}
    wanted = {name: text for name, text in wanted.items() if len(runs[name])}
    lines = {
        text if name in ("algnn", "ewc", "bare") else f"{text} ({name})": runs[name]
        for name, text in wanted.items()
    }
    draw(path, f"{CHART.capitalize()}: four classes first, then one at a time", lines)


def draw(path: Path, title: str, lines: dict[str, pd.DataFrame]) -> None:
    """Draw AP by session, the mean of some runs for each line; the first one is thick."""
    figure = Figure(figsize=(8.4, 4.4), layout="constrained")
    axes: Any = figure.subplots()
    ends = []
    for place, (name, runs) in enumerate(lines.items()):
        stages = np.mean(np.stack(list(runs["stages"])), axis=0)
        colour, width = COLOURS[place], 1.6 if place else 3.0
        axes.plot(stages, marker="o", markersize=3 + width, linewidth=width, color=colour)
        ends.append((float(stages[-1]), name, colour, "normal" if place else "bold"))
    last, height = len(stages) - 1, -np.inf
    for value, name, colour, weight in sorted(ends):
        height = max(value, height + GAP)  # moved apart where they would touch
        look = {"color": colour, "fontweight": weight, "va": "center"}
        beside = (last + 0.03 * max(last, 1), height)
        axes.annotate(f"{name} {value:.1f}", (last, value), xytext=beside, **look)
    axes.set_xlim(-0.03 * last, last * 1.34 or 1)
    axes.set_ylim(0, 104)
    axes.set_xticks(range(last + 1))
    axes.set_xlabel("session: new classes are learned in each")
    axes.set_ylabel("average accuracy so far (%)")
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130, metadata={"Software": None})


def _cell(study: Study, graph: str, method: str) -> str:
    runs = study.anywhere(graph, method)
    if runs.empty:
        return "–"
    mean, half, _ = summarise(runs["ap"])
    interval = "" if half is None else f" ± {half:.1f}"
    return f"{mean:.1f}{interval} ({summarise(runs['micro']).mean:.1f})"


def _named(study: Study, graph: str, method: str | None) -> str:
    """The figures, the name and the verdict of a method that was picked for a graph."""
    if method is None:
        return "–"
    sign = mark(study.against(graph, method, "ap"))
    return f"{_cell(study, graph, method)} `{method}` {sign}".rstrip()


def _graphs(names: Iterable[str]) -> str:
    found = list(names)
    return listed(found) if found else "no graph"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    found = read([ROOT / "docs" / "records"])
    for name in DOCUMENTS:
        path = ROOT / name
        write_atomically(path, refresh(path.read_text("utf-8"), found).encode())
    chart(found, ROOT / "docs" / "stages.png")
