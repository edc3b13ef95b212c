import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algnn.analytic.choice import DECADES, MANY, choose_gamma, in_second_half
from algnn.analytic.statistics import Statistics


def problem(seed, counts, width, noise):
    generator = torch.Generator().manual_seed(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    centres = torch.randn(len(counts), width, generator=generator)
    Z = centres[labels] + noise * torch.randn(len(labels), width, generator=generator)
    return Z.double(), labels


def sums(Z, labels, chosen):
    nothing = Statistics.empty(Z.size(1))
    return nothing.plus([Z[chosen]], labels[chosen]) if len(chosen) else nothing


def pairs(classes, means):
    return zip(classes, means, strict=True)


def by_hand(Z, labels, chosen, gamma):
    """The agreement of two halves written over their nodes instead of their sums."""
    total = 0.0
    for fitted, other in ((~chosen, chosen), (chosen, ~chosen)):
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
    return total / 2


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 999), st.floats(0.1, 3.0))
def test_the_best_agreement_over_nodes_is_found_from_sums(seed, noise):
    Z, labels = problem(seed, [6, 9, 12], 5, noise)
    chosen = np.arange(len(labels)) % 2 == 0
    everything, second = sums(Z, labels, np.arange(len(labels))), sums(Z, labels, chosen)
    gamma, agreement = choose_gamma(everything, [second])
    assert abs(by_hand(Z, labels, chosen, gamma) - agreement) < 1e-8
    for other in DECADES:
        assert by_hand(Z, labels, chosen, other) <= agreement + 1e-8


@settings(deadline=None)
@given(st.integers(0, 999), st.floats(1e-3, 1e3))
def test_the_size_of_features_does_not_matter(seed, scale):
    Z, labels = problem(seed, [8, 8, 8], 6, 1.0)
    chosen = np.flatnonzero(np.arange(24) % 2)
    gamma, _ = choose_gamma(sums(Z, labels, np.arange(24)), [sums(Z, labels, chosen)])
    scaled, _ = choose_gamma(
        sums(Z * scale, labels, np.arange(24)), [sums(Z * scale, labels, chosen)]
    )
    assert gamma == scaled


def test_classes_of_one_node_and_empty_halves_are_survived():
    Z, labels = problem(0, [1, 1, 5], 4, 0.5)
    for chosen in ([], [0], [1, 2], list(range(7))):
        gamma, agreement = choose_gamma(
            sums(Z, labels, np.arange(7)), [sums(Z, labels, np.array(chosen, dtype=int))]
        )
        assert 0 < gamma < 1
        assert -1 <= agreement <= 1


@given(st.integers(0, 2**62), st.integers(0, 2**40))
def test_a_node_carries_its_half_with_it(seed, node):
    alone = in_second_half(torch.tensor([node]), seed)
    among = in_second_half(torch.tensor([5, node, 7]), seed)
    assert alone[0] == among[1]


@pytest.mark.parametrize("other", [(1, 0), (0, 1), (0, MANY - 1)])
def test_halves_are_halves_and_differ_between_seeds_and_ways(other):
    first, other = (in_second_half(torch.arange(10_000), *way) for way in ((0, 0), other))
    assert 4_800 < int(first.sum()) < 5_200
    assert 4_800 < int((first ^ other).sum()) < 5_200
