"""Sums over coordinates hold what sums over features hold; and systems are solved."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algnn.analytic.heads import HEADS
from algnn.analytic.linalg import LARGEST_SHARE, Span, factorise, solve
from algnn.analytic.statistics import Statistics
from algnn.errors import InputError

WIDTH = 60


def rows(kind: str, count: int, generator: torch.Generator) -> torch.Tensor:
    """Features of kinds that make a basis hard to find."""
    plain = torch.randn(count, WIDTH, generator=generator).double()
    if kind == "repeated":
        return torch.eye(WIDTH).double()[torch.randint(0, 5, (count,), generator=generator)]
    if kind == "graded":
        return plain * torch.logspace(0, -12, count).double()[:, None]
    if kind == "near":
        return plain[:1] + 1e-7 * plain
    return {"plain": plain, "zero": plain * 0, "large": plain * 1e8}[kind]


KINDS = st.sampled_from(["plain", "repeated", "graded", "near", "zero", "large"])


@settings(deadline=None)
@given(st.lists(st.tuples(KINDS, st.integers(1, 6)), min_size=1, max_size=5), st.integers(0, 99))
def test_the_basis_is_orthonormal_and_holds_all_rows(sessions, seed):
    generator = torch.Generator().manual_seed(seed)
    span, seen = Span.empty(WIDTH), []
    for kind, count in sessions:
        seen.append(rows(kind, count, generator))
        before = span.basis
        span = span.extended(seen[-1])
        # old coordinates stay what they were: sums over them need only be padded
        assert torch.equal(span.basis[: before.size(0)], before)
        assert torch.equal(span.extended(seen[-1]).basis, span.basis)
    V, Z = span.basis, torch.cat(seen)
    assert span.rank <= sum(count for _, count in sessions)
    torch.testing.assert_close(V @ V.mT, torch.eye(span.rank).double(), rtol=0, atol=1e-12)
    for block in seen:
        lost = (block - span.coordinates(block) @ V).norm()
        assert lost <= 1e-12 * max(float(block.norm()), 1e-300)
    assert Z.size(1) == span.width


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 999), st.sampled_from(list(HEADS)), st.sampled_from([0.1, 1.0, 10.0]))
def test_every_head_gives_the_same_weights_by_way_of_a_span(seed, head, gamma):
    generator = torch.Generator().manual_seed(seed)
    span, few, all_of_it = Span.empty(WIDTH), Statistics.empty(0), Statistics.empty(WIDTH)
    for labels in ([0, 1, 0, 1], [2], [1, 3, 3], [2, 2]):
        Z = torch.randn(len(labels), WIDTH, generator=generator).double()
        span = span.extended(Z)
        few = few.padded(span.rank).plus([span.coordinates(Z)], np.array(labels))
        all_of_it = all_of_it.plus([Z], np.array(labels))
    W, b = HEADS[head](few, gamma)
    expected, bias = HEADS[head](all_of_it, gamma)
    assert float((span.lift(W) - expected).norm()) <= 1e-9 * float(expected.norm())
    assert float((b - bias).norm()) <= 1e-9 * max(float(bias.norm()), 1.0)
    whole = span.whole(few)
    torch.testing.assert_close(whole.G, all_of_it.G, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(whole.Q, all_of_it.Q, rtol=1e-12, atol=1e-12)


def test_a_direction_that_only_a_forgotten_node_had_is_gone():
    Z, labels = torch.eye(2, 5).double(), np.array([0, 1])
    span = Span.empty(5).extended(Z)
    both, second = (
        Statistics.empty(2).plus([span.coordinates(Z[some])], labels[some])
        for some in (slice(0, 2), slice(1, 2))
    )
    found, turn = span.narrowed(both.minus(second), Statistics.empty(2, ways=0), both)
    assert found.basis.abs().tolist() == [[1, 0, 0, 0, 0]]
    assert turn.shape == (2, 1)


def test_there_is_room_while_it_saves_memory():
    span = Span.empty(1000)
    most = int(LARGEST_SHARE * 1000)
    assert span.has_room(most)
    assert not span.has_room(most + 1)
    assert not Span(1000, None).has_room(1)
    r = most
    assert r * 1000 + r * (r + 1) / 2 <= 1000 * 1001 / 2


# -- solving --------------------------------------------------------------------------------------


def test_a_system_is_solved_with_its_penalty():
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(9, 9, generator=generator).double()
    matrix, targets = root @ root.mT, torch.randn(9, 3, generator=generator).double()
    found = solve(matrix.clone(), targets, 0.5)
    torch.testing.assert_close((matrix + 0.5 * torch.eye(9)) @ found, targets)
    factor = factorise(matrix.clone(), torch.tensor(0.5))
    torch.testing.assert_close(factor @ factor.mT, matrix + 0.5 * torch.eye(9))


def test_what_is_not_positive_definite_is_named():
    with pytest.raises(InputError, match=r"gamma=0\.5 leaves the matrix not positive definite"):
        factorise(-torch.eye(2).double(), 0.5)
