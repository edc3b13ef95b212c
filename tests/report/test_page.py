from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from algnn.bench.records import Failure
from algnn.report.drawing import render
from algnn.report.evidence import Study, gather
from algnn.report.outline import outline
from algnn.report.page import page

GPU = {"architecture": "x86_64", "processor": "Xeon", "cores": 16, "gpu": "A GPU", "jobs": 1}
EMPTY = {"meta", "link", "img", "br", "input", "use", "path", "image", "rect"}


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
        for name, value in attrs:
            self.names.add(name)
            if name == "id":
                self.ids.append(value)
            if name in ("href", "src"):
                self.links.append(value)
        if tag not in EMPTY or (tag in ("path", "use") and self.get_starttag_text()[-2:] != "/>"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag and tag not in EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    return reader


def page_of(study: Study) -> str:
    report = outline(study)
    return page(report, {chart.key: render(chart) for chart in report.charts()})


@pytest.fixture(scope="module")
def rich_page(rich_report):
    return (rich_report / "index.html").read_text("utf-8")


def test_the_page_needs_nothing_but_itself(rich_page):
    reader = read(rich_page)
    assert all(link.startswith(("#", "data:image/png")) for link in reader.links)
    assert not re.search(r"https?:|@import|url\((?!#)", rich_page)
    assert not reader.tags & {"link", "iframe", "img", "object", "base"}
    assert len(rich_page) < 5e6


def test_links_lead_somewhere_and_ids_are_unique(rich_page):
    reader = read(rich_page)
    assert len(reader.ids) == len(set(reader.ids))
    targets = {link[1:] for link in reader.links if link.startswith("#")}
    targets |= set(re.findall(r"url\(#([\w.-]+)\)", rich_page))
    assert targets <= set(reader.ids)


def test_names_stay_text(rich_page, nasty):
    reader = read(rich_page)
    assert nasty in "".join(reader.text)
    assert rich_page.count("<script>") == 1
    assert "<b>out</b>" not in rich_page
    assert not any(name.startswith("on") for name in reader.names)


def test_what_the_page_holds(rich_page, rich_study):
    text = " ".join("".join(read(rich_page).text).split())
    for words in (
        "Class-incremental node classification on 2 graphs",
        f"{len(rich_study.methods())} methods, 2 graphs, 2 seeds",
        "Table 1.1. Final AP on all graphs (A GPU).",
        "Table 2.1. Final AP by step: corafull-graph (A GPU).",
        "Table 3. What is kept between sessions.",
        "Table 4.1. Time to learn: the fastest baseline over algnn-paper (A GPU).",
        "Sensitivity to the expansion width.",
        "algnn sweep expansion cora --method algnn-paper --values 128,512,4096 --seeds 42,43",
        "budget=12",
        "<b>out</b> | of",
        "1 run failed: see “Runs that failed”.",
        "algnn bench --datasets citeseer,corafull,reddit,arxiv,computers --methods algnn-paper,",
        "corafull-graph above: the same nodes, edges and labels with structural features",
        f"machinesA GPU ({len(rich_study.runs)} runs)",
        "codec0de",
        "torch2.11.0",
    ):
        assert words in text, words


def test_every_figure_has_words(rich_page):
    figures = re.findall(r"<figure.*?</figure>", rich_page, flags=re.DOTALL)
    assert len(figures) > 10
    for figure in figures:
        label = re.search(r'role="img" aria-label="([^"]{40,})"', figure)
        assert label is not None
        assert re.search(r"<figcaption><b>Figure [^<]{5,}</b>", figure)
        assert "<summary>How it was made</summary>" in figure
        assert "<svg" in figure


def test_one_record_is_enough(make):
    text = page_of(gather([make()]))
    assert "<dd>1</dd><dt>run: 1 method, 1 graph, 1 seed</dt>" in text
    assert "±" not in re.findall(r"<table>.*?</table>", text, flags=re.DOTALL)[0]


def test_only_other_settings(make):
    text = page_of(gather([make(edges="seen"), make(order="random")]))
    assert "the main tables are empty" in re.sub(r"\s+", " ", text)
    assert "edges=seen" in text


def test_notes(make):
    records = [
        make(),
        make(started="2027-01-01T00:00:00+00:00", versions={"code": "beef", "torch": "3"}),
        make(seed=43, device="cuda", machine={**GPU, "jobs": 3}),
    ]
    facts = ("digits", {}, "gem", {}, 2, 1, "full", "label", 42, "cuda")
    report = outline(gather(records, [Failure(*facts, reason="x")]))
    notes = "\n".join(report.notes)
    assert "made on 2 machines (A CPU, 4 cores and A GPU)" in notes
    assert "1 run of 2 shared the machine" in notes
    assert "2 versions of the code: beef (1) and c0de (1)" in notes
    assert "1 older record of runs that were done again was passed over" in notes
    assert "1 run failed" in notes
    assert dict(report.facts)["torch"] == "2.11.0, 3"
    assert outline(gather([make()])).notes == ()


def test_headlines_worked_out_by_hand(make):
    records = [
        make(dataset=graph, method=name, last=last, seconds=seconds)
        for graph, name, last, seconds in (
            ("cora", "algnn-paper", 9, 1.0),
            ("cora", "bare", 5, 3.0),
            ("citeseer", "algnn-paper", 7, 1.0),
            ("citeseer", "bare", 8, 2.0),
            ("citeseer", "joint", 9, 9.0),
        )
    ]
    found = [(headline.value, headline.label) for headline in outline(gather(records)).headlines]
    # AP 70 and 60 beside the paper's 75.86 and 64.15
    assert [value for value, _ in found] == ["5", "1 of 2", "−5.0", "2.00–3.00×"]
    assert found[0][1] == "runs: 3 methods, 2 graphs, 1 seed"


def test_graphs_whose_names_look_alike_as_files_keep_their_own(make):
    report = outline(gather([make(dataset="a b"), make(dataset="a?b")]))
    keys = [chart.key for chart in report.charts()]
    assert len(keys) == len(set(keys))
    assert len({table.key for table in report.tables()}) == len(report.tables())
