"""docs/ablation.md, from the records of the variants in ablation.py."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd

from algnn.bench.runs import Summary, summarise, write_atomically
from algnn.errors import InputError
from algnn.report.data import Study, in_order, read

PAGE = Path(__file__).parent.parent / "docs" / "ablation.md"
DEFAULT = "algnn"
GRAPHS = ("digits", "cora", "citeseer", "pubmed", "computers", "corafull-graph", "arxiv-graph")
STEP = 1
# a difference smaller than this is not seen in a table of points with one digit
SEEN = 0.05
NAMED = 6  # of cells that lack seeds, so many are named

# What was tried and is not in the library, so no record shows it: Markdown without figures.
TRIED = """\
In exploration, by scripts that are not kept, so without figures. They are named so that the next
person need not start with these.

- Centring views over the graph before rows are scaled: lower on Cora and PubMed.
- Principal components of the views in their place: no width suited both Cora and PubMed. Whitened
  by any power: lower.
- Weights by inverse document frequency: lower on PubMed and CiteSeer.
- Four hops side by side (0, 1, 2, 3): no better than own features with two hops or PageRank, at
  twice the width.
- PageRank with half or twice the chance of return: each better on some graph.
- Random units alone, without the views beside them: lower on `arxiv-graph`. Twice as many: higher
  on `corafull-graph` and `arxiv-graph`, with sessions that take far longer.
- γ chosen on some of the features only, to save time: it came out too large.
- Linear discriminants with a γ from halves: their γ is hard to choose. Class weights between
  balanced and natural: AP falls, accuracy over nodes rises.
"""

HEAD = """\
<!-- made from records by `python benchmarks/ablation.py`: change those, not this -->

# What each choice brings

`ALGNN()` has the same views of a neighbourhood on every graph, with random units beside them,
reduces wide features by an SVD, takes roots of counts, chooses γ from halves, and lets every class
count the same ([default.md](default.md)). Each row below is the default with *one* of these taken
away or made otherwise, a class of a few lines in `benchmarks/ablation.py`, over the same streams
({step} class a session) with the same seeds. A choice earns its place where the row without it is
worse.
"""

HOW = """\
Rows with other views are as wide as the default: units fill up what the views leave. `RidgeHead`
chooses its own γ; `SldaHead` and `NcmHead` have the default's, in units of the trace: their penalty
is γ tr(G). The trained encoder is the paper's (256 units, 50 epochs, expanded to 2048) with the
default's head and choice of γ. `Rank256`, `Rank1024` and `Sketch` differ from the default only
where features are wide.
"""

CARE = """\
A difference is told where its interval leaves out zero and it is at least {seen} points. That says
that the seeds agree, no more: graph, stream and test nodes are always the same ones, and where
little or nothing is random, seeds agree on anything. How far AP itself would move with other test
nodes is the last line of the table above. Two rows share their test nodes, so their difference
mostly moves less than that; records do not say how much. Read a difference well below that line as
a hint. “The very same” means equal counts in every run. Of so many differences a few are told by
chance. All of this is test accuracy: it shows how much a choice matters, and is no way to make it.
"""

Variants = Sequence[tuple[str, str]]


def write(folder: str, variants: Variants, page: Path = PAGE) -> None:
    """Write the document, whole or not at all.

    Parameters
    ----------
    folder : str
        Of records.
    variants : sequence of (str, str)
        What records call each variant, and a sentence on it.
    page : Path
    """
    write_atomically(page, document(read([folder]), folder, variants).encode())


def document(study: Study, folder: str, variants: Variants) -> str:
    """The document.

    Parameters
    ----------
    study : Study
    folder : str
        Where its records are.
    variants : sequence of (str, str)
        As for `write`.

    Returns
    -------
    str
        Markdown.
    """
    found = Found(study, variants)
    parts = [
        HEAD.format(step="one" if STEP == 1 else STEP),
        "## Average performance\n",
        f"AP in percent, {_spread(found)}. The best of each column is bold, and so is whatever"
        " equals it.\n",
        found.table(_ap, first=True),
        "## Difference to the default\n",
        "AP less the default's with the same seed, in points: below zero, the choice helps.\n",
        found.differences(),
        HOW,
        "## What each row tells\n",
        CARE.format(seen=SEEN),
        "".join(found.verdict(name, what) for name, what in variants if name in found.rows),
        "## Forgetting, and accuracy over nodes\n",
        "AF / micro accuracy in percent, means over the seeds. AP counts every session the same,"
        " micro every node.\n",
        found.table(lambda runs: f"{_mean(runs.af):.1f} / {_mean(runs.micro):.1f}"),
        "## Time\n",
        _times(found),
        *(["## Tried and not kept\n", TRIED] if TRIED.strip() else []),
        "## Where the figures come from\n",
        provenance(found, folder),
    ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


class Found:
    """The runs of the default and its variants, by row and column."""

    def __init__(self, study: Study, variants: Variants) -> None:
        self.failures = study.failures
        self.what = {DEFAULT: "`ALGNN()`, the default"} | {
            name: f"`{_short(name)}`: {what.partition('. ')[0].splitlines()[0].rstrip('.')}"
            for name, what in variants
        }
        self.graphs = in_order(study.datasets(step=STEP), GRAPHS)
        # runs of two machines are not averaged: each graph has that with the most of them
        self.cells = {
            (name, graph): study.cell(study.main_hardware(graph), graph, STEP, name)
            for name in self.what
            for graph in self.graphs
        }
        self.rows = [name for name in self.what if any(len(self.of(name, g)) for g in self.graphs)]
        if DEFAULT not in self.rows:
            raise InputError(
                f"the records hold no run of {DEFAULT}, which all others are held against: run"
                " algnn bench with the methods that `python benchmarks/ablation.py methods` prints"
            )

    def of(self, name: str, graph: str) -> pd.DataFrame:
        """Runs that differ in their seed only."""
        return self.cells[name, graph]

    @property
    def runs(self) -> pd.DataFrame:
        """All of them."""
        return pd.concat(self.cells.values())

    def table(self, text: Callable[[pd.DataFrame], str], first: bool = False) -> str:
        """A row per variant, a column per graph; the first says what each is, and which is best."""
        rows = []
        for name in self.rows:
            cells = [text(runs) if len(runs := self.of(name, g)) else "–" for g in self.graphs]
            if first:
                cells = [
                    f"**{cell}**" if self._is_best(name, graph) else cell
                    for cell, graph in zip(cells, self.graphs, strict=True)
                ]
            rows.append([self.what[name] if first else _code(name), *cells])
        return _markdown(["", *self.graphs], rows)

    def _is_best(self, name: str, graph: str) -> bool:
        shown = {
            row: round(_mean(runs.ap), 1) for row in self.rows if len(runs := self.of(row, graph))
        }
        return name in shown and shown[name] == max(shown.values())

    def difference(self, name: str, graph: str) -> Summary | None:
        """AP less the default's, over the seeds that both have."""
        ap = [self.of(row, graph).set_index("seed").ap for row in (name, DEFAULT)]
        pairs = (ap[0] - ap[1]).dropna()
        return summarise(pairs) if len(pairs) else None

    def _is_same(self, name: str, graph: str) -> bool:
        """Whether every run counted what the default's with the same seed did."""
        default = {run.seed: run.outcome.correct for run in self.of(DEFAULT, graph).itertuples()}
        return all(
            run.seed not in default or np.array_equal(run.outcome.correct, default[run.seed])
            for run in self.of(name, graph).itertuples()
        )

    def differences(self) -> str:
        """The differences of every variant, and their mean over the graphs it ran on."""
        rows = []
        for name in self.rows[1:]:
            found = [self.difference(name, graph) for graph in self.graphs]
            there = [one.mean for one in found if one]
            cells = [_signed(one) if one else "–" for one in found]
            rows.append([_code(name), *cells, _signed(_alone(there)) if there else "–"])
        moves = [f"± {_sampling(self.of(DEFAULT, graph)):.1f}" for graph in self.graphs]
        rows.append(["the default's AP, other test nodes", *moves, ""])
        return _markdown(["", *self.graphs, "mean"], rows)

    def verdict(self, name: str, what: str) -> str:
        """A sentence on a row: where the default is ahead of it, and where it is not."""
        places: dict[str, list[str]] = {"ahead": [], "behind": [], "equal": [], "same": []}
        for graph in self.graphs:
            found = self.difference(name, graph)
            if found is None:
                continue
            clear = abs(found.mean) >= max(SEEN, found.ci95 or 0.0)
            kind = "equal" if not clear else "ahead" if found.mean < 0 else "behind"
            kind = "same" if self._is_same(name, graph) else kind
            size = f" by {abs(found.mean):.1f}" if clear else ""
            places[kind].append(f"{graph}{size}")
        words = {
            "ahead": "the default is ahead on",
            "behind": "it is behind on",
            "equal": "nothing that the seeds can tell on",
            "same": "the very same on",
        }
        told = "; ".join(
            f"{words[kind]} {_listed(where)}" for kind, where in places.items() if where
        )
        return f"- **{_short(name)}.** {' '.join(what.split())} {told[:1].upper()}{told[1:]}.\n"


def provenance(found: Found, folder: str) -> str:
    """The commands, seeds, machines and versions, told from the records."""
    runs = found.runs
    seeds = sorted(set(runs.seed))
    jobs = sorted({int(machine.get("jobs") or 1) for machine in runs.machine})
    lines = ["    export PYTHONPATH=benchmarks\n"]
    for device in sorted(set(runs.device)):
        there = set(runs.dataset[runs.device == device])
        graphs = ",".join(in_order(there, GRAPHS))
        lines.append(
            f"    algnn bench --datasets {graphs} --steps {STEP} \\\n"
            f"        --seeds {','.join(map(str, seeds))} --device {device} --jobs {jobs[-1]} \\\n"
            '        --methods "$(python benchmarks/ablation.py methods)" \\\n'
            f"        --records {shlex.quote(folder)}\n"
        )
    lines.append(f"    python benchmarks/ablation.py {shlex.quote(folder)}\n")
    torch = sorted({str(versions.get("torch")) for versions in runs.versions})
    code = sorted({code.partition("+")[0] for code in runs.code})
    lines.append(
        f"\n{len(runs)} runs on {_listed(sorted(set(runs.hardware)))}; torch"
        f" {_listed(torch)}; code {_listed(code)}; {_listed(list(map(str, jobs)))} at a time.\n"
    )
    if len(code) > 1:
        lines.append("\n**Not all of them ran the same version of the code.**\n")
    lines += [_shortfall(found, seeds)]
    return "".join(lines)


def _shortfall(found: Found, seeds: Sequence[int]) -> str:
    """Cells without all of the seeds, and runs that failed."""
    short = [
        f"{_short(name)} on {graph} ({len(found.of(name, graph))} of {len(seeds)} seeds)"
        for name in found.what
        for graph in found.graphs
        if len(found.of(name, graph)) < len(seeds)
    ]
    failures = found.failures.itertuples()
    failed = sorted({f"{_short(f.method)} on {f.dataset}: {f.reason}" for f in failures})
    named = [*short[:NAMED], f"{len(short) - NAMED} more"] if len(short) > NAMED else short
    text = f"\nNot complete: {_listed(named)}.\n" if short else ""
    return text + (f"\nFailed: {'; '.join(failed)}.\n" if failed else "")


def _times(found: Found) -> str:
    if not found.runs.alone.all():
        return "Runs shared the machine, so their clocks say nothing here: see `docs/results.md`.\n"
    return (
        "Seconds in `fit` and `partial_fit`, all sessions of a stream together, the median over the"
        " seeds; one run at a time. With views that are not chosen there is still one comparison.\n"
        "\n" + found.table(lambda runs: f"{median(runs.learn_seconds):.2f}")
    )


def _spread(found: Found) -> str:
    counts = sorted({len(runs) for runs in found.cells.values() if len(runs)})
    if counts == [1]:
        return "of one seed"
    seeds = " to ".join(dict.fromkeys(map(str, (counts[0], counts[-1]))))
    return f"mean ± 95% interval over {seeds} seeds"


def _ap(runs: pd.DataFrame) -> str:
    return _with_interval(summarise(runs.ap))


def _sampling(runs: pd.DataFrame) -> float:
    """Half of AP's 95% interval over draws of as many test nodes, mean over runs."""
    halves = []
    for outcome in runs.outcome:
        right, count = outcome.correct[-1], outcome.total
        where = {int(c): i for i, c in enumerate(sorted(c for s in outcome.sessions for c in s))}
        places = [[where[int(c)] for c in session] for session in outcome.sessions]
        shares = [(right[p].sum() / count[p].sum(), count[p].sum()) for p in places]
        error = sum(share * (1 - share) / nodes for share, nodes in shares) ** 0.5 / len(places)
        halves.append(100 * 1.96 * float(error))
    return _mean(halves) if halves else 0.0


def _mean(values: Iterable[float]) -> float:
    return summarise(values).mean


def _alone(values: Sequence[float]) -> Summary:
    """A mean over graphs, which are no sample of anything: without an interval."""
    return Summary(_mean(values), None, len(values))


def _with_interval(summary: Summary) -> str:
    return f"{summary.mean:.1f}" + ("" if summary.ci95 is None else f" ± {summary.ci95:.1f}")


def _signed(summary: Summary) -> str:
    text = _with_interval(summary._replace(mean=abs(summary.mean)))
    sign = "" if round(abs(summary.mean), 1) == 0 else "−" if summary.mean < 0 else "+"
    return sign + text


def _code(name: str) -> str:
    return "`ALGNN()`" if name == DEFAULT else f"`{_short(name)}`"


def _short(name: str) -> str:
    return name.rpartition(":")[2]


def _listed(words: Sequence[str]) -> str:
    """As in a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
