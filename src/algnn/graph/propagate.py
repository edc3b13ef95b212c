"""The normalised adjacency, products with it, and receptive fields."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from algnn.checks import added

# Rows are handled in blocks of about this many bytes, so that memory does not grow with the graph.
# The allocator gives arrays beyond 32 MiB back to the system, which clears them anew each time.
BLOCK_BYTES = 16 * 2**20
# A GPU has more memory, and each block costs it a few kernel launches.
GPU_BLOCK_BYTES = 1024 * 2**20

# The first sparse CSR tensor of a process makes torch warn, that they are in beta and, in 2.11,
# that they are not checked: it is made here.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)
    torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 1), check_invariants=False)


def normalised_adjacency(
    edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None
) -> Tensor:
    """Â = D^(-1/2) (A + I) D^(-1/2) [N, N], CSR, float32, from edges (source, target) [2, E].

    Row i gathers what reaches node i. D sums the weights (1 by default, as of an added self-loop)
    of incoming edges, as PyTorch Geometric's `GCNConv` does, so that an undirected graph gives a
    symmetric matrix.
    """
    weight = None if edge_weight is None else edge_weight.detach().to(edge_index.device)
    rows = looped_rows(edge_index[0], edge_index[1], weight, slice(0, num_nodes), num_nodes)
    return scaled_rows(rows, 0, inverse_roots(rows))


def looped_rows(
    source: Tensor, target: Tensor, weight: Tensor | None, rows: slice, num_nodes: int
) -> Tensor:
    """Some rows of A + I in CSR [b, N], float32, each sorted, from all edges that end there.

    A self-loop that is there keeps its weight, of several the largest, and is not added again.
    """
    own = torch.arange(rows.start, rows.stop, device=source.device)
    given = torch.ones_like(source, dtype=torch.float32) if weight is None else weight.float()
    loops, loop_weight = source == target, torch.ones_like(own, dtype=torch.float32)
    there = target[loops] - rows.start
    loop_weight[there] = 0
    loop_weight.scatter_reduce_(0, there, given[loops], "amax")  # in whatever order they come
    columns, local = torch.cat([source[~loops], own]), torch.cat([target[~loops], own]) - rows.start
    values = torch.cat([given[~loops], loop_weight])
    places = local * num_nodes + columns
    if weight is None:
        order = torch.argsort(places)
    else:  # edges of one place by their weight: they may come in any order
        order = torch.argsort(values)
        order = order[torch.argsort(places[order], stable=True)]
    starts = pad(torch.bincount(local, minlength=own.numel()).cumsum(0), (1, 0))
    return csr(starts, columns[order], values[order], (own.numel(), num_nodes))


def inverse_roots(rows: Tensor) -> Tensor:
    """D^(-1/2) of some rows of A + I, float32; the sums are in float64, so their order is free."""
    row = row_of(rows)
    degrees = torch.zeros(rows.size(0), dtype=torch.float64, device=row.device)
    degrees.index_add_(0, row, rows.values().to(torch.float64))
    roots = degrees.to(torch.float32).pow_(-0.5)
    # of sums that are finite in float64 alone
    roots = torch.where(roots == 0, degrees.pow(-0.5).to(torch.float32), roots)
    return roots.masked_fill_(roots == torch.inf, 0)


def scaled_rows(rows: Tensor, first: int, roots: Tensor) -> Tensor:
    """Rows of Â from those of A + I, of which the first is row `first`, and D^(-1/2) [N]."""
    values = roots[rows.col_indices()] * rows.values() * roots[row_of(rows) + first]
    return csr(rows.crow_indices(), rows.col_indices(), values, rows.shape)


def spmm(sparse: Tensor, dense: Tensor, beside: Tensor | None = None, share: float = 0.0) -> Tensor:
    """Sparse CSR [m, n] times dense [n, k], without a gradient.

    With `beside` [m, k], the result is ``share * beside + (1 - share) * product``.
    """
    with torch.no_grad():
        # on the CPU the reducing kernel is vectorised: 1.2 to 5 times faster than `sparse @ dense`
        product: Tensor = torch.sparse.mm(sparse, dense, "sum") if dense.is_cpu else sparse @ dense
        return product if beside is None else product.mul_(1 - share).add_(beside, alpha=share)


class Operator:
    """A constant sparse CSR matrix that gradients flow through; its transpose is built once."""

    def __init__(self, matrix: Tensor, transpose: Tensor | None = None) -> None:
        if transpose is None:
            order = torch.argsort(matrix.col_indices(), stable=True)
            counts = torch.bincount(matrix.col_indices(), minlength=matrix.size(1))
            starts = pad(counts.cumsum(0), (1, 0))
            columns, values = row_of(matrix)[order], matrix.values()[order]
            transpose = csr(starts, columns, values, matrix.shape[::-1])
        self.matrix, self._transpose = matrix, transpose

    @property
    def T(self) -> "Operator":
        """The transpose, an operator too, so that gradients of gradients flow as well."""
        return Operator(self._transpose, self.matrix)

    def __matmul__(self, dense: Tensor) -> Tensor:
        result: Tensor = _Product.apply(self, dense)  # type: ignore[no-untyped-call]
        return result


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, operator: Operator, dense: Tensor) -> Tensor:
        ctx.operator = operator
        return spmm(operator.matrix, dense)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, ctx.operator.T @ gradients[0].contiguous()


@dataclass(frozen=True)
class Field:
    """All that a two-layer GCN's output at n target nodes depends on."""

    inputs: Tensor  # [m, d]: the rows of Â X of the m nodes among the targets or one hop away
    mix: Operator  # [n, m]: the targets' rows of Â over those m nodes


def receptive_field(adjacency: Tensor, x: Tensor, nodes: Tensor) -> Field:
    """The field of `nodes`, for training a two-layer GCN on them.

    Â X is constant: it is multiplied once, for the nodes whose hidden units reach a target.
    """
    mix = take_rows(adjacency, nodes)
    reached, columns = torch.unique(mix.col_indices(), return_inverse=True)
    compact = csr(mix.crow_indices(), columns, mix.values(), (nodes.numel(), reached.numel()))
    inputs = x.new_empty(reached.numel(), x.size(1))
    for block in blocks(reached.numel(), x.size(1) * x.element_size(), x.device):
        inputs[block] = spmm(take_rows(adjacency, reached[block]), x)
    return Field(inputs, Operator(compact))


def take_rows(matrix: Tensor, rows: Tensor) -> Tensor:
    """Some rows [k] of a matrix [m, n], dense or sparse CSR, as one [k, n] of the same layout."""
    if matrix.layout == torch.strided:
        return matrix[rows]
    starts = matrix.crow_indices()
    counts = starts[rows + 1] - starts[rows]
    new_starts = pad(counts.cumsum(0), (1, 0))
    # entry e of row r has the index (old start of r) + (e − new start of r)
    shift = torch.repeat_interleave(starts[rows] - new_starts[:-1], counts)
    entries = torch.arange(shift.numel(), device=shift.device) + shift
    shape = (rows.numel(), matrix.size(1))
    return csr(new_starts, matrix.col_indices()[entries], matrix.values()[entries], shape)


def to_csr(matrix: Tensor) -> Tensor:
    """A dense or sparse matrix in sparse CSR, with indices of 64 bits."""
    if matrix.layout != torch.sparse_csr:
        return (added(matrix) if matrix.layout == torch.sparse_coo else matrix).to_sparse_csr()
    starts, columns = matrix.crow_indices().long(), matrix.col_indices().long()
    return csr(starts, columns, matrix.values(), matrix.shape)


def equal(one: Tensor, other: Tensor) -> bool:
    """Whether two matrices, dense or sparse, have the same entries."""
    if other.layout == torch.strided:
        return torch.equal(one.to_dense(), other)
    both = (to_csr(one), to_csr(other))
    parts = ((m.crow_indices(), m.col_indices(), m.values()) for m in both)
    return all(map(torch.equal, *parts))


def without_diagonal(matrix: Tensor, first: int = 0) -> Tensor:
    """Rows of a CSR matrix, from row `first` on, with zeros on its diagonal; indices are shared."""
    values = matrix.values().masked_fill(matrix.col_indices() == row_of(matrix) + first, 0)
    return csr(matrix.crow_indices(), matrix.col_indices(), values, matrix.shape)


def blocks(rows: int, row_bytes: int, device: torch.device | None = None) -> Iterator[slice]:
    """Slices that cover `rows` rows, each of about `BLOCK_BYTES`, or `GPU_BLOCK_BYTES` on a GPU."""
    on_gpu = device is not None and device.type == "cuda"
    size = max(1, (GPU_BLOCK_BYTES if on_gpu else BLOCK_BYTES) // max(1, row_bytes))
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def row_of(matrix: Tensor) -> Tensor:
    """The row of each entry of a sparse CSR matrix."""
    return torch.repeat_interleave(matrix.crow_indices().diff())


def csr(starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A sparse CSR matrix from its parts, which are not checked."""
    return torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=False)
