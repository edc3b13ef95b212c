import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algnn.analytic.heads import HEADS, ncm, ridge, slda
from algnn.analytic.statistics import Statistics
from algnn.errors import InputError


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
