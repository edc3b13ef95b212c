import hashlib
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algnn.analytic.lifecycle.membership import Membership
from algnn.errors import InputError

PAIRS = st.lists(st.tuples(st.integers(0, 6) | st.integers(0, 2**62), st.integers(-2, 3)))


def split(pairs):
    nodes = torch.tensor([node for node, _ in pairs], dtype=torch.int64)
    return nodes, np.array([label for _, label in pairs], dtype=np.int64)


@given(st.lists(PAIRS, max_size=4), PAIRS)
def test_it_is_a_multiset_of_pairs(sessions, gone):
    members, held = Membership("key"), Counter()
    for pairs in sessions:
        members = members.plus(*split(pairs))
        held.update(pairs)
    nodes = torch.arange(7)
    times = [sum(held[node, label] for label in range(-2, 4)) for node in range(7)]
    assert members.times(nodes, np.arange(-2, 4)).tolist() == times
    if Counter(gone) <= held:
        left = members.minus(*split(gone))
        rest = Membership("key").plus(*split(list((held - Counter(gone)).elements())))
        assert left.ordered[0].tolist() == rest.ordered[0].tolist()
    else:
        with pytest.raises(InputError, match="was not learned as"):
            members.minus(*split(gone))


def test_keys_and_kinds_of_labels_have_nothing_in_common():
    nodes = torch.arange(1000)
    labels = np.arange(1000) % 3
    hashes = [
        set(Membership(key).plus(nodes, of).hashes.tolist())
        for key, of in (("a", labels), ("b", labels), ("a", labels.astype(str)))
    ]
    assert all(len(one) == 1000 for one in hashes)
    assert not hashes[0] & hashes[1]
    assert not hashes[0] & hashes[2]


def test_hashes_are_spread_evenly():
    members = Membership("key").plus(torch.arange(100_000), np.zeros(100_000, dtype=np.int64))
    assert np.unique(members.hashes).size == 100_000
    for bit in range(64):
        share = (members.hashes.view(np.uint64) >> np.uint64(bit) & np.uint64(1)).mean()
        assert 0.49 < share < 0.51


def test_the_order_of_learning_does_not_show():
    one = Membership("key").plus(torch.arange(9), np.arange(9))
    other = Membership("key").plus(torch.arange(8, -1, -1), np.arange(8, -1, -1))
    assert one.ordered[0].tolist() == other.ordered[0].tolist()


def by_hand(key, node, label):
    digest = hashlib.sha256(f"{key} {label!r}".encode()).digest()
    first, second = (int.from_bytes(digest[at : at + 8], "little") for at in (0, 8))

    def mixed(bits):
        bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % 2**64
        return bits ^ bits >> 31

    return (mixed((node + first) % 2**64) + mixed(node ^ second)) % 2**64


@given(
    st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(-9, 9) | st.text(max_size=3))),
    st.sampled_from([0, 30]),
)
def test_hashes_never_change(pairs, more):
    """Checkpoints hold them, so how they are made is part of the format."""
    pairs = [*pairs, *((node, kind(node % 3)) for node in range(more) for kind in (int, str))]
    for kind in (int, str):
        some = [(node, label) for node, label in pairs if isinstance(label, kind)]
        nodes = torch.tensor([node for node, _ in some], dtype=torch.int64)
        labels = np.array([label for _, label in some], dtype=np.int64 if kind is int else np.str_)
        expected = [
            by_hand("key", node, label)
            for (node, _), label in zip(some, labels.tolist(), strict=True)
        ]
        found = Membership("key").plus(nodes, labels).hashes
        assert found.view(np.uint64).tolist() == expected
