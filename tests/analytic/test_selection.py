import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algnn.analytic.selection import (
    AGREEMENT_DIGITS,
    COARSE_START,
    GAMMAS,
    MOST_HALVINGS,
    _agreement,
    choose_gamma,
    half_masks,
    halvings,
)
from algnn.analytic.statistics import Statistics, with_session

# agreement is rounded to so many digits
ROUNDED = 0.51 * 10**-AGREEMENT_DIGITS


def problem(seed, counts, width, noise):
    generator = torch.Generator().manual_seed(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    centres = torch.randn(len(counts), width, generator=generator)
    Z = centres[labels] + noise * torch.randn(len(labels), width, generator=generator)
    return Z.double(), labels


def sums(Z, labels, chosen):
    nothing = Statistics.empty(Z.size(1))
    return nothing.plus([Z[chosen]], labels[chosen]).on(np.unique(labels))


def batch(*several):
    """Some sums as one batch of them."""
    parts = (torch.stack([getattr(one, name) for one in several]) for name in ("G", "Q", "n"))
    return Statistics(*parts, several[0].classes)


def halved(Z, labels, masks):
    """Sums of all nodes, and of the second half for each way of halving."""
    ways, width = len(masks), Z.size(1)
    nothing = Statistics.empty(width), Statistics.empty(width, ways=ways)
    return with_session(*nothing, [Z], labels, masks)


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
    gamma, agreement = choose_gamma(everything, batch(second))
    place = GAMMAS.index(2 * gamma)  # all nodes want half of what a half wants
    assert abs(by_hand(Z, labels, chosen, GAMMAS[place]) - agreement) < ROUNDED
    for other in {*COARSE_START, max(place - 1, 0), min(place + 1, len(GAMMAS) - 1)}:
        assert by_hand(Z, labels, chosen, GAMMAS[other]) <= agreement + ROUNDED


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 999), st.floats(0.1, 3.0))
def test_where_nodes_count_the_same_the_best_agreement_is_over_nodes(seed, noise):
    """The ridge head: weights of one half, centred, against one-hot labels of the other."""
    Z, labels = problem(seed, [6, 9, 15], 5, noise)
    second = np.arange(len(labels)) % 2 == 0
    sums_of = sums(Z, labels, np.arange(len(labels))), batch(sums(Z, labels, second))
    gamma, agreement = choose_gamma(*sums_of, "ridge")
    total = 0.0
    for fitted, other in ((~second, second), (second, ~second)):
        ours, theirs = (torch.eye(3).double()[labels[half]] for half in (fitted, other))
        G = Z[fitted].T @ Z[fitted]
        # twice the γ of the whole, as a share of its trace, on a half of it
        penalty = 2 * gamma / float((Z.T @ Z).trace()) * G.trace() * torch.eye(5).double()
        scores = Z[other] @ torch.linalg.solve(G + penalty, Z[fitted].T @ ours)
        scores = scores - scores.mean(1, keepdim=True)
        truth = theirs - 1 / 3
        hit = (scores * truth).sum()
        total += float(hit * hit.abs() / (scores.square().sum() * truth.square().sum())) / 2
    assert abs(total - agreement) < ROUNDED


@settings(deadline=None)
@given(st.integers(0, 999), st.floats(1e-3, 1e3))
def test_the_size_of_features_does_not_matter(seed, scale):
    Z, labels = problem(seed, [8, 8, 8], 6, 1.0)
    chosen = np.flatnonzero(np.arange(24) % 2)
    gamma, _ = choose_gamma(sums(Z, labels, np.arange(24)), batch(sums(Z, labels, chosen)))
    scaled, _ = choose_gamma(
        sums(Z * scale, labels, np.arange(24)), batch(sums(Z * scale, labels, chosen))
    )
    assert gamma == scaled


def test_classes_of_one_node_and_empty_halves_are_survived():
    Z, labels = problem(0, [1, 1, 5], 4, 0.5)
    for chosen in ([], [0], [1, 2], list(range(7))):
        gamma, agreement = choose_gamma(
            sums(Z, labels, np.arange(7)), batch(sums(Z, labels, np.array(chosen, dtype=int)))
        )
        assert 0 < gamma < 1
        assert -1 <= agreement <= 1


@given(st.integers(0, 2**62), st.integers(0, 2**40))
def test_a_node_carries_its_half_with_it(seed, node):
    alone = half_masks(torch.tensor([node]), seed, MOST_HALVINGS)
    among = half_masks(torch.tensor([5, node, 7]), seed, MOST_HALVINGS)
    assert np.array_equal(alone[:, 0], among[:, 1])


@pytest.mark.parametrize("other", [(1, 0), (0, 1), (0, MOST_HALVINGS - 1)])
def test_halves_are_halves_and_differ_between_seeds_and_ways(other):
    first, other = (
        half_masks(torch.arange(10_000), seed, MOST_HALVINGS)[way] for seed, way in ((0, 0), other)
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
    masks = half_masks(nodes, seed, MOST_HALVINGS)
    found, again = (choose_gamma(*halved(one, labels, masks))[1] for one in (Z, wider))
    assert abs(found - again) < 1e-6


def test_the_way_uphill_falls_short_of_all_penalties_by_little():
    short = []
    for seed in range(20):
        Z, labels = problem(seed, [8, 12, 16, 5], 30, 1.5)
        chosen = half_masks(torch.arange(len(labels)), seed, MOST_HALVINGS)
        everything, half_sums = halved(Z, labels, chosen)
        highest = max(map(_agreement(everything, half_sums, both=True), GAMMAS))
        short.append(highest - choose_gamma(everything, half_sums)[1])
    assert min(short) >= 0
    assert max(short) < 0.02


@pytest.mark.parametrize(("noise", "best"), [(0.3, 9), (6.0, 10), (100.0, 0)])
def test_large_sums_find_the_best_penalty_of_all(noise, best):
    """Wider than what is tried all over the grid: from 1 / 1500, the eighth, near or far."""
    Z, labels = problem(1, [500, 500, 500], 600, noise)
    chosen = np.arange(len(labels)) % 2 == 0
    everything = sums(Z, labels, np.arange(len(labels)))
    gamma, found = choose_gamma(everything, batch(sums(Z, labels, chosen)))
    every = [by_hand(Z, labels, chosen, other, both=False) for other in GAMMAS]
    assert int(np.argmax(every)) == best
    assert pytest.approx(2 * gamma) == GAMMAS[best]
    assert abs(max(every) - found) < ROUNDED


def test_rounding_left_in_a_half_without_nodes_says_nothing():
    """As after forgetting: a half has no nodes any more, and its sums are not quite zero."""
    Z, labels = problem(5, [4, 4], 3, 0.3)
    everything = sums(Z, labels, np.arange(8))
    one, none = sums(Z, labels, np.arange(0, 8, 2)), sums(Z, labels, np.arange(0))
    left = Statistics(torch.eye(3).double() * 1e-17, none.Q, none.n, none.classes)
    for both in (True, False):
        clean, rounded = (
            _agreement(everything, batch(one, other), both=both) for other in (none, left)
        )
        for gamma in GAMMAS:
            assert rounded(gamma) == clean(gamma)
            assert 0.1 < clean(gamma) <= 1


def test_features_that_say_nothing_agree_on_nothing():
    labels = np.array([0, 0, 1, 1])
    nothing = sums(torch.zeros(4, 3).double(), labels, np.arange(4))
    half = sums(torch.zeros(4, 3).double(), labels, np.array([0, 2]))
    assert choose_gamma(nothing, batch(half)) == (GAMMAS[-1] / 2, 0.0)
    # an absolute γ, of features without any size
    assert choose_gamma(nothing, batch(half), "ridge")[0] == GAMMAS[-1] / 2


def test_nodes_are_halved_in_several_ways_while_sums_are_small():
    assert (halvings(140, 1433), halvings(50_000, 64)) == (MOST_HALVINGS, MOST_HALVINGS)
    assert halvings(50_000, 3000) == 1
    # once they span too much, sums have as many coordinates as there are features
    assert (halvings(200, 512), halvings(220, 512)) == (MOST_HALVINGS, 1)
