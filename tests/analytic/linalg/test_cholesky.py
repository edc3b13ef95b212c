import pytest
import torch

from algnn.analytic.linalg.cholesky import factorise, solve
from algnn.errors import InputError


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
