"""Tables of documents, generated from records.

A document marks the place of a table by two comments, ``<!-- table cpu/cora -->`` and
``<!-- end -->``; `refresh` writes between them what the records in the folder ``cpu`` say of cora.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

from algnn.bench.metrics import Summary, summarise
from algnn.bench.paper import paper_figures
from algnn.bench.records import Record, read_all
from algnn.files import replacing
from algnn.methods import METHODS, settings

PLACE = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
COLUMNS = (
    *("method", "AP", "AP, paper", "AF", "AF, paper"),
    *("base", "macro", "micro", "learn / bare", "selection / bare", "kept (kB)"),
)


def comparison(records: Iterable[Record], dataset: str) -> str:
    """All methods on one dataset, in the order of the registry, as a Markdown table.

    Parameters
    ----------
    records : iterable of Record
        Those of other datasets, and of other streams than the paper's, are passed over; so are
        those of other settings than the method's own, where there are any of its own.
    dataset : str

    Returns
    -------
    str
        AP and AF as mean ± 95% interval, the paper's beside them; the accuracy on the base session
        when it was learned; macro and micro; learn seconds over those of `bare` with the same seed,
        the median over seeds, and the part of it that went into choosing or condensing nodes; what
        is kept at the end.

    Examples
    --------
    >>> print(comparison([], "cora"))
    | method | AP | AP, paper | AF | ... | selection / bare | kept (kB) |
    | --- | ... | --- |
    <BLANKLINE>
    """
    stream = ("full", "label", 1, dataset)
    chosen = [r for r in records if (r.edges, r.order, r.step, r.dataset) == stream]
    of = {name: _own([r for r in chosen if r.method == name], name, dataset) for name in METHODS}
    bare = {r.seed: sum(r.outcome.learn_seconds) for r in of["bare"] if _alone(r)}
    rows = [_row(dataset, found, bare) for found in of.values() if found]
    return "".join([_line(COLUMNS), _line(["---"] * len(COLUMNS)), *rows])


def refresh(document: Path, records: Path) -> str:
    r"""The document with every table in it written anew from the records.

    Parameters
    ----------
    document : Path
        A Markdown file.
    records : Path
        A folder of folders of records.

    Returns
    -------
    str

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "cpu").mkdir()
    >>> _ = (folder / "a.md").write_text("<!-- table cpu/cora -->\nold\n<!-- end -->")
    >>> "old" in refresh(folder / "a.md", folder)
    False
    """

    def table(place: re.Match[str]) -> str:
        folder, _, dataset = place[2].rpartition("/")
        return place[1] + comparison(read_all(records / folder), dataset) + place[3]

    return PLACE.sub(table, document.read_text("utf-8"))


def _own(records: list[Record], method: str, dataset: str) -> list[Record]:
    usual = settings(method, dataset)
    # a setting that did not exist yet was off
    off = {name: value for name, value in usual.items() if not value}
    return [record for record in records if off | record.settings == usual] or records


def _alone(record: Record) -> bool:
    """Whether no other run shared the machine: its clock says something then."""
    return record.machine.get("jobs") in (None, 1)


def _row(dataset: str, records: Sequence[Record], bare: Mapping[int, float]) -> str:
    outcomes = [record.outcome for record in records]
    paper = paper_figures(dataset, records[0].method)
    clocked = [r for r in records if bare.get(r.seed, 0) > 0 and _alone(r)]
    learn = [sum(r.outcome.learn_seconds) / bare[r.seed] for r in clocked]
    chosen = [r for r in clocked if r.outcome.selection_seconds]
    selection = [sum(r.outcome.selection_seconds) / bare[r.seed] for r in chosen]
    cells = (
        f"`{records[0].method}`",
        _with_interval(summarise(o.ap for o in outcomes)),
        "–" if paper is None else f"{paper.ap[0]:.1f}",
        _with_interval(summarise(o.af for o in outcomes)),
        "–" if paper is None or paper.af is None else f"{paper.af[0]:.1f}",
        f"{summarise(float(o.matrix[0, 0]) for o in outcomes).mean:.1f}",
        f"{summarise(o.macro for o in outcomes).mean:.1f}",
        f"{summarise(o.micro for o in outcomes).mean:.1f}",
        # the median: one run beside which the machine was busy does not count
        f"{median(learn):.2f}" if learn else "–",
        f"{median(selection):.2f}" if selection else "–",
        f"{median(o.retained_bytes[-1] for o in outcomes) / 1000:,.0f}",
    )
    return _line(cells)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def _with_interval(summary: Summary) -> str:
    return f"{summary.mean:.1f}" + ("" if summary.ci95 is None else f" ± {summary.ci95:.1f}")


if __name__ == "__main__":
    target, folder = map(Path, sys.argv[1:])
    text = refresh(target, folder)
    with replacing(target) as temporary:
        temporary.write_text(text, "utf-8")
