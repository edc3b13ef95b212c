from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pandas as pd
import pytest

from algnn.report.build import build
from algnn.report.data import Study
from algnn.report.export import page
from algnn.report.table import Chart, Table

GPU = {"architecture": "x86_64", "processor": "Xeon", "cores": 16, "gpu": "A GPU", "jobs": 1}
EMPTY = {"meta", "link", "img", "br", "input"}


class Reader(HTMLParser):
    """Tags, ids, links and text of a page; every tag must be closed by its own."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}
        self.ids += [value for name, value in attrs if name == "id"]
        self.links += [value for name, value in attrs if name in ("href", "src")]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)


@pytest.fixture(scope="module")
def rich_page(rich_report):
    return (rich_report / "index.html").read_text("utf-8")


@pytest.fixture(scope="module")
def reader(rich_page):
    reader = Reader()
    reader.feed(rich_page)
    assert reader.open == []
    return reader


def page_of(study: Study) -> str:
    return page(build(study))


def data_of(text: str) -> dict:
    return json.loads(re.findall(r'id="data">(.*?)</script>', text, flags=re.DOTALL)[0])


def test_the_page_needs_nothing_but_itself(rich_page, reader):
    assert all(link.startswith("#") for link in reader.links)
    assert not re.search(r"https?:|@import|url\((?!#)", rich_page)
    assert not reader.tags & {"link", "iframe", "img", "object", "base"}
    assert len(rich_page.encode()) < 1.2e6


def test_links_lead_somewhere_and_ids_are_unique(rich_page, reader):
    assert len(reader.ids) == len(set(reader.ids))
    targets = {link[1:] for link in reader.links if link.startswith("#")}
    targets |= set(re.findall(r"url\(#([\w.-]+)\)", rich_page))
    assert targets <= set(reader.ids)


def test_names_stay_text(rich_page, reader, nasty):
    assert nasty in "".join(reader.text)
    assert rich_page.count("<script") == 2
    assert nasty in [method["name"] for method in data_of(rich_page)["methods"]]
    assert "<b>out</b>" not in rich_page
    assert not any(name.startswith("on") for name in reader.names)


def test_what_the_page_holds(reader, rich_study):
    text = " ".join("".join(reader.text).split())
    for words in (
        "Class-incremental node classification on 2 graphs",
        f"{len(rich_study.methods())} methods, 2 graphs, 2 seeds",
        "Table 1. All methods on all graphs.",
        "What was compared, and what the test says",
        "Table 3. Final AP by step: corafull-graph (A GPU).",
        "Table 4. What is kept between sessions.",
        "Time to learn: every method over algnn-paper (A GPU)",
        "Sensitivity to the expansion width.",
        "algnn sweep expansion cora --method algnn-paper --values 128,512,4096 --seeds 42,43",
        "budget=12",
        "<b>out</b> | of",
        "1 run failed",
        "algnn bench --datasets citeseer,corafull,reddit,arxiv,computers --methods algnn-paper,",
        "corafull-graph above: the same nodes, edges and labels with structural features",
        f"machinesA GPU ({len(rich_study.runs)} runs)",
        "codec0de",
        "torch2.11.0",
    ):
        assert words in text, words


def test_one_record_is_enough(study_of):
    text = page_of(study_of({}))
    assert "<dd>1</dd><dt>run: 1 method, 1 graph, 1 seed</dt>" in text
    assert "±" not in re.findall(r"<table>.*?</table>", text, flags=re.DOTALL)[0]


@pytest.mark.parametrize(
    ("names", "words"),
    [(["joint"], "joint</code>, set apart, trains on"),
     (["joint", "joint-sage"], "joint-sage</code>, set apart, train on")],
)  # fmt: skip
def test_one_trains_and_two_train(study_of, names, words):
    assert words in page_of(study_of({}, *({"method": name} for name in names)))


def test_only_other_settings(study_of):
    text = page_of(study_of({"edges": "seen"}, {"order": "random"}))
    assert "the main tables are empty" in re.sub(r"\s+", " ", text)
    assert "edges=seen" in text


def test_notes(study_of):
    study = study_of(
        {},
        {"started": "2027-01-01T00:00:00+00:00", "versions": {"code": "beef", "torch": "3"}},
        {"seed": 43, "device": "cuda", "machine": {**GPU, "jobs": 3}},
    )
    failed = {
        "method": "gem",
        "dataset": "digits",
        "step": 1,
        "seed": 42,
        "device": "cpu",
        "split": "test",
    }
    report = build(replace(study, failures=pd.DataFrame([{**failed, "reason": "x"}])))
    notes = "\n".join(report.notes)
    for words in (
        "made on 2 machines (A CPU, 4 cores and A GPU)",
        "1 run of 2 shared the machine",
        "1 run of 2 were made by an older version of the code that their method uses",
        "1 older record",
        "1 run failed",
    ):
        assert words in notes
    # in words: hashes stand with the facts
    assert not re.search("beef|c0de", notes)
    assert dict(report.facts)["code"] == "beef (1 run); c0de (1 run)"
    assert dict(report.facts)["torch"] == "2.11.0, 3"
    assert build(study_of({})).notes == ()


def test_headlines_worked_out_by_hand(study_of):
    report = build(
        study_of(
            *(
                {"dataset": graph, "method": name, "last": last, "seconds": seconds}
                for graph, name, last, seconds in (
                    ("cora", "algnn-paper", 9, 1.0),
                    ("cora", "bare", 5, 3.0),
                    ("citeseer", "algnn-paper", 7, 1.0),
                    ("citeseer", "bare", 8, 2.0),
                    ("citeseer", "joint", 9, 9.0),
                )
            )
        )
    )
    # AP 70 and 60 beside the paper's 75.86 and 64.15
    assert [value for value, _ in report.headlines] == ["5", "−5.0", "2.00–3.00×"]
    assert report.headlines[0][1] == "runs: 3 methods, 2 graphs, 1 seed"


def test_graphs_whose_names_look_alike_as_files_keep_their_own(study_of):
    report = build(study_of({"dataset": "a b"}, {"dataset": "a?b"}), pictures=True)
    for kind in (Chart, Table):
        keys = [item.key for item in report.all(kind)]
        assert len(keys) == len(set(keys)) > 1
