"""The normalised adjacency, products with it, and what some nodes can see of a graph."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm

# Rows are handled in blocks of about this many bytes, so that memory does not grow with the graph.
BLOCK_BYTES = 64 * 2**20
# A GPU has the room, and pays for each block with a few launches.
GPU_BLOCK_BYTES = 1024 * 2**20


def normalised_adjacency(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Â = D^(-1/2) (A + I) D^(-1/2), with one self-loop per node.

    Parameters
    ----------
    edge_index : Tensor [2, E]
        Edges as (source, target); a self-loop that is already there is not added again.
    num_nodes : int
        N.

    Returns
    -------
    Tensor [N, N], sparse CSR, float32
        Row i gathers what reaches node i. D counts incoming edges, as PyTorch Geometric's `GCNConv`
        does, so that an undirected graph gives a symmetric matrix.

    Examples
    --------
    >>> import torch
    >>> normalised_adjacency(torch.tensor([[0, 1], [1, 0]]), 2).to_dense()
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    edges, weight = gcn_norm(edge_index, None, num_nodes, dtype=torch.float32)
    source, target = edges
    # sort by (target, source), then build the rows: one sort, no intermediate COO tensor
    order = torch.argsort(target * num_nodes + source)
    counts = torch.bincount(target, minlength=num_nodes)
    return csr(_row_starts(counts), source[order], weight[order], (num_nodes, num_nodes))


def spmm(sparse: Tensor, dense: Tensor, beside: Tensor | None = None, share: float = 0.0) -> Tensor:
    """Sparse times dense, without a gradient.

    Parameters
    ----------
    sparse : Tensor [m, n], sparse CSR
    dense : Tensor [n, k]
    beside : Tensor [m, k], optional
    share : float
        Of `beside` in the result, where it is given; the product has the rest.

    Returns
    -------
    Tensor [m, k]

    Examples
    --------
    >>> import torch
    >>> spmm(torch.eye(2).to_sparse_csr(), torch.ones(2, 3)).shape
    torch.Size([2, 3])
    >>> spmm(torch.eye(1).to_sparse_csr(), torch.ones(1, 1), torch.tensor([[9.0]]), share=0.5)
    tensor([[5.]])
    """
    with torch.no_grad():
        if beside is not None and dense.device.type != "cpu":
            return torch.addmm(beside, sparse, dense, beta=share, alpha=1 - share)
        product: Tensor
        if dense.device.type == "cpu" and dense.size(1) == 1:
            product = torch.mv(sparse, dense.squeeze(1)).unsqueeze(1)
        elif dense.device.type == "cpu" and sparse.dtype == dense.dtype:
            # the reducing kernel is vectorised: 1.2 to 2.2 times faster than `sparse @ dense`
            product = torch.sparse.mm(sparse, dense, "sum")
        else:
            product = sparse @ dense
        return product if beside is None else product.mul_(1 - share).add_(beside, alpha=share)


class Operator:
    """A constant sparse matrix that gradients flow through; its transpose is built once.

    Parameters
    ----------
    matrix : Tensor [m, n], sparse CSR
    transpose : Tensor [n, m], sparse CSR, optional
        Where it is at hand already.

    Examples
    --------
    >>> import torch
    >>> dense = torch.ones(2, 1, requires_grad=True)
    >>> (Operator(torch.tensor([[0.0, 2.0]]).to_sparse_csr()) @ dense).sum().backward()
    >>> dense.grad.squeeze().tolist()
    [0.0, 2.0]
    """

    def __init__(self, matrix: Tensor, transpose: Tensor | None = None) -> None:
        self.matrix = matrix
        self._transpose = _transpose(matrix) if transpose is None else transpose

    @property
    def T(self) -> Operator:
        """The transpose, which is an operator too: gradients of gradients flow as well."""
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
    """All that a two-layer GCN's output at some nodes depends on.

    Attributes
    ----------
    inputs : Tensor [m, d]
        Rows of Â X for the m nodes that are among the targets or one hop away.
    mix : Operator [n, m]
        The targets' rows of Â over those m nodes.
    """

    inputs: Tensor
    mix: Operator


def receptive_field(adjacency: Tensor, x: Tensor, nodes: Tensor) -> Field:
    """What a two-layer GCN needs of a graph in order to be trained on `nodes`.

    Â X is constant, so it is multiplied once and not in every epoch, and only for the nodes whose
    hidden units reach a target: on Cora's base session 413 of 2,708.

    Parameters
    ----------
    adjacency : Tensor [N, N], sparse CSR
    x : Tensor [N, d]
    nodes : Tensor [n]
        The targets.

    Returns
    -------
    Field

    Examples
    --------
    >>> import torch
    >>> path = normalised_adjacency(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), 3)
    >>> field = receptive_field(path, torch.eye(3), torch.tensor([0]))
    >>> field.inputs.shape, field.mix.matrix.shape
    (torch.Size([2, 3]), torch.Size([1, 2]))
    """
    mix = take_rows(adjacency, nodes)
    reached, columns = torch.unique(mix.col_indices(), return_inverse=True)
    compact = csr(mix.crow_indices(), columns, mix.values(), (nodes.numel(), reached.numel()))
    inputs = x.new_empty(reached.numel(), x.size(1))
    for block in blocks(reached.numel(), x.size(1) * x.element_size(), x.device):
        inputs[block] = spmm(take_rows(adjacency, reached[block]), x)
    return Field(inputs, Operator(compact))


def take_rows(matrix: Tensor, rows: Tensor) -> Tensor:
    """Some rows of a sparse matrix.

    Parameters
    ----------
    matrix : Tensor [m, n], sparse CSR
    rows : Tensor [k]

    Returns
    -------
    Tensor [k, n], sparse CSR

    Examples
    --------
    >>> import torch
    >>> take_rows(torch.eye(3).to_sparse_csr(), torch.tensor([2, 0])).to_dense()
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """
    starts = matrix.crow_indices()
    counts = starts[rows + 1] - starts[rows]
    new_starts = _row_starts(counts)
    # entry e of row r stands at (old start of r) + (e − new start of r)
    shift = torch.repeat_interleave(starts[rows] - new_starts[:-1], counts)
    entries = torch.arange(shift.numel(), device=shift.device) + shift
    shape = (rows.numel(), matrix.size(1))
    return csr(new_starts, matrix.col_indices()[entries], matrix.values()[entries], shape)


def without_diagonal(matrix: Tensor) -> Tensor:
    """A square sparse CSR matrix without its diagonal: of Â, each node's neighbours alone."""
    counts = matrix.crow_indices().diff()
    row = torch.repeat_interleave(torch.arange(matrix.size(0), device=matrix.device), counts)
    kept = matrix.col_indices() != row
    counts = torch.bincount(row[kept], minlength=matrix.size(0))
    shape = (matrix.size(0), matrix.size(1))
    return csr(_row_starts(counts), matrix.col_indices()[kept], matrix.values()[kept], shape)


def blocks(rows: int, row_bytes: int, device: torch.device | None = None) -> Iterator[slice]:
    """Slices that cover `rows` rows, each of about `BLOCK_BYTES`.

    Parameters
    ----------
    rows, row_bytes : int
        How many rows, and how many bytes one takes.
    device : torch.device, optional
        Where they are; on a GPU blocks are of `GPU_BLOCK_BYTES`.

    Yields
    ------
    slice

    Examples
    --------
    >>> list(blocks(3, BLOCK_BYTES // 2))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    on_gpu = device is not None and device.type == "cuda"
    size = max(1, (GPU_BLOCK_BYTES if on_gpu else BLOCK_BYTES) // max(1, row_bytes))
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def _transpose(matrix: Tensor) -> Tensor:
    rows, columns = matrix.shape
    counts = matrix.crow_indices().diff()
    row_of = torch.repeat_interleave(torch.arange(rows, device=counts.device), counts)
    order = torch.argsort(matrix.col_indices(), stable=True)
    starts = _row_starts(torch.bincount(matrix.col_indices(), minlength=columns))
    return csr(starts, row_of[order], matrix.values()[order], (columns, rows))


def _row_starts(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def csr(starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """A sparse matrix from its parts, which are taken to be sound.

    Parameters
    ----------
    starts : Tensor [m + 1]
        Where each row starts.
    columns, values : Tensor [E]
    shape : (m, n)

    Returns
    -------
    Tensor [m, n], sparse CSR

    Examples
    --------
    >>> import torch
    >>> csr(torch.tensor([0, 1]), torch.tensor([1]), torch.tensor([5.0]), (1, 2)).to_dense()
    tensor([[0., 5.]])
    """
    with warnings.catch_warnings():
        # torch says once per process that CSR tensors are young; nothing for our users to act on
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=False)
