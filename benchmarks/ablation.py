"""What each choice in the default learner brings: variants of `ALGNN()` that lack one, measured.

    python benchmarks/ablation.py methods         # the variants, as `algnn bench` takes them
    python benchmarks/ablation.py datasets DATA   # thirteen graphs, likewise; DATA has more/*.npz
    python benchmarks/ablation.py DIR             # docs/ablation.md from the records below DIR

The records come from `algnn bench` with this folder on the Python path, as the document says.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from torch import Tensor
from torch_geometric.data import Data

from algnn import ALGNN
from algnn.analytic.features.hops import VIEW_SETS, HopEncoder
from algnn.analytic.features.reduce import RANK
from algnn.analytic.state import Features, State

NAMED = ("digits", "cora", "citeseer", "pubmed", "computers", "corafull-graph", "arxiv-graph")
OTHERS = ("photo", "facebook", "flickr", "uai", "actor", "chameleon")

# -- which views, and what stands beside them -----------------------------------------------------

# the default's views under another name have units of all views alone
ONE_KIND = "all, one kind of units"
VIEW_SETS[ONE_KIND] = VIEW_SETS["all"]


class Encoded(ALGNN):
    """The default with another label-free encoder, which a subclass makes of the default's."""

    def _hop_encoder(self, graph: Data) -> HopEncoder:
        return self._other(super()._hop_encoder(graph), self._inputs(graph, sparse=True))

    def _other(self, default: HopEncoder, x: Tensor) -> HopEncoder:
        raise NotImplementedError

    def _filled(self, encoder: HopEncoder) -> HopEncoder:
        """With so many units that it is as wide as the default."""
        return replace(encoder, expanded=max(self.width - encoder.breadth, 0))


class OtherViews(Encoded):
    """Other views. A subclass names them."""

    VIEWS: ClassVar[str]

    def _other(self, default: HopEncoder, x: Tensor) -> HopEncoder:
        return self._filled(replace(default, name=self.VIEWS))


class OnlyPagerank(OtherViews):
    """PageRank alone, and more units."""

    VIEWS = "pagerank"


class OnlyRaw(OtherViews):
    """Own features alone, no edges, and more units."""

    VIEWS = "raw"


class NoOpenViews(OtherViews):
    """Own features and PageRank, without the open neighbourhoods, and more units."""

    VIEWS = "own and pagerank"


class OneKindOfUnits(OtherViews):
    """All units see all views; none of them sees PageRank alone."""

    VIEWS = ONE_KIND


class NoUnits(Encoded):
    """No random units beside the views."""

    def _other(self, default: HopEncoder, x: Tensor) -> HopEncoder:
        return replace(default, expanded=0)


# -- what is done to the features -----------------------------------------------------------------


class NoRoots(Encoded):
    """Features as they are, without roots where they are never negative."""

    def _other(self, default: HopEncoder, x: Tensor) -> HopEncoder:
        return HopEncoder.of(x, self.width, self.seed, root=False)


class OtherRank(Encoded):
    """Features reduced to another number of columns, with the units of the default."""

    COLUMNS: ClassVar[int]

    def _other(self, default: HopEncoder, x: Tensor) -> HopEncoder:
        other = HopEncoder.of(x, 0, self.seed, rank=self.COLUMNS)
        return replace(other, expanded=default.expanded)


class Rank256(OtherRank):
    """Features of more than 256 columns reduced to 256."""

    COLUMNS = 256


class Rank1024(OtherRank):
    """Features of more than 1,024 columns reduced to 1,024."""

    COLUMNS = 1024


class Sketch(Encoded):
    """Wide features reduced by a random projection to 512 columns, and not by an SVD."""

    def _other(self, default: HopEncoder, x: Tensor) -> HopEncoder:
        if default.basis is None:
            return default
        return self._filled(replace(default, basis=None, projected=RANK))


class TrainedEncoder(ALGNN):
    """The paper's features instead: a GCN trained on the base session, expanded."""

    def __init__(
        self, *, encoder: str = "gcn", width: int = 2048, seed: int = 0, device: str = "auto"
    ) -> None:
        super().__init__(encoder=encoder, width=width, seed=seed, device=device)


# -- how γ is chosen ------------------------------------------------------------------------------


class OneHalving(ALGNN):
    """γ chosen from one way of halving the nodes, also where there are few."""

    def _untaught(self, features: Features) -> State:
        known = super()._untaught(features)
        return replace(known, half_sums=known.half_sums[:1])


class LargeGamma(ALGNN):
    """γ = 1e-2, not chosen."""

    def __init__(self, *, gamma: float = 1e-2, seed: int = 0, device: str = "auto") -> None:
        super().__init__(gamma=gamma, seed=seed, device=device)


class SmallGamma(ALGNN):
    """γ = 1e-4, not chosen."""

    def __init__(self, *, gamma: float = 1e-4, seed: int = 0, device: str = "auto") -> None:
        super().__init__(gamma=gamma, seed=seed, device=device)


# -- how sums become weights ----------------------------------------------------------------------


class RidgeHead(ALGNN):
    """Every node counts the same, γ chosen likewise: `algnn-nodes`."""

    def __init__(self, *, head: str = "ridge", seed: int = 0, device: str = "auto") -> None:
        super().__init__(head=head, seed=seed, device=device)


class OtherHead(ALGNN):
    """The default's features, sums and γ, turned into weights by another head.

    γ is chosen as ever, in units of the trace: γ tr(G) is the penalty of the other head.
    """

    HEAD: ClassVar[str]

    def _settled(self, state: State) -> State:
        chosen = super()._settled(state)
        penalty = chosen.gamma * float(chosen.statistics.G.trace())
        other = replace(chosen, head=self.HEAD, gamma=penalty, solved=None)
        return replace(other, solved=other.affine)


class SldaHead(OtherHead):
    """Streaming linear discriminant analysis."""

    HEAD = "slda"


class NcmHead(OtherHead):
    """Nearest class mean."""

    HEAD = "ncm"


VARIANTS: tuple[type[ALGNN], ...] = (
    *(OnlyPagerank, OnlyRaw, NoOpenViews, OneKindOfUnits, NoUnits),
    *(NoRoots, Rank256, Rank1024, Sketch, TrainedEncoder),
    *(OneHalving, LargeGamma, SmallGamma),
    *(RidgeHead, SldaHead, NcmHead),
)


def methods() -> str:
    """The default and its variants, as --methods of `algnn bench` takes them."""
    return ",".join(["algnn", *map(name, VARIANTS)])


def name(variant: type[ALGNN]) -> str:
    """What records call a variant."""
    return f"ablation:{variant.__name__}"


def datasets(data: str) -> str:
    """Thirteen graphs, by name or by path, as --datasets of `algnn bench` takes them."""
    return ",".join([*NAMED, *(str(Path(data) / "more" / f"{other}.npz") for other in OTHERS)])


def main(what: str = "", data: str = "") -> None:
    if what == "methods":
        print(methods())
    elif what == "datasets":
        print(datasets(data))
    elif what:
        # apart: a record's code is known by this file, and must not change with a document's words
        from ablation_page import write

        write(what, [(name(variant), str(variant.__doc__)) for variant in VARIANTS])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
