"""What the paired test says of `algnn` against other methods: marks, counts and sentences."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from algnn.bench.significance import Comparison
from algnn.methods import METHODS
from algnn.report.data import ALL_LABELS, DEFAULT, OURS, Study
from algnn.report.table import PLAIN, WORDS, count, listed

FEW = 5  # pairs of runs below which a verdict has a hollow mark
MARKS = {"leads": "▲△", "trails": "▼▽", "undecided": "··"}
# `joint-ridge` is the paper's method solved at once, no network
NETWORKS = tuple(name for name in ALL_LABELS if name != "joint-ridge")
UNIT = ["sha256", "order"]  # a split with an order of classes
TEXT = WORDS["opening"]


def mark(found: Comparison | None) -> str:
    """▲ where `algnn` leads, ▼ where it trails, hollow with few pairs; nothing without any."""
    return "" if found is None else MARKS[found.verdict][found.pairs < FEW]


def rivals(study: Study, graph: str) -> list[str]:
    """The class-incremental methods on a graph that are no variant of `algnn`."""
    names = study.methods(dataset=graph, step=1)
    return [name for name in names if name not in (*ALL_LABELS, *OURS)]


def best_of(study: Study, graph: str, names: Sequence[str], tuned: bool = False) -> str | None:
    """Which of some methods has the highest mean AP on a graph."""
    found = pd.Series({n: study.anywhere(graph, n, tuned)["ap"].mean() for n in names}).dropna()
    return str(found.idxmax()) if len(found) else None


def best_network(study: Study, graph: str, tuned: bool = False) -> str | None:
    """The best joint network on a graph; None if `tuned` and one of them was not tuned."""
    ran = [name for name in NETWORKS if len(study.anywhere(graph, name))]
    every = all(len(study.anywhere(graph, name, tuned)) for name in ran)
    return best_of(study, graph, ran, tuned) if every else None


def standing(
    study: Study, graph: str, names: Sequence[str], figure: str = "ap", tuned: bool = False
) -> str:
    """``"leads"`` if `algnn` leads each of these, ``"trails"`` if it trails one of them."""
    tests = [study.against(graph, name, figure, tuned) for name in names]
    found = {test and test.verdict for test in tests}
    return "trails" if "trails" in found else "leads" if found == {"leads"} else "undecided"


def leads(study: Study, figure: str = "ap") -> dict[str, bool]:
    """For each graph on which `algnn` has rivals, whether it leads every one of them."""
    every = _all_rivals(study)
    return {g: standing(study, g, names, figure) == "leads" for g, names in every.items()}


def tally(study: Study, method: str, tuned: bool = False) -> str:
    """On how many graphs `algnn` leads a method, is not told apart from it, and trails it."""
    tests = [study.against(graph, method, "ap", tuned) for graph in study.datasets(step=1)]
    found = Counter(test.verdict for test in tests if test)
    each = [f"{found[verdict]}{MARKS[verdict][0]}" for verdict in ("leads", "undecided", "trails")]
    return " ".join(each) if found else ""


def opening(study: Study) -> Iterator[str]:
    """The verdicts in one paragraph; then what was compared, and what the verdicts rest on."""
    graphs = _graphs(study)
    if not graphs or len(study.methods(step=1)) < 2:
        return
    yield " ".join(summary(study))
    yield _compared(study)
    yield from _networks(study, graphs)
    yield " ".join(_limits(study, graphs))
    own = any(name not in METHODS for name in study.methods())
    yield TEXT["settings"] + (TEXT["own learners"] if own else "")
    yield _tuned(study) if len(study.chosen) else TEXT["untuned"]
    yield from _networks(study, graphs, tuned=True)


def summary(study: Study) -> Iterator[str]:
    """Where `algnn` leads and trails: rivals by AP and micro, tuned rivals, joint networks."""
    graphs, methods, over = _graphs(study), study.methods(step=1), study.datasets(step=1)
    yield TEXT["summary"].format(
        methods=count(len(methods), "method"), graphs=count(len(over), "graph")
    )
    verdicts = []
    for tuned in (False, True):
        if against := _all_rivals(study, tuned):
            by = {of: _split(study, against, of, tuned) for of in ("ap", "micro")}
            verdicts.append(TEXT["rivals, tuned" if tuned else "rivals"].format(**by))
    for tuned in (False, True):
        best = {g: name for g in graphs if (name := best_network(study, g, tuned))}
        found = {g: standing(study, g, [name], "ap", tuned) for g, name in best.items()}
        if found:
            ahead, behind = ([g for g in found if found[g] == of] for of in ("leads", "trails"))
            text = TEXT["joint, tuned" if tuned else "joint"]
            verdicts.append(text.format(_graphs_of(ahead), _graphs_of(behind)))
    yield from verdicts
    yield TEXT["reach" if verdicts else "alone"]


def _split(study: Study, against: dict[str, list[str]], figure: str, tuned: bool) -> dict[str, str]:
    """The graphs on which `algnn` leads all of some rivals, trails one, and neither."""
    of = {g: standing(study, g, names, figure, tuned) for g, names in against.items()}
    trails = []
    for g, names in against.items():
        if behind := [n for n in names if standing(study, g, [n], figure, tuned) == "trails"]:
            trails.append(f"{_code(g)} ({codes(behind)})")
    undecided = [g for g in of if of[g] == "undecided"]
    tests = (study.against(g, n, figure, tuned) for g in undecided for n in against[g])
    missing = TEXT["untested"] * any(test is None for test in tests)
    return {
        "leads": _graphs_of(g for g in of if of[g] == "leads"),
        "trails": TEXT["trails"].format(listed(trails)) if trails else TEXT["trails none"],
        "open": TEXT["open"].format(_graphs_of(undecided), missing) if undecided else "",
    }


def _all_rivals(study: Study, tuned: bool = False) -> dict[str, list[str]]:
    """On each graph its rivals, or those that ran with the setting that trials chose for them."""
    every = [(g, n) for g in _graphs(study) for n in rivals(study, g)]
    ran = [(g, n) for g, n in every if not tuned or len(study.anywhere(g, n, tuned=True))]
    return {graph: [n for g, n in ran if g == graph] for graph, _ in ran}


def _tuned(study: Study) -> str:
    """How rivals fare with the settings that trials chose for them."""
    best, against = study.chosen, _all_rivals(study, tuned=True)
    # where no rival was tuned, upper references and variants of ours may have been
    others = study.tuned[study.tuned.usual].groupby(["dataset", "method"]).groups
    ran = [(g, n) for g, names in against.items() for n in names] or list(others)
    units = [study.drawn(g, n, tuned=True).groupby(UNIT).ngroups for g, n in ran]
    return str(TEXT["tuned" if ran else "tried"].format(
        whose="rival" if against else "method",
        trials=_span(best.trials, "setting"), methods=count(best.method.nunique(), "method"),
        graphs=count(best.dataset.nunique(), "graph"), tried=count(len(best), "case"),
        cells=count(len(units), "case"), lone=units.count(1),
    ))  # fmt: skip


def _graphs(study: Study) -> list[str]:
    return [g for g in study.datasets(step=1) if len(study.anywhere(g, DEFAULT))]


def _compared(study: Study) -> str:
    names, graphs = study.methods(step=1), study.datasets(step=1)
    cells = [len(runs) for g in graphs for n in names if len(runs := study.anywhere(g, n))]
    apart = [name for name in names if name in ALL_LABELS]
    every = (study.drawn(g, n) for g in graphs for n in names)
    units = [runs.groupby(UNIT).ngroups for runs in every if len(runs)]
    return str(TEXT["compared"].format(
        methods=count(len(names), "method"), graphs=count(len(graphs), "graph"),
        runs=_span(cells, "run"), each=TEXT["each"] * (max(cells) > 1), units=_span(units, "pair"),
        apart=TEXT["apart"].format(names=count(len(apart), "method")) if apart else "",
    ))  # fmt: skip


def _networks(study: Study, graphs: Sequence[str], tuned: bool = False) -> Iterator[str]:
    sides: dict[bool, list[tuple[float, str]]] = {True: [], False: []}
    tested = []
    for graph in graphs:
        if best := best_network(study, graph, tuned):
            other = study.anywhere(graph, best, tuned)["ap"].mean()
            ahead = study.means["ap"][graph][DEFAULT] - other
            found = study.against(graph, best, "ap", tuned)
            tested += [found] if found else []
            verdict = TEXT["verdicts"][found.verdict if found else "unpaired"]
            words = f"{_code(graph)} ({abs(ahead):.1f}, `{best}`, {verdict})"
            sides[bool(ahead < 0)].append((-abs(ahead), words))
    below, above = ([words for _, words in sorted(some)] or ["no graph"] for some in sides.values())
    once = ""
    if tested and all(one.units == 1 for one in tested):
        few, pairs = sum(one.pairs < FEW for one in tested), count(tested[0].pairs, "pair")
        text = TEXT["once" if len(tested) > 1 else "once alone"]
        once = text.format(few=few, all=len(tested), least=FEW, pairs=pairs)
    if any(sides.values()):
        text = TEXT["networks, tuned" if tuned else "networks"]
        yield text.format(below=listed(below), above=listed(above), once=once)


def _limits(study: Study, graphs: Sequence[str]) -> Iterator[str]:
    every = [(g, n) for g in graphs for n in study.methods(dataset=g, step=1) if n != DEFAULT]
    found = {pair: one for pair in every if (one := study.against(*pair, "ap"))}
    few = [one.pairs for one in found.values() if one.pairs < FEW]
    lone = sum(one.units == 1 for one in found.values())
    yield TEXT["limits"]
    if len(found) > 1:
        yield TEXT["many"].format(comparisons=count(len(found), "comparison"))
    if few:
        yield TEXT["few"].format(few=len(few), least=_span(few, "pair"))
    if lone:
        yield TEXT["lone"].format(lone=lone)
    if missing := [name for graph, name in every if (graph, name) not in found]:
        yield TEXT["unpaired"].format(count=len(missing), of=len(every), names=codes(missing))
    yield TEXT["official"]


def _span(values: Iterable[int], noun: str) -> str:
    low, high = min(given := list(values)), max(given)
    return count(low, noun) if low == high else f"{low} to {count(high, noun)}"


def codes(names: Iterable[str]) -> str:
    """Names in a sentence, each once."""
    return listed(map(_code, dict.fromkeys(names)))


def _code(name: str) -> str:
    """A name in a sentence, without marks of its own."""
    return f"`{name}`" if PLAIN.fullmatch(name) else re.sub("[`*]", "'", name)


def _graphs_of(graphs: Iterable[str]) -> str:
    found = list(graphs)
    return f"{count(len(found), 'graph')} ({codes(found)})" if found else "no graph"
