"""The tables of a report: which runs and figures stand in which row."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import isnan
from statistics import mean, median
from typing import Any

import pandas as pd

from algnn import settings
from algnn.bench.runs import Summary, summarise
from algnn.methods import METHODS
from algnn.report import verdicts
from algnn.report.board import standings
from algnn.report.commands import commands, tuning
from algnn.report.data import ALL_LABELS, DEFAULT, FOCUS, OURS, Study, in_order, in_words
from algnn.report.paper import PAPER_METHODS, SPACE, PaperFigures, paper_figures
from algnn.report.table import COLUMNS, WORDS, Both, Column, Table, Value, count, listed, ranked

TEXT = WORDS["tables"]
# what the paper compares its own method with, in the order of the registry
BASELINES = in_order(set(PAPER_METHODS) - {FOCUS}, list(METHODS))


def leaderboard(study: Study) -> Table:
    """Every method on every graph, its means, and the verdicts of a paired test on it."""
    found, compared = standings(study)
    words, graphs = TEXT["leaderboard"], study.datasets(step=1)
    ap, micro = study.means["ap"], study.means["micro"]
    rows: list[list[Value]] = []
    for name, rank, *means, on in found.itertuples():
        marks = [verdicts.mark(study.against(graph, name, "ap")) for graph in graphs]
        each = map(Both, ap.loc[name, graphs], micro.loc[name, graphs], marks)
        cells = [None if isnan(both.mean) else both for both in each]
        against = verdicts.tally(study, name) or None
        rows.append([name, rank, *means, f"{on} of {len(compared)}", against, *cells])
    paired = any(row[5] for row in rows)
    variants = listed(f"`{name}`" for name in OURS if name != DEFAULT)
    notes = [words["marks"].format(few=verdicts.FEW, variants=variants)] * paired
    columns = [COLUMNS["method"], *(Column(*parts) for parts in words["columns"]), Column("graphs"),
               Column("against"), *(Column(g, "both", "AP / micro") for g in graphs)]  # fmt: skip
    names = verdicts.codes(compared) if compared else "no graph"
    ahead = verdicts.leads(study)
    won = frozenset(i for i, column in enumerate(columns) if ahead.get(column.name))
    made = _table(study, "leaderboard", columns, rows, notes=notes, graphs=names)
    assert made is not None  # every method has a row
    bold = [replace(row, best=won) if row.values[0] == DEFAULT else row for row in made.rows]
    return replace(made, rows=tuple(bold))


def main(study: Study, hardware: str, dataset: str) -> Table | None:
    """AP, AF and learn seconds of every method on one dataset and hardware, at step 1."""
    names = study.methods(hardware, dataset, 1)
    papers = {name: paper_figures(dataset, name) for name in names}
    beside = any(papers.values())
    columns = ["method", "seeds", "AP", *["AP, paper"] * beside, "AF", *["AF, paper"] * beside,
               "learn (s)", "mean AP", "base", "macro", "micro"]  # fmt: skip
    rows = []
    for name in names:
        runs, paper = study.cell(hardware, dataset, 1, name), papers[name]
        ap, af = ([_printed(paper, of)] * beside for of in ("ap", "af"))
        values = [name, len(runs), summarise(runs.ap), *ap, summarise(runs.af), *af]
        seconds = _mean(runs.learn_seconds[runs.alone])
        others = ("mean_ap", "base_accuracy", "macro", "micro")
        rows.append([*values, seconds, *(summarise(runs[of]).mean for of in others)])
    runs = study.select(hardware=hardware, dataset=dataset, step=1)
    first, *later = runs.outcome.iloc[0].sessions
    then = " first, then one at a time" * bool(later)
    sessions = f"{count(1 + len(later), 'session')}: {count(len(first), 'class')}{then}"
    several = runs.method.duplicated().any()
    # who never learns has nothing to forget
    aps = runs.groupby("method").ap.mean()
    low = [name for name in names if aps[name] < aps.get("bare", 0)]
    more = {"mean": several, "paper": beside, "shared": not runs.alone.all(), "low": low}
    notes = [TEXT[key] for key, holds in more.items() if holds]
    where: dict[str, Any] = {"hardware": hardware, "dataset": dataset, "sessions": sessions}
    return _table(study, "main", columns, rows, runs, notes, barred={"AF": low}, **where)


def tuned_means(study: Study) -> Table | None:
    """Every tuned method: mean AP with its own and with the chosen settings, and `algnn`'s."""
    means = study.means["ap"]
    rows: list[list[Value]] = []
    for name in study.methods(step=1):
        both = {g: study.anywhere(g, name, tuned=True).ap.mean() for g in study.datasets(step=1)}
        if graphs := [g for g, ap in both.items() if not isnan(ap) and not isnan(means[g][name])]:
            own, ours = means[graphs].reindex([name, DEFAULT]).mean(axis=1, skipna=False)
            again = sum(both[g] for g in graphs) / len(graphs)
            against = verdicts.tally(study, name, tuned=True) or None
            rows.append([name, len(graphs), own, again, ours, against])
    return _table(study, "tuned-means", None, rows)


def tuned(study: Study, dataset: str) -> Table | None:
    """Every tuned method on one dataset: its own settings beside those that trials chose."""
    best = study.chosen[study.chosen.dataset == dataset].set_index("method")
    rows: list[list[Value]] = []
    for name in in_order({DEFAULT, *best.index}, list(METHODS)):
        own, again = (study.anywhere(dataset, name, tuned) for tuned in (False, True))
        figures = [_mean(cell[of]) for of in ("ap", "micro") for cell in (own, again)]
        mark = verdicts.mark(study.against(dataset, name, "ap", True)) or None
        trials, words = 0, TEXT["tuned"]["none"]
        if name in best.index:
            trials, taken = int(best.trials[name]), best.settings[name]
            grid = METHODS[name].grid if name in METHODS else []  # another's may not be here
            # of a user's learner, whose grid is not known here, all settings
            varying = {setting for trial in grid for setting in trial} or set(taken)
            tried = {setting: taken[setting] for setting in taken if setting in varying}
            same = bool(grid) and tried.items() <= settings.read(name, dataset).items()
            words = in_words(tried) + " (its own)" * same
        if trials or len(own):
            rows.append([name, *figures, mark, words, trials, len(own), len(again)])
    made = _table(study, "tuned", None, rows if len(best) else [], dataset=dataset)
    return made and replace(made, commands=tuning(best, study.tuned, dataset))


def by_step(study: Study, hardware: str, dataset: str) -> Table | None:
    """Final AP at each number of classes per session, where there are several."""
    names, found = study.methods(hardware, dataset), {}
    steps = study.steps(dataset, hardware)
    for step in steps if len(steps) > 1 else ():
        column = Column(f"step {step}", "points", f"{step} classes a session.", "high")
        found[column] = {n: _mean(study.cell(hardware, dataset, step, n).ap) for n in names}
        papers = {n: paper_figures(dataset, n, step) for n in names}
        if any(papers.values()):
            column = Column(f"step {step}, paper", "points", "As printed.")
            found[column] = {name: _printed(paper, "ap") for name, paper in papers.items()}
    runs = study.select(hardware=hardware, dataset=dataset)
    counts = listed(sorted({len(stages) for stages in runs.stages}, reverse=True))
    where: dict[str, Any] = {"hardware": hardware, "dataset": dataset, "counts": counts}
    return _table(study, "steps", *_by_method(names, found), runs, **where)


def trust(study: Study, hardware: str) -> Table | None:
    """Calibration error and AUROC of novelty of every method, of the runs that measured them."""
    runs = study.select(hardware=hardware, step=1)
    runs = runs[runs.ece.notna() & ~runs.synthetic]
    graphs = [graph for graph in study.datasets(hardware, 1) if graph in set(runs.dataset)]
    names, found = study.methods(hardware, step=1), {}
    for graph in graphs:
        cells = {name: study.cell(hardware, graph, 1, name) for name in names}
        for what, of, hint, best in TEXT["trust"]["columns"]:
            column = Column(f"{graph} {what}", "share", hint, best)
            found[column] = {name: _mean(cell[of]) for name, cell in cells.items()}
    return _table(study, "trust", *_by_method(names, found), runs, hardware=hardware)


def retained(study: Study) -> Table | None:
    """What each method keeps between sessions, measured, and what the paper says of it."""
    graphs = study.datasets(step=1, scored=False)
    most = {graph: study.main_hardware(graph) for graph in graphs}
    rows: list[list[Value]] = []
    for name in study.methods(step=1):
        cells = [study.cell(most[graph], graph, 1, name).retained_bytes for graph in graphs]
        if any(map(len, cells)):
            known, paper = METHODS.get(name), SPACE.get(name, [None, None])
            words = [known.retains if known else None, *paper]
            rows.append([name, *words, *(kept.median() for kept in cells)])
    columns = ["method", "keeps between sessions", "keeps, paper", "space, paper"]
    sizes = [Column(graph, "bytes", "At the end of the stream.") for graph in graphs]
    runs = study.select(step=1)
    runs = runs[runs.hardware == runs.dataset.map(most)]
    return _table(study, "retained", [*columns, *sizes], rows, runs)


def fastest(study: Study, hardware: str) -> list[float]:
    """Of each graph, the learn time of the fastest baseline over that of the paper's method."""
    graphs = study.datasets(hardware, 1, scored=False)
    each = ([ratios(study, hardware, graph, name) for name in BASELINES] for graph in graphs)
    return sorted(min(median(ratio) for ratio in some if ratio) for some in each if any(some))


def speeds(study: Study, hardware: str) -> Table | None:
    """Learn time of every method over that of the paper's."""
    names, graphs, notes = study.methods(hardware, step=1), [], []
    found: dict[Column, Mapping[str, Value]] = {}
    for graph in study.datasets(hardware, 1, scored=False):
        here = {n: some for n in names if (some := ratios(study, hardware, graph, n))}
        if len(here) > 1:
            graphs.append(graph)
            column = Column(graph, "ratio", f"Learn seconds over those of {FOCUS}.")
            found[column] = {name: median(some) for name, some in here.items()}
            papers = {name: paper_figures(graph, name) for name in (FOCUS, *BASELINES)}
            seconds = {name: of.seconds[0] for name, of in papers.items() if of and of.seconds}
            if theirs := {n: seconds[n] / seconds[FOCUS] for n in seconds if n != FOCUS}:
                column = Column(f"{graph}, paper", "ratio", "From the paper's own seconds.")
                found[column], notes = theirs, [TEXT["speeds"]["paper"]]
    runs = study.select(hardware=hardware, step=1, alone=True)
    runs = runs[runs.dataset.isin(graphs)]
    return _table(study, "speeds", *_by_method(names, found), runs, notes, hardware=hardware)


def sensitivity(study: Study, name: str) -> Table | None:
    """Final AP for several values of one setting, all others being the method's own."""
    rows = [
        [graph, value, summarise(runs.ap), summarise(runs.af), len(runs), method, hardware]
        for (graph, method, hardware), points in study.sweeps[name].items()
        for value, runs in points.items()
    ]
    symbol = {"gamma": "γ", "width": "the expansion width"}[name]
    names: Any = {"symbol": symbol, "setting": {"gamma": "γ"}.get(name, name)}
    made = _table(study, "sensitivity", None, rows, study.runs[study.runs.swept == name], **names)
    return made and replace(made, key=f"sensitivity-{name}")


def seen_edges(study: Study) -> Table | None:
    """Every method on every graph of which only nodes of seen classes exist."""
    runs, graphs = study.seen_edges, study.datasets(step=1)
    cells = runs.groupby(["method", "dataset"])[["ap", "micro"]].mean()
    rows: list[list[Value]] = []
    for name in study.methods(step=1):
        if here := {g: Both(*cells.loc[(name, g)]) for g in graphs if (name, g) in cells.index}:
            whole = study.means["ap"].loc[name, list(here)].dropna()
            seen = [here[graph].mean for graph in whole.index]
            means = [whole.mean(), mean(seen)] if seen else [None, None]
            rows.append([name, len(seen), *means, *map(here.get, graphs)])
    columns = [*TEXT["seen-edges"]["first"], *(Column(g, "both", "AP / micro") for g in graphs)]
    return _table(study, "seen-edges", columns, rows, runs, apart=None)


def others(study: Study) -> Table | None:
    """Runs with other settings or streams than those of the main tables."""
    runs, shown = study.runs, pd.concat([study.compared, study.tuned, study.seen_edges])
    # these have tables only beside runs of the main stream, and several classes beside other steps
    elsewhere = shown[shown.dataset.isin(study.datasets(step=1))].index
    steps = runs.where(runs.main).groupby(["hardware", "dataset"]).step.transform("nunique")
    tabled = (runs.main & ((runs.step == 1) | (steps > 1))) | runs.index.isin(elsewhere)
    runs = runs[~tabled & (runs.swept == "")]
    order = in_order(set(runs.method), list(METHODS))
    by = ["dataset", "differs", runs.method.map(order.index), "method", "step", "hardware"]
    rows = []
    for (graph, what, _, method, step, hardware), found in runs.groupby(by):
        kept, seconds = found.retained_bytes.median(), _mean(found.learn_seconds[found.alone])
        ap, af = summarise(found.ap), summarise(found.af)
        rows.append([method, graph, what, step, len(found), ap, af, seconds, kept, hardware])
    return _table(study, "other-settings", None, rows, runs)


def failed(study: Study) -> Table | None:
    """Runs that failed, and why."""
    found = study.failures.sort_values(["dataset", "method", "step", "seed", "device"])
    trial = TEXT["failed"]["trial"]
    rows = [
        [f.method, f.dataset, f.step, str(f.seed), f.device, trial * (f.split == "val") + f.reason]
        for f in found.itertuples()
    ]
    return _table(study, "failed", None, rows)


def ratios(study: Study, hardware: str, dataset: str, method: str) -> list[float]:
    """Learn seconds over those of the paper's method, by seed, of runs alone on the machine."""
    cells = [study.cell(hardware, dataset, 1, name) for name in (method, FOCUS)]
    theirs, ours = (runs[runs.alone].set_index("seed").learn_seconds.to_dict() for runs in cells)
    return [theirs[seed] / ours[seed] for seed in theirs if ours.get(seed)]


def _table(
    study: Study,
    kind: str,
    columns: Sequence[str | Column] | None,
    rows: Iterable[Sequence[Value]],
    runs: pd.DataFrame | None = None,
    notes: Sequence[str] = (),
    barred: Mapping[str, Collection[str]] | None = None,
    **values: Any,
) -> Table | None:
    """The table with its title and caption, best values and commands; None without rows."""
    if columns is None:
        plain = (COLUMNS[name.format(**values)] for name in TEXT[kind]["plain"])
        found = [replace(column, best="") for column in plain]
    else:
        found = [COLUMNS[column] if isinstance(column, str) else column for column in columns]
    made = ranked(found, rows, () if columns is None else ALL_LABELS, barred)
    if not made:
        return None
    if any(column.best for column in found) and sum(not row.apart for row in made) > 1:
        notes = [*notes, TEXT["best_apart" if any(row.apart for row in made) else "best"]]
    title, caption = (TEXT[kind][part].format(**values) for part in ("title", "caption"))
    number = [str(study.number(values["hardware"]))] if "hardware" in values else []
    key = "-".join([kind, *number, *([values["dataset"]] if "dataset" in values else [])])
    lines = () if runs is None else commands(runs)
    return Table(key, title, " ".join([caption, *notes]), tuple(found), made, lines)


def _by_method(
    names: Sequence[str], found: Mapping[Column, Mapping[str, Value]]
) -> tuple[list[str | Column], list[list[Value]]]:
    """Columns, each with the values of methods, and a row for each method that has one."""
    rows = [[name, *(values.get(name) for values in found.values())] for name in names]
    return ["method", *found], [row for row in rows if any(v is not None for v in row[1:])]


def _mean(values: pd.Series) -> Summary | None:
    return summarise(values) if values.notna().any() else None


def _printed(paper: PaperFigures | None, of: str) -> Summary | None:
    figure: tuple[float, float | None] | None = getattr(paper, of, None)
    return figure and Summary(*figure, 0)
