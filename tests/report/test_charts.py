from __future__ import annotations

from itertools import combinations, pairwise

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from algnn.methods import METHODS
from algnn.report import charts
from algnn.report.drawing import FONT, NARROW, WIDE, Chart, drawing, render, short, spread
from algnn.report.evidence import example, gather
from algnn.report.styles import styles

NAMES = [*METHODS, "mypackage.mymodule:MyVeryOwnLearnerOfGraphs"]


def runs_of(long_run, names, classes, seeds=(42, 43), step=1, alike=False):
    """Runs of each method; `alike` ones all end at the same place."""
    records = [
        example(
            dataset="g", method=name, seed=seed, base=-(-classes // 2), step=step,
            outcome=long_run(classes, step, 0.8 if alike else 0.1 + 0.05 * i,
                             1.0 if alike else 0.1 * 1.4**i, seed),
        )
        for i, name in enumerate(names)
        for seed in seeds
    ]  # fmt: skip
    study = gather(records)
    return {name: study.cell(study.places[0], "g", step, name) for name in names}


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
def test_no_text_is_cut_or_overlaps(long_run, classes, alike):
    with drawing():
        cells = runs_of(long_run, NAMES, classes, alike=alike)
        looks = styles(NAMES)
        check_texts(charts.stages(cells, looks), len(NAMES) + 5)
        check_texts(charts.growth(cells, looks, "seconds"), len(NAMES) + 3)
        check_texts(charts.growth(cells, looks, "bytes"), len(NAMES) + 3)
        check_texts(charts.times(cells, looks), 2 * len(NAMES))
        check_texts(charts.tradeoff(cells, looks), 7 if alike else len(NAMES))
        check_texts(charts.reliability(cells, looks), len(NAMES) + 5)
        if classes > 1:
            check_texts(charts.novelty(cells, looks), len(NAMES) + 5)
        count = len(cells["gem"][0].stages)
        for columns, width in zip(charts.matrix_columns(count), (NARROW, WIDE), strict=True):
            check_texts(charts.matrices(cells, columns, width), len(NAMES) + 5)


def test_no_text_overlaps_in_bars_by_step(long_run):
    with drawing():
        cells = {step: runs_of(long_run, NAMES, 70, step=step) for step in (1, 5, 10)}
        by_method = {name: {step: cells[step][name] for step in cells} for name in NAMES}
        check_texts(charts.steps(by_method, styles(NAMES)), 4 * len(NAMES))


@pytest.mark.parametrize("values", [(1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0), (1.0,),
                                    (128, 256, 512, 1024, 2048, 4096, 8192)])  # fmt: skip
def test_no_text_overlaps_in_sensitivity(long_run, values):
    with drawing():
        runs = runs_of(long_run, ["gem"], 6)["gem"]
        graphs = ("cora", "citeseer", "a-graph-with-a-long-name.npz")
        points = {graph: dict.fromkeys(values, runs) for graph in graphs}
        check_texts(charts.sensitivity(points, {"cora": values[0]}, "γ"), 8)


def test_what_the_lines_show(long_run):
    cells = runs_of(long_run, ["gem", "ewc"], 6, seeds=(1, 2, 3))
    axes = charts.stages(cells, styles(NAMES)).axes[0]
    for line, runs in zip(axes.lines, cells.values(), strict=True):
        np.testing.assert_allclose(line.get_ydata(), np.mean([r.stages for r in runs], axis=0))
    # the band is Student's: t = 4.302653 for three seeds
    last = np.array([run.ap for run in cells["gem"]])
    half = 4.302653 * last.std(ddof=1) / 3**0.5
    edges = axes.collections[0].get_paths()[0].vertices
    at_end = edges[edges[:, 0] == edges[:, 0].max(), 1]
    np.testing.assert_allclose(
        [at_end.min(), at_end.max()], [last.mean() - half, last.mean() + half]
    )
    axes = charts.growth(cells, styles(NAMES), "seconds").axes[0]
    total = np.mean([run.learn for run in cells["gem"]])
    assert axes.lines[0].get_ydata()[-1] == pytest.approx(total)


def test_what_the_lines_of_trust_show(long_run):
    cells = runs_of(long_run, ["gem", "ewc"], 6, seeds=(1, 2, 3))
    chance, *lines = charts.novelty(cells, styles(NAMES)).axes[0].lines
    assert set(chance.get_ydata()) == {0.5}
    for line, runs in zip(lines, cells.values(), strict=True):
        told = [run.record.outcome.novelty_aurocs for run in runs]
        np.testing.assert_allclose(line.get_ydata(), np.mean(told, axis=0))
    perfect, *lines = charts.reliability(cells, styles(NAMES)).axes[0].lines
    assert perfect.get_xydata().tolist() == [[0, 0], [1, 1]]
    for line, runs in zip(lines, cells.values(), strict=True):
        bins = sum(run.record.outcome.reliability for run in runs)
        # nothing is surer than a third of three classes, and bins of a few nodes are left out
        bins = bins[bins[:, 0] >= 60]
        assert 5 < len(bins) <= 10
        np.testing.assert_allclose(line.get_xdata(), bins[:, 1] / bins[:, 0])
        np.testing.assert_allclose(line.get_ydata(), bins[:, 2] / bins[:, 0])


def test_what_the_matrices_show(long_run):
    cells = runs_of(long_run, ["gem", "ewc"], 6)
    figure = charts.matrices(cells, 3, NARROW)
    _, first, second = figure.axes[0].images
    for image, runs in ((first, cells["gem"]), (second, cells["ewc"])):
        mean = np.mean([run.matrix for run in runs], axis=0)
        np.testing.assert_allclose(image.get_array().filled(np.nan), mean)


def test_what_bars_and_points_show(long_run):
    cells = runs_of(long_run, ["gem", "ewc"], 6)
    figure = charts.times(cells, styles(NAMES))
    seconds = [np.mean([run.learn for run in runs]) for runs in cells.values()]
    assert [bar.get_width() for bar in figure.axes[0].patches[::2]] == pytest.approx(seconds)
    axes = charts.tradeoff(cells, styles(NAMES)).axes[0]
    points = [line for line in axes.lines if line.get_marker() != "None"]
    assert [line.get_xdata()[0] for line in points] == pytest.approx(seconds)
    assert [line.get_ydata()[0] for line in points] == pytest.approx(
        [np.mean([run.ap for run in runs]) for runs in cells.values()]
    )


def test_one_session_and_no_time_at_all(long_run):
    cells = runs_of(long_run, ["gem"], 1, seeds=(1,))
    record = cells["gem"][0].record
    object.__setattr__(record.outcome, "learn_seconds", (0.0,))
    object.__setattr__(record.outcome, "retained_bytes", (0,))
    with drawing():
        for draw in (charts.stages, charts.times, charts.tradeoff):
            check_texts(draw(cells, styles(NAMES)), 2)
        for what in ("seconds", "bytes"):
            check_texts(charts.growth(cells, styles(NAMES), what), 2)


def test_text_is_legible_on_a_phone():
    # the page shows a narrow figure 358 pixels wide
    assert FONT * 358 / NARROW >= 11


def test_drawing_leaves_matplotlib_as_it_was(long_run):
    before = (matplotlib.get_backend(), dict(matplotlib.rcParams))
    cells = runs_of(long_run, ["gem"], 6)
    chart = Chart("k", "1", "T", "C", "A", lambda: charts.stages(cells, styles(NAMES)))
    first, second = render(chart), render(chart)
    assert first == second
    assert (matplotlib.get_backend(), dict(matplotlib.rcParams)) == before


def test_names_fit():
    assert short("a:b:MyLearner") == "MyLearner"
    assert short("module:") == "module:"
    assert len(short("x" * 99)) == 13
    assert short("a\nb\x00c") == "a b c"


@pytest.mark.parametrize("wanted", [[5] * 9, [0, 1, 2, 90, 91], [100] * 3, [50]])
def test_labels_are_moved_apart(wanted):
    places = spread(wanted, 10, 0, 100)
    assert min(places) >= 0
    assert max(places) <= 100
    assert all(b - a >= 10 - 1e-9 for a, b in pairwise(places))
