"""The report: what it says and shows, in which order; how it is written is left to others."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import count as counter
from statistics import mean
from typing import Any, TypeVar

from algnn.progress import counted
from algnn.report import tables, verdicts
from algnn.report.data import ALL_LABELS, FOCUS, UNKNOWN, Study, in_order
from algnn.report.paper import PAPER_DATASETS, PAPER_METHODS, paper_figures
from algnn.report.style import STYLES
from algnn.report.table import WORDS, Chart, Table, count, listed, three

Item = Table | Chart
Kind = TypeVar("Kind", Table, Chart)
# headings, empty for none, and what stands below each
Parts = Sequence[tuple[str, Sequence[Item]]]
# one of them, with None for what is not there
Draft = tuple[str, Iterable[Item | None]]
Drafts = Mapping[str, Callable[[], Iterable[Draft]]]  # by section


@dataclass(frozen=True)
class Section:
    """A section: its heading, paragraphs, parts, and commands to be run."""

    key: str
    title: str
    text: tuple[str, ...]
    parts: Parts = ()
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

    def all(self, kind: type[Kind]) -> list[Kind]:
        """All tables or all figures, in order."""
        found = (item for s in self.sections for _, items in s.parts for item in items)
        return [item for item in found if isinstance(item, kind)]


def build(study: Study, pictures: bool = False) -> Report:
    """The report of some runs: its tables and, for a document that draws nothing, pictures."""
    graphs = study.datasets(step=1)
    # matplotlib takes a second, and the page needs none
    figures: Any = import_module("algnn.report.charts") if pictures else None
    for graph in counted("paired tests", graphs):  # which are kept for all that follows
        for name in study.methods(dataset=graph, step=1):
            study.against(graph, name, "ap")
    several = len(study.hardware) > 1  # where there is but one, its name is left out
    drafts: Drafts = {
        "board": lambda: _board(study, figures),
        "figures": lambda: [(g, [figures.of_graph(study, g)]) for g in graphs if figures],
        "results": lambda: [(h * several, _results(study, h)) for h in study.hardware],
        "tuned": lambda: [
            ("", [tables.tuned_means(study)]),
            *((g, [tables.tuned(study, g)]) for g in graphs),
        ],
        "steps": lambda: [
            (g, [tables.by_step(study, h, g)]) for h in study.hardware for g in study.datasets(h)
        ],
        "seen": lambda: [("", [tables.seen_edges(study)])],
        "retained": lambda: [("", [tables.retained(study) if graphs else None])],
        "speed": lambda: [(h * several, [tables.speeds(study, h)]) for h in study.hardware],
        "sensitivity": lambda: _sensitivity(study, figures),
        "others": lambda: [("", [tables.others(study)])],
        "failed": lambda: [("", [tables.failed(study)])],
    }
    names = [f"`{name}`" for name in ALL_LABELS if name in study.methods(step=1)]
    words, s = WORDS["sections"]["results"]["apart"], "s" * (len(names) == 1)
    apart = words.format(names=listed(names), s=s) if names else ""
    runs, days = study.runs, sorted(day[:10] for day in study.runs.started)
    return Report(
        study,
        WORDS["head"]["title"].format(graphs=count(len(_graphs(study)), "graph")),
        WORDS["head"]["lead"].format(
            methods=count(runs.method.nunique(), "method"),
            runs=count(len(runs), "run"),
            span=" to ".join(dict.fromkeys([days[0], days[-1]])),
            machines=listed(sorted(set(runs.hardware))),
        ),
        tuple(_headlines(study)),
        tuple(_notes(study)),
        (*_numbered(drafts, apart, verdicts.opening(study)), *_missing(study), _section("reading")),
        tuple(_facts(study)),
    )


def _section(key: str, parts: Parts = (), **values: str) -> Section:
    words = WORDS["sections"][key]
    text = tuple(paragraph.format(**values) for paragraph in words.get("text", ()))
    return Section(key, words["title"], text, parts)


def _numbered(drafts: Drafts, apart: str, opening: Iterable[str]) -> Iterator[Section]:
    """Sections that have tables or figures, each with its number and a file name of its own."""
    places, seen = counter(1), set()
    for section in counted("sections", list(drafts)):
        found = [(title, [item for item in items if item]) for title, items in drafts[section]()]
        if not any(items for _, items in found):
            continue
        place, numbers = next(places), {Table: counter(1), Chart: counter(1)}
        several = sum(isinstance(item, Table) for _, items in found for item in items) > 1
        for _, items in found:
            for i, item in enumerate(items):
                # at most 200 characters, which get an ending; A.csv and a.csv are one file on a Mac
                name, kind = re.sub(r"[^A-Za-z0-9._-]", "_", item.key)[:200], type(item)
                names = (f"{name}-{n}" if n > 1 else name for n in counter(1))
                key = next(key for key in names if (kind, key.lower()) not in seen)
                seen.add((kind, key.lower()))
                label = f"{place}.{next(numbers[kind])}" if several or kind is Chart else str(place)
                items[i] = replace(item, key=key, number=label)
        numbered = _section(section, [part for part in found if part[1]], apart=apart)
        yield replace(numbered, text=tuple(opening)) if section == "board" else numbered


def _graphs(study: Study) -> list[str]:
    return study.datasets() or sorted(set(study.runs.dataset))


def _headlines(study: Study) -> Iterator[tuple[str, str]]:
    runs, words = study.runs, WORDS["head"]
    nouns = {"method": runs.method, "graph": _graphs(study), "seed": runs.seed}
    counts = ", ".join(count(len(set(found)), noun) for noun, found in nouns.items())
    yield f"{len(runs):,}", f"{'run' if len(runs) == 1 else 'runs'}: {counts}"
    for figure in ("ap", "micro"):
        if wins := verdicts.leads(study, figure):
            yield f"{sum(wins.values())} of {len(wins)}", words[figure]
    gaps = []
    for graph in study.datasets(step=1):
        here = study.cell(study.main_hardware(graph), graph, 1, FOCUS)
        if len(here) and (paper := paper_figures(graph, FOCUS)):
            gaps.append(here.ap.mean() - paper.ap[0])
    if gaps:
        gap = f"{mean(gaps):+.1f}".replace("-", "−")
        yield gap, words["paper"].format(graphs=count(len(gaps), "graph"))
    for hardware in study.hardware[:1]:
        if ratios := tables.fastest(study, hardware):
            ends = dict.fromkeys([three(ratios[0]), three(ratios[-1])])
            yield f"{'–'.join(ends)}×", words["speed"].format(hardware=hardware)


def _notes(study: Study) -> Iterator[str]:
    runs, words = study.runs, WORDS["notes"]
    machines = sorted(set(runs.hardware))
    if not study.hardware:
        yield words["empty"]
    if len(machines) > 1:
        yield words["machines"].format(count=len(machines), names=listed(machines))
    if not runs.alone.all():
        shared = count(sum(~runs.alone), "run")
        yield words["shared"].format(shared=shared, runs=f"{len(runs):,}")
    codes = runs.sort_values("started").code.str.partition("+")[0]
    if older := sum(codes != codes.groupby(runs.method).transform("last")):
        yield words["codes"].format(older=count(older, "run"), runs=f"{len(runs):,}")
    if study.passed_over:
        yield words["older"].format(older=count(study.passed_over, "older record"))
    if len(study.failures):
        yield words["failed"].format(failed=count(len(study.failures), "run"))


def _facts(study: Study) -> Iterator[tuple[str, str]]:
    runs = study.runs
    older = f" (and {study.passed_over:,} older)" if study.passed_over else ""
    yield "records", f"{len(runs):,}{older}"
    if len(study.trials):
        yield "trials on validation nodes", f"{len(study.trials):,}"
    yield "seeds", ", ".join(map(str, sorted(set(runs.seed))))
    columns = {"machines": runs.hardware, "code": runs.code, "code of trials": study.trials}
    for name, column in columns.items():
        if len(found := column.value_counts()):
            yield name, "; ".join(f"{value} ({count(n, 'run')})" for value, n in found.items())
    names = {name for versions in runs.versions for name in versions} - {"code"}
    for name in in_order(names, ["algnn", "python", "torch"]):
        found = {str(versions.get(name, UNKNOWN)) for versions in runs.versions}
        yield name, ", ".join(sorted(found))


def _board(study: Study, figures: Any) -> Iterator[Draft]:
    if len(study.methods(step=1)) > 1:
        yield "", (tables.leaderboard(study), *(figures.of_ranks(study) if figures else ()))


def _results(study: Study, hardware: str) -> Iterator[Table | None]:
    for graph in study.datasets(hardware, 1):
        yield tables.main(study, hardware, graph)
    yield tables.trust(study, hardware)


def _sensitivity(study: Study, figures: Any) -> Iterator[Draft]:
    for name, title in (("width", "Expansion width"), ("gamma", "γ")):
        drawn = figures.of_sweeps(study, name) if figures else ()
        yield title, (*drawn, tables.sensitivity(study, name))


def _missing(study: Study) -> Iterator[Section]:
    """The paper's rows for which there is no run."""
    absent = [name for name in PAPER_DATASETS if name not in study.datasets(step=1)]
    if not absent:
        return
    words = WORDS["sections"]["missing"]
    stand_ins = [f"`{name}-graph`" for name in absent if f"{name}-graph" in study.datasets()]
    why = words["offline"].format(names=listed(stand_ins)) if stand_ins else words["download"]
    section = _section("missing", absent=listed(f"`{name}`" for name in absent), why=why)
    methods = ",".join(in_order(PAPER_METHODS, list(STYLES)))
    seeds = ",".join(map(str, sorted(set(study.runs.seed))))
    command = f"algnn bench --datasets {','.join(absent)} --methods {methods} --steps 1,5,10"
    yield replace(section, commands=(f"{command} --seeds {seeds}",))
