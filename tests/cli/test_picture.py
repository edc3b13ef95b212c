from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import imread

from algnn.bench.protocol import Outcome
from algnn.cli.showing import figure as drawn
from algnn.plot import save


def an_outcome(sessions: int, base: int = 2, step: int = 1, seed: int = 0) -> Outcome:
    """Accuracy that falls from about 95 to 60 per cent."""
    random = np.random.default_rng(seed)
    ends = [base + step * t for t in range(sessions)]
    members = [tuple(range(base)), *(tuple(range(e - step, e)) for e in ends[1:])]
    total = random.integers(20, 200, ends[-1])
    shares = np.linspace(0.95, 0.6, sessions)[:, None] + random.normal(0, 0.02, (1, ends[-1]))
    correct = (total * shares.clip(0, 1)).astype(np.int64)
    for t, end in enumerate(ends):
        correct[t, end:] = 0
    zeros = (0.0,) * sessions
    return Outcome(tuple(members), correct, total, zeros, zeros, (0,) * sessions)


def boxes(figure: Any) -> list[tuple[str, Any]]:
    """Every text that is drawn, and where."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    texts = [figure._suptitle]
    for axes in figure.axes:
        texts += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            # ticks beyond the axis have labels that are never drawn
            texts += [t.label1 for t in axis.get_major_ticks() if low <= t.get_loc() <= high]
            texts += [t.label2 for t in axis.get_major_ticks() if low <= t.get_loc() <= high]
        if axes.get_legend() is not None:
            texts += axes.get_legend().get_texts()
    shown = [text for text in texts if text.get_visible() and text.get_text()]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in shown]


@pytest.mark.parametrize(
    ("sessions", "base", "step"),
    [(1, 2, 1), (4, 4, 1), (8, 35, 5), (12, 12, 1), (41, 41, 1)],
)
def test_no_text_is_cut_or_overlaps(sessions: int, base: int, step: int) -> None:
    outcomes = [an_outcome(sessions, base, step, seed) for seed in range(3)]
    title = "a graph · algnn-paper · many sessions (4 classes, then 1 at a time) · edges full"
    figure = drawn(outcomes, title, paper_ap=outcomes[0].ap - 1)
    texts = boxes(figure)
    assert len(texts) > 20
    canvas = figure.bbox
    for text, box in texts:
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= canvas.x1, text
        assert box.y1 <= canvas.y1, text
    for (one, a), (other, b) in combinations(texts, 2):
        assert not a.overlaps(b), f"{one!r} and {other!r}"


def test_cells_have_numbers_while_they_fit() -> None:
    def numbers(sessions: int) -> int:
        axes = drawn([an_outcome(sessions)], "", None).axes[0]
        return len(axes.texts)

    assert numbers(4) == 10
    assert numbers(12) == 78
    assert numbers(13) == 0


def test_what_the_panels_show() -> None:
    outcomes = [an_outcome(4, seed=seed) for seed in range(3)]
    matrix, stages, *_ = drawn(outcomes, "title", 50.0).axes
    mean = np.mean([outcome.matrix for outcome in outcomes], axis=0)
    np.testing.assert_allclose(matrix.images[0].get_array().filled(np.nan), mean)
    line, paper = stages.lines
    np.testing.assert_allclose(line.get_ydata(), np.mean([o.stagewise for o in outcomes], axis=0))
    assert list(paper.get_ydata()) == [50, 50]
    assert stages.texts[0].get_text() == f"{np.mean([o.ap for o in outcomes]):.2f}"
    assert [label.get_text() for label in matrix.get_xticklabels()] == [
        "0\n(0,1)", "1\n(2)", "2\n(3)", "3\n(4)",
    ]  # fmt: skip


def test_runs_of_different_orders_have_no_classes_at_the_ticks() -> None:
    outcome = an_outcome(3)
    other = Outcome(((1, 0), (3,), (2,)), *list(vars(outcome).values())[1:])
    labels = drawn([outcome, other], "", None).axes[0].get_xticklabels()
    assert [label.get_text() for label in labels] == ["0", "1", "2"]


def test_the_file(tmp_path: Path) -> None:
    backend = matplotlib.get_backend()
    outcome = an_outcome(4)
    path = save(
        drawn([outcome, outcome], "what $costs_{this} [b]", None), tmp_path / "new" / "run.png"
    )
    image = imread(path)
    assert image.shape[0] > 500
    assert image.shape[1] > 1000
    assert len(np.unique(image[::8, ::8].reshape(-1, image.shape[2]), axis=0)) > 20
    assert [file.name for file in path.parent.iterdir()] == ["run.png"]
    assert matplotlib.get_backend() == backend
