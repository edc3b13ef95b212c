import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algnn.analytic.linalg import cholesky
from algnn.analytic.linalg.cholesky import by_blocks, factorise, factors, inverted, solve, substituted
from algnn.errors import InputError


def system(count, width, columns, seed, digits=3):
    """Positive definite matrices with a condition number of so many digits, and targets."""
    generator = torch.Generator().manual_seed(seed)
    turn, _ = torch.linalg.qr(torch.randn(count, width, width, generator=generator).double())
    values = torch.logspace(0, -digits, width, dtype=torch.float64)
    targets = torch.randn(count, width, columns, generator=generator).double()
    matrix = (turn * values) @ turn.mT
    return (matrix + matrix.mT) / 2, targets


@given(
    st.integers(1, 3),
    st.integers(1, 40),
    st.integers(0, 4),
    st.integers(1, 50),
    st.integers(1, 9),
    st.integers(0, 9),
)
def test_blocks_of_any_size_give_the_same_solution(count, width, columns, most, leaf, seed):
    matrix, targets = system(count, width, columns, seed)
    factor, failed = factors(matrix)
    assert not failed.any()
    found = by_blocks(factor, targets, most, leaf)
    torch.testing.assert_close(found, torch.cholesky_solve(targets, factor), rtol=0, atol=1e-9)
    torch.testing.assert_close(matrix @ found, targets, rtol=0, atol=1e-10)


def test_blocks_lose_no_more_digits_than_rows_do():
    matrix, targets = system(1, 300, 5, seed=0, digits=12)
    factor, _ = factors(matrix)
    for found in (
        by_blocks(factor, targets, 64, 64),
        by_blocks(factor, targets, 300, 20),
        torch.cholesky_solve(targets, factor),
    ):
        left = torch.linalg.vector_norm(matrix @ found - targets)
        scale = torch.linalg.vector_norm(matrix) * torch.linalg.vector_norm(found)
        assert float(left / scale) < 1e-15


@given(st.integers(1, 3), st.integers(1, 40), st.integers(1, 9), st.integers(0, 9))
def test_triangles_are_inverted_by_halves_of_halves(count, width, leaf, seed):
    factor, _ = factors(system(count, width, 0, seed)[0])
    even, halvings = cholesky._evened(factor, 1, leaf)
    assert even.size(1) >> halvings <= leaf
    inverse = cholesky._inverted(even[:, None], halvings)[:, 0, :width, :width]
    expected = torch.linalg.inv(factor)
    torch.testing.assert_close(inverse, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(inverse, inverse.tril())


def test_one_and_several_are_solved_alike():
    matrix, targets = system(2, 6, 3, seed=1)
    several = substituted(factors(matrix)[0], targets)
    for place in range(2):
        alone = solve(matrix[place].clone(), targets[place], 0.0)
        torch.testing.assert_close(several[place], alone)


def test_what_is_not_positive_definite_is_named():
    with pytest.raises(InputError, match=r"gamma=0\.5 leaves the matrix not positive definite"):
        factorise(-torch.eye(2).double(), 0.5)
    assert factors(torch.stack([torch.eye(2), -torch.eye(2)]))[1].tolist() == [0, 1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("width", [100, cholesky.TOGETHER + 1, cholesky.LARGEST + 1])
def test_a_gpu_finds_the_same(width):
    matrix, targets = system(2, width, 5, seed=2)
    expected = substituted(factors(matrix)[0], targets)
    factor, failed = factors(matrix.cuda())
    assert not failed.any()
    torch.testing.assert_close(
        inverted(factor[0]).cpu(), torch.linalg.inv(matrix[0]), rtol=0, atol=1e-9
    )
    found = substituted(factor, targets.cuda()).cpu()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
