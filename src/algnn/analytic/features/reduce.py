"""Truncated singular value decomposition of wide features."""

import torch
from torch import Tensor

from algnn.analytic.features.expansion import random_weights
from algnn.graph.propagate import Operator, csr, row_of
from algnn.progress import tell

WIDEST = 512  # columns up to which features are kept as they are
RANK = 768  # columns that wider features are reduced to, all of which the walk has
NEAR_RANK = 384  # of these, how many the other views have: they average few nodes, and are noisier
OVERSAMPLING = 32  # further directions that the iteration carries along, for accuracy
ITERATIONS = 2
LACKING = 1e-10  # of the largest eigenvalue: below this, float32 knows no direction
MOST_ROWS = 2**15  # rows, drawn from all over the graph, that the basis is found from


def principal_basis(X: Tensor, seed: int, rank: int = RANK) -> Tensor:
    """The first right singular vectors of X [n, d], dense or CSR: a basis V [d, rank] in float32.

    Randomised subspace iteration (Halko, Martinsson and Tropp, 2011): Q ← orth(XᵀX Q) from a seeded
    start, then the eigenvectors of QᵀXᵀXQ; with fewer rows than columns the same for Xᵀ, since
    orthonormal columns are what takes time. Each column has its largest entry positive, so that the
    basis is the same on every machine, to rounding. Directions that X lacks are columns of zeros.
    """
    operator = Operator(X) if X.layout == torch.sparse_csr else X
    rows, width = X.shape
    tall = operator if rows >= width else operator.T
    fewer = min(rows, width)
    rank = min(rank, fewer)
    Q = random_weights(fewer, min(rank + OVERSAMPLING, fewer), seed).to(X)
    for done in range(ITERATIONS):
        tell("reducing features", done, ITERATIONS + 1)
        Q = _orthonormal(tall.T @ (tall @ Q)).to(X.dtype)
    tell("reducing features", ITERATIONS, ITERATIONS + 1)
    Q = _orthonormal(Q).to(X.dtype)  # a second time, for accuracy
    image = (tall @ Q).to(torch.float64)
    values, vectors = (t.flip(-1)[..., :rank] for t in torch.linalg.eigh(image.mT @ image))
    there = values > LACKING * values[0]
    if rows >= width:
        V = Q.to(torch.float64) @ vectors
    else:
        V = image @ (vectors * values.clamp_min(1e-300).rsqrt())
    V = torch.where(there, V, 0.0)
    peaks = V.gather(0, V.abs().argmax(0, keepdim=True))
    return torch.where(peaks < 0, -V, V).to(torch.float32)


def _orthonormal(Y: Tensor) -> Tensor:
    """A nearly orthonormal basis of the columns, by Cholesky QR."""
    Y = Y.to(torch.float64)
    gram = Y.mT @ Y
    # columns that depend on others become rounding, and stay harmless
    gram.diagonal().add_(1e-13 * gram.trace().clamp_min(1e-300))
    L, _ = torch.linalg.cholesky_ex(gram)
    # torch types it loosely
    return torch.linalg.solve_triangular(L, Y.mT, upper=False).mT  # type: ignore[no-any-return]


def unit_rows(X: Tensor) -> Tensor:
    """A sparse CSR matrix with each row scaled to length one; empty rows stay."""
    values, row = X.values(), row_of(X)
    lengths = values.new_zeros(X.size(0)).index_add_(0, row, values.square()).sqrt_()
    scaled = values / lengths.clamp_min(torch.finfo(values.dtype).tiny)[row]
    return csr(X.crow_indices(), X.col_indices(), scaled, X.shape)


def log_sizes(X: Tensor) -> Tensor:
    """log2(1 + ‖x‖²) of each row of X [n, d], dense or CSR, in float64."""
    if X.layout == torch.strided:
        return torch.log2(1 + X.to(torch.float64).square().sum(dim=1))
    values = X.values().to(torch.float64).square()
    return torch.log2(1 + values.new_zeros(X.size(0)).index_add_(0, row_of(X), values))
