"""The label-free encoder: views of a node's neighbourhood, near and far, without training.

``docs/default.md`` has its six steps: columns, roots, reduction, views, sizes and units.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from algnn.analytic.features import columns, reduce
from algnn.analytic.features.blocked import encoded
from algnn.analytic.features.expansion import unit_weights
from algnn.checks import check_choice
from algnn.graph.propagate import blocks, csr, spmm, to_csr
from algnn.graph.store import FLOAT, GraphRows, MemoryRows

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
DENSE_SHARE = 0.1  # of entries that are not zero, above which products are faster without CSR
PROJECTION_PARTS = 4  # entries of the random projection for each input
SIZES = 16  # columns for the size of a row of X: it is at most 2^16 to them
SIZE_WEIGHT = 0.5  # beside views of length one
SAME_SIZE = 1e-3  # rows whose sizes, as powers of two, differ by less than this tell nothing


@dataclass(frozen=True, eq=False)
class HopEncoder:
    """Views of a neighbourhood side by side, each with rows of length one.

    A view is a polynomial of Â times X. It is computed in float64 and rounded to float32 in the
    end, so that devices agree on it.
    """

    name: str  # a key of `VIEW_SETS`
    inputs: int  # width of X
    # width of the random projection in the place of a basis, in files of version 0.1 and where
    # noise keeps the basis private; 0 for none
    projected: int = 0
    # whether the square root of each entry is taken first (with its sign): right for counts and
    # other quantities that are never negative, whose largest values would drown the others
    root: bool = False
    expanded: int = 0  # random units, ReLU of the views, beside them; of length one together
    seed: int = 0  # of the units, or of the projection
    # [inputs, r], float32, where X is wide: its rows, of length one, become coordinates in it
    basis: Tensor | None = None
    sizes: bool = False  # whether columns tell how large ‖x‖² is: rows of length one do not
    # [inputs], float32: what columns of X are multiplied by where some would drown the others
    scales: Tensor | None = None
    # [inputs], float32: what is subtracted from them, after roots, where rows would be much alike
    centre: Tensor | None = None
    near: int = 0  # columns of the views before the last one, if fewer than it has; 0: as many

    def __post_init__(self) -> None:
        check_choice("views", self.name, VIEW_SETS)

    @classmethod
    def of(
        cls,
        x: Tensor | GraphRows,
        width: int,
        seed: int,
        *,
        widest: int = reduce.WIDEST,
        near: int = reduce.NEAR_RANK,
        rank: int = reduce.RANK,
        root: bool | None = None,
        sizes: bool = True,
    ) -> HopEncoder:
        """The encoder of a graph with features X, dense or sparse CSR, or given by rows.

        No label decides on it. Its units fill up what views and sizes leave of `width`. X with more
        than `widest` columns is reduced, to `rank` of them for the walk and to `near` for the
        other views; unless `root` is given, roots are taken of values like counts. There are
        `sizes` where they differ. Columns are scaled if they are in units of their own, or all far
        from 1, and centred if hardly an entry is zero and rows have much in common.
        """
        inputs = x.shape[1]
        some = columns.sample(x, columns.SAMPLED_ROWS)
        values = some if some.layout == torch.strided else some.values()
        if root is None:
            root = not bool((values < 0).any()) and not bool(((values == 0) | (values == 1)).all())
        scales = columns.common_scale(values, inputs)
        encoder = cls("all", inputs, root=root, seed=seed, scales=scales)
        squares, counts = columns.column_squares(some)
        units = (squares / counts.clamp_min(1)).sqrt()
        seen = units.sqrt() if root else units
        if encoder._drowned(encoder.scaled(some)) or columns.units_apart(seen, counts):
            encoder = replace(encoder, scales=columns.scales_of(units))
        full = int(values.count_nonzero()) > columns.FULL_SHARE * some.numel()
        if full and columns.much_alike(encoder._dense(some)):
            many = encoder._dense(columns.sample(x, columns.CENTRE_ROWS))
            encoder = replace(encoder, centre=columns.centre_of(many))
        if sizes:
            least, most = reduce.log_sizes(encoder.measured(some)).aminmax()
            encoder = replace(encoder, sizes=bool(most - least > SAME_SIZE))
        if inputs > widest:
            rows = encoder.scaled(columns.sample(x, reduce.MOST_ROWS))
            rows = encoder._unit_entries(rows, torch.float32)
            basis = reduce.principal_basis(rows, seed, rank)
            encoder = replace(encoder, basis=basis, near=near if near < basis.size(1) else 0)
        return replace(encoder, expanded=max(width - encoder.prepared_width, 0))

    @property
    def views(self) -> tuple[str, ...]:
        """The names of its views."""
        return VIEW_SETS[self.name]

    @property
    def view_width(self) -> int:
        """Width of the last view, and of each of them unless the others are narrower."""
        return self.basis.size(1) if self.basis is not None else self.projected or self.inputs

    @property
    def widths(self) -> list[int]:
        """Width of each view."""
        return [self.near or self.view_width] * (len(self.views) - 1) + [self.view_width]

    @property
    def breadth(self) -> int:
        """Width of the views side by side."""
        return sum(self.widths)

    @property
    def prepared_width(self) -> int:
        """Width of what is computed of a graph once: the views, and the sizes beside them."""
        return self.breadth + SIZES * self.sizes

    @property
    def width(self) -> int:
        """d: of the views, of the sizes, and of the units beside them."""
        return self.prepared_width + self.expanded

    def prepare(self, adjacency: Tensor, x: Tensor) -> Tensor:
        """Views and sizes [N, prepared_width] of all nodes in float32, from Â and X [N, inputs]."""
        return cast(Tensor, encoded(self, MemoryRows(adjacency, x)))

    def entries(self, some: Tensor, which: slice = slice(None)) -> Tensor:
        """Some rows of X as they are reduced or, where they are not, as the views take them."""
        some = self.scaled(some)
        if self.basis is not None:
            return self._unit_entries(some, FLOAT)
        return self._centred(some.to_dense(), FLOAT, which)

    def scaled(self, some: Tensor) -> Tensor:
        """Some rows of X, dense or CSR, with columns scaled where the encoder does so."""
        if self.scales is None:
            return some
        scales = self.scales.to(some.device)
        if some.layout == torch.strided:
            return some.to(FLOAT) * scales
        values = some.values().to(FLOAT) * scales[some.col_indices()]
        return csr(some.crow_indices(), some.col_indices(), values, some.shape)

    def measured(self, some: Tensor) -> Tensor:
        """Some rows of X, dense or CSR, as their sizes are taken: scaled and, if asked, centred."""
        some = self.scaled(some)
        return some if self.centre is None else self._centred(some.to_dense(), FLOAT)

    def reduction(self, device: torch.device) -> Tensor | None:
        """The matrix [inputs, view_width] by which X is reduced, if it is, in float64."""
        if self.basis is not None:
            return self.basis.to(device, FLOAT)
        if not self.projected:
            return None
        return _projection(self.inputs, self.projected, self.seed).to(device).mT

    def source(self, which: slice, some: Tensor) -> Tensor:
        """A block of the columns that the views take of some rows of X [b, inputs], in float64."""
        reduction = self.reduction(some.device)
        if reduction is None:
            return self.entries(some, which)
        entries, matrix = self.entries(some), reduction[:, which].contiguous()
        if self.basis is None:
            return spmm(to_csr(entries), matrix)
        product = spmm(entries, matrix) if entries.layout == torch.sparse_csr else entries @ matrix
        return product.to(torch.float32).to(FLOAT)

    def size_columns(self, some: Tensor) -> Tensor:
        """How large some rows of X [b, inputs] are: [b, SIZES], in float64.

        Column k = 1, 2, … is the larger, the nearer ‖x‖² + 1 is to 2^k, and 0 beyond 2^(k±1).
        """
        powers = torch.arange(1, SIZES + 1, dtype=FLOAT, device=some.device)
        near = 1 - (reduce.log_sizes(self.measured(some)).clamp_max(SIZES)[:, None] - powers).abs()
        return near.clamp_min_(0).mul_(SIZE_WEIGHT)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that decides on views and sizes; the units beside them do not."""
        seed = self.seed if self.projected else None
        facts = f"{self.name} {self.inputs} {self.projected} {self.root} {seed}"
        facts += " sizes" * self.sizes + f" near {self.near}" * bool(self.near)
        facts += " centre" * (self.centre is not None)
        digest = hashlib.sha256(facts.encode())
        for tensor in (self.basis, self.scales, self.centre):
            if tensor is not None:
                digest.update(tensor.cpu().contiguous().numpy().data)
        return digest.hexdigest()

    def __call__(self, prepared: Tensor) -> Tensor:
        """Z [n, width] of some rows of what `prepare` gave, in float64."""
        shape = prepared.size(0), self.prepared_width + self.expanded
        Z = torch.empty(shape, dtype=FLOAT, device=prepared.device)
        Z[:, : self.prepared_width] = prepared
        if self.expanded:
            units = self.units(Z[:, : self.breadth], Z[:, self.prepared_width :])
            normalize(units, out=units)
        return Z

    def units(self, exact: Tensor, out: Tensor) -> Tensor:
        """The random units [n, expanded] of some views [n, breadth], before normalisation."""
        weights, shared = self.unit_weights(exact.device), self.expanded - self.units_apart
        # not multiplied by the zeros of the units that see the last view alone
        last = slice(self.breadth - self.view_width, None)
        torch.mm(exact, weights[:, :shared], out=out[:, :shared])
        torch.mm(exact[:, last], weights[last, shared:], out=out[:, shared:])
        return out.relu_()

    @property
    def units_apart(self) -> int:
        """How many of the units, the last ones, see PageRank alone: half of them with all views."""
        # views of a node are much alike, and its widest average is worth units of its own
        return self.expanded - self.expanded // 2 if self.name == "all" else 0

    def unit_weights(self, device: torch.device) -> Tensor:
        """The random weights [breadth, expanded] of the units, in float64."""
        last = self.units_apart, self.view_width, len(self.views)
        return unit_weights(device, self.breadth, self.expanded, self.seed, *last)

    def _unit_entries(self, some: Tensor, dtype: torch.dtype) -> Tensor:
        """Some rows of X, rooted and centred where asked for, of length one: CSR if mostly zero."""
        if self.centre is not None:
            return normalize(self._centred(some.to_dense(), dtype))
        if some.layout == torch.strided:
            if int(some.count_nonzero()) > DENSE_SHARE * some.numel():
                return normalize(self._rooted(some.to(dtype)))
            some = to_csr(some)
        values = self._rooted(some.values().to(dtype))
        return reduce.unit_rows(csr(some.crow_indices(), some.col_indices(), values, some.shape))

    def _drowned(self, some: Tensor) -> bool:
        """Whether one column makes up more than half of the squared length of some rows."""
        squares, _ = columns.column_squares(self._unit_entries(some, torch.float32))
        # more than half the way from an equal share to all of it
        least = (1 + 1 / self.inputs) / 2 * some.size(0)
        return self.inputs > 1 and float(squares.max()) > least

    def _dense(self, some: Tensor) -> Tensor:
        """Some rows of X, scaled and rooted where asked for, that are not all zero, in float64."""
        dense = self.scaled(some).to_dense().to(FLOAT)
        return self._rooted(dense[dense.any(1)])

    def _centred(self, dense: Tensor, dtype: torch.dtype, which: slice = slice(None)) -> Tensor:
        """Columns of some rows of X, rooted and centred where asked for."""
        part = self._rooted(dense[:, which].to(dtype))
        if self.centre is None:
            return part
        # a row of zeros, of a node without features, stays one: it is like the centre
        return torch.where(dense.any(1, keepdim=True), part - self.centre.to(part)[which], 0.0)

    def _rooted(self, values: Tensor) -> Tensor:
        return values.abs().sqrt_().copysign(values) if self.root else values

    def unit(self, parts: Tensor) -> Tensor:
        """Some rows [n, prepared_width], each view's rows made of length one, in place."""
        for block in blocks(parts.size(0), 8 * self.view_width, parts.device):
            for view in torch.split(parts[block, : self.breadth], self.widths, dim=1):
                view.copy_(normalize(view.to(FLOAT)))
        return parts


def _projection(inputs: int, projected: int, seed: int) -> Tensor:
    """Each input goes to a few outputs, with a sign: inner products stay, but for some noise."""
    bits = np.random.Philox(key=seed).random_raw(PROJECTION_PARTS * inputs)
    places = torch.from_numpy(((bits >> np.uint64(1)) % np.uint64(projected)).astype(np.int64))
    signs = torch.from_numpy((bits & np.uint64(1)).astype(np.float64) * 2 - 1)
    sources = torch.arange(inputs).repeat_interleave(PROJECTION_PARTS)
    matrix = torch.zeros(projected, inputs, dtype=FLOAT)
    # in halves, which are exact however they are added
    return matrix.index_put_((places, sources), signs / PROJECTION_PARTS**0.5, accumulate=True)
