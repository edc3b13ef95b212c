"""The tables of a report: which runs and figures stand in which row."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import pandas as pd

from algnn.bench.paper import paper_figures, paper_space
from algnn.bench.runs import Summary, summarise
from algnn.methods import METHODS
from algnn.report.board import standings
from algnn.report.commands import commands
from algnn.report.data import ALL_LABELS, FOCUS, Study, baselines
from algnn.report.table import COLUMNS, WORDS, Column, Table, Value, count, listed, ranked, slug

TRUST = ("ece", "novelty_auroc")
MEANS = ("base_accuracy", "macro", "micro")
TEXT = WORDS["tables"]


def leaderboard(study: Study) -> Table | None:
    """Mean rank, AP and micro of every method over the graphs on which most of them ran."""
    found, graphs = standings(study)
    words = TEXT["leaderboard"]
    whole = [found[of].round(2).astype(object).where(found[of].notna(), None)
             for of in ("rank", "ap", "micro")]  # fmt: skip
    rows = [[name, *values, f"{on} of {len(graphs)}"]
            for name, *values, on in zip(found.index, *whole, found.on, strict=True)]  # fmt: skip
    means = [Column(*parts) for parts in words["columns"]]
    columns: list[str | Column] = ["method", *means, Column("graphs")]
    partial = {column.name: found.index[found.on < len(graphs)] for column in means}
    names = listed(graphs) if graphs else "no graph"
    return _table(study, "leaderboard", columns, rows, barred=partial, graphs=names)


def overview(study: Study, hardware: str) -> Table | None:
    """Final AP and micro accuracy of every method on every dataset, on one hardware."""
    graphs = study.datasets(hardware, 1)
    rows: list[list[Value]] = []
    columns: list[Column] = []
    for graph in graphs:
        columns.append(Column(graph, "points", best="high"))
        columns.append(Column(f"{graph} micro", "point", "Accuracy over test nodes.", "high"))
    for name in study.methods(hardware, step=1):
        cells = [study.cell(hardware, graph, 1, name) for graph in graphs]
        found = [(_mean(cell.ap), _mean(cell.micro)) for cell in cells]
        rows.append([name, *(v for ap, micro in found for v in (ap, micro and micro.mean))])
    runs = study.select(hardware=hardware, step=1)
    runs = runs[runs.dataset.isin(graphs)]
    return _table(study, "overview", ["method", *columns], rows, runs, hardware=hardware)


def main(study: Study, hardware: str, dataset: str) -> Table | None:
    """AP, AF and learn seconds of every method on one dataset and hardware, at step 1."""
    names = study.methods(hardware, dataset, 1)
    papers = {name: paper_figures(dataset, name) for name in names}
    beside = any(papers.values())
    columns = ["method", "seeds", "AP", *["AP, paper"] * beside, "AF", *["AF, paper"] * beside,
               "learn (s)", "base", "macro", "micro"]  # fmt: skip
    rows = []
    for name in names:
        runs, paper = study.cell(hardware, dataset, 1, name), papers[name]
        ap, af = ([_printed(getattr(paper, of, None))] * beside for of in ("ap", "af"))
        values = [name, len(runs), summarise(runs.ap), *ap, summarise(runs.af), *af]
        seconds = _mean(runs.learn_seconds[runs.alone])
        rows.append([*values, seconds, *(summarise(runs[of]).mean for of in MEANS)])
    runs = study.select(hardware=hardware, dataset=dataset, step=1)
    first, *later = runs.outcome.iloc[0].sessions
    sessions = f"{count(1 + len(later), 'session')}: {len(first)} classes" + (
        " first, then one at a time" * bool(later)
    )
    several = runs.method.duplicated().any()
    # who never learns has nothing to forget
    aps = runs.groupby("method").ap.mean()
    low = [name for name in names if aps[name] < aps.get("bare", 0)]
    more = {"mean": several, "paper": beside, "shared": not runs.alone.all(), "low": low}
    notes = [TEXT[key] for key, holds in more.items() if holds]
    where: dict[str, Any] = {"hardware": hardware, "dataset": dataset, "sessions": sessions}
    return _table(study, "main", columns, rows, runs, notes, barred={"AF": low}, **where)


def by_step(study: Study, hardware: str, dataset: str) -> Table | None:
    """Final AP at each number of classes per session, on one dataset and hardware."""
    names, steps = study.methods(hardware, dataset), study.steps(dataset, hardware)
    papers = {(n, s): paper_figures(dataset, n, s) for n in names for s in steps}
    beside = {s: any(papers[name, s] for name in names) for s in steps}
    columns: list[str | Column] = ["method"]
    for step in steps:
        columns.append(Column(f"step {step}", "points", f"{step} classes a session.", "high"))
        columns += [Column(f"step {step}, paper", "points", "As printed.")] * beside[step]
    rows = []
    for name in names:
        values: list[Value] = [name]
        for step in steps:
            values.append(_mean(study.cell(hardware, dataset, step, name).ap))
            values += [_printed(getattr(papers[name, step], "ap", None))] * beside[step]
        rows.append(values)
    runs = study.select(hardware=hardware, dataset=dataset)
    counts = listed(sorted({len(stages) for stages in runs.stages}, reverse=True))
    where: dict[str, Any] = {"hardware": hardware, "dataset": dataset, "counts": counts}
    return _table(study, "steps", columns, rows, runs, **where)


def trust(study: Study, hardware: str) -> Table | None:
    """Calibration error and AUROC of novelty of every method, of the runs that measured them."""
    runs = study.select(hardware=hardware, step=1)
    runs = runs[runs.ece.notna() & ~runs.synthetic]
    graphs = [graph for graph in study.datasets(hardware, 1) if graph in set(runs.dataset)]
    columns: list[str | Column] = ["method"]
    for graph in graphs:
        hint = "Expected calibration error at the end."
        columns.append(Column(f"{graph} ECE", "share", hint, "low"))
        columns.append(Column(f"{graph} AUROC", "share", "Of novelty, mean over sessions.", "high"))
    rows = []
    for name in study.methods(hardware, step=1):
        cells = [study.cell(hardware, graph, 1, name) for graph in graphs]
        values = [_mean(cell[of]) for cell in cells for of in TRUST]
        if any(values):
            rows.append([name, *values])
    return _table(study, "trust", columns, rows, runs, hardware=hardware)


def retained(study: Study) -> Table | None:
    """What each method keeps between sessions, measured, and what the paper says of it."""
    graphs = study.datasets(step=1, scored=False)
    most = {graph: study.main_hardware(graph) for graph in graphs}
    rows: list[list[Value]] = []
    for name in study.methods(step=1):
        cells = [study.cell(most[graph], graph, 1, name).retained_bytes for graph in graphs]
        if any(map(len, cells)):
            space, known = paper_space(name), METHODS.get(name)
            paper = [space.keeps, str(space)] if space else [None] * 2
            words = [known.retains if known else None, *paper]
            rows.append([name, *words, *(_median(kept) for kept in cells)])
    columns = ["method", "keeps between sessions", "keeps, paper", "space, paper"]
    sizes = [Column(graph, "bytes", "At the end of the stream.") for graph in graphs]
    runs = study.select(step=1)
    runs = runs[runs.hardware == runs.dataset.map(most)]
    return _table(study, "retained", [*columns, *sizes], rows, runs)


def fastest(study: Study, hardware: str) -> Table | None:
    """Learn time of each dataset's fastest baseline over that of the paper's method."""
    rows = []
    for graph in study.datasets(hardware, 1, scored=False):
        found = {name: ratios(study, hardware, graph, name) for name in baselines()}
        medians = {name: median(ratio) for name, ratio in found.items() if ratio}
        if not medians:
            continue
        name = min(medians, key=lambda n: medians[n])
        theirs = paper_ratios(graph)
        quickest = min(theirs, key=lambda n: theirs[n], default=None)
        ours, other = (study.cell(hardware, graph, 1, n).iloc[0] for n in (FOCUS, name))
        epochs = [run.settings.get("epochs") for run in (other, ours)]
        ceiling = len(ours.stages) * (epochs[0] / epochs[1] if all(epochs) else 1.0)
        values: list[Value] = [graph, name, medians[name], ceiling, len(found[name])]
        rows.append([*values, quickest, theirs[quickest] if quickest else None])
    columns = ["graph", "fastest baseline", "its time", "ceiling", "seeds", "fastest, paper",
               "its time, paper"]  # fmt: skip
    runs = study.select(hardware=hardware, step=1, alone=True)
    runs = runs[runs.method.isin([FOCUS, *baselines()])]
    return _table(study, "fastest", columns, rows, runs, hardware=hardware)


def speeds(study: Study, hardware: str) -> Table | None:
    """Learn time of every method over that of the paper's."""
    names = study.methods(hardware, step=1)
    found = {
        graph: {name: ratios(study, hardware, graph, name) for name in names}
        for graph in study.datasets(hardware, 1, scored=False)
    }
    graphs = [graph for graph in found if sum(map(bool, found[graph].values())) > 1]
    theirs = {graph: paper_ratios(graph) for graph in graphs}
    columns: list[str | Column] = ["method"]
    for graph in graphs:
        columns.append(Column(graph, "ratio", f"Learn seconds over those of {FOCUS}."))
        if theirs[graph]:
            columns.append(Column(f"{graph}, paper", "ratio", "From the paper's own seconds."))
    rows = []
    for name in names:
        values: list[Value] = []
        for graph in graphs:
            values.append(_median(found[graph][name]))
            values += [theirs[graph].get(name)] * bool(theirs[graph])
        if any(value is not None for value in values):
            rows.append([name, *values])
    runs = study.select(hardware=hardware, step=1, alone=True)
    runs = runs[runs.dataset.isin(graphs)]
    notes = [TEXT["speeds"]["paper"]] * any(theirs.values())
    return _table(study, "speeds", columns, rows, runs, notes, hardware=hardware)


def sensitivity(study: Study, name: str) -> Table | None:
    """Final AP for several values of one setting, all others being the method's own."""
    rows = [
        [graph, value, summarise(runs.ap), summarise(runs.af), len(runs), method, hardware]
        for (graph, method, hardware), points in sweep(study, name).items()
        for value, runs in points.items()
    ]
    symbol = {"gamma": "γ", "width": "the expansion width"}[name]
    columns = ["graph", {"gamma": "γ"}.get(name, name), "AP", "AF", "seeds", "method", "machine"]
    runs = study.swept(name)
    made = _table(study, "sensitivity", columns, rows, runs, apart=None, symbol=symbol)
    return made and replace(made, key=f"sensitivity-{name}")


def others(study: Study) -> Table | None:
    """Runs with other settings or streams than those of the main tables."""
    runs = study.runs
    runs = runs[~runs.main & ~((runs.swept != "") & (runs.step == 1))]
    groups = dict(iter(runs.groupby(["dataset", "differs", "method", "step", "hardware"])))
    order = {name: i for i, name in enumerate(METHODS)}
    rows = []
    for key in sorted(groups, key=lambda k: (*k[:2], order.get(k[2], len(order)), *k[2:])):
        (graph, what, method, step, hardware), found = key, groups[key]
        kept, seconds = _median(found.retained_bytes), _mean(found.learn_seconds[found.alone])
        ap, af = summarise(found.ap), summarise(found.af)
        rows.append([method, graph, what, step, len(found), ap, af, seconds, kept, hardware])
    columns = ["method", "graph", "what differs", "step", "seeds", "AP", "AF", "learn (s)", "kept",
               "machine"]  # fmt: skip
    return _table(study, "other-settings", columns, rows, runs, apart=None)


def failed(study: Study) -> Table | None:
    """Runs that failed, and why."""
    found = study.failures
    if not len(found):
        return None
    found = found.sort_values(["dataset", "method", "step", "seed", "device"])
    rows = found[["method", "dataset", "step", "seed", "device", "reason"]].to_numpy().tolist()
    rows = [[value if i == 2 else str(value) for i, value in enumerate(row)] for row in rows]
    columns = ["method", "graph", "step", "seed", "device", "reason"]
    return _table(study, "failed", columns, rows, apart=None)


def ratios(study: Study, hardware: str, dataset: str, method: str) -> list[float]:
    """Learn seconds over those of the paper's method, by seed, of runs alone on the machine."""
    cells = [study.cell(hardware, dataset, 1, name) for name in (method, FOCUS)]
    theirs, ours = (
        {s: t for s, t, alone in zip(r.seed, r.learn_seconds, r.alone, strict=True) if alone}
        for r in cells
    )
    return [theirs[seed] / ours[seed] for seed in theirs if ours.get(seed)]


def paper_ratios(dataset: str) -> dict[str, float]:
    """The paper's seconds of each baseline over those of its own method; may be empty."""
    own = paper_figures(dataset, FOCUS)
    if own is None or own.seconds is None:
        return {}
    found = {name: paper_figures(dataset, name) for name in baselines()}
    return {n: f.seconds[0] / own.seconds[0] for n, f in found.items() if f and f.seconds}


def sweep(study: Study, name: str) -> dict[tuple[str, str, str], dict[Any, pd.DataFrame]]:
    """By dataset, method and hardware, the runs of a sweep by value, the method's own included."""
    runs = study.swept(name)
    series = {}
    for (graph, method, hardware), group in runs.groupby(["dataset", "method", "hardware"]):
        points = dict(iter(group.groupby(group.changes.map(lambda changes: changes[name]))))
        usual = study.cell(hardware, graph, 1, method)
        if len(usual):
            points[usual.settings.iloc[0][name]] = usual
        series[graph, method, hardware] = dict(sorted(points.items()))
    return series


def _table(
    study: Study,
    kind: str,
    columns: Sequence[str | Column],
    rows: Iterable[Sequence[Value]],
    runs: pd.DataFrame | None = None,
    notes: Sequence[str] = (),
    apart: Sequence[str] | None = ALL_LABELS,
    barred: Mapping[str, Collection[str]] | None = None,
    **values: Any,
) -> Table | None:
    """The table with its title and caption, best values and commands; None without rows.

    Where no row is set apart (`apart` is None), none is the best either.
    """
    found = [COLUMNS[column] if isinstance(column, str) else column for column in columns]
    if apart is None:
        found = [replace(column, best="") for column in found]
    made = ranked(found, rows, apart or (), barred)
    if not made:
        return None
    if any(column.best for column in found) and sum(not row.apart for row in made) > 1:
        notes = [*notes, TEXT["best_apart" if any(row.apart for row in made) else "best"]]
    title, caption = (TEXT[kind][part].format(**values) for part in ("title", "caption"))
    number = [str(study.number(values["hardware"]))] if "hardware" in values else []
    key = "-".join([kind, *number, *([slug(values["dataset"])] if "dataset" in values else [])])
    lines = () if runs is None else commands(runs)
    return Table(key, title, " ".join([caption, *notes]), tuple(found), made, lines)


def _mean(values: pd.Series) -> Summary | None:
    known = values.dropna()
    return summarise(known) if len(known) else None


def _median(values: Sequence[float]) -> float | None:
    return float(median(values)) if len(values) else None


def _printed(figure: tuple[float, float | None] | None) -> Summary | None:
    return None if figure is None else Summary(*figure, 0)
