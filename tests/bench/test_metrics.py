from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from algnn.bench import metrics
from algnn.bench.metrics import Outcome
from algnn.errors import InputError

NAN = np.nan


def outcome(correct: object, total: object, sessions: object) -> Outcome:
    return Outcome(tuple(sessions), np.array(correct), np.array(total), (), (), ())  # type: ignore


@st.composite
def counted(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, list[tuple[int, ...]]]:
    """Sessions of one to three classes, some of them large, with anything from 0 to all right."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
    classes = sum(sizes)
    total = draw(arrays(np.int64, classes, elements=st.integers(1, 500)))
    shares = draw(arrays(np.float64, (len(sizes), classes), elements=st.floats(0, 1)))
    ends = np.cumsum([0, *sizes])
    sessions = [tuple(range(a, b)) for a, b in pairwise(ends)]
    correct = (shares * total).astype(np.int64)
    for t, end in enumerate(ends[1:]):
        correct[t, end:] = 0
    return correct, total, sessions


def test_a_run_worked_out_by_hand() -> None:
    # base of two classes (10 and 30 test nodes), then one of 20, then one of 5
    sessions = [(4, 7), (1,), (0,)]
    total = [10, 30, 20, 5]
    correct = [[10, 30, 0, 0], [5, 25, 18, 0], [5, 15, 10, 4]]
    found = outcome(correct, total, sessions)
    np.testing.assert_allclose(found.matrix, [[100, NAN, NAN], [75, 90, NAN], [50, 50, 80]])
    assert found.ap == pytest.approx(60)
    assert found.af == pytest.approx(((100 - 50) + (90 - 50)) / 2)
    np.testing.assert_allclose(found.stagewise, [100, 82.5, 60])
    assert found.macro == pytest.approx((50 + 50 + 50 + 80) / 4)
    assert found.micro == pytest.approx(100 * 34 / 65)


def test_forgetting_is_negative_where_a_session_got_better() -> None:
    assert outcome([[1, 0], [4, 2]], [4, 4], [(0,), (1,)]).af == -75


def test_a_single_session_forgets_nothing() -> None:
    found = outcome([[3]], [4], [(0,)])
    assert (found.af, found.ap) == (0.0, 75)


def test_a_class_without_test_nodes_does_not_count() -> None:
    assert outcome([[5, 0, 1]], [10, 0, 4], [(0, 1, 2)]).macro == pytest.approx(37.5)
    assert outcome([[5, 0]], [10, 0], [(0, 1)]).matrix[0, 0] == 50


@given(counted())
def test_bounds(run: tuple[np.ndarray, np.ndarray, list[tuple[int, ...]]]) -> None:
    found = outcome(*run)
    matrix = found.matrix
    below = np.tril_indices(len(matrix))
    above = np.triu_indices(len(matrix), 1)
    assert np.isnan(matrix[above]).all()
    assert ((matrix[below] >= 0) & (matrix[below] <= 100)).all()
    assert 0 <= found.ap <= 100
    assert -100 <= found.af <= 100
    assert found.stagewise[-1] == found.ap
    assert found.stagewise[0] == matrix[0, 0]


@given(counted())
def test_micro_is_a_weighted_mean(
    run: tuple[np.ndarray, np.ndarray, list[tuple[int, ...]]],
) -> None:
    correct, total, sessions = run
    found = outcome(*run)
    by_session = [sum(total[list(members)]) for members in sessions]
    assert found.micro == pytest.approx(np.average(found.matrix[-1], weights=by_session))
    assert found.micro == pytest.approx(np.average(100 * correct[-1] / total, weights=total))


@given(counted())
def test_macro_is_ap_where_each_session_is_a_class(
    run: tuple[np.ndarray, np.ndarray, list[tuple[int, ...]]],
) -> None:
    _, total, sessions = run
    alone = [(c,) for members in sessions for c in members]
    correct = np.tril(np.minimum(total, 3)[None].repeat(len(alone), 0))
    found = outcome(correct, total, alone)
    assert found.macro == pytest.approx(found.ap)
    # what is right stays right
    assert found.af == pytest.approx(0)


@given(counted(), st.randoms(use_true_random=False))
def test_the_order_of_classes_within_a_session_does_not_matter(
    run: tuple[np.ndarray, np.ndarray, list[tuple[int, ...]]], random: object
) -> None:
    correct, total, sessions = run
    shuffled = [tuple(random.sample(members, len(members))) for members in sessions]  # type: ignore[attr-defined]
    columns = [c for members in shuffled for c in members]
    np.testing.assert_array_equal(
        outcome(*run).matrix, outcome(correct[:, columns], total[columns], shuffled).matrix
    )


@pytest.mark.parametrize(
    ("correct", "total", "sessions", "message"),
    [
        ([[1, 0]], [1, 1], [(0,), (1,)], "row per session"),
        ([[1], [1]], [1, 1], [(0,), (1,)], "column per class"),
        ([[1]], [1], [(0,), ()], "row per session"),
        ([[2]], [1], [(0,)], "between 0 and total"),
        ([[-1]], [1], [(0,)], "between 0 and total"),
        ([[0, 0], [0, 1]], [0, 1], [(0,), (1,)], "no test node in the base session"),
        (np.zeros((0, 0)), [], [], "row per session"),
    ],
)
def test_counts_that_do_not_fit(
    correct: object, total: object, sessions: object, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        _ = outcome(correct, total, sessions).matrix


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=30),
    st.lists(st.integers(0, 6), min_size=1, max_size=30),
)
def test_auroc_is_the_share_of_pairs_in_order(high: list[int], low: list[int]) -> None:
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in high for b in low]
    assert metrics.auroc(high, low) == pytest.approx(np.mean(pairs))
    assert metrics.auroc(low, high) == pytest.approx(1 - np.mean(pairs))


def test_auroc_by_hand() -> None:
    assert metrics.auroc([3.0, 4.0], [1.0, 2.0]) == 1
    assert metrics.auroc([1.0], [2.0, 0.0, 1.0]) == 0.5
    assert metrics.auroc([np.inf], [1e300, -np.inf]) == 1


@pytest.mark.parametrize(("high", "low"), [([], [1.0]), ([1.0], []), ([np.nan], [1.0])])
def test_auroc_of_nothing(high: list[float], low: list[float]) -> None:
    with pytest.raises(InputError, match="at least one score, and none that is NaN"):
        metrics.auroc(high, low)


@given(st.integers(0, 2**32 - 1), st.integers(1, 200), st.integers(1, 6))
def test_reliability_is_a_sum_over_nodes(seed: int, nodes: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    likely = rng.dirichlet(np.full(classes, 0.3), nodes)
    truth = rng.integers(0, classes, nodes)
    bins = metrics.reliability(likely, truth)
    assert bins[:, 0].sum() == nodes
    assert bins[:, 1].sum() == pytest.approx(likely.max(1).sum())
    assert bins[:, 2].sum() == (likely.argmax(1) == truth).sum()
    # the textbook's sum, bin by bin
    error = 0.0
    for b in range(15):
        inside = (likely.max(1) > b / 15) & (likely.max(1) <= (b + 1) / 15)
        if inside.any():
            right = (likely.argmax(1) == truth)[inside].mean()
            error += inside.mean() * abs(right - likely.max(1)[inside].mean())
    assert metrics.calibration_error(bins) == pytest.approx(error, abs=1e-12)


def test_calibration_error_by_hand() -> None:
    # sure by 0.8 and right in 8 of 10: as good as it gets; always wrong: as bad
    likely = np.tile([0.8, 0.2], (10, 1))
    assert metrics.calibration_error(
        metrics.reliability(likely, [0] * 8 + [1] * 2)
    ) == pytest.approx(0)
    assert metrics.calibration_error(metrics.reliability([[1.0, 0.0]], [1])) == 1
    assert metrics.reliability([[1.0, 0.0]], [0])[14].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("likely", "truth", "message"),
    [
        ([[0.5, 0.5]], [0, 1], "do not fit"),
        ([0.5, 0.5], [0, 1], "do not fit"),
        ([[0.5, 0.6]], [0], "add up to 1"),
        ([[1.5, -0.5]], [0], "add up to 1"),
        ([[np.nan, 1.0]], [0], "add up to 1"),
    ],
)
def test_probabilities_that_are_none(likely: object, truth: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        metrics.reliability(likely, truth)  # type: ignore[arg-type]


def test_no_calibration_of_nothing() -> None:
    with pytest.raises(InputError, match="at least one node"):
        metrics.calibration_error(np.zeros((15, 3)))
