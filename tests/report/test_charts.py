from __future__ import annotations

from itertools import combinations, pairwise

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from algnn.bench.runs import frame
from algnn.bench.significance import rank
from algnn.methods import METHODS
from algnn.report import charts
from algnn.report.charts import render, short, spread
from algnn.report.data import gather
from algnn.report.style import drawing, styles
from algnn.report.table import Chart

NAMES = [*METHODS, "mypackage.mymodule:MyVeryOwnLearnerOfGraphs"]


@pytest.fixture
def runs_of(make_record, long_run):
    """Runs of each method; `alike` ones all end at the same place."""

    def made(names, classes, seeds=(42, 43), step=1, alike=False):
        records = [
            make_record(
                dataset="g", method=name, seed=seed, base=-(-classes // 2), step=step,
                outcome=long_run(classes, step, 0.8 if alike else 0.1 + 0.85 * i / len(names),
                                 1.0 if alike else 0.1 * 1.4**i, seed),
            )
            for i, name in enumerate(names)
            for seed in seeds
        ]  # fmt: skip
        study = gather(frame(records))
        return {name: study.cell(study.hardware[0], "g", step, name) for name in names}

    return made


def boxes(figure):
    """Every text that is drawn, and where."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    texts = list(figure.texts)
    for axes in figure.axes:
        texts += axes.texts
        if not axes.axison:
            continue
        texts += [axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = [t for t in axis.get_major_ticks() if low <= t.get_loc() <= high]
            texts += [tick.label1 for tick in ticks]
    return [
        (text.get_text(), text.get_window_extent(renderer))
        for text in texts
        if text.get_visible() and text.get_text()
    ]


def check_texts(figure, least):
    found = boxes(figure)
    assert len(found) >= least
    for text, box in found:
        assert box.x0 >= -0.5, text
        assert box.y0 >= -0.5, text
        assert box.x1 <= figure.bbox.x1 + 0.5, text
        assert box.y1 <= figure.bbox.y1 + 0.5, text
    for (one, a), (other, b) in combinations(found, 2):
        width = min(a.x1, b.x1) - max(a.x0, b.x0)
        height = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert width < 0.5 or height < 1.5, f"{one!r} and {other!r}"


@pytest.mark.parametrize(("classes", "alike"), [(1, False), (6, True), (11, False), (70, False)])
def test_no_text_is_cut_or_overlaps(runs_of, classes, alike):
    with drawing():
        cells, looks = runs_of(NAMES, classes, alike=alike), styles(NAMES)
        check_texts(charts.stages(cells, looks), len(NAMES) + 5)


@pytest.mark.parametrize("names", [NAMES, NAMES[:3]])
def test_no_text_overlaps_in_ranks(names):
    random = np.random.default_rng(0)
    rows = [
        {"dataset": str(graph), "method": name, "ap": 9 * i + random.normal()}
        for i, name in enumerate(names)
        for graph in range(13)
    ]
    with drawing():
        figure = charts.ranks(rank(pd.DataFrame(rows)))
        check_texts(figure, len(names) + 3)
    texts = [text.get_text().strip() for text in figure.axes[0].texts]
    assert f"{short(names[-1])} 1.0" in texts


def test_where_all_rank_alike_no_test_is_named(make_record):
    pairs = [(graph, name) for graph in "abc" for name in ("gem", "ewc", "lwf")]
    study = gather(frame([make_record(dataset=graph, method=name) for graph, name in pairs]))
    (chart,) = charts.of_ranks(study)
    assert "ran on all of 3 graphs. A bar joins" in chart.caption


@pytest.mark.parametrize("values", [(1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0), (1.0,),
                                    (128, 256, 512, 1024, 2048, 4096, 8192)])  # fmt: skip
def test_no_text_overlaps_in_sensitivity(runs_of, values):
    with drawing():
        runs = runs_of(["gem"], 6)["gem"]
        graphs = ("cora", "citeseer", "a-graph-with-a-long-name.npz")
        points = {graph: dict.fromkeys(values, runs) for graph in graphs}
        check_texts(charts.sensitivity(points, {"cora": values[0]}, "γ"), 8)


def test_what_the_lines_show(runs_of):
    cells = runs_of(["gem", "ewc"], 6, seeds=(1, 2, 3))
    axes = charts.stages(cells, styles(NAMES)).axes[0]
    for line, runs in zip(axes.lines, cells.values(), strict=True):
        np.testing.assert_allclose(line.get_ydata(), np.mean(list(runs.stages), axis=0))
    # the band is Student's: t = 4.302653 for three seeds
    last = cells["gem"].ap.to_numpy()
    half = 4.302653 * last.std(ddof=1) / 3**0.5
    edges = axes.collections[0].get_paths()[0].vertices
    at_end = edges[edges[:, 0] == edges[:, 0].max(), 1]
    np.testing.assert_allclose(
        [at_end.min(), at_end.max()], [last.mean() - half, last.mean() + half]
    )


def test_one_session(make_record, long_run):
    cells = {"gem": frame([make_record(method="gem", outcome=long_run(1, 1, 0.5, 1.0, 1))])}
    with drawing():
        check_texts(charts.stages(cells, styles(NAMES)), 2)


def test_drawing_leaves_matplotlib_as_it_was(runs_of):
    before = (matplotlib.get_backend(), dict(matplotlib.rcParams))
    cells = runs_of(["gem"], 6)
    chart = Chart("k", "T", "C", "A", lambda: charts.stages(cells, styles(NAMES)))
    first, second = render(chart), render(chart)
    assert first == second
    assert (matplotlib.get_backend(), dict(matplotlib.rcParams)) == before


def test_names_fit():
    assert short("a:b:MyLearner") == "MyLearner"
    assert short("module:") == "module:"
    assert len(short("x" * 99)) == 20
    assert short("a\nb\x00c") == "a b c"


@pytest.mark.parametrize("wanted", [[5] * 9, [0, 1, 2, 90, 91], [100] * 3, [50]])
def test_labels_are_moved_apart(wanted):
    places = spread(wanted, 10, 0, 100)
    assert min(places) >= 0
    assert max(places) <= 100
    assert all(b - a >= 10 - 1e-9 for a, b in pairwise(places))
