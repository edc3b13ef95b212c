"""The figures of README.md and docs/performance.md, and docs/stages.png, anew from records.

    python benchmarks/readme.py

A document marks the place of figures by two comments, ``<!-- figures short -->`` and
``<!-- end -->``; `refresh` writes between them what the records below docs/records say. Of a method
on a graph it takes the runs of the paper's stream (half of the classes first, then one at a time,
whole graph visible) with the method's present settings; of several machines a GPU, then the one
with the latest runs.
"""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from algnn.bench.paper import paper_figures
from algnn.bench.runs import read_runs, summarise, write_atomically
from algnn.cli.picture import draw_lines
from algnn.methods import METHODS, settings

ROOT = Path(__file__).parent.parent
DOCUMENTS = ("README.md", "docs/performance.md")
PLACE = re.compile(r"(<!-- figures (\w+) -->\n).*?(\n?<!-- end -->)", re.DOTALL)
# the README's seven: the first of these that `algnn` has been run on
GRAPHS = (
    *("cora", "citeseer", "pubmed", "computers", "corafull-graph", "arxiv-graph", "chameleon"),
    *("photo", "actor", "facebook", "flickr", "uai", "digits"),
)
ROWS = 7
JOINT = tuple(name for name in METHODS if name.startswith("joint") and name != "joint-ridge")
RIVALS = tuple(
    name for name, method in METHODS.items() if method.kind not in ("analytic", "reference")
)
REPLAY = tuple(name for name, method in METHODS.items() if method.kind == "replay")
CHART = "cora"


class Figures:
    """The runs that count, by graph and method."""

    def __init__(self, runs: pd.DataFrame) -> None:
        chosen = runs.query("edges == 'full' and order == 'label' and step == 1")
        half = [row.base == -(-len(row.outcome.total) // 2) for row in chosen.itertuples()]
        # a graph from a user's file and the same graph by name are one
        names = chosen["dataset"].str.removesuffix(".npz")
        self.runs = chosen.assign(dataset=names)[half]

    def of(self, graph: str, method: str, hardware: str | None = None) -> pd.DataFrame:
        """The runs of a method on a graph, of one machine; empty where there are none."""
        found = self.runs.query("dataset == @graph and method == @method")
        if hardware is not None:
            found = found[found["hardware"] == hardware]
        if found.empty:
            return found
        usual = settings(method, graph)
        off = {name: value for name, value in usual.items() if not value}
        own = found[[off | given == usual for given in found["settings"]]]
        if own.empty:
            return own
        found = own
        found = found.assign(gpu=["cores" not in name for name in found["hardware"]])
        last = found.sort_values(["gpu", "started"]).iloc[-1]
        same = (found[["hardware", "configuration"]] == last[["hardware", "configuration"]]).all(
            axis=1
        )
        return found[same].drop_duplicates("seed", keep="last")

    def best(self, graph: str, methods: tuple[str, ...]) -> str | None:
        """Which of some methods has the highest AP on a graph."""
        means = {name: self.of(graph, name)["ap"].mean() for name in methods}
        means = {name: mean for name, mean in means.items() if not pd.isna(mean)}
        return max(means, key=lambda name: means[name], default=None)

    def graphs(self) -> list[str]:
        """The graphs that the default learner has been run on."""
        return [graph for graph in GRAPHS if len(self.of(graph, "algnn"))]


def short(figures: Figures) -> str:
    """The README's table: AP ± 95%, micro in brackets."""
    lines = [
        _line(
            ["graph", "`algnn`", "best other, class by class", "fine-tuning", "joint, all labels"]
        )
    ]
    lines += [_line(["---"] * 5)]
    for graph in figures.graphs()[:ROWS]:
        other, joint = figures.best(graph, RIVALS), figures.best(graph, JOINT)
        cells = [_cell(figures, graph, name) for name in ("algnn", other, "bare", joint)]
        cells[1] += f" `{other}`" if other else ""
        cells[3] += f" `{joint}`" if joint else ""
        lines.append(_line([graph, *cells]))
    return "".join(lines).rstrip("\n")


def long(figures: Figures) -> str:
    """The table of docs/performance.md: both defaults, the paper's method and joint training."""
    names = [
        "graph",
        "`algnn`",
        "`algnn-nodes`",
        "`algnn-paper`",
        "the paper's AP",
        "joint",
        "s",
        "MB",
    ]
    lines = [_line(names), _line(["---"] * len(names))]
    for graph in figures.graphs():
        paper = paper_figures(graph, "algnn-paper")
        joint, ours = figures.best(graph, JOINT), figures.of(graph, "algnn")
        cells = [_cell(figures, graph, name) for name in ("algnn", "algnn-nodes", "algnn-paper")]
        cells += ["–" if paper is None else f"{paper.ap[0]:.2f}", _cell(figures, graph, joint)]
        cells += [
            f"{ours['learn_seconds'].mean():.1f}",
            f"{ours['retained_bytes'].mean() / 1e6:.1f}",
        ]
        lines.append(_line([graph, *cells]))
    return "".join(lines).rstrip("\n")


def costs(figures: Figures) -> str:
    """What Cora costs, in two sentences."""
    runs = figures.of("cora", "algnn")
    clocks = [outcome.learn_seconds for outcome in runs["outcome"]]
    first = summarise(one[0] for one in clocks).mean
    later = summarise(second for one in clocks for second in one[1:]).mean
    where, jobs = runs["hardware"].iloc[-1], runs["machine"].iloc[-1].get("jobs") or 1
    beside = "" if jobs == 1 else f", {jobs} runs side by side"
    kept = runs["retained_bytes"].mean() / 1e6
    return (
        f"Cora's first four classes take {first:.1f} s and each further class {later:.2f} s"
        f" ({where}{beside}). {kept:.1f} MB are kept at the end."
    )


def confidence(figures: Figures) -> str:
    """Calibration and novelty over all graphs, in two sentences."""
    runs = {graph: figures.of(graph, "algnn") for graph in figures.graphs()}
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


KINDS = {"short": short, "long": long, "costs": costs, "confidence": confidence}


def refresh(text: str, figures: Figures) -> str:
    """A document with every figure in it written anew."""
    return PLACE.sub(lambda place: f"{place[1]}{KINDS[place[2]](figures)}\n<!-- end -->", text)


def chart(figures: Figures, path: Path) -> None:
    """Five lines: ours, joint training, the best replay, EWC, and no defence."""
    named = {
        "algnn": "algnn",
        figures.best(CHART, JOINT): "joint, all labels",
        figures.best(CHART, REPLAY): "best replay",
        "ewc": "EWC",
        "bare": "fine-tuning",
    }
    wanted = {name: text for name, text in named.items() if name and len(figures.of(CHART, name))}
    runs = pd.concat([figures.of(CHART, name) for name in wanted])
    names = [
        text if name in ("algnn", "ewc", "bare") else f"{text} ({name})"
        for name, text in wanted.items()
    ]
    title = f"{CHART.capitalize()}: four classes first, then one at a time"
    draw_lines(runs, list(wanted), path, title, names)


def _cell(figures: Figures, graph: str, method: str | None) -> str:
    runs = figures.runs[:0] if method is None else figures.of(graph, method)
    if runs.empty:
        return "–"
    mean, half, _ = summarise(runs["ap"])
    interval = "" if half is None else f" ± {half:.1f}"
    return f"{mean:.1f}{interval} ({summarise(runs['micro']).mean:.1f})"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    found = Figures(read_runs(ROOT / "docs" / "records"))
    for name in DOCUMENTS:
        path = ROOT / name
        write_atomically(path, refresh(path.read_text("utf-8"), found).encode())
    chart(found, ROOT / "docs" / "stages.png")
