"""The tables of a report: which runs stand in which row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from algnn.bench.metrics import Summary, summarise
from algnn.bench.paper import paper_figures, paper_space
from algnn.methods import METHODS
from algnn.report.commands import commands, swept
from algnn.report.evidence import (
    ALL_LABELS,
    FOCUS,
    STREAM,
    UNKNOWN,
    Result,
    Study,
    baselines,
)
from algnn.report.sheet import Column, Sheet, Table, Value, listed, slug

SHARED = "Time is left out (–) where other runs shared the machine."


def overview(study: Study, where: str, label: str) -> Table:
    """Final AP of every method on every dataset, on one machine.

    Parameters
    ----------
    study : Study
    where : str
        The machine.
    label : str
        The table's number.

    Returns
    -------
    Table

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> study = gather([example(), example(dataset="cora")])
    >>> [column.name for column in overview(study, "A CPU, 4 cores", "1").columns]
    ['method', 'digits', 'cora']
    """
    graphs = study.datasets(where, 1)
    sheet = Sheet([Column("method", "name"), *(Column(name, "points") for name in graphs)])
    for method in study.methods(where, step=1):
        cells = [study.cell(where, graph, 1, method) for graph in graphs]
        sheet.add(
            method,
            *(summarise(r.ap for r in runs) if runs else None for runs in cells),
            apart=method in ALL_LABELS,
        )
    return Table(
        f"overview-{study.number(where)}",
        label,
        f"Final AP on all graphs ({where})",
        "Average performance in per cent after the last session, step 1; mean ± 95% interval over"
        f" seeds. {_bold(sheet)}",
        tuple(sheet.columns),
        sheet.done(highest=graphs),
        _made(study, lambda r: r.place == where and r.step == 1 and r.dataset in graphs),
    )


def main(study: Study, where: str, dataset: str, label: str) -> Table:
    """AP, AF and learn seconds of every method on one dataset and machine, at step 1.

    Parameters
    ----------
    study : Study
    where, dataset : str
    label : str
        The table's number.

    Returns
    -------
    Table

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> table = main(gather([example()]), "A CPU, 4 cores", "digits", "1.1")
    >>> dict(zip((c.name for c in table.columns), table.texts(table.rows[0])))["learn (s)"]
    '0.600'
    """
    names = study.methods(where, dataset, 1)
    papers = {name: paper_figures(dataset, name) for name in names}
    beside = any(papers.values())
    sheet = Sheet(
        [
            Column("method", "name"),
            Column("seeds", "count", "How many runs, each with its own seed."),
            Column("AP", "points", "Average performance (%), higher is better."),
            *([Column("AP, paper", "points", "As the paper prints it.")] * beside),
            Column("AF", "points", "Average forgetting (%), lower is better."),
            *([Column("AF, paper", "points", "As the paper prints it.")] * beside),
            Column("learn (s)", "seconds", "Inside fit and partial_fit, all sessions together."),
            Column("base", "point", "Accuracy (%) on the base session when it was learned."),
            Column("macro", "point", "Final accuracy (%), every class once."),
            Column("micro", "point", "Final accuracy (%), every test node once."),
        ]
    )
    for name in names:
        runs = study.cell(where, dataset, 1, name)
        paper = papers[name]
        sheet.add(
            name,
            len(runs),
            summarise(r.ap for r in runs),
            *([_printed(paper.ap if paper else None)] * beside),
            summarise(r.af for r in runs),
            *([_printed(paper.af if paper else None)] * beside),
            _seconds(runs),
            summarise(r.base for r in runs).mean,
            summarise(r.record.outcome.macro for r in runs).mean,
            summarise(r.record.outcome.micro for r in runs).mean,
            apart=name in ALL_LABELS,
        )
    notes = [_stream(study.cell(where, dataset, 1, names[0])[0]), _interval(sheet), _bold(sheet)]
    if beside:
        notes.append("The paper's figures are for the same graph and stream.")
    if any(not r.alone for name in names for r in study.cell(where, dataset, 1, name)):
        notes.append(SHARED)
    return Table(
        f"main-{study.number(where)}-{slug(dataset)}",
        label,
        f"{dataset} ({where})",
        " ".join(note for note in notes if note),
        tuple(sheet.columns),
        sheet.done(highest=["AP", "macro", "micro"], lowest=["AF", "learn (s)"]),
        _made(study, lambda r: (r.place, r.dataset, r.step) == (where, dataset, 1)),
    )


def by_step(study: Study, where: str, dataset: str, label: str) -> Table:
    """Final AP at each step, on one dataset and machine.

    Parameters
    ----------
    study : Study
    where, dataset : str
        With runs at more than one step.
    label : str
        The table's number.

    Returns
    -------
    Table

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> study = gather([example(), example(step=5)])
    >>> [c.name for c in by_step(study, "A CPU, 4 cores", "digits", "2.1").columns]
    ['method', 'step 1', 'step 5']
    """
    steps = study.steps(dataset, where)
    names = study.methods(where, dataset)
    beside = {s: any(paper_figures(dataset, name, s) for name in names) for s in steps}
    columns = [Column("method", "name")]
    for step in steps:
        columns.append(Column(f"step {step}", "points", f"{step} classes a session."))
        columns += [Column(f"step {step}, paper", "points", "As printed.")] * beside[step]
    sheet = Sheet(columns)
    for name in names:
        values: list[Value] = []
        for step in steps:
            runs = study.cell(where, dataset, step, name)
            values.append(summarise(r.ap for r in runs) if runs else None)
            paper = paper_figures(dataset, name, step)
            values += [_printed(paper.ap if paper else None)] * beside[step]
        sheet.add(name, *values, apart=name in ALL_LABELS)
    counts = sorted(
        {len(r.record.outcome.sessions) for s in steps for n in names
         for r in study.cell(where, dataset, s, n)}, reverse=True
    )  # fmt: skip
    return Table(
        f"steps-{study.number(where)}-{slug(dataset)}",
        label,
        f"Final AP by step: {dataset} ({where})",
        "Average performance (%) when a session brings 1 class or more; mean ± 95% interval over"
        f" seeds. AP is a mean over sessions, of which there are {listed(counts)}. {_bold(sheet)}",
        tuple(columns),
        sheet.done(highest=[f"step {step}" for step in steps]),
        _made(study, lambda r: (r.place, r.dataset) == (where, dataset)),
    )


def trust(study: Study, where: str, label: str) -> Table | None:
    """How sure each method may be taken to be, and whether it tells what is new, on one machine.

    Parameters
    ----------
    study : Study
    where : str
        The machine.
    label : str
        The table's number.

    Returns
    -------
    Table or None
        None where no run measured it.

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> trust(gather([example()]), "A CPU, 4 cores", "1.2") is None
    True
    """
    cells = {
        (graph, method): [r for r in study.cell(where, graph, 1, method) if r.ece is not None]
        for graph in study.datasets(where, 1)
        for method in study.methods(where, step=1)
    }
    graphs = list(dict.fromkeys(graph for (graph, _), runs in cells.items() if runs))
    if not graphs:
        return None
    columns = [Column("method", "name")]
    for graph in graphs:
        columns.append(Column(f"{graph} ECE", "share", "Expected calibration error at the end."))
        columns.append(Column(f"{graph} AUROC", "share", "Of novelty, mean over sessions."))
    sheet = Sheet(columns)
    for method in study.methods(where, step=1):
        found = [cells[graph, method] for graph in graphs]
        values = [_mean(part) for runs in found for part in
                  ([r.ece for r in runs], [r.auroc for r in runs])]  # fmt: skip
        if any(found):
            sheet.add(method, *values, apart=method in ALL_LABELS)
    return Table(
        f"trust-{study.number(where)}",
        label,
        f"Calibration and novelty ({where})",
        "ECE: by how much the largest probability differs from the accuracy, in 15 bins over the"
        " test nodes after the last session, lower is better. AUROC: how well novelty tells test"
        " nodes of the next session's classes from those of seen ones, mean over all sessions but"
        " the last, 0.5 being chance. Step 1; mean ± 95% interval over seeds."
        f" {_bold(sheet)}",
        tuple(columns),
        sheet.done(
            highest=[f"{graph} AUROC" for graph in graphs],
            lowest=[f"{graph} ECE" for graph in graphs],
        ),
        tuple(commands(run for runs in cells.values() for run in runs)),
    )


def _mean(values: Sequence[float | None]) -> Summary | None:
    known = [value for value in values if value is not None]
    return summarise(known) if known else None


def retained(study: Study, label: str) -> Table:
    """What each method keeps between sessions, measured, beside what the paper says of it.

    Parameters
    ----------
    study : Study
    label : str
        The table's number.

    Returns
    -------
    Table

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> table = retained(gather([example(method="gem")]), "3")
    >>> table.texts(table.rows[0])[-2:]
    ['O(Md)', '880 B']
    """
    graphs = study.datasets(step=1, scored=False)
    places = {graph: study.place_of(graph, 1) for graph in graphs}
    names = [n for n in study.methods(step=1) if any(
        study.cell(places[g], g, 1, n) for g in graphs
    )]  # fmt: skip
    sheet = Sheet(
        [
            Column("method", "name"),
            Column("keeps between sessions", "text"),
            Column("keeps, paper", "text", "In the words of the paper's table of complexities."),
            Column("space, paper", "formula", "As the paper's table of complexities has it."),
            *(Column(graph, "bytes", "At the end of the stream.") for graph in graphs),
        ]
    )
    for name in names:
        space = paper_space(name)
        kept: list[Value] = []
        for graph in graphs:
            runs = study.cell(places[graph], graph, 1, name)
            kept.append(round(median(r.kept for r in runs)) if runs else None)
        sheet.add(
            name,
            METHODS[name].retains if name in METHODS else None,
            space.keeps if space else None,
            str(space) if space else None,
            *kept,
            apart=name in ALL_LABELS,
        )
    return Table(
        "retained",
        label,
        "What is kept between sessions",
        "Measured at the end of the stream, step 1, by each learner's own account; the median over"
        " seeds. A frozen encoder is not counted. In the paper's expressions P_b is the number of"
        " backbone parameters, M that of memory nodes with d features each, E_M that of edges"
        " among them, M_c that of condensed nodes, k̄ the edges a node keeps, T the sessions, and"
        " R = d² for d expanded features.",
        tuple(sheet.columns),
        sheet.done(),
        _made(study, lambda r: r.step == 1 and r.place == places.get(r.dataset)),
    )


def fastest(study: Study, where: str, label: str) -> Table | None:
    """How much longer the fastest baseline of each dataset learns than the paper's method.

    Parameters
    ----------
    study : Study
    where : str
        The machine.
    label : str
        The table's number.

    Returns
    -------
    Table or None
        None where no baseline can be compared.

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> study = gather([example(method="bare"), example(method="algnn-paper")])
    >>> table = fastest(study, "A CPU, 4 cores", "4.1")
    >>> table.texts(table.rows[0])
    ['digits', 'bare', '1.00×', '2.00×', '1', '–', '–']
    """
    sheet = Sheet(
        [
            Column("graph", "name"),
            Column("fastest baseline", "name"),
            Column("its time", "ratio", f"Learn seconds over those of {FOCUS}."),
            Column("ceiling", "ratio", "What it would be if the closed-form steps took no time."),
            Column("seeds", "count"),
            Column("fastest, paper", "name", "The baseline with the fewest seconds there."),
            Column("its time, paper", "ratio", "From the paper's own seconds."),
        ]
    )
    for graph in study.datasets(where, 1, scored=False):
        found = {name: speed(study, where, graph, name) for name in baselines()}
        ratios = {name: ratio for name, ratio in found.items() if ratio}
        if not ratios:
            continue
        name = min(ratios, key=lambda n: median(ratios[n]))
        theirs = paper_ratios(graph)
        quickest = min(theirs, key=lambda n: theirs[n]) if theirs else None
        sheet.add(
            graph,
            name,
            median(ratios[name]),
            _ceiling(study, where, graph, name),
            len(ratios[name]),
            quickest,
            theirs[quickest] if quickest else None,
        )
    if not sheet.rows:
        return None
    return Table(
        f"fastest-{study.number(where)}",
        label,
        f"Time to learn: the fastest baseline over {FOCUS} ({where})",
        f"Learn seconds over those of {FOCUS} with the same seed, the median over seeds. The"
        f" ceiling is the number of sessions, T+1: a baseline trains in each of them, {FOCUS} in"
        " the first alone, so this is the ratio where training costs the same in each and the"
        " closed-form steps cost nothing (times epochs over epochs, where the two differ in how"
        " long they train in a session).",
        tuple(sheet.columns),
        sheet.done(),
        _made(study, lambda r: _timed(r, where) and r.method in {FOCUS, *baselines()}),
    )


def speeds(study: Study, where: str, label: str) -> Table | None:
    """How much longer each method learns than the paper's.

    Parameters
    ----------
    study : Study
    where : str
        The machine.
    label : str
        The table's number.

    Returns
    -------
    Table or None
        None where nothing can be compared.

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> study = gather([example(method="bare"), example(method="algnn-paper")])
    >>> table = speeds(study, "A CPU, 4 cores", "4.1")
    >>> [table.texts(row) for row in table.rows]
    [['algnn-paper', '1.00×'], ['bare', '1.00×']]
    """
    names = study.methods(where, step=1)
    ratios = {
        graph: {name: speed(study, where, graph, name) for name in names}
        for graph in study.datasets(where, 1, scored=False)
    }
    graphs = [graph for graph, found in ratios.items() if sum(map(bool, found.values())) > 1]
    if not graphs:
        return None
    columns = [Column("method", "name")]
    for graph in graphs:
        columns.append(Column(graph, "ratio", f"Learn seconds over those of {FOCUS}."))
        if paper_ratios(graph):
            columns.append(Column(f"{graph}, paper", "ratio", "From the paper's own seconds."))
    sheet = Sheet(columns)
    for name in names:
        values: list[Value] = []
        for graph in graphs:
            values.append(median(ratios[graph][name]) if ratios[graph][name] else None)
            theirs = paper_ratios(graph)
            values += [theirs.get(name)] * bool(theirs)
        if any(value is not None for value in values):
            sheet.add(name, *values, apart=name in ALL_LABELS)
    return Table(
        f"speeds-{study.number(where)}",
        label,
        f"Time to learn: every method over {FOCUS} ({where})",
        f"Learn seconds over those of {FOCUS} with the same seed, the median over seeds; below 1"
        " is faster. Runs that shared the machine are left out."
        + " The paper's ratios are of its own seconds, on one RTX 3090."
        * any(map(paper_ratios, graphs)),
        tuple(columns),
        sheet.done(),
        _made(study, lambda r: _timed(r, where) and r.dataset in graphs),
    )


def sensitivity(study: Study, name: str, label: str) -> Table | None:
    """Final AP for several values of one setting, all others being the method's own.

    Parameters
    ----------
    study : Study
    name : str
        ``"width"`` or ``"gamma"``.
    label : str
        The table's number.

    Returns
    -------
    Table or None
        None where no run differs in this setting alone.

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> changed = {**example().settings, "width": 64}
    >>> table = sensitivity(gather([example(), example(settings=changed)]), "width", "5.1")
    >>> [row.values[1] for row in table.rows]
    [64, 2048]
    """
    series = sweep(study, name)
    if not series:
        return None
    symbol = {"gamma": "γ"}.get(name, name)
    sheet = Sheet(
        [
            Column("graph", "name"),
            Column(symbol, "setting", "The one setting that differs."),
            *(Column("AP", "points"), Column("AF", "points"), Column("seeds", "count")),
            *(Column("method", "name"), Column("machine", "text")),
        ]
    )
    for (method, graph, where), points in series.items():
        for value, runs in points.items():
            ap, af = summarise(r.ap for r in runs), summarise(r.af for r in runs)
            sheet.add(graph, value, ap, af, len(runs), method, where)
    everyone = [r for points in series.values() for runs in points.values() for r in runs]
    return Table(
        f"sensitivity-{name}",
        label,
        f"Sensitivity to {'the expansion width' if name == 'width' else 'γ'}",
        "Step 1; every other setting is the method's own for the graph. Mean ± 95% interval.",
        tuple(sheet.columns),
        sheet.done(),
        tuple(commands(r for r in everyone if r.changes)),
    )


def others(study: Study, label: str) -> Table | None:
    """Runs with other settings or streams than those of the main tables.

    Parameters
    ----------
    study : Study
    label : str
        The table's number.

    Returns
    -------
    Table or None
        None where there are none.

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> table = others(gather([example(), example(edges="seen", seed=7)]), "6")
    >>> table.texts(table.rows[0])[:5]
    ['algnn', 'digits', 'edges=seen', '1', '1']
    """
    groups: dict[Any, list[Result]] = {}
    for run in study.runs:
        if run.changes and not (swept(run) and run.step == 1):
            key = (run.method, run.dataset, differs(run), run.step, run.place)
            groups.setdefault(key, []).append(run)
    if not groups:
        return None
    sheet = Sheet(
        [
            *(Column("method", "name"), Column("graph", "name"), Column("what differs", "text")),
            *(Column("step", "count"), Column("seeds", "count")),
            *(Column("AP", "points"), Column("AF", "points")),
            *(Column("learn (s)", "seconds"), Column("kept", "bytes"), Column("machine", "text")),
        ]
    )
    order = [*METHODS]
    ranked = sorted(
        groups,
        key=lambda k: (k[1], k[2], order.index(k[0]) if k[0] in order else len(order), k),
    )
    for key in ranked:
        (method, graph, what, step, where), runs = key, groups[key]
        ap, af = summarise(r.ap for r in runs), summarise(r.af for r in runs)
        kept = round(median(r.kept for r in runs))
        sheet.add(method, graph, what, step, len(runs), ap, af, _seconds(runs), kept, where)
    return Table(
        "other-settings",
        label,
        "Other settings and streams",
        "Runs that stand in no table above, because a setting is not the method's own for the graph"
        f" or the stream is not the paper's. “{UNKNOWN}”: the setting did not exist yet when the"
        f" run was made. {SHARED}",
        tuple(sheet.columns),
        sheet.done(),
        tuple(commands(r for runs in groups.values() for r in runs)),
    )


def failed(study: Study, label: str) -> Table | None:
    """Runs that failed, and why.

    Parameters
    ----------
    study : Study
    label : str
        The table's number.

    Returns
    -------
    Table or None
        None where none did.

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> failed(gather([example()]), "7") is None
    True
    """
    if not study.failures:
        return None
    sheet = Sheet(
        [
            *(Column("method", "name"), Column("graph", "name"), Column("step", "count")),
            *(Column("seed", "text"), Column("device", "text"), Column("reason", "text")),
        ]
    )
    for run in sorted(
        study.failures, key=lambda f: (f.dataset, f.method, f.step, f.seed, f.device)
    ):
        sheet.add(run.method, run.dataset, run.step, str(run.seed), run.device, run.reason)
    return Table(
        "failed",
        label,
        "Runs that failed",
        "They have no figures; a table above averages the seeds that came through.",
        tuple(sheet.columns),
        sheet.done(),
    )


def speed(study: Study, where: str, dataset: str, method: str) -> list[float]:
    """Learn seconds of a method over those of the paper's, seed by seed.

    Parameters
    ----------
    study : Study
    where, dataset, method : str

    Returns
    -------
    list of float
        One for each seed that both have, with the machine to themselves.

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> study = gather([example(method="bare"), example(method="algnn-paper")])
    >>> speed(study, "A CPU, 4 cores", "digits", "bare")
    [1.0]
    """
    ours = {r.seed: r.learn for r in study.cell(where, dataset, 1, FOCUS) if r.alone and r.learn}
    runs = [r for r in study.cell(where, dataset, 1, method) if r.alone and r.seed in ours]
    return [run.learn / ours[run.seed] for run in runs]


def paper_ratios(dataset: str) -> dict[str, float]:
    """The paper's seconds of each baseline over those of its own method.

    Parameters
    ----------
    dataset : str

    Returns
    -------
    dict
        By method; empty for a dataset that the paper does not have.

    Examples
    --------
    >>> round(paper_ratios("cora")["bare"], 2), paper_ratios("digits")
    (5.46, {})
    """
    own = paper_figures(dataset, FOCUS)
    if own is None or own.seconds is None:
        return {}
    found = {name: paper_figures(dataset, name) for name in baselines()}
    return {
        name: figures.seconds[0] / own.seconds[0]
        for name, figures in found.items()
        if figures and figures.seconds
    }


def sweep(study: Study, name: str) -> dict[tuple[str, str, str], dict[Any, list[Result]]]:
    """Runs at step 1 that differ from their method's settings in one setting alone.

    Parameters
    ----------
    study : Study
    name : str
        The setting.

    Returns
    -------
    dict
        By method, dataset and machine: runs by value, ascending, the method's own value included.

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> changed = {**example().settings, "gamma": 1.0}
    >>> found = sweep(gather([example(), example(settings=changed)]), "gamma")
    >>> [list(points) for points in found.values()]
    [[0.0, 1.0]]
    """
    series: dict[tuple[str, str, str], dict[Any, list[Result]]] = {}
    for run in study.runs:
        if swept(run) == name and run.step == 1:
            points = series.setdefault((run.method, run.dataset, run.place), {})
            points.setdefault(run.changes[name], []).append(run)
    for (method, dataset, where), points in series.items():
        usual = study.cell(where, dataset, 1, method)
        if usual:
            points[usual[0].record.settings[name]] = usual
        series[method, dataset, where] = dict(sorted(points.items()))
    return series


def differs(run: Result) -> str:
    """What keeps a run out of the main tables, in words.

    Parameters
    ----------
    run : Result

    Returns
    -------
    str

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> differs(gather([example(order="random", base=1)]).runs[0])
    'order=random, base=1'
    """
    names = [*(n for n in run.changes if n not in STREAM), *(n for n in STREAM if n in run.changes)]
    words = {"graph": "another graph of this name, sha256"}
    return ", ".join(
        f"{words[n]} {run.changes[n]}" if n in words
        else f"{n} {UNKNOWN}" if run.changes[n] == UNKNOWN
        else f"{n}={_plain(run.changes[n])}"
        for n in names
    )  # fmt: skip


def _bold(sheet: Sheet) -> str:
    apart = any(apart for _, apart in sheet.rows)
    alone = sum(not apart for _, apart in sheet.rows) < 2
    return (
        ""
        if alone
        else "Best in bold"
        + (", among the methods that do not see old labels again." if apart else ".")
    )


def _stream(run: Result) -> str:
    sessions = run.record.outcome.sessions
    return (
        f"{len(sessions)} sessions: {len(sessions[0])} classes first, then one at a time."
        if len(sessions) > 1
        else f"One session of {len(sessions[0])} classes."
    )


def _interval(sheet: Sheet) -> str:
    ranged = any(
        isinstance(value, Summary) and value.std is not None
        for values, _ in sheet.rows
        for value in values
    )
    return "Mean ± 95% interval over seeds." if ranged else ""


def _made(study: Study, keep: Any) -> tuple[str, ...]:
    return tuple(commands(run for run in study.runs if not run.changes and keep(run)))


def _timed(run: Result, where: str) -> bool:
    return run.alone and run.step == 1 and run.place == where


def _seconds(runs: Sequence[Result]) -> Summary | None:
    alone = [run.learn for run in runs if run.alone]
    return summarise(alone) if alone else None


def _printed(figure: tuple[float, float | None] | None) -> Summary | None:
    return None if figure is None else Summary(figure[0], None, figure[1])


def _ceiling(study: Study, where: str, dataset: str, method: str) -> float:
    ours = study.cell(where, dataset, 1, FOCUS)[0].record
    theirs = study.cell(where, dataset, 1, method)[0].record
    epochs: Mapping[str, Any] = {k: r.settings.get("epochs") for k, r in
                                 (("ours", ours), ("theirs", theirs))}  # fmt: skip
    share = epochs["theirs"] / epochs["ours"] if epochs["ours"] and epochs["theirs"] else 1.0
    return float(len(ours.outcome.sessions) * share)


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
