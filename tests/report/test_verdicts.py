"""What the report says of `algnn` against others is what the paired test says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from algnn.bench.runs import write
from algnn.report import tables
from algnn.report.build import build
from algnn.report.export import markdown
from algnn.report.verdicts import leads, opening, tally


def runs(lasts, seeds=5, **changes):
    """Runs with answers, of each method with so many right answers about each old class."""
    return [
        {"method": name, "last": last, "seed": seed, "answers": True, **changes}
        for name, last in lasts.items()
        for seed in range(seeds)
    ]


def board(study):
    """Of each method the texts of the leaderboard by heading; what is bold has a star."""
    table = tables.leaderboard(study)
    names = [column.name for column in table.columns]
    return {
        row.values[0]: {
            name: text + "*" * (i in row.best)
            for i, (name, text) in enumerate(zip(names, table.texts(row), strict=True))
        }
        for row in table.rows
    }


def test_marks_are_verdicts_of_the_paired_test(study_of):
    lasts = {"algnn": 8, "gem": 4, "ewc": 8, "twp": 10, "joint": 4}
    study = study_of(
        *runs(lasts),
        *runs({"algnn": 8, "gem": 4, "twp": 10}, seeds=2, dataset="cora"),
        *({**run, "answers": False} for run in runs({"ncm": 1})),
    )
    found = board(study)
    # 20 old nodes and 10 new ones
    assert found["algnn"]["digits"] == "65.0 / 70.0"
    assert found["gem"]["digits"] == "45.0 / 43.3 ▲"
    assert found["ewc"]["digits"] == "65.0 / 70.0 ·"
    assert found["twp"]["digits"] == "75.0 / 83.3 ▼"
    assert found["joint"]["digits"] == "45.0 / 43.3 ▲"
    # without answers there is no verdict; of few pairs it has a hollow mark
    assert found["ncm"]["digits"] == "30.0 / 23.3"
    assert found["gem"]["cora"] == "45.0 / 43.3 △"
    assert found["twp"]["cora"] == "75.0 / 83.3 ▽"
    assert {name: row["against"] for name, row in found.items()} == {
        "algnn": "–", "gem": "2▲ 0· 0▼", "ewc": "0▲ 1· 0▼", "twp": "0▲ 0· 2▼", "ncm": "–",
        "joint": "1▲ 0· 0▼",
    }  # fmt: skip
    assert tally(study, "gem") == "2▲ 0· 0▼"


def test_a_lead_is_one_over_every_rival(study_of):
    def found(*more):
        study = study_of(*runs({"algnn": 8, "gem": 2, "algnn-nodes": 9, "joint": 10}), *more)
        headlines = [value for value, label in build(study).headlines if "test on AP" in label]
        assert [f"{sum(leads(study).values())} of 1"] == headlines
        assert board(study)["algnn"]["digits"].endswith("*") == leads(study)["digits"]
        return leads(study)["digits"]

    # a variant of ours and who sees every label again are no rivals
    assert found()
    assert not found(*runs({"ewc": 8}))
    assert found(*runs({"ewc": 3}))
    # who cannot be tested is not led, however far behind
    assert not found({"method": "ewc", "last": 0})


def test_the_first_paragraphs(study_of):
    study = study_of(
        *runs({"algnn": 8, "gem": 2, "twp": 9, "joint": 4, "joint-sage": 3}),
        *runs({"algnn": 8, "gem": 2, "joint": 10}, seeds=3, dataset="cora"),
        *runs({"algnn": 8, "gem": 8}, seeds=1, dataset="citeseer"),
        {"method": "joint", "dataset": "citeseer", "last": 9},
    )
    text = " ".join(opening(study))
    for words in (
        "5 methods learned the classes of 3 graphs: half",
        "has 1 to 5 runs on a graph, each with its own seed, on the same split of the nodes",
        "on which both methods ran (1 pair of a split and an order), so",
        "upper reference: 2 methods that may see every label so far again",
        "on AP, `algnn` leads all rivals that ran there and learn class by class on 1 graph"
        " (`cora`), and trails none on any graph. On 2 graphs (`citeseer` and `digits`) at least"
        " one rival cannot be told apart from it. By micro accuracy it leads all of them on 1"
        " graph (`cora`), and trails",
        "is behind `algnn` on 1 graph (`digits`) and ahead of it on 1 graph (`cora`), by the test",
        "`cora` (10.0, `joint`, the test agrees) and `citeseer` (5.0, `joint`, not tested).",
        "It is above on `digits` (20.0, `joint`, the test agrees). All of these verdicts rest on"
        " one split and one order of classes, 1 of 2 on fewer than 5 runs.",
        "on top of the 7 comparisons behind the marks",
        "Hollow marks, from 1 to 3 pairs of runs: 3.",
        "Marks from one split with one order of classes: 7;",
        "1 more, of 8 in all, could not be made for want of answers on record: they are with"
        " `joint`.",
        "How settings were chosen: `algnn` has none per graph.",
    ):
        assert words in text, (words, text)
    assert "user's own" not in text
    assert "user's own" in " ".join(opening(study_of(*runs({"algnn": 8, "mine:Own": 2}))))
    written = markdown(build(study))
    # the document opens with the first of them and the table
    places = (
        "## Leaderboard",
        "5 methods learned",
        "| method | rank |",
        "All labels at once",
        "- **",
    )
    found = [written.index(words) for words in places]
    assert found == sorted(found)
    assert list(opening(study_of(*runs({"gem": 3, "ewc": 4})))) == []
    alone = next(opening(study_of(*runs({"algnn": 8, "algnn-nodes": 7}))))
    one = " ".join(opening(study_of(*runs({"algnn": 8, "gem": 7}, seeds=1))))
    assert "A method has 1 run on a graph, on the same split of the nodes" in one
    assert alone.endswith("There is no rival and no joint network to compare `algnn` with.")
    untested = study_of(*runs({"algnn": 8}), {"method": "gem", "last": 2})
    assert "cannot be told apart from it, or was not tested." in next(opening(untested))


@pytest.mark.parametrize("others", [{}, {"gem": 2}])
def test_splits_and_orders_that_most_methods_have_count(study_of, others):
    def drawn(place):
        split = {"split": f"random 40/10/50, seed {42 + place}", "sha256": f"s{place}"}
        return {"provenance": split, "order": f"random-{place}" if place else "label"}

    usual = {"algnn": 9, "gem": 8, "ewc": 5}
    again = {"algnn": 5, **others}
    study = study_of(
        *runs(usual, seeds=2, **drawn(0)),
        *(run for place in (1, 2) for run in runs(again, seeds=1, **drawn(place))),
        # another file is another graph, and a named order another stream
        *runs({"algnn": 1}, seeds=1, provenance={"split": "public", "sha256": "x"}),
        *runs({"algnn": 1}, seeds=1, **{**drawn(0), "order": "2,1,0"}),
    )
    places = [0, 1, 2] if others else [0]
    assert sorted(set(study.drawn("digits", "algnn").sha256)) == [f"s{i}" for i in places]
    # means are over the split that every method has
    assert list(study.anywhere("digits", "algnn").ap) == [70.0, 70.0]
    found = study.against("digits", "gem", "ap")
    assert (found.units, found.pairs) == (len(places), len(places) + 1)
    aside = tables.others(study)
    assert len(aside.rows) == (2 if others else 4)
    # the main tables are those of the usual split and order
    assert list(study.cell(study.hardware[0], "digits", 1, "algnn").ap) == [70.0, 70.0]


def test_a_report_is_made_without_torch(make, tmp_path):
    for run in runs({"algnn": 8, "gem": 7}, seeds=1):
        write(make(**run), tmp_path)
    lines = (
        "import sys",
        "from algnn.cli import main",
        f"code = main(['report', '--records', {str(tmp_path)!r}, '--out', {str(tmp_path)!r}])",
        "sys.exit(code or any(name in sys.modules for name in ('torch', 'sklearn')))",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").exists()
