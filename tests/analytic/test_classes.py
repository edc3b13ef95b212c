"""Labels and classes, against NumPy's own."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from algnn.analytic.classes import columns, counted, distinct, one_hot, union

numbers = st.integers(-3, 3) | st.integers(0, 60) | st.just(2**62)
ints = st.lists(numbers, max_size=9).map(lambda some: np.array(some, dtype=np.int64))
words = st.lists(st.text("ab", max_size=3), max_size=9).map(lambda some: np.array(some, dtype="U3"))
labels = st.one_of(ints, words)
pairs = st.one_of(st.tuples(ints, ints), st.tuples(words, words))


@given(labels)
def test_distinct_classes_are_those_of_numpy(some):
    classes, codes = distinct(some)
    np.testing.assert_array_equal(classes, np.unique(some))
    np.testing.assert_array_equal(classes[codes], some)
    assert codes.dtype == np.int64


@given(labels)
def test_each_class_is_counted(some):
    found = counted(some)
    assert found == {label: some.tolist().count(label) for label in some.tolist()}
    assert list(found) == sorted(found)


@given(pairs)
def test_a_union_is_that_of_numpy(pair):
    ours, others = map(np.unique, pair)
    np.testing.assert_array_equal(union(ours, others), np.union1d(ours, others))


def test_a_union_keeps_longer_names_whole_and_the_kind_of_what_there_is():
    assert union(np.array(["b"]), np.array(["abc"])).tolist() == ["abc", "b"]
    assert union(np.arange(0), np.array(["b"])).tolist() == ["b"]
    assert union(np.array(["b"]), np.arange(0)).tolist() == ["b"]


def test_what_is_distinct_does_not_share_memory():
    some = np.array([4, 4])
    classes, _ = distinct(some)
    some[0] = 5
    assert classes.tolist() == [4]


@given(labels)
def test_rows_of_one_hot_name_their_labels(some):
    classes = np.unique(some)
    Y = one_hot(some, classes)
    assert Y.shape == (some.size, classes.size)
    assert Y.dtype == torch.float64
    if some.size:
        np.testing.assert_array_equal(classes[Y.argmax(1).numpy()], some)
        assert bool((Y.sum(1) == 1).all())


@given(pairs)
def test_columns_are_those_of_the_union(pair):
    known, labels = np.unique(pair[0]), pair[1]
    every, places = columns(known, labels)
    np.testing.assert_array_equal(every, np.union1d(known, labels))
    np.testing.assert_array_equal(every[places], labels)
