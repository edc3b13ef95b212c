import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algnn.analytic.selection import (
    COARSE,
    GAMMAS,
    MANY,
    _Directions,
    agreements,
    choose_gamma,
    second_halves,
    some_of,
)
from algnn.analytic.heads import balanced
from algnn.analytic.statistics import Statistics


def problem(seed, counts, width, noise):
    generator = torch.Generator().manual_seed(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    centres = torch.randn(len(counts), width, generator=generator)
    Z = centres[labels] + noise * torch.randn(len(labels), width, generator=generator)
    return Z.double(), labels


def sums(Z, labels, chosen):
    nothing = Statistics.empty(Z.size(1))
    return nothing.plus([Z[chosen]], labels[chosen])._on(np.unique(labels))


def best(everything, seconds):
    chosen = choose_gamma(everything, seconds)
    return chosen.gamma, chosen.agreement


def pairs(classes, means):
    return zip(classes, means, strict=True)


def by_hand(Z, labels, chosen, gamma, both=True):
    """The agreement of two halves written over their nodes instead of their sums."""
    total = 0.0
    ways = ((~chosen, chosen), (chosen, ~chosen)) if both else ((~chosen, chosen),)
    for fitted, other in ways:
        classes = np.unique(labels[fitted])
        means = torch.stack([Z[fitted & (labels == c)].mean(0) for c in classes])
        within = torch.cat([Z[fitted & (labels == c)] - m for c, m in pairs(classes, means)])
        B = means.T @ means + len(classes) * within.T @ within / fitted.sum()
        W = torch.linalg.solve(B + gamma * B.trace() * torch.eye(Z.size(1)).double(), means.T)
        W = W - W.mean(1, keepdim=True)
        theirs = np.unique(labels[other])
        middle = torch.stack([Z[other & (labels == c)].mean(0) for c in theirs])
        spread = torch.cat([Z[other & (labels == c)] - m for c, m in pairs(theirs, middle)])
        size = ((middle @ W) ** 2).sum() + len(theirs) * ((spread @ W) ** 2).sum() / other.sum()
        hit = sum(
            float(middle[j] @ W[:, i])
            for i, c in enumerate(classes)
            for j, d in enumerate(theirs)
            if c == d
        )
        total += hit * abs(hit) / (float(size) * len(theirs) * (1 - 1 / len(classes)))
    return total / len(ways)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 999), st.floats(0.1, 3.0))
def test_the_best_agreement_over_nodes_is_found_from_sums(seed, noise):
    Z, labels = problem(seed, [6, 9, 12], 5, noise)
    chosen = np.arange(len(labels)) % 2 == 0
    everything, second = sums(Z, labels, np.arange(len(labels))), sums(Z, labels, chosen)
    gamma, agreement = best(everything, second.alone())
    assert abs(by_hand(Z, labels, chosen, gamma) - agreement) < 1e-8
    place = GAMMAS.index(gamma)
    for other in {*COARSE, max(place - 1, 0), min(place + 1, len(GAMMAS) - 1)}:
        assert by_hand(Z, labels, chosen, GAMMAS[other]) <= agreement + 1e-8


@settings(deadline=None)
@given(st.integers(0, 999), st.floats(1e-3, 1e3))
def test_the_size_of_features_does_not_matter(seed, scale):
    Z, labels = problem(seed, [8, 8, 8], 6, 1.0)
    chosen = np.flatnonzero(np.arange(24) % 2)
    gamma, _ = best(sums(Z, labels, np.arange(24)), sums(Z, labels, chosen).alone())
    scaled, _ = best(
        sums(Z * scale, labels, np.arange(24)), sums(Z * scale, labels, chosen).alone()
    )
    assert gamma == scaled


def test_classes_of_one_node_and_empty_halves_are_survived():
    Z, labels = problem(0, [1, 1, 5], 4, 0.5)
    for chosen in ([], [0], [1, 2], list(range(7))):
        gamma, agreement = best(
            sums(Z, labels, np.arange(7)), sums(Z, labels, np.array(chosen, dtype=int)).alone()
        )
        assert 0 < gamma < 1
        assert -1 <= agreement <= 1


@given(st.integers(0, 2**62), st.integers(0, 2**40))
def test_a_node_carries_its_half_with_it(seed, node):
    alone = second_halves(torch.tensor([node]), seed, MANY)
    among = second_halves(torch.tensor([5, node, 7]), seed, MANY)
    assert np.array_equal(alone[:, 0], among[:, 1])


@pytest.mark.parametrize("other", [(1, 0), (0, 1), (0, MANY - 1)])
def test_halves_are_halves_and_differ_between_seeds_and_ways(other):
    first, other = (
        second_halves(torch.arange(10_000), seed, MANY)[way] for seed, way in ((0, 0), other)
    )
    assert 4_800 < int(first.sum()) < 5_200
    assert 4_800 < int((first ^ other).sum()) < 5_200


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 999), st.integers(2, 40))
def test_only_inner_products_of_features_count(seed, width):
    """However wide features are, and however they are turned."""
    Z, labels = problem(seed, [10, 12, 14], width, 1.0)
    turned, _ = torch.linalg.qr(torch.randn(width + 5, width + 5).double())
    wider = torch.cat([Z, Z.new_zeros(len(Z), 5)], 1) @ turned
    nodes = torch.arange(len(labels))
    kernels = torch.stack([Z @ Z.mT, wider @ wider.mT])
    found, again = agreements(kernels, nodes, labels, seed, MANY)
    assert abs(found - again) < 1e-6
    # and the same as from sums over the features themselves
    halves = second_halves(nodes, seed, MANY)
    everything = sums(Z, labels, nodes.numpy())
    seconds = Statistics.empty(width, ways=MANY).plus_chosen([Z], labels, halves)
    expected = best(everything, seconds)[1]
    # but for the little room that twins are given
    assert abs(found - expected) < 1e-3


def test_the_way_uphill_falls_short_of_all_penalties_by_little():
    short = []
    for seed in range(20):
        Z, labels = problem(seed, [8, 12, 16, 5], 30, 1.5)
        chosen = second_halves(torch.arange(len(labels)), seed, MANY)
        everything = sums(Z, labels, np.arange(len(labels)))
        seconds = Statistics.empty(30, ways=MANY).plus_chosen([Z], labels, chosen)
        every = _Directions(everything.alone(), seconds, both=True, own=())
        highest = max(height for (height,) in every.at(range(len(GAMMAS))).values())
        short.append(highest - best(everything, seconds)[1])
    assert min(short) >= 0
    assert max(short) < 0.02


def test_large_sums_find_the_best_penalty_uphill():
    """Wider than what is tried in full: the one found is better than those beside it."""
    Z, labels = problem(1, [500, 500, 500], 600, 6.0)
    chosen = np.arange(len(labels)) % 2 == 0
    everything = sums(Z, labels, np.arange(len(labels)))
    gamma, found = best(everything, sums(Z, labels, chosen).alone())
    place = GAMMAS.index(gamma)
    one_way = [
        by_hand(Z, labels, chosen, GAMMAS[other], both=False)
        for other in (place - 1, place, place + 1)
        if 0 <= other < len(GAMMAS)
    ]
    assert abs(max(one_way) - found) < 1e-8


def test_weights_that_are_solved_along_with_the_halves_are_those_of_the_head():
    """What a GPU does for all nodes beside the halves, here on the CPU."""
    Z, labels = problem(3, [20, 9, 14], 12, 1.0)
    everything = sums(Z, labels, np.arange(len(labels)))
    chosen = second_halves(torch.arange(len(labels)), 0, 3)
    seconds = Statistics.empty(12, ways=3).plus_chosen([Z], labels, chosen)
    both = {"both": True}
    alone = _Directions(everything.alone(), seconds, **both, own=())
    along = _Directions(everything.alone(), seconds, **both, own=[*range(9), 12])
    places = range(len(GAMMAS))
    assert along.at(places) == alone.at(places)
    assert not alone.weights
    assert sorted(along.weights) == [*range(9), 12]
    for place, found in along.weights.items():
        expected, _ = balanced(everything, GAMMAS[place])
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_a_sample_is_the_same_in_any_order_and_in_both_halves():
    nodes = torch.arange(1000)
    found = nodes[some_of(nodes, 0, 100)]
    shuffled = nodes[torch.randperm(1000, generator=torch.Generator().manual_seed(0))]
    assert torch.equal(shuffled[some_of(shuffled, 0, 100)].sort().values, found.sort().values)
    for half in second_halves(found, 0, MANY):
        assert 30 < int(half.sum()) < 70


def test_rounding_left_in_a_half_without_nodes_says_nothing():
    """As after forgetting: a half has no nodes any more, and its sums are not quite zero."""
    Z, labels = problem(5, [4, 4], 3, 0.3)
    everything = sums(Z, labels, np.arange(8))
    one, none = sums(Z, labels, np.arange(0, 8, 2)), sums(Z, labels, np.arange(0))
    left = torch.eye(3).double() * 1e-17

    def halves(G):
        pairs = ((one.G, G), (one.Q, none.Q), (one.n, none.n))
        return Statistics(*map(torch.stack, pairs), one.classes)

    for both in (True, False):
        clean, rounded = (
            _Directions(everything.alone(), halves(G), both=both, own=()).at(range(len(GAMMAS)))
            for G in (none.G, left)
        )
        assert rounded == clean
        assert all(0.1 < height <= 1 for (height,) in clean.values())


def test_features_that_say_nothing_leave_no_weights_at_hand():
    labels = np.array([0, 0, 1, 1])
    nothing = sums(torch.zeros(4, 3).double(), labels, np.arange(4))
    half = sums(torch.zeros(4, 3).double(), labels, np.array([0, 2]))
    directions = _Directions(nothing.alone(), half.alone(), both=True, own=range(len(GAMMAS)))
    assert directions.at([0, 5]) == {0: [0.0], 5: [0.0]}
    assert not directions.weights
