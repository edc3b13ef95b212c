"""The label-free encoder: views of a node's neighbourhood, near and far, without training.

Which views help differs between graphs: where neighbours share their class, a wide average is best;
where they do not, the node's own features and its open neighbourhood are. All of them stand side by
side, on every graph, and the head weighs them. Wide features are first reduced to their leading
singular directions, and random ReLU units of the views make a linear head non-linear.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from algnn.analytic.features.expansion import random_weights
from algnn.analytic.features.reduce import MOST_ROWS, RANK, principal_basis, unit_rows
from algnn.errors import InputError
from algnn.graph.propagate import blocks, csr, spmm, take_rows, to_csr, without_diagonal

# The views of an encoder: "k" is Â^k X, "open k" is A°^k X with A° = Â without its self-loops, and
# "pagerank" a walk that returns. The others than "all" are those of files of version 0.1.
VIEW_SETS: dict[str, tuple[str, ...]] = {
    "all": ("0", "open 1", "open 2", "pagerank"),
    "pagerank": ("pagerank",),
    "two hops": ("2",),
    "own and pagerank": ("0", "pagerank"),
    "own and two hops": ("0", "2"),
    "raw": ("0",),
}
PAGERANK_RETURN = 0.1  # PageRank's chance of going back to the node itself at each of its steps
PAGERANK_STEPS = 10
SAMPLED_ROWS = 512  # that show what kind of values X holds
DENSE_SHARE = 0.1  # of entries that are not zero, above which products are faster without CSR
PROJECTION_PARTS = 4  # entries of the random projection for each input
FLOAT = torch.float64


@dataclass(frozen=True, eq=False)
class HopEncoder:
    """Views of a neighbourhood side by side, each with rows of length one.

    A view is a polynomial of Â times X. It is computed in float64 and rounded to float32 in the
    end, so that devices agree on it.

    Attributes
    ----------
    name : str
        A key of `VIEW_SETS`.
    inputs : int
        Width of X.
    root : bool
        Whether the square root of each entry is taken first (with its sign): right for counts and
        other quantities that are never negative, whose largest values would drown the others.
    basis : Tensor [inputs, r], float32, optional
        Where X is wide: its rows, scaled to length one, are reduced to their coordinates in it.
    expanded : int
        How many random units, ReLU of the views, stand beside them; again of length one together.
    seed : int
        Of the units.
    projected : int
        Width of the random projection in the place of a basis, in files of version 0.1 and where
        noise keeps the basis private; 0 for none.

    Examples
    --------
    >>> import torch
    >>> from algnn.graph.propagate import normalised_adjacency
    >>> pair = normalised_adjacency(torch.tensor([[0, 1], [1, 0]]), 2)
    >>> x = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    >>> HopEncoder("own and two hops", inputs=2).prepare(pair, x)
    tensor([[0.6000, 0.8000, 0.6000, 0.8000],
            [0.0000, 0.0000, 0.6000, 0.8000]])
    """

    name: str
    inputs: int
    projected: int = 0
    root: bool = False
    expanded: int = 0
    seed: int = 0
    basis: Tensor | None = None

    def __post_init__(self) -> None:
        if self.name not in VIEW_SETS:
            raise InputError(f"views={self.name!r} is unknown: use one of {', '.join(VIEW_SETS)}")

    @classmethod
    def of(
        cls, x: Tensor, width: int, seed: int, *, rank: int = RANK, root: bool | None = None
    ) -> HopEncoder:
        """The encoder of a graph with features X, dense or sparse CSR: no label decides on it.

        Its units fill up what the views leave of `width`. X with more than `rank` columns is
        reduced; unless `root` is given, roots are taken of values like counts.
        """
        count, inputs = x.shape
        if root is None:
            some = take_rows(x, _spread(count, SAMPLED_ROWS, x.device))
            some = some if some.layout == torch.strided else some.values()
            root = not bool((some < 0).any()) and not bool(((some == 0) | (some == 1)).all())
        bare, basis = cls("all", inputs, root=root, seed=seed), None
        if inputs > rank:
            rows = _spread(count, MOST_ROWS, x.device)
            basis = principal_basis(bare._unit_entries(x, rows, torch.float32), seed, rank)
        views = replace(bare, basis=basis)
        return replace(views, expanded=max(width - views.breadth, 0))

    @property
    def views(self) -> tuple[str, ...]:
        """The names of its views."""
        return VIEW_SETS[self.name]

    @property
    def view_width(self) -> int:
        """Width of one view."""
        return self.basis.size(1) if self.basis is not None else self.projected or self.inputs

    @property
    def breadth(self) -> int:
        """Width of the views side by side."""
        return self.view_width * len(self.views)

    @property
    def width(self) -> int:
        """d: of the views, and of the units beside them."""
        return self.breadth + self.expanded

    def prepare(self, adjacency: Tensor, x: Tensor) -> Tensor:
        """The views [N, breadth] of every node in float32, from Â and X [N, inputs]."""
        exact, count, width = adjacency.to(FLOAT), x.size(0), self.view_width
        open_ = without_diagonal(exact)
        source = self._reduced(x) if self.is_reduced else x.to_dense()
        parts = torch.empty(count, self.breadth, dtype=torch.float32, device=x.device)
        for columns in blocks(width, 3 * 8 * count, x.device):
            X = source[:, columns].to(FLOAT)
            X = X if self.is_reduced else self._rooted(X)
            for at, view in enumerate(self.views):
                shifted = slice(at * width + columns.start, at * width + columns.stop)
                parts[:, shifted] = polynomial(view, exact, open_, X)
        return self._unit(parts)

    def seen(self, view: str, transposed: Tensor, nodes: Tensor) -> Tensor:
        """The weight [N, n] with which each node of the graph enters a view of some nodes."""
        # row i of a polynomial of Â is the same polynomial of Âᵀ, applied to the indicator of i
        indicator = torch.zeros(transposed.size(0), nodes.numel(), dtype=FLOAT, device=nodes.device)
        indicator.scatter_(0, nodes[None], 1.0)
        exact = transposed.to(FLOAT)
        return polynomial(view, exact, without_diagonal(exact), indicator)

    def entries(self, x: Tensor, rows: Tensor) -> Tensor:
        """Some rows of X as they are reduced or, where they are not, as the views take them."""
        if self.basis is not None:
            return self._unit_entries(x, rows, FLOAT).to_dense()
        return self._rooted(take_rows(x, rows).to_dense().to(FLOAT))

    @property
    def is_reduced(self) -> bool:
        """Whether the views take fewer columns than X has."""
        return self.basis is not None or self.projected > 0

    def reduction(self, device: torch.device) -> Tensor:
        """The matrix [inputs, view_width] by which X is reduced, in float64."""
        if self.basis is not None:
            return self.basis.to(device, FLOAT)
        return _projection(self.inputs, self.projected, self.seed).to(device).to_dense().mT

    def _reduced(self, x: Tensor) -> Tensor:
        """X in `view_width` columns, of float32 where a basis has rounded them anyway."""
        count, matrix = x.size(0), self.reduction(x.device).contiguous()
        kind = FLOAT if self.projected else torch.float32
        found = torch.empty(count, self.view_width, dtype=kind, device=x.device)
        for rows in blocks(count, 2 * 8 * self.inputs, x.device):
            ids = torch.arange(rows.start, rows.stop, device=x.device)
            if self.basis is not None:
                entries = self._unit_entries(x, ids, FLOAT)
            else:
                entries = to_csr(self.entries(x, ids))
            sparse = entries.layout == torch.sparse_csr
            found[rows] = (spmm(entries, matrix) if sparse else entries @ matrix).to(kind)
        return found

    def __call__(self, prepared: Tensor) -> Tensor:
        """Z [n, width] of some rows of what `prepare` gave, in float64."""
        exact = prepared.to(FLOAT)
        if not self.expanded:
            return exact
        return torch.cat([exact, normalize(self.units(exact))], dim=1)

    def units(self, exact: Tensor) -> Tensor:
        """The random units [n, expanded] of some views [n, breadth], before normalisation."""
        return torch.mm(exact, self.unit_weights(exact.device)).relu_()

    def unit_weights(self, device: torch.device) -> Tensor:
        """The random weights [breadth, expanded] of the units, in float64.

        With all views, half of the units see PageRank alone: so many views of a node are much
        alike, and the widest average of its neighbourhood is worth units of its own.
        """
        apart = self.view_width if self.name == "all" else 0
        return _unit_weights(device, self.breadth, self.expanded, self.seed, apart)

    def _unit_entries(self, x: Tensor, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """Some rows of X, rooted where asked for, each of length one: in CSR if most are zero."""
        some = take_rows(x, rows)
        if some.layout == torch.strided:
            if int(some.count_nonzero()) > DENSE_SHARE * some.numel():
                return normalize(self._rooted(some.to(dtype)))
            some = to_csr(some)
        values = self._rooted(some.values().to(dtype))
        shape = (some.size(0), some.size(1))
        return unit_rows(csr(some.crow_indices(), some.col_indices(), values, shape))

    def _rooted(self, values: Tensor) -> Tensor:
        return values.abs().sqrt_().copysign(values) if self.root else values

    def _unit(self, parts: Tensor) -> Tensor:
        """Each view's rows made of length one, in place."""
        width = self.view_width
        for block in blocks(parts.size(0), 8 * width, parts.device):
            for start in range(0, parts.size(1), width):
                view = parts[block, start : start + width]
                view.copy_(normalize(view.to(FLOAT)))
        return parts


def polynomial(view: str, adjacency: Tensor, open_: Tensor, x: Tensor) -> Tensor:
    """A view's polynomial of Â, or of Â without its diagonal, applied to X [N, k]."""
    current = x
    matrix = open_ if view.startswith("open") else adjacency
    beside, share = (x, PAGERANK_RETURN) if view == "pagerank" else (None, 0.0)
    for _ in range(steps(view)):
        current = spmm(matrix, current, beside, share)
    return current


def steps(view: str) -> int:
    """How many hops away a view looks: the degree of its polynomial."""
    return PAGERANK_STEPS if view == "pagerank" else int(view.removeprefix("open"))


def _spread(count: int, most: int, device: torch.device) -> Tensor:
    """At most so many rows, evenly spaced over all."""
    return torch.arange(0, count, -(-count // most), device=device)


@lru_cache(maxsize=4)
def _unit_weights(
    device: torch.device, breadth: int, expanded: int, seed: int, apart: int
) -> Tensor:
    """Random weights; those of the second half of the units are zero but for the last view."""
    weights = random_weights(breadth, expanded, seed)
    if apart:
        second = weights[:, expanded // 2 :]
        second[: breadth - apart] = 0
        # as long as the others are, over rows of length one in each view
        second *= (breadth / apart) ** 0.5
    return weights.to(device, FLOAT)


def _projection(inputs: int, projected: int, seed: int) -> Tensor:
    """Each input goes to a few outputs, with a sign: inner products stay, but for some noise."""
    bits = np.random.Philox(key=seed).random_raw(PROJECTION_PARTS * inputs)
    places = torch.from_numpy(((bits >> np.uint64(1)) % np.uint64(projected)).astype(np.int64))
    signs = (
        torch.from_numpy((bits & np.uint64(1)).astype(np.float64) * 2 - 1) / PROJECTION_PARTS**0.5
    )
    columns = torch.arange(inputs).repeat_interleave(PROJECTION_PARTS)
    order = torch.argsort(places, stable=True)
    counts = torch.bincount(places, minlength=projected)
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return csr(starts, columns[order], signs[order], (projected, inputs))
