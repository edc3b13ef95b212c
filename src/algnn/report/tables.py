"""The tables of a report: which runs and figures stand in which row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from algnn.bench.paper import paper_figures, paper_space
from algnn.bench.runs import Summary, summarise
from algnn.methods import METHODS
from algnn.report.commands import commands
from algnn.report.data import ALL_LABELS, FOCUS, UNKNOWN, Study, baselines
from algnn.report.table import Column, Table, Value, listed, ranked, slug

SHARED = "Time is left out (–) where other runs shared the machine."
MEAN = "Mean ± 95% interval over seeds."
METHOD = Column("method", "name")
GRAPH = Column("graph", "name")
SEEDS = Column("seeds", "count", "How many runs, each with its own seed.")
TRUST = ("ece", "novelty_auroc")


def overview(study: Study, hardware: str) -> Table | None:
    """Final AP of every method on every dataset, on one hardware."""
    graphs = study.datasets(hardware, 1)
    rows = [
        [name, *(_mean(study.cell(hardware, graph, 1, name).ap) for graph in graphs)]
        for name in study.methods(hardware, step=1)
    ]
    runs = study.select(hardware=hardware, step=1)
    return _table(
        f"overview-{study.number(hardware)}",
        f"Final AP on all graphs ({hardware})",
        f"Average performance in per cent after the last session, step 1. {MEAN}",
        [METHOD, *(Column(name, "points", best="high") for name in graphs)],
        rows,
        runs[runs.dataset.isin(graphs)],
    )


def main(study: Study, hardware: str, dataset: str) -> Table | None:
    """AP, AF and learn seconds of every method on one dataset and hardware, at step 1."""
    names = study.methods(hardware, dataset, 1)
    papers = {name: paper_figures(dataset, name) for name in names}
    beside = any(papers.values())
    columns = [
        METHOD,
        SEEDS,
        Column("AP", "points", "Average performance (%), higher is better.", "high"),
        *([Column("AP, paper", "points", "As the paper prints it.")] * beside),
        Column("AF", "points", "Average forgetting (%), lower is better.", "low"),
        *([Column("AF, paper", "points", "As the paper prints it.")] * beside),
        Column("learn (s)", "seconds", "Inside fit and partial_fit, all sessions.", "low"),
        Column("base", "point", "Accuracy (%) on the base session when it was learned."),
        Column("macro", "point", "Final accuracy (%), every class once.", "high"),
        Column("micro", "point", "Final accuracy (%), every test node once.", "high"),
    ]
    rows = []
    for name in names:
        runs, paper = study.cell(hardware, dataset, 1, name), papers[name]
        rows.append(
            [
                name,
                len(runs),
                summarise(runs.ap),
                *([_printed(paper.ap if paper else None)] * beside),
                summarise(runs.af),
                *([_printed(paper.af if paper else None)] * beside),
                _mean(runs.learn_seconds[runs.alone]),
                *(summarise(runs[of]).mean for of in ("base_accuracy", "macro", "micro")),
            ]
        )
    runs = study.select(hardware=hardware, dataset=dataset, step=1)
    return _table(
        f"main-{study.number(hardware)}-{slug(dataset)}",
        f"{dataset} ({hardware})",
        _stream(runs.outcome.iloc[0].sessions)
        + f" {MEAN}" * any(row[2].ci95 is not None for row in rows)
        + " The paper's figures are for the same graph and stream." * beside
        + f" {SHARED}" * (not runs.alone.all()),
        columns,
        rows,
        runs,
    )


def by_step(study: Study, hardware: str, dataset: str) -> Table | None:
    """Final AP at each number of classes per session, on one dataset and hardware."""
    names, steps = study.methods(hardware, dataset), study.steps(dataset, hardware)
    beside = {s: any(paper_figures(dataset, name, s) for name in names) for s in steps}
    columns = [METHOD]
    for step in steps:
        columns.append(Column(f"step {step}", "points", f"{step} classes a session.", "high"))
        columns += [Column(f"step {step}, paper", "points", "As printed.")] * beside[step]
    rows = []
    for name in names:
        values: list[Value] = [name]
        for step in steps:
            paper = paper_figures(dataset, name, step)
            values.append(_mean(study.cell(hardware, dataset, step, name).ap))
            values += [_printed(paper.ap if paper else None)] * beside[step]
        rows.append(values)
    runs = study.select(hardware=hardware, dataset=dataset)
    counts = sorted({len(stages) for stages in runs.stages}, reverse=True)
    return _table(
        f"steps-{study.number(hardware)}-{slug(dataset)}",
        f"Final AP by step: {dataset} ({hardware})",
        "Average performance (%) when a session brings 1 class or more. AP is a mean over sessions,"
        f" of which there are {listed(counts)}. {MEAN}",
        columns,
        rows,
        runs,
    )


def trust(study: Study, hardware: str) -> Table | None:
    """Calibration error and AUROC of novelty of every method, of the runs that measured them."""
    runs = study.select(hardware=hardware, step=1)
    graphs = study.datasets(hardware, 1)
    runs = runs[runs.ece.notna() & runs.dataset.isin(graphs)]
    graphs = [graph for graph in graphs if (runs.dataset == graph).any()]
    columns = [METHOD]
    for graph in graphs:
        hint = "Expected calibration error at the end."
        columns.append(Column(f"{graph} ECE", "share", hint, "low"))
        columns.append(Column(f"{graph} AUROC", "share", "Of novelty, mean over sessions.", "high"))
    rows = []
    for name in study.methods(hardware, step=1):
        found = [runs[(runs.method == name) & (runs.dataset == graph)] for graph in graphs]
        if any(map(len, found)):
            rows.append([name, *(_mean(part[of]) for part in found for of in TRUST)])
    return _table(
        f"trust-{study.number(hardware)}",
        f"Calibration and novelty ({hardware})",
        "ECE: expected calibration error, the mean difference between the largest probability and"
        " the accuracy in 15 bins over the test nodes after the last session; lower is better."
        " AUROC: how well the novelty score separates test nodes of the next session's classes from"
        " those of seen classes, mean over all sessions but the last; 0.5 is chance. Step 1."
        f" {MEAN}",
        columns,
        rows,
        runs,
    )


def retained(study: Study) -> Table | None:
    """What each method keeps between sessions, measured, and what the paper says of it."""
    graphs = study.datasets(step=1, scored=False)
    places = {graph: study.main_hardware(graph, 1) for graph in graphs}
    rows = []
    for name in study.methods(step=1):
        cells = [study.cell(places[graph], graph, 1, name) for graph in graphs]
        space = paper_space(name)
        if any(map(len, cells)):
            rows.append(
                [
                    name,
                    METHODS[name].retains if name in METHODS else None,
                    space.keeps if space else None,
                    str(space) if space else None,
                    *(round(runs.retained_bytes.median()) if len(runs) else None for runs in cells),
                ]
            )
    runs = study.select(step=1)
    return _table(
        "retained",
        "What is kept between sessions",
        "Measured at the end of the stream, step 1, as each learner reports it; the median over"
        " seeds. A frozen encoder is not counted. In the paper's expressions P_b is the number of"
        " backbone parameters, M that of memory nodes with d features each, E_M that of edges"
        " among them, M_c that of condensed nodes, k̄ the edges a node keeps, T the sessions, and"
        " R = d² for d expanded features.",
        [
            METHOD,
            Column("keeps between sessions", "text"),
            Column("keeps, paper", "text", "In the words of the paper's table of complexities."),
            Column("space, paper", "formula", "As the paper's table of complexities has it."),
            *(Column(graph, "bytes", "At the end of the stream.") for graph in graphs),
        ],
        rows,
        runs[runs.hardware == runs.dataset.map(places)],
    )


def fastest(study: Study, hardware: str) -> Table | None:
    """Learn time of each dataset's fastest baseline over that of the paper's method."""
    rows = []
    for graph in study.datasets(hardware, 1, scored=False):
        found = {name: ratios(study, hardware, graph, name) for name in baselines()}
        found = {name: ratio for name, ratio in found.items() if len(ratio)}
        if not found:
            continue
        name = min(found, key=lambda n: found[n].median())
        theirs = paper_ratios(graph)
        quickest = min(theirs, key=lambda n: theirs[n]) if theirs else None
        ours, other = (study.cell(hardware, graph, 1, n).iloc[0] for n in (FOCUS, name))
        epochs = [run.settings.get("epochs") for run in (other, ours)]
        ceiling = len(ours.stages) * (epochs[0] / epochs[1] if all(epochs) else 1.0)
        printed = theirs[quickest] if quickest else None
        ratio = found[name]
        rows.append([graph, name, ratio.median(), ceiling, len(ratio), quickest, printed])
    runs = _timed(study, hardware)
    return _table(
        f"fastest-{study.number(hardware)}",
        f"Time to learn: the fastest baseline over {FOCUS} ({hardware})",
        f"Learn seconds over those of {FOCUS} with the same seed, the median over seeds. The"
        f" ceiling is the number of sessions, T+1: a baseline trains in each of them, {FOCUS} in"
        " the first alone, so this is the ratio where training costs the same in each and the"
        " closed-form steps cost nothing (times epochs over epochs, where the two differ in how"
        " long they train in a session).",
        [
            GRAPH,
            Column("fastest baseline", "name"),
            Column("its time", "ratio", f"Learn seconds over those of {FOCUS}."),
            Column("ceiling", "ratio", "What it would be if the closed-form steps took no time."),
            SEEDS,
            Column("fastest, paper", "name", "The baseline with the fewest seconds there."),
            Column("its time, paper", "ratio", "From the paper's own seconds."),
        ],
        rows,
        runs[runs.method.isin([FOCUS, *baselines()])],
    )


def speeds(study: Study, hardware: str) -> Table | None:
    """Learn time of every method over that of the paper's."""
    names = study.methods(hardware, step=1)
    found = {
        graph: {name: ratios(study, hardware, graph, name) for name in names}
        for graph in study.datasets(hardware, 1, scored=False)
    }
    graphs = [graph for graph in found if sum(len(r) > 0 for r in found[graph].values()) > 1]
    theirs = {graph: paper_ratios(graph) for graph in graphs}
    columns = [METHOD]
    for graph in graphs:
        columns.append(Column(graph, "ratio", f"Learn seconds over those of {FOCUS}."))
        if theirs[graph]:
            columns.append(Column(f"{graph}, paper", "ratio", "From the paper's own seconds."))
    rows = []
    for name in names:
        values: list[Value] = []
        for graph in graphs:
            ratio = found[graph][name]
            values.append(ratio.median() if len(ratio) else None)
            values += [theirs[graph].get(name)] * bool(theirs[graph])
        if any(value is not None for value in values):
            rows.append([name, *values])
    runs = _timed(study, hardware)
    return _table(
        f"speeds-{study.number(hardware)}",
        f"Time to learn: every method over {FOCUS} ({hardware})",
        f"Learn seconds over those of {FOCUS} with the same seed, the median over seeds; below 1"
        " is faster. Runs that shared the machine are left out."
        + " The paper's ratios are of its own seconds, on one RTX 3090."
        * any(theirs.values()),
        columns,
        rows,
        runs[runs.dataset.isin(graphs)],
    )


def sensitivity(study: Study, name: str) -> Table | None:
    """Final AP for several values of one setting, all others being the method's own."""
    series = sweep(study, name)
    rows = [
        [graph, value, summarise(runs.ap), summarise(runs.af), len(runs), method, hardware]
        for (graph, method, hardware), points in series.items()
        for value, runs in points.items()
    ]
    setting = Column({"gamma": "γ"}.get(name, name), "setting", "The one setting that differs.")
    return _table(
        f"sensitivity-{name}",
        f"Sensitivity to {'the expansion width' if name == 'width' else 'γ'}",
        f"Step 1; every other setting is the method's own for the graph. {MEAN}",
        [GRAPH, setting, Column("AP", "points"), Column("AF", "points"), SEEDS, METHOD,
         Column("machine", "text")],
        rows,
        study.runs[(study.runs.swept == name) & (study.runs.step == 1)],
    )  # fmt: skip


def others(study: Study) -> Table | None:
    """Runs with other settings or streams than those of the main tables."""
    runs = study.runs
    runs = runs[~runs.main & ~((runs.swept != "") & (runs.step == 1))]
    groups = dict(iter(runs.groupby(["dataset", "differs", "method", "step", "hardware"])))
    order = {name: i for i, name in enumerate(METHODS)}
    rows = []
    for key in sorted(groups, key=lambda k: (*k[:2], order.get(k[2], len(order)), *k[2:])):
        (graph, what, method, step, hardware), found = key, groups[key]
        kept, seconds = found.retained_bytes.median(), _mean(found.learn_seconds[found.alone])
        ap, af = summarise(found.ap), summarise(found.af)
        rows.append([method, graph, what, step, len(found), ap, af, seconds, round(kept), hardware])
    return _table(
        "other-settings",
        "Other settings and streams",
        "Runs that stand in no table above, because a setting is not the method's own for the graph"
        f" or the stream is not the paper's. “{UNKNOWN}”: the setting did not exist yet when the"
        f" run was made. {SHARED}",
        [METHOD, GRAPH, Column("what differs", "text"), Column("step", "count"), SEEDS,
         Column("AP", "points"), Column("AF", "points"), Column("learn (s)", "seconds"),
         Column("kept", "bytes"), Column("machine", "text")],
        rows,
        runs,
        apart=(),
    )  # fmt: skip


def failed(study: Study) -> Table | None:
    """Runs that failed, and why."""
    names = ["method", "dataset", "step", "seed", "device", "reason"]
    found = study.failures
    if len(found):
        found = found.sort_values(["dataset", "method", "step", "seed", "device"])
    rows = [
        [method, graph, step, str(seed), device, reason]
        for method, graph, step, seed, device, reason in found.reindex(columns=names).to_numpy()
    ]
    return _table(
        "failed",
        "Runs that failed",
        "They have no figures; a table above averages the seeds that came through.",
        [METHOD, GRAPH, Column("step", "count"), Column("seed"), Column("device"),
         Column("reason")],
        rows,
        apart=(),
    )  # fmt: skip


def ratios(study: Study, hardware: str, dataset: str, method: str) -> pd.Series:
    """Learn seconds of a method over those of the paper's, for each seed that both have.

    Only runs that had the machine to themselves count.
    """
    theirs, ours = (
        runs[runs.alone].set_index("seed").learn_seconds
        for runs in (study.cell(hardware, dataset, 1, name) for name in (method, FOCUS))
    )
    return (theirs / ours[ours > 0]).dropna()


def paper_ratios(dataset: str) -> dict[str, float]:
    """The paper's seconds of each baseline over those of its own method; may be empty."""
    own = paper_figures(dataset, FOCUS)
    if own is None or own.seconds is None:
        return {}
    found = {name: paper_figures(dataset, name) for name in baselines()}
    return {n: f.seconds[0] / own.seconds[0] for n, f in found.items() if f and f.seconds}


def sweep(study: Study, name: str) -> dict[tuple[str, str, str], dict[Any, pd.DataFrame]]:
    """Runs that differ from their method's settings in one setting alone, at step 1.

    By dataset, method and hardware: runs by value, ascending, the method's own value included.
    """
    runs = study.runs[(study.runs.swept == name) & (study.runs.step == 1)]
    series = {}
    for (graph, method, hardware), group in runs.groupby(["dataset", "method", "hardware"]):
        points = dict(iter(group.groupby(group.changes.map(lambda changes: changes[name]))))
        usual = study.cell(hardware, graph, 1, method)
        if len(usual):
            points[usual.settings.iloc[0][name]] = usual
        series[graph, method, hardware] = dict(sorted(points.items()))
    return series


def _table(
    key: str,
    title: str,
    caption: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[Value]],
    runs: pd.DataFrame | None = None,
    apart: Sequence[str] = ALL_LABELS,
) -> Table | None:
    """The table with its best values marked and its commands; None without rows."""
    made = ranked(columns, rows, apart)
    if not made:
        return None
    if any(column.best for column in columns) and sum(not row.apart for row in made) > 1:
        caption += " Best in bold"
        if any(row.apart for row in made):
            caption += ", among the methods that do not see old labels again"
        caption += "."
    lines = () if runs is None else commands(runs)
    return Table(key, title, caption, tuple(columns), made, lines)


def _mean(values: pd.Series) -> Summary | None:
    known = values.dropna()
    return summarise(known) if len(known) else None


def _printed(figure: tuple[float, float | None] | None) -> Summary | None:
    return None if figure is None else Summary(*figure, 0)


def _timed(study: Study, hardware: str) -> pd.DataFrame:
    return study.select(hardware=hardware, step=1, alone=True)


def _stream(sessions: Sequence[Sequence[int]]) -> str:
    if len(sessions) == 1:
        return f"One session of {len(sessions[0])} classes."
    return f"{len(sessions)} sessions: {len(sessions[0])} classes first, then one at a time."
