import numpy as np
import pytest
import torch

from algnn.analytic.features.reduce import principal_basis, unit_rows
from algnn.graph.propagate import to_csr

RANK = 6


def decaying(rows: int = 60, columns: int = 40) -> torch.Tensor:
    """A matrix whose singular values halve from one to the next."""
    generator = torch.Generator().manual_seed(0)
    left, _ = torch.linalg.qr(torch.randn(rows, columns, generator=generator))
    right, _ = torch.linalg.qr(torch.randn(columns, columns, generator=generator))
    return left * 0.5 ** torch.arange(columns) @ right.mT


@pytest.mark.parametrize("convert", [lambda X: X, to_csr], ids=["dense", "csr"])
def test_the_basis_is_that_of_a_singular_value_decomposition(convert):
    X = decaying()
    V = principal_basis(convert(X), seed=0, rank=RANK)
    assert (V.shape, V.dtype) == ((40, 6), torch.float32)
    torch.testing.assert_close(V.mT @ V, torch.eye(6), rtol=0, atol=1e-6)
    exact = torch.from_numpy(np.linalg.svd(X.double().numpy())[2][:6].T).float()
    # vector by vector, but for the sign, which is that of the largest entry
    signs = torch.where(exact.gather(0, exact.abs().argmax(0, keepdim=True)) < 0, -1.0, 1.0)
    torch.testing.assert_close(V, exact * signs, rtol=0, atol=1e-5)


def test_it_is_deterministic_and_depends_little_on_the_seed():
    X = to_csr(decaying())
    V = principal_basis(X, seed=0, rank=RANK)
    assert torch.equal(V, principal_basis(X, seed=0, rank=RANK))
    torch.testing.assert_close(V, principal_basis(X, seed=7, rank=RANK), rtol=0, atol=1e-5)


def test_fewer_rows_than_directions_and_rows_that_say_nothing():
    X = torch.zeros(4, 40)
    assert bool(principal_basis(X, seed=0, rank=RANK).isfinite().all())
    X[0, 3], X[1, 9] = 2.0, -1.0
    V = principal_basis(to_csr(X), seed=0, rank=RANK)
    assert V.shape == (40, 4)
    torch.testing.assert_close(V[[3, 9], [0, 1]], torch.ones(2))


def test_rows_of_length_one():
    X = torch.tensor([[3.0, 0.0, 4.0], [0.0, 0.0, 0.0], [0.0, -2.0, 0.0]])
    expected = torch.tensor([[0.6, 0.0, 0.8], [0.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    torch.testing.assert_close(unit_rows(to_csr(X)).to_dense(), expected)
