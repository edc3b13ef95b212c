"""The label-free encoder: views of a node's neighbourhood, near and far, without training.

Which views help differs between graphs: where neighbours share their class, a wide average is best;
where they do not, the node's own features must not be drowned. So a few banks of views are compared
once, in the base session, by how well halves of it agree, and the best one is frozen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from algnn.analytic.features.expansion import Expansion
from algnn.errors import InputError
from algnn.graph.propagate import blocks, csr, spmm

# the views of each bank: Â^k X, or personalised PageRank
BANKS: dict[str, tuple[str, ...]] = {
    "pagerank": ("pagerank",),
    "two hops": ("2",),
    "own and pagerank": ("0", "pagerank"),
    "own and two hops": ("0", "2"),
    "raw": ("0",),
}
VIEWS = ("0", "2", "pagerank")
PAGERANK_RETURN = 0.1  # PageRank's chance of going back to the node itself at each of its steps
PAGERANK_STEPS = 10
# Wider features are projected to this width, on graphs of more than so many nodes, where the width
# would be felt.
PROJECTED_WIDTH = 1024
PROJECTED_NODES = 4096
SAMPLED_ROWS = 512  # that show what kind of values X holds, or a few more
PROJECTION_PARTS = 4  # places in the projection to which each input goes
# Features no wider than this are expanded, by so many random units, once a base session has more
# nodes than they have columns: a linear head has then used up what they hold.
NARROW_VIEW = 512
UNITS = 1024
FLOAT = torch.float64


@dataclass(frozen=True)
class HopEncoder:
    """Views of a neighbourhood side by side, each with rows of length one.

    A view is a polynomial of Â times X. It is computed in float64 and rounded to float32 in the
    end, so that it is the same for a node alone, by `rows`, and among all others, by `prepare`.

    Attributes
    ----------
    name : str
        A key of `BANKS`.
    inputs : int
        Width of X.
    projected : int
        Width to which X is projected before anything else; 0 where it is taken as it is.
    root : bool
        Whether the square root of each entry is taken first (with its sign): right for counts and
        other quantities that are never negative, whose largest values would drown the others.
    expanded : int
        How many random units, ReLU of the views, stand beside them; again of length one together.
    seed : int
        Of the projection and of the units.

    Examples
    --------
    >>> import torch
    >>> from algnn.graph.propagate import normalised_adjacency
    >>> pair = normalised_adjacency(torch.tensor([[0, 1], [1, 0]]), 2)
    >>> x = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    >>> encoder = HopEncoder("own and two hops", inputs=2)
    >>> encoder.prepare(pair, x)
    tensor([[0.6000, 0.8000, 0.6000, 0.8000],
            [0.0000, 0.0000, 0.6000, 0.8000]])
    >>> encoder.rows(pair, x, torch.tensor([1]))
    tensor([[0.0000, 0.0000, 0.6000, 0.8000]])
    """

    name: str
    inputs: int
    projected: int = 0
    root: bool = False
    expanded: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.name not in BANKS:
            raise InputError(f"bank={self.name!r} is unknown: use one of {', '.join(BANKS)}")

    @property
    def views(self) -> tuple[str, ...]:
        """The names of its views."""
        return BANKS[self.name]

    @property
    def breadth(self) -> int:
        """Width of the views side by side."""
        return (self.projected or self.inputs) * len(self.views)

    @property
    def width(self) -> int:
        """d: of the views, and of the units beside them."""
        return self.breadth + self.expanded

    def is_few(self, nodes: int, num_nodes: int) -> bool:
        """Whether `rows` of so many nodes are cheaper than `prepare` of all."""
        return 2 * nodes < min(self.breadth, num_nodes)

    def prepare(self, adjacency: Tensor, x: Tensor) -> Tensor:
        """The views [N, breadth] of every node in float32, from Â and X [N, inputs]."""
        exact, width = adjacency.to(FLOAT), self.projected or self.inputs
        parts = x.new_empty(x.size(0), self.breadth)
        source = x
        if self.projected:
            source = torch.empty(x.size(0), self.projected, dtype=FLOAT, device=x.device)
            for rows in blocks(x.size(0), 2 * 8 * self.inputs, x.device):
                source[rows] = self.entries(x[rows])
        for columns in blocks(width, 8 * x.size(0), x.device):
            X = source[:, columns] if self.projected else self.entries(source[:, columns])
            for place, view in enumerate(self.views):
                shifted = slice(place * width + columns.start, place * width + columns.stop)
                parts[:, shifted] = polynomial(view, exact, X)
        return self._unit(parts)

    def rows(self, transposed: Tensor, x: Tensor, nodes: Tensor) -> Tensor:
        """The views [n, breadth] of some nodes alone, from Âᵀ and X."""
        found = self.look(self.views, transposed, x, nodes)
        return self._unit(torch.cat(list(found), dim=1))

    def look(self, views: Sequence[str], transposed: Tensor, x: Tensor, nodes: Tensor) -> Tensor:
        """Some of `VIEWS` for some nodes [views, n, breadth of a view], not yet normalised."""
        far = [place for place, view in enumerate(views) if view != "0"]
        found = x.new_empty(len(views), nodes.numel(), self.projected or self.inputs)
        for place, view in enumerate(views):
            if view == "0":
                found[place] = self.entries(x[nodes])
        for block in blocks(nodes.numel() if far else 0, 8 * len(far) * x.size(0), x.device):
            seen = torch.cat([self.seen(views[p], transposed, nodes[block]) for p in far], dim=1)
            total = self._gathered(seen, x).view(len(far), -1, found.size(2))
            for place, view in zip(far, total, strict=True):
                found[place, block] = view.to(torch.float32)
        return found

    def _gathered(self, seen: Tensor, x: Tensor) -> Tensor:
        """What X holds of what is seen [N, m], as [m, breadth of a view]."""
        near = seen.ne(0).any(dim=1)
        if 2 * int(near.sum()) < x.size(0):
            # most of a large graph is out of sight of a few nodes
            seen, x = seen[near], x[near]
        total = x.new_zeros(seen.size(1), self.projected or self.inputs, dtype=FLOAT)
        # blocks that stay in a processor's cache while they are widened to float64
        for part in blocks(x.size(0), 16 * 8 * x.size(1), x.device):
            total.addmm_(seen[part].mT, self.entries(x[part]))
        return total

    def seen(self, view: str, transposed: Tensor, nodes: Tensor) -> Tensor:
        """The weight [N, n] with which each node of the graph enters a view of some nodes."""
        # row i of a polynomial of Â is the same polynomial of Âᵀ, applied to the indicator of i
        indicator = torch.zeros(transposed.size(0), nodes.numel(), dtype=FLOAT, device=nodes.device)
        indicator.scatter_(0, nodes[None], 1.0)
        return polynomial(view, transposed.to(FLOAT), indicator)

    def entries(self, x: Tensor) -> Tensor:
        """Rows of X as the views take them: square roots where asked for, then projected.

        `x` needs all of its columns only where it is projected.
        """
        exact = x.to(FLOAT)
        if self.root:
            exact = exact.abs().sqrt_().copysign(exact)
        if not self.projected:
            return exact
        return spmm(self.projection(x.device), exact.mT.contiguous()).mT

    def projection(self, device: torch.device) -> Tensor:
        """The sparse matrix [projected, inputs] that projects X."""
        return _projection(self.inputs, self.projected, self.seed).to(device)

    def __call__(self, prepared: Tensor) -> Tensor:
        """Z [n, width] of some rows of what `prepare` or `rows` gave, in float64."""
        exact = prepared.to(FLOAT)
        if not self.expanded:
            return exact
        return torch.cat([exact, normalize(self.units(exact))], dim=1)

    def units(self, exact: Tensor) -> Tensor:
        """The random units [n, expanded] of some views [n, breadth], before normalisation."""
        return Expansion("plain", self.breadth, self.expanded, self.seed)(exact)

    def _unit(self, parts: Tensor) -> Tensor:
        """Each view's rows made of length one, in place."""
        width = self.projected or self.inputs
        for block in blocks(parts.size(0), 8 * width, parts.device):
            for start in range(0, parts.size(1), width):
                view = parts[block, start : start + width]
                view.copy_(normalize(view.to(FLOAT)))
        return parts


def polynomial(view: str, matrix: Tensor, x: Tensor) -> Tensor:
    """A view's polynomial of a sparse matrix, applied to X [N, k]."""
    current = x
    if view == "pagerank":
        for _ in range(PAGERANK_STEPS):
            current = spmm(matrix, current, beside=x, share=PAGERANK_RETURN)
    else:
        for _ in range(int(view)):
            current = spmm(matrix, current)
    return current


def plain_encoder(x: Tensor, seed: int) -> HopEncoder:
    """The encoder as far as it is decided without labels: all but its views and their expansion.

    X is projected where it is wide and long; square roots are taken where it is never negative, and
    not made of zeros and ones, which are their own roots. Some rows decide.
    """
    num_nodes, inputs = x.shape
    projected = PROJECTED_WIDTH if inputs > PROJECTED_WIDTH and num_nodes > PROJECTED_NODES else 0
    # as far as some rows from all over the graph can tell
    some = x[:: max(1, num_nodes // SAMPLED_ROWS)]
    kinds = torch.stack([(some < 0).any(), ((some == 0) | (some == 1)).all()])
    root = not any(kinds.tolist())
    return HopEncoder("pagerank", inputs, projected, root, seed=seed)


def candidates(plain: HopEncoder, nodes: int) -> Iterator[HopEncoder]:
    """The encoders that a base session of so many nodes chooses from."""
    for name in BANKS:
        found = replace(plain, name=name)
        narrow = found.breadth // len(found.views) <= NARROW_VIEW
        yield replace(found, expanded=UNITS if narrow and found.breadth <= nodes else 0)


def kernels(encoders: Sequence[HopEncoder], views: Mapping[str, Tensor]) -> Tensor:
    """Inner products [b, n, n] of some nodes' features, by each of b encoders.

    `views` maps each view that any of them has to its rows of length one.
    """
    exact = {name: view.to(FLOAT) for name, view in views.items()}
    inner = {name: view @ view.mT for name, view in exact.items()}
    found = []
    for encoder in encoders:
        kernel = torch.stack([inner[view] for view in encoder.views]).sum(0)
        if encoder.expanded:
            side_by_side = torch.cat([exact[view] for view in encoder.views], dim=1)
            units = normalize(encoder.units(side_by_side))
            kernel.addmm_(units, units.mT)
        found.append(kernel)
    return torch.stack(found)


@lru_cache(maxsize=4)
def _projection(inputs: int, projected: int, seed: int) -> Tensor:
    """Each input goes to a few places, with a sign: inner products stay, but for some noise."""
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
