"""What a report says, in which order; how it is written is left to others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from statistics import mean
from typing import Any

from algnn.bench.metrics import summarise
from algnn.bench.paper import paper_datasets, paper_figures, paper_methods
from algnn.report import charts, tables
from algnn.report.commands import commands
from algnn.report.drawing import NARROW, WIDE, Chart
from algnn.report.evidence import ALL_LABELS, DEFAULT, FOCUS, UNKNOWN, Study, in_order
from algnn.report.sheet import Table, listed, number, size, slug, three
from algnn.report.styles import Style, styles

Item = Table | Chart


@dataclass(frozen=True)
class Headline:
    """One figure of the head.

    Attributes
    ----------
    value, label : str

    Examples
    --------
    >>> Headline("2 of 4", "graphs").value
    '2 of 4'
    """

    value: str
    label: str


@dataclass(frozen=True)
class Part:
    """Some tables and figures below one heading.

    Attributes
    ----------
    title : str
        Empty for a part without a heading.
    items : tuple of Table or Chart

    Examples
    --------
    >>> Part("cora", ()).title
    'cora'
    """

    title: str
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Section:
    """A section of a report.

    Attributes
    ----------
    key, title : str
    text : tuple of str
        Paragraphs; what stands between backticks is code.
    parts : tuple of Part
    commands : tuple of str
        To be run, where the section names any.

    Examples
    --------
    >>> Section("a", "A", ("Some words.",)).parts
    ()
    """

    key: str
    title: str
    text: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """A report before it is written.

    Attributes
    ----------
    study : Study
    title, lead : str
    headlines : tuple of Headline
    notes : tuple of str
        What a reader must know before reading on.
    sections : tuple of Section
    facts : tuple of (str, str)
        What the runs were made with.
    styles : dict
        Each method's style.

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> outline(gather([example()])).headlines[0]
    Headline(value='1', label='run: 1 method, 1 graph, 1 seed')
    """

    study: Study
    title: str
    lead: str
    headlines: tuple[Headline, ...]
    notes: tuple[str, ...]
    sections: tuple[Section, ...]
    facts: tuple[tuple[str, str], ...]
    styles: dict[str, Style] = field(default_factory=dict)

    def tables(self) -> list[Table]:
        """All tables, in order."""
        return [item for item in self._items() if isinstance(item, Table)]

    def charts(self) -> list[Chart]:
        """All figures, in order."""
        return [item for item in self._items() if isinstance(item, Chart)]

    def _items(self) -> Iterator[Item]:
        return chain.from_iterable(part.items for s in self.sections for part in s.parts)


def outline(study: Study) -> Report:
    """What there is to say about some runs.

    Parameters
    ----------
    study : Study

    Returns
    -------
    Report

    Examples
    --------
    >>> from algnn.report.evidence import example, gather
    >>> report = outline(gather([example(), example(method="bare")]))
    >>> [section.key for section in report.sections]
    ['results', 'retained', 'figures', 'missing', 'reading']
    """
    looks = styles({run.method for run in study.runs})
    made = [
        _results(study, "1"),
        _steps(study, looks, "2"),
        _retained(study, "3"),
        _speed(study, "4"),
        _figures(study, looks, "5"),
        _sensitivity(study, "6"),
        _others(study, "7"),
        _failed(study, "8"),
        _missing(study),
        _reading(),
    ]
    sections = _unique(section for section in made if section is not None)
    graphs = study.datasets() or sorted({run.dataset for run in study.runs})
    return Report(
        study,
        f"Class-incremental node classification on {_count(len(graphs), 'graph')}",
        _lead(study),
        tuple(_headlines(study)),
        tuple(_notes(study)),
        sections,
        tuple(_facts(study)),
        looks,
    )


def _lead(study: Study) -> str:
    names = {run.method for run in study.runs}
    days = sorted(run.record.started[:10] for run in study.runs)
    span = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    where = sorted({run.place for run in study.runs})
    return (
        f"{_count(len(names), 'method')} learn{'s' * (len(names) == 1)} the classes of a graph"
        " session by session; what each still knows at the end, what it forgot, how long it took"
        " and what it keeps."
        f" {_count(len(study.runs), 'run')} of {span} on {listed(where)}."
    )


def _headlines(study: Study) -> Iterator[Headline]:
    names = {run.method for run in study.runs}
    graphs = study.datasets() or {run.dataset for run in study.runs}
    seeds = {run.seed for run in study.runs}
    yield Headline(
        f"{len(study.runs):,}",
        f"{'run' if len(study.runs) == 1 else 'runs'}: {_count(len(names), 'method')},"
        f" {_count(len(graphs), 'graph')}, {_count(len(seeds), 'seed')}",
    )
    if not study.places:
        return
    where = study.places[0]
    focus = FOCUS if FOCUS in study.methods(where, step=1) else None
    if focus is None:
        return
    yield from _first_places(study, where)
    yield from _beside_paper(study, where)
    table = tables.fastest(study, where, "")
    if table is not None:
        ratios = sorted(number(row.values[2]) for row in table.rows)
        low, high = (three(value) for value in (ratios[0], ratios[-1]))
        yield Headline(
            f"{low}×" if low == high else f"{low}–{high}×",
            f"the time of {FOCUS}: what the fastest baseline takes to learn, {where}",
        )


def _first_places(study: Study, where: str) -> Iterator[Headline]:
    """On how many graphs no method has a higher AP; for our best method."""
    ours = DEFAULT if DEFAULT in study.methods(where, step=1) else FOCUS
    first, of = 0, 0
    for graph in study.datasets(where, 1):
        means = {
            name: summarise(run.ap for run in study.cell(where, graph, 1, name)).mean
            for name in study.methods(where, graph, 1)
            if name not in ALL_LABELS
        }
        if ours in means and len(means) > 1:
            of += 1
            first += means[ours] >= max(means.values())
    if of:
        yield Headline(
            f"{first} of {of}",
            f"{'graph' if of == 1 else 'graphs'} on which {ours} has the highest AP of all"
            f" class-incremental methods, {where}",
        )


def _beside_paper(study: Study, where: str) -> Iterator[Headline]:
    gaps = []
    for graph in study.datasets(where, 1):
        paper, runs = paper_figures(graph, FOCUS), study.cell(where, graph, 1, FOCUS)
        if paper and runs:
            gaps.append(summarise(run.ap for run in runs).mean - paper.ap[0])
    if gaps:
        yield Headline(
            f"{mean(gaps):+.1f}".replace("-", "−"),
            f"points of AP between {FOCUS} here and in the paper, mean over"
            f" {_count(len(gaps), 'graph')}",
        )


def _notes(study: Study) -> Iterator[str]:
    runs = study.runs
    where = sorted({run.place for run in runs})
    if not study.places:
        yield (
            "No run here has its method's own settings and the paper's stream, so the main tables"
            " are empty: see “Other settings and streams”."
        )
    if len(where) > 1:
        yield (
            f"The runs were made on {len(where)} machines ({listed(where)}). They are never"
            " averaged or compared in time with each other: a table is of one machine, and the"
            " figures of a graph are those of the machine with the most runs on it."
        )
    shared = sum(not run.alone for run in runs)
    if shared:
        yield (
            f"{_count(shared, 'run')} of {len(runs):,} shared the machine with others: their times"
            " say nothing, and are left out of every table and figure of time."
        )
    codes = sorted({run.code.partition("+")[0] for run in runs})
    if len(codes) > 1:
        counts = [f"{c} ({sum(r.code.partition('+')[0] == c for r in runs):,})" for c in codes]
        yield (
            f"The runs were made by {len(codes)} versions of the code: {listed(counts)}. Figures"
            " of different versions may stand side by side."
        )
    if study.passed_over:
        yield (
            f"{_count(study.passed_over, 'older record')} of runs that were done again"
            f" {'was' if study.passed_over == 1 else 'were'} passed over: of one configuration,"
            " seed and machine the newest counts."
        )
    if study.failures:
        yield f"{_count(len(study.failures), 'run')} failed: see “Runs that failed”."


def _facts(study: Study) -> Iterator[tuple[str, str]]:
    runs = study.runs
    yield (
        "records",
        f"{len(runs):,}" + (f" (and {study.passed_over:,} older)" if study.passed_over else ""),
    )
    yield "seeds", ", ".join(map(str, sorted({run.seed for run in runs})))
    places = sorted({run.place for run in runs})
    yield (
        "machines",
        "; ".join(
            f"{where} ({_count(sum(r.place == where for r in runs), 'run')})" for where in places
        ),
    )
    yield "code", ", ".join(sorted({run.code for run in runs}))
    names = sorted({name for run in runs for name in run.record.versions} - {"code"})
    for name in in_order(names, ["algnn", "python", "torch"]):
        found = {str(run.record.versions.get(name, UNKNOWN)) for run in runs}
        yield name, ", ".join(sorted(found))


def _results(study: Study, label: str) -> Section | None:
    numbers = (f"{label}.{i}" for i in range(1, 10_000))
    parts = []
    for where in study.places:
        graphs = study.datasets(where, 1)
        items = [tables.overview(study, where, next(numbers))] if len(graphs) > 1 else []
        items += [tables.main(study, where, graph, next(numbers)) for graph in graphs]
        if tables.trust(study, where, "") is not None:
            table = tables.trust(study, where, next(numbers))
            items += [table] if table is not None else []
        if items:
            parts.append(Part(where if len(study.places) > 1 else "", tuple(items)))
    if not parts:
        return None
    text = (
        "AP is the accuracy at the end, averaged over sessions: every session counts once, however"
        " many nodes it has. AF is what sessions lost since they were learned. *base* is the"
        " accuracy on the base session when it was learned: a method that never knew cannot"
        f" forget.{_apart(study)}",
    )
    return Section("results", "Accuracy, forgetting and time", text, tuple(parts))


def _apart(study: Study) -> str:
    names = [f"`{name}`" for name in ALL_LABELS if name in study.methods(step=1)]
    if not names:
        return ""
    return (
        f" {listed(names).capitalize()}, set apart, {'sees' if len(names) == 1 else 'see'} every"
        " label again in each session: a mark to reach."
    )


def _steps(study: Study, looks: dict[str, Style], label: str) -> Section | None:
    numbers = (f"{label}.{i}" for i in range(1, 10_000))
    figures = (f"{label}.{i}" for i in range(1, 10_000))
    parts: list[Part] = []
    for where in study.places:
        for graph in study.datasets(where):
            if len(study.steps(graph, where)) < 2:
                continue
            table = tables.by_step(study, where, graph, next(numbers))
            items: list[Item] = [table]
            # machines with many runs come first: one figure for a graph is enough
            if graph not in (part.title for part in parts):
                items.append(_step_chart(study, where, graph, looks, table, next(figures)))
            parts.append(Part(graph, tuple(items)))
    if not parts:
        return None
    text = ("The same graphs when a session brings more classes at once.",)
    return Section("steps", "Classes a session", text, tuple(parts))


def _step_chart(
    study: Study, where: str, graph: str, looks: dict[str, Style], table: Table, label: str
) -> Chart:
    cells = {
        name: {s: study.cell(where, graph, s, name) for s in study.steps(graph, where)
               if study.cell(where, graph, s, name)}
        for name in study.methods(where, graph)
    }  # fmt: skip
    return Chart(
        f"steps-{slug(graph)}",
        label,
        f"Final AP by step: {graph}",
        f"A bar for each step, the palest for the largest; the line is the 95% interval. {where}.",
        _said(
            f"Bars of final AP on {graph} for each method and step",
            {f"{n}, step {s}": mean(r.ap for r in runs)
             for n, found in cells.items() for s, runs in found.items()},
        ),
        lambda: charts.steps(cells, looks),
        commands=table.commands,
    )  # fmt: skip


def _retained(study: Study, label: str) -> Section | None:
    if not study.datasets(step=1):
        return None
    table = tables.retained(study, label)
    text = (
        "What a method must keep to go on learning. A sum over nodes has a size that knows no node"
        " count; a memory of nodes grows, or is bounded by a budget.",
    )
    return Section("retained", "What is retained", text, (Part("", (table,)),))


def _speed(study: Study, label: str) -> Section | None:
    numbers = (f"{label}.{i}" for i in range(1, 10_000))
    parts = []
    for where in study.places:
        items = []
        for make in (tables.fastest, tables.speeds):
            if make(study, where, "") is not None:
                table = make(study, where, next(numbers))
                items += [table] if table is not None else []
        if items:
            parts.append(Part(where if len(study.places) > 1 else "", tuple(items)))
    if not parts:
        return None
    text = (
        f"Seconds inside `fit` and `partial_fit`, compared only between runs of one machine, with"
        f" the same seed, that had the machine to themselves. `{FOCUS}` trains in the base session"
        " alone; every later session is one closed-form step.",
    )
    return Section("speed", "Speed", text, tuple(parts))


def _figures(study: Study, looks: dict[str, Style], label: str) -> Section | None:
    parts = []
    for i, graph in enumerate(study.datasets(step=1), start=1):
        where = study.place_of(graph, 1)
        names = study.methods(where, graph, 1)
        cells = {name: study.cell(where, graph, 1, name) for name in names}
        parts.append(Part(graph, tuple(_charts(cells, looks, graph, where, f"{label}.{i}"))))
    if not parts:
        return None
    text = (
        "A method looks the same in every figure: its colour is that of its family, its marker and"
        " its dashes are its own. Step 1, means over seeds.",
    )
    return Section("figures", "Figures", text, tuple(parts))


def _charts(
    cells: dict[str, Any], looks: dict[str, Style], graph: str, where: str, label: str
) -> Iterator[Chart]:
    made = tuple(commands(run for runs in cells.values() for run in runs))
    clocked = {name: [run for run in runs if run.alone] for name, runs in cells.items()}
    clocked = {name: runs for name, runs in clocked.items() if runs}
    banded = any(len(runs) > 1 for runs in cells.values())
    drawn = chain(
        _charts_of_accuracy(cells, clocked, looks, graph, banded),
        _charts_of_cost(cells, clocked, looks, graph, banded),
        _charts_of_trust(cells, looks, graph, banded),
    )
    for letter, (kind, title, caption, alt, draw, *wide) in zip("abcdefgh", drawn, strict=False):
        yield Chart(
            f"{kind}-{slug(graph)}",
            f"{label}{letter}",
            f"{title}: {graph}",
            f"{caption}. {where}.",
            alt,
            draw,
            wide[0] if wide else None,
            made,
        )


def _charts_of_accuracy(
    cells: dict[str, Any], clocked: dict[str, Any], looks: Any, graph: str, banded: bool
) -> Iterator[Sequence[Any]]:
    ap = {name: mean(run.ap for run in runs) for name, runs in cells.items()}
    yield (
        "stages",
        "AP session by session",
        "Average performance over the sessions so far"
        + ", with the 95% interval as a band" * banded,
        _said(f"Lines of AP after each session on {graph}; at the end", ap),
        lambda: charts.stages(cells, looks),
    )
    if clocked:
        yield (
            "tradeoff",
            "AP against time",
            "Up and to the left is better"
            + "; the line through a point is its 95% interval" * banded,
            _said(f"Points of final AP against learn seconds on {graph}; AP", ap),
            lambda: charts.tradeoff(clocked, looks),
        )
    narrow, wide = charts.matrix_columns(max(len(runs[0].stages) for runs in cells.values()))
    yield (
        "matrices",
        "Accuracy matrices",
        "Accuracy (%) on the test nodes of each session (column) after each session (row); a"
        " column that darkens downwards is a session that is being forgotten",
        _said(f"Heat maps of accuracy by session on {graph}; mean of the last row", ap),
        lambda: charts.matrices(cells, narrow, NARROW),
        lambda: charts.matrices(cells, wide, WIDE),
    )


def _charts_of_cost(
    cells: dict[str, Any], clocked: dict[str, Any], looks: Any, graph: str, banded: bool
) -> Iterator[Sequence[Any]]:
    seconds = {name: mean(run.learn for run in runs) for name, runs in clocked.items()}
    kept = {name: runs[0].kept for name, runs in cells.items()}
    if clocked:
        yield (
            "seconds",
            "Time so far",
            "Learn seconds added up over sessions, on a logarithmic axis",
            _said(f"Lines of learn seconds so far on {graph}; at the end", seconds),
            lambda: charts.growth(clocked, looks, "seconds"),
        )
    yield (
        "kept",
        "Kept between sessions",
        "Bytes by each learner's own account, on a logarithmic axis",
        _said(f"Lines of bytes kept after each session on {graph}; at the end", kept, size),
        lambda: charts.growth(cells, looks, "bytes"),
    )
    if clocked:
        yield (
            "times",
            "Time to learn",
            "Seconds inside `fit` and `partial_fit`, all sessions"
            + "; the line is the 95% interval" * banded,
            _said(f"Bars of learn seconds on {graph}", seconds),
            lambda: charts.times(clocked, looks),
        )


def _charts_of_trust(
    cells: dict[str, Any], looks: Any, graph: str, banded: bool
) -> Iterator[Sequence[Any]]:
    """Only of runs that measured it, which the first ones did not."""
    sure = {name: [run for run in runs if run.ece is not None] for name, runs in cells.items()}
    sure = {name: runs for name, runs in sure.items() if runs}
    told = {name: [run for run in runs if run.auroc is not None] for name, runs in sure.items()}
    told = {name: runs for name, runs in told.items() if runs}
    if told:
        yield (
            "novelty",
            "Telling what is new",
            "AUROC of novelty after each session: test nodes of the next session's classes against"
            " those of seen ones; dotted, chance" + ". The band is the 95% interval" * banded,
            _said(
                f"Lines of AUROC of novelty after each session on {graph}; mean",
                {name: mean(run.auroc for run in runs) for name, runs in told.items()},
            ),
            lambda: charts.novelty(told, looks),
        )
    if sure:
        yield (
            "reliability",
            "How sure, how right",
            "Accuracy of the answers whose largest probability lies in the same bin, after the"
            " last session; on the dotted line a method is right as often as it is sure",
            _said(
                f"Lines of accuracy against the largest probability on {graph}; calibration error",
                {name: mean(run.ece for run in runs) for name, runs in sure.items()},
            ),
            lambda: charts.reliability(sure, looks),
        )


def _sensitivity(study: Study, label: str) -> Section | None:
    parts: list[Part] = []
    count = 0
    for name, title in (("width", "Expansion width"), ("gamma", "γ")):
        table = tables.sensitivity(study, name, f"{label}.{len(parts) + 1}")
        if table is None:
            continue
        items: list[Item] = []
        series = tables.sweep(study, name)
        for method, where in dict.fromkeys((m, w) for m, _, w in series):
            count += 1
            found = {g: p for (m, g, w), p in series.items() if (m, w) == (method, where)}
            items.append(_sweep_chart(study, name, method, where, found, f"{label}.{count}", table))
        parts.append(Part(title, (*items, table)))
    if not parts:
        return None
    text = ("One setting changes; every other is the method's own for the graph.",)
    return Section("sensitivity", "Sensitivity", text, tuple(parts))


def _sweep_chart(
    study: Study, name: str, method: str, where: str, found: Any, label: str, table: Table
) -> Chart:
    usual = {}
    for graph in found:
        runs = study.cell(where, graph, 1, method)
        if runs:
            usual[graph] = runs[0].record.settings[name]
    symbol = {"gamma": "γ"}.get(name, name)
    best = {g: max(p, key=lambda v: mean(r.ap for r in p[v])) for g, p in found.items()}
    return Chart(
        f"sensitivity-{name}-{slug(method)}-{study.number(where)}",
        label,
        f"{method}: final AP against {symbol}",
        f"Mean and 95% band; a ring marks the method's own value for the graph. {where}.",
        _said(f"Lines of final AP of {method} against {symbol}; highest at", best, "{:g}".format),
        lambda: charts.sensitivity(found, usual, symbol),
        commands=table.commands,
    )


def _others(study: Study, label: str) -> Section | None:
    table = tables.others(study, label)
    if table is None:
        return None
    return Section("others", "Other settings and streams", (), (Part("", (table,)),))


def _failed(study: Study, label: str) -> Section | None:
    table = tables.failed(study, label)
    return (
        None if table is None else Section("failed", "Runs that failed", (), (Part("", (table,)),))
    )


def _missing(study: Study) -> Section | None:
    """The paper's rows that no run stands for."""
    absent = [name for name in paper_datasets() if name not in study.datasets(step=1)]
    if not absent:
        return None
    stand_ins = [f"{name}-graph" for name in absent if f"{name}-graph" in study.datasets()]
    seeds = sorted({run.seed for run in study.runs})
    text = [
        f"The paper also has figures for {listed([f'`{name}`' for name in absent])}; no run of"
        " the tables above is on them. "
        + (
            "They could not be run here: their node features have to be downloaded, which was not"
            " possible where these runs were made."
            if stand_ins
            else "Their files, node features included, are downloaded when they are first used."
        )
    ]
    if stand_ins:
        text.append(
            f"{listed([f'`{name}`' for name in stand_ins])} above: the same nodes, edges and"
            " labels with structural features in the place of the benchmark's own. Figures on them"
            " are not comparable with the paper's, and none of the paper's stands beside them."
        )
    text.append("Where they can be downloaded, this is the one command that runs the paper's rows:")
    names = ",".join(in_order(paper_methods(), list(styles(paper_methods()))))
    made = (
        f"algnn bench --datasets {','.join(absent)} --methods {names} --steps 1,5,10"
        f" --seeds {','.join(map(str, seeds))}"
    )
    return Section("missing", "The paper's rows that are not here", tuple(text), (), (made,))


def _reading() -> Section:
    return Section(
        "reading",
        "How to read this",
        (
            "A *session* brings the training nodes of new classes; the first, the *base* session,"
            " brings half of all classes, in label order. After each session a learner is tested on"
            " the test nodes of all classes so far: M[t, i] is the accuracy on session i after"
            " session t. AP is the mean of the last row of M. AF is the mean of M[i, i] − M[T, i]"
            " over all sessions i before the last, T.",
            "*macro* counts every class once, *micro* every test node. Seconds are those inside"
            " `fit` and `partial_fit`; loading data (onto the GPU, where there is one) and testing"
            " are not clocked. ± is half the width of the 95% interval of the mean over seeds, by"
            " Student's t; a single seed has none. The paper's own ± is called a standard deviation"
            " in one place and a 95% interval in another.",
            "All figures come from the records of single runs; nothing is typed in but what the"
            " paper printed.",
        ),
    )


def _unique(sections: Iterable[Section]) -> tuple[Section, ...]:
    """Names that look alike once they are file names get numbers, so that no file is lost."""
    seen: set[tuple[type, str]] = set()

    def fresh(item: Item) -> Item:
        key, count = item.key, 1
        while (type(item), key) in seen:
            count += 1
            key = f"{item.key}-{count}"
        seen.add((type(item), key))
        return replace(item, key=key)

    return tuple(
        replace(
            section,
            parts=tuple(replace(p, items=tuple(map(fresh, p.items))) for p in section.parts),
        )
        for section in sections
    )


def _said(what: str, values: dict[str, Any], write: Any = three) -> str:
    """A figure in words: its first names by value."""
    ranked = sorted(values, key=lambda name: -float(values[name]))
    shown = ranked if len(ranked) <= 6 else [*ranked[:3], *ranked[-2:]]
    words = [f"{name} {write(values[name])}" for name in shown]
    if len(shown) < len(ranked):
        words.insert(3, f"{len(ranked) - 5} others between")
    return f"{what}: {'; '.join(words)}."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
