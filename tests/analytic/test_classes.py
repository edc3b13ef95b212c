"""Labels and classes, against NumPy's own."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from algnn.analytic.classes import CodedLabels, union

numbers = st.integers(-3, 3) | st.integers(0, 60) | st.just(2**62)
ints = st.lists(numbers, max_size=9).map(lambda some: np.array(some, dtype=np.int64))
words = st.lists(st.text("ab", max_size=3), max_size=9).map(lambda some: np.array(some, dtype="U3"))
labels = st.one_of(ints, words)
pairs = st.one_of(st.tuples(ints, ints), st.tuples(words, words))


@given(labels)
def test_codes_say_which_class_each_label_is(some):
    coded = CodedLabels.of(some)
    np.testing.assert_array_equal(coded.classes, np.unique(some))
    np.testing.assert_array_equal(coded.values, some)
    assert coded.codes.dtype == np.int64
    assert coded.counts() == {label: some.tolist().count(label) for label in some.tolist()}
    assert list(coded.counts()) == sorted(coded.counts())


@given(pairs)
def test_codes_among_more_classes(pair):
    ours, some = np.unique(pair[0]), pair[1]
    coded = CodedLabels.of(some)
    every = union(ours, coded.classes)
    np.testing.assert_array_equal(every, np.union1d(ours, some))
    np.testing.assert_array_equal(every[coded.codes_in(every)], some)


def test_a_union_keeps_longer_names_whole_and_the_kind_of_what_there_is():
    assert union(np.array(["b"]), np.array(["abc"])).tolist() == ["abc", "b"]
    assert union(np.arange(0), np.array(["b"])).tolist() == ["b"]
    assert union(np.array(["b"]), np.arange(0)).tolist() == ["b"]


def test_classes_do_not_share_memory_with_the_labels():
    some = np.array([4, 4])
    coded = CodedLabels.of(some)
    some[0] = 5
    assert coded.classes.tolist() == [4]
