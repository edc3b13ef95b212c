"""The report: what it says and shows, in which order; how it is written is left to others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count as counter
from statistics import mean

from algnn.bench.paper import paper_datasets, paper_figures, paper_methods
from algnn.bench.runs import summarise
from algnn.report import figures, tables
from algnn.report.data import ALL_LABELS, DEFAULT, FOCUS, UNKNOWN, Study, in_order
from algnn.report.figures import Chart
from algnn.report.style import STYLES, Style, styles
from algnn.report.table import Table, count, listed, number, three

Item = Table | Chart
# a heading, empty for none, and what stands below it
Part = tuple[str, tuple[Item, ...]]


@dataclass(frozen=True)
class Section:
    """A section: its heading, paragraphs, parts, and commands to be run."""

    key: str
    title: str
    text: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """A report before it is written; `notes` are what a reader must know before reading on."""

    study: Study
    title: str
    lead: str
    headlines: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    sections: tuple[Section, ...]
    facts: tuple[tuple[str, str], ...]
    styles: dict[str, Style] = field(default_factory=dict)

    def items(self) -> list[Item]:
        """All tables and figures, in order."""
        return [item for s in self.sections for _, items in s.parts for item in items]

    def tables(self) -> list[Table]:
        """All tables, in order."""
        return [item for item in self.items() if isinstance(item, Table)]

    def charts(self) -> list[Chart]:
        """All figures, in order."""
        return [item for item in self.items() if isinstance(item, Chart)]


def build(study: Study, brief: bool = False) -> Report:
    """The report of some runs; a brief one has all tables and the main figures only."""
    looks = styles(study.runs.method)
    made = [
        _results(study),
        _steps(study, looks),
        _retained(study),
        _speed(study),
        _figures(study, looks),
        _sensitivity(study),
        _others(study),
        _failed(study),
        _missing(study),
        _reading(),
    ]
    sections = _numbered(made, brief)
    graphs = study.datasets() or set(study.runs.dataset)
    return Report(
        study,
        f"Class-incremental node classification on {count(len(graphs), 'graph')}",
        _lead(study),
        tuple(_headlines(study)),
        tuple(_notes(study)),
        sections,
        tuple(_facts(study)),
        looks,
    )


def _numbered(made: Iterable[Section | None], brief: bool) -> tuple[Section, ...]:
    """Sections whose tables and figures have numbers, and names that no other file has."""
    seen: set[tuple[type, str]] = set()
    sections = []
    for i, section in enumerate(made, start=1):
        if section is None:
            continue
        single = sum(isinstance(item, Table) for _, items in section.parts for item in items) == 1
        numbers = {Table: counter(1), Chart: counter(1)}
        parts = []
        for j, (title, items) in enumerate(section.parts, start=1):
            letters = iter("abcdefgh")
            fresh: list[Item] = []
            for item in items:
                key = next(
                    key
                    for n in counter(1)
                    if (type(item), key := item.key + f"-{n}" * (n > 1)) not in seen
                )
                seen.add((type(item), key))
                label = f"{i}.{next(numbers[type(item)])}"
                if isinstance(item, Table) and single:
                    label = str(i)
                elif section.key == "figures":
                    label = f"{i}.{j}{next(letters)}"
                if isinstance(item, Table) or item.brief or not brief:
                    fresh.append(replace(item, key=key, number=label))
            parts.append((title, tuple(fresh)))
        sections.append(replace(section, parts=tuple(parts)))
    return tuple(sections)


# -- the head -------------------------------------------------------------------------------------


def _lead(study: Study) -> str:
    runs = study.runs
    names, days = set(runs.method), sorted(day[:10] for day in runs.started)
    span = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    return (
        f"{count(len(names), 'method')} learn{'s' * (len(names) == 1)} the classes of a graph"
        " session by session: final accuracy, forgetting, time to learn and memory kept."
        f" {count(len(runs), 'run')} of {span} on {listed(sorted(set(runs.hardware)))}."
    )


def _headlines(study: Study) -> Iterator[tuple[str, str]]:
    runs = study.runs
    graphs = study.datasets() or set(runs.dataset)
    yield (
        f"{len(runs):,}",
        f"{'run' if len(runs) == 1 else 'runs'}: {count(runs.method.nunique(), 'method')},"
        f" {count(len(graphs), 'graph')}, {count(runs.seed.nunique(), 'seed')}",
    )
    hardware = study.hardware[0] if study.hardware else ""
    if FOCUS not in study.methods(hardware, step=1):
        return
    ours = DEFAULT if DEFAULT in study.methods(hardware, step=1) else FOCUS
    wins, gaps = [], []
    for graph in study.datasets(hardware, 1):
        names = study.methods(hardware, graph, 1)
        ap = {name: summarise(study.cell(hardware, graph, 1, name).ap).mean for name in names}
        rivals = [value for name, value in ap.items() if name not in ALL_LABELS]
        if ours in ap and len(rivals) > 1:
            wins.append(ap[ours] >= max(rivals))
        paper = paper_figures(graph, FOCUS)
        if paper and FOCUS in ap:
            gaps.append(ap[FOCUS] - paper.ap[0])
    if wins:
        yield (
            f"{sum(wins)} of {len(wins)}",
            f"{'graph' if len(wins) == 1 else 'graphs'} on which {ours} has the highest AP of all"
            f" class-incremental methods, {hardware}",
        )
    if gaps:
        yield (
            f"{mean(gaps):+.1f}".replace("-", "−"),
            f"points of AP between {FOCUS} here and in the paper, mean over"
            f" {count(len(gaps), 'graph')}",
        )
    table = tables.fastest(study, hardware)
    if table is not None:
        ratios = sorted(number(row.values[2]) for row in table.rows)
        low, high = three(ratios[0]), three(ratios[-1])
        yield (
            f"{low}×" if low == high else f"{low}–{high}×",
            f"the time of {FOCUS}: what the fastest baseline takes to learn, {hardware}",
        )


def _notes(study: Study) -> Iterator[str]:
    runs = study.runs
    machines = sorted(set(runs.hardware))
    if not study.hardware:
        yield (
            "No run here has its method's own settings and the paper's stream, so the main tables"
            " are empty: see “Other settings and streams”."
        )
    if len(machines) > 1:
        yield (
            f"The runs were made on {len(machines)} machines ({listed(machines)}). They are never"
            " averaged or compared in time with each other: a table is of one machine, and the"
            " figures of a graph are those of the machine with the most runs on it."
        )
    shared = sum(~runs.alone)
    if shared:
        yield (
            f"{count(shared, 'run')} of {len(runs):,} shared the machine with others: their times"
            " are left out of every table and figure of time."
        )
    codes = runs.code.str.partition("+")[0].value_counts().sort_index()
    if len(codes) > 1:
        yield (
            f"The runs were made by {len(codes)} versions of the code:"
            f" {listed(f'{code} ({number:,})' for code, number in codes.items())}. Figures"
            " of different versions may stand side by side."
        )
    if study.passed_over:
        yield (
            f"{count(study.passed_over, 'older record')} of runs that were repeated"
            f" {'was' if study.passed_over == 1 else 'were'} passed over: of one configuration,"
            " seed and machine the newest counts."
        )
    if len(study.failures):
        yield f"{count(len(study.failures), 'run')} failed: see “Runs that failed”."


def _facts(study: Study) -> Iterator[tuple[str, str]]:
    runs = study.runs
    older = f" (and {study.passed_over:,} older)" if study.passed_over else ""
    yield "records", f"{len(runs):,}{older}"
    yield "seeds", ", ".join(map(str, sorted(set(runs.seed))))
    machines = runs.hardware.value_counts().sort_index()
    yield "machines", "; ".join(f"{name} ({count(n, 'run')})" for name, n in machines.items())
    yield "code", ", ".join(sorted(set(runs.code)))
    names = {name for versions in runs.versions for name in versions} - {"code"}
    for name in in_order(names, ["algnn", "python", "torch"]):
        found = {str(versions.get(name, UNKNOWN)) for versions in runs.versions}
        yield name, ", ".join(sorted(found))


# -- the sections ---------------------------------------------------------------------------------


def _by_hardware(study: Study, items: Iterable[tuple[str, Item | None]]) -> tuple[Part, ...]:
    """Items below the name of their hardware, which is left out where there is but one."""
    found: dict[str, list[Item]] = {}
    for hardware, item in items:
        if item is not None:
            found.setdefault(hardware * (len(study.hardware) > 1), []).append(item)
    return tuple((hardware, tuple(some)) for hardware, some in found.items())


def _results(study: Study) -> Section | None:
    made: list[tuple[str, Item | None]] = []
    for hardware in study.hardware:
        graphs = study.datasets(hardware, 1)
        made.append((hardware, tables.overview(study, hardware) if len(graphs) > 1 else None))
        made += [(hardware, tables.main(study, hardware, graph)) for graph in graphs]
        made.append((hardware, tables.trust(study, hardware)))
    names = [f"`{name}`" for name in ALL_LABELS if name in study.methods(step=1)]
    text = (
        "AP is the accuracy at the end, averaged over sessions: every session counts once, however"
        " many nodes it has. AF is the mean accuracy drop since a session was learned. *base* is"
        " the accuracy on the base session when it was learned: where it is low, AF is low too."
    )
    if names:
        text += (
            f" {listed(names)}, set apart, {'sees' if len(names) == 1 else 'see'} every"
            " label again in each session: an upper reference."
        )
    parts = _by_hardware(study, made)
    return Section("results", "Accuracy, forgetting and time", (text,), parts) if parts else None


def _steps(study: Study, looks: dict[str, Style]) -> Section | None:
    parts: list[Part] = []
    for hardware in study.hardware:
        for graph in study.datasets(hardware):
            table = tables.by_step(study, hardware, graph)
            if table is None or len(study.steps(graph, hardware)) < 2:
                continue
            # hardware with many runs comes first: one figure for a graph is enough
            first = graph not in (title for title, _ in parts)
            chart = [figures.by_step(study, hardware, graph, looks)] if first else []
            parts.append((graph, (table, *chart)))
    text = "The same graphs when a session brings more classes at once."
    return Section("steps", "Classes a session", (text,), tuple(parts)) if parts else None


def _retained(study: Study) -> Section | None:
    table = tables.retained(study) if study.datasets(step=1) else None
    text = (
        "What a method must keep to go on learning. The size of a sum over nodes does not depend on"
        " how many there are; a memory of nodes grows, or is bounded by a budget."
    )
    return Section("retained", "What is retained", (text,), (("", (table,)),)) if table else None


def _speed(study: Study) -> Section | None:
    made = [
        (hardware, make(study, hardware))
        for hardware in study.hardware
        for make in (tables.fastest, tables.speeds)
    ]
    parts = _by_hardware(study, made)
    text = (
        "Seconds inside `fit` and `partial_fit`, compared only between runs on one machine, with"
        f" the same seed, that had the machine to themselves. `{FOCUS}` trains in the base session"
        " alone; every later session is one closed-form step."
    )
    return Section("speed", "Speed", (text,), parts) if parts else None


def _figures(study: Study, looks: dict[str, Style]) -> Section | None:
    graphs = study.datasets(step=1)
    parts = tuple((graph, tuple(figures.of_graph(study, graph, looks))) for graph in graphs)
    text = (
        "A method looks the same in every figure: its colour is that of its family, its marker and"
        " its dashes are its own. Step 1, means over seeds."
    )
    return Section("figures", "Figures", (text,), parts) if parts else None


def _sensitivity(study: Study) -> Section | None:
    parts: list[Part] = []
    for name, title in (("width", "Expansion width"), ("gamma", "γ")):
        series = tables.sweep(study, name)
        items: list[Item] = []
        for method, hardware in dict.fromkeys((m, h) for _, m, h in series):
            found = {g: p for (g, m, h), p in series.items() if (m, h) == (method, hardware)}
            items.append(figures.of_sweep(study, name, method, hardware, found))
        table = tables.sensitivity(study, name)
        if table is not None:
            parts.append((title, (*items, table)))
    text = "One setting changes; every other is the method's own for the graph."
    return Section("sensitivity", "Sensitivity", (text,), tuple(parts)) if parts else None


def _others(study: Study) -> Section | None:
    table = tables.others(study)
    return Section("others", table.title, (), (("", (table,)),)) if table else None


def _failed(study: Study) -> Section | None:
    table = tables.failed(study)
    return Section("failed", table.title, (), (("", (table,)),)) if table else None


def _missing(study: Study) -> Section | None:
    """The paper's rows for which there is no run."""
    absent = [name for name in paper_datasets() if name not in study.datasets(step=1)]
    if not absent:
        return None
    stand_ins = [f"`{name}-graph`" for name in absent if f"{name}-graph" in study.datasets()]
    text = [
        f"The paper also has figures for {listed(f'`{name}`' for name in absent)}; no run of"
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
            f"{listed(stand_ins)} above: the same nodes, edges and labels with structural features"
            " in the place of the benchmark's own. Figures on them are not comparable with the"
            " paper's, and none of the paper's stands beside them."
        )
    text.append("Where they can be downloaded, this is the one command that runs the paper's rows:")
    names = ",".join(in_order(paper_methods(), list(STYLES)))
    seeds = ",".join(map(str, sorted(set(study.runs.seed))))
    made = (
        f"algnn bench --datasets {','.join(absent)} --methods {names} --steps 1,5,10"
        f" --seeds {seeds}"
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
