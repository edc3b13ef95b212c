"""Sums over sessions, the heads that are solved from them, and their classes."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from algnn.analytic import statistics as module
from algnn.analytic.classes import counted, union
from algnn.analytic.heads import HEADS, ncm, ridge, slda
from algnn.analytic.statistics import Statistics
from algnn.errors import InputError


def features(rows: int, width: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)).relu()


def direct(Z: torch.Tensor, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """G, Q and n written down as they are defined, without the library."""
    Z = Z.double().numpy()
    Y = (labels[:, None] == np.unique(labels)[None, :]).astype(float)
    return Z.T @ Z, Z.T @ Y, Y.sum(0)


@st.composite
def labelled(draw: st.DrawFn) -> tuple[torch.Tensor, np.ndarray]:
    rows, width = draw(st.integers(1, 30)), draw(st.integers(1, 8))
    kinds = st.lists(st.integers(-3, 5) | st.just(10**12), min_size=rows, max_size=rows)
    names = st.lists(st.text(max_size=4), min_size=rows, max_size=rows)
    labels = np.array(draw(st.one_of(kinds, names)))
    return features(rows, width, draw(st.integers(0, 99))), labels


def assert_same(found: Statistics, Z: torch.Tensor, labels: np.ndarray) -> None:
    G, Q, n = direct(Z, labels)
    assert found.classes.tolist() == np.unique(labels).tolist()
    np.testing.assert_allclose(found.G, G, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.Q, Q, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found.n, n)


@given(labelled(), st.data())
def test_any_sessions_in_any_blocks_give_the_sums_over_everything(problem, data):
    Z, labels = problem
    order = np.array(data.draw(st.permutations(range(len(labels)))))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(labels)))) | {len(labels)})
    found, start = Statistics.empty(Z.size(1)), 0
    for stop in cuts:
        rows = order[start:stop]
        size = data.draw(st.integers(1, len(rows)))
        found = found.plus(torch.split(Z[rows], size), labels[rows])
        start = stop
    assert_same(found, Z, labels)


@settings(max_examples=20)
@given(st.integers(1, 700), st.integers(1, 3), st.integers(0, 9))
def test_large_sessions_take_the_symmetric_route_to_the_same_sums(width, chunks, seed):
    rows = module.SYMMETRIC_ROWS + seed
    Z, labels = features(rows, width, seed), np.arange(rows) % 3
    found = Statistics.empty(width).plus(torch.tensor_split(Z, chunks), labels)
    G, Q, _ = direct(Z, labels)
    np.testing.assert_allclose(found.G, G, rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(found.Q, Q, rtol=1e-12, atol=1e-10)
    assert torch.equal(found.G, found.G.mT)


@given(labelled(), labelled())
def test_adding_leaves_the_old_sums_alone(first, second):
    Z, labels = first
    before = Statistics.empty(Z.size(1)).plus([Z], labels)
    kept = [t.clone() for t in (before.G, before.Q, before.n)]
    if before.classes.dtype.kind == second[1].dtype.kind:
        before.plus([features(len(second[1]), Z.size(1), 0)], second[1])
    assert all(map(torch.equal, kept, (before.G, before.Q, before.n)))


@given(labelled())
def test_tensors_and_back_bit_for_bit(problem):
    Z, labels = problem
    statistics = Statistics.empty(Z.size(1)).plus([Z], labels)
    tensors = statistics.tensors()
    back = Statistics.from_tensors(**tensors, classes=statistics.classes)
    assert torch.equal(back.G.tril(), statistics.G.tril())
    assert torch.equal(back.Q, statistics.Q)
    assert torch.equal(back.n, statistics.n)


def test_what_is_retained_grows_by_one_column_per_class_and_by_nothing_else():
    statistics = Statistics.empty(40)
    sizes = []
    for session, labels in enumerate(([0, 1], [2], [2, 2, 2, 1], [3])):
        Z = features(len(labels), 40, session)
        statistics = statistics.plus([Z], np.array(labels))
        sizes.append(sum(t.nbytes for t in statistics.tensors().values()))
    column = 8 * 40 + 8
    assert np.diff(sizes).tolist() == [column, 0, column]


def test_sums_are_kept_in_double_precision():
    # 1 + 2^-30 is lost in float32 and exact in float64
    Z = torch.tensor([[1.0], [2.0**-15]])
    found = Statistics.empty(1).plus([Z], np.array([0, 1]))
    assert found.G.item() == 1 + 2.0**-30
    assert Z.dtype == torch.float32


@pytest.mark.parametrize("rows", [3, module.SYMMETRIC_ROWS + 5])
def test_a_failing_block_leaves_the_old_sums_usable(rows):
    before = Statistics.empty(4).plus([features(5, 4, 0)], np.array([0, 1, 0, 1, 0]))
    kept = before.G.clone()

    def broken():
        yield features(2, 4, 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        before.plus(broken(), np.zeros(rows, dtype=np.int64))
    assert torch.equal(before.G, kept)


@settings(max_examples=40)
@given(st.integers(0, 999), st.integers(0, 4), st.integers(0, 30), st.booleans())
def test_sums_of_halves_are_those_of_their_nodes_alone(seed, ways, count, fades):
    """A batch of sums beside that of all nodes, in one pass over blocks."""
    generator = torch.Generator().manual_seed(seed)
    Z = torch.randn(count, 3, generator=generator).double()
    labels = torch.randint(0, 4, (count,), generator=generator).numpy() * 2
    masks = (torch.rand(ways, count, generator=generator) < 0.5).numpy()
    first = Statistics.empty(3).plus([Z], labels + 1)
    first = first.scaled(0.5) if fades else first
    half_sums = Statistics(
        first.G.expand(ways, 3, 3),
        first.Q.expand(ways, *first.Q.shape),
        first.n.expand(ways, -1),
        first.classes,
    )
    found, halves = module.with_session(first, half_sums, torch.split(Z, 7), labels, masks)
    expected = [first.plus([Z], labels), *(first.plus([Z[m]], labels[m]) for m in masks)]
    for one, other in zip([found, *(halves[way] for way in range(ways))], expected, strict=True):
        alone = other.on(found.classes)
        assert one.n.dtype == alone.n.dtype
        for ours, theirs in ((one.n, alone.n), (one.G, alone.G), (one.Q, alone.Q)):
            torch.testing.assert_close(ours, theirs)


@given(labelled(), labelled())
def test_what_was_added_can_be_taken_out_again(first, second):
    (Z, labels), (more, names) = first, second
    assume(labels.dtype.kind == names.dtype.kind)
    width = min(Z.size(1), more.size(1))
    sums, others = (
        Statistics.empty(width).plus([z[:, :width]], given)
        for z, given in ((Z, labels), (more, names))
    )
    both = sums.merged(others)
    assert_same(both, torch.cat([Z[:, :width], more[:, :width]]), np.concatenate([labels, names]))
    back = both.minus(others)
    assert back.classes.tolist() == sums.classes.tolist()
    for ours, theirs in ((back.G, sums.G), (back.Q, sums.Q), (back.n, sums.n)):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-11)


# -- heads ----------------------------------------------------------------------------------------


def problem(seed, rows=60, width=7, classes=4):
    generator = torch.Generator().manual_seed(seed)
    labels = np.arange(rows) % classes
    centres = 3 * torch.randn(classes, width, generator=generator)
    Z = centres[labels] + torch.randn(rows, width, generator=generator)
    return Z.double(), labels


@settings(deadline=None)
@given(st.integers(0, 10**6))
def test_ncm_chooses_the_nearest_mean(seed):
    Z, labels = problem(seed)
    W, b = ncm(Statistics.empty(7).plus([Z], labels), 1.0)
    means = torch.stack([Z[labels == c].mean(0) for c in range(4)])
    assert torch.equal((Z @ W + b).argmax(1), torch.cdist(Z, means).argmin(1))


@settings(deadline=None)
@given(st.integers(0, 10**6))
def test_slda_chooses_the_nearest_mean_under_the_shared_covariance(seed):
    Z, labels = problem(seed)
    gamma = 0.5
    W, b = slda(Statistics.empty(7).plus([Z], labels), gamma)
    means = torch.stack([Z[labels == c].mean(0) for c in range(4)])
    within = Z - means[labels]
    covariance = within.T @ within / len(labels)
    whitened = torch.linalg.cholesky(
        torch.linalg.inv(covariance + gamma / len(labels) * torch.eye(7, dtype=torch.float64))
    )
    nearest = torch.cdist(Z @ whitened, means @ whitened).argmin(1)
    assert torch.equal((Z @ W + b).argmax(1), nearest)


@pytest.mark.parametrize("name", HEADS)
def test_heads_leave_the_statistics_alone_and_solve_in_double_precision(name):
    Z, labels = problem(0)
    statistics = Statistics.empty(7).plus([Z], labels)
    kept = [t.clone() for t in (statistics.G, statistics.Q, statistics.n)]
    W, b = HEADS[name](statistics, 0.1)
    assert all(map(torch.equal, kept, (statistics.G, statistics.Q, statistics.n)))
    assert (W.dtype, b.dtype) == (torch.float64, torch.float64)
    assert (W.shape, b.shape) == ((7, 4), (4,))


def test_a_matrix_that_is_not_positive_definite_is_reported():
    broken = Statistics(
        torch.diag(torch.tensor([1.0, -2.0], dtype=torch.float64)),
        torch.ones(2, 1, dtype=torch.float64),
        torch.ones(1, dtype=torch.int64),
        np.array([0]),
    )
    with pytest.raises(InputError, match="use a larger one"):
        ridge(broken, 1.0)


# -- labels and classes, against NumPy's own ------------------------------------------------------


numbers = st.integers(-3, 3) | st.integers(0, 60) | st.just(2**62)
ints = st.lists(numbers, max_size=9).map(lambda some: np.array(some, dtype=np.int64))
words = st.lists(st.text("ab", max_size=3), max_size=9).map(lambda some: np.array(some, dtype="U3"))
labels = st.one_of(ints, words)
pairs = st.one_of(st.tuples(ints, ints), st.tuples(words, words))


@given(labels)
def test_nodes_are_counted_by_class_in_the_order_of_classes(some):
    counts = counted(some)
    assert counts == {label: some.tolist().count(label) for label in some.tolist()}
    assert list(counts) == sorted(counts)


@given(pairs)
def test_sums_over_more_classes(pair):
    ours, some = np.unique(pair[0]), pair[1]
    every = union(ours, np.unique(some))
    np.testing.assert_array_equal(every, np.union1d(ours, some))
    before = Statistics.empty(1).plus([torch.zeros(ours.size, 1)], ours)
    after = before.plus([torch.arange(1.0, some.size + 1)[:, None]], some)
    np.testing.assert_array_equal(after.classes, every)
    places = np.arange(1.0, some.size + 1)
    assert after.Q[0].tolist() == [places[some == label].sum() for label in every]
    assert after.n.tolist() == [(some == label).sum() + (ours == label).sum() for label in every]


def test_a_union_keeps_longer_names_whole_and_the_kind_of_what_there_is():
    assert union(np.array(["b"]), np.array(["abc"])).tolist() == ["abc", "b"]
    assert union(np.arange(0), np.array(["b"])).tolist() == ["b"]
    assert union(np.array(["b"]), np.arange(0)).tolist() == ["b"]


def test_classes_do_not_share_memory_with_the_labels():
    some = np.array([4, 4])
    found = Statistics.empty(1).plus([torch.zeros(2, 1)], some)
    some[0] = 5
    assert found.classes.tolist() == [4]
