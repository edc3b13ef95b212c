"""What each choice in the default learner brings: variants of `ALGNN()` that lack one, measured.

    python benchmarks/ablation.py methods     # the variants, as `algnn bench` takes them
    python benchmarks/ablation.py DIR         # docs/ablation.md from the records below DIR

The records come from `algnn bench` with this folder on the Python path, as the document says.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from torch import Tensor

from algnn import ALGNN
from algnn.analytic.features.hops import UNITS, HopEncoder
from algnn.analytic.state import Features, State

# -- which views: instead of a choice on the base session, always one bank ------------------------


class OneBank(ALGNN):
    """No choice: always the same bank of views. A subclass names it."""

    BANK: ClassVar[str]

    def _candidates(self, x: Tensor, nodes: int) -> Iterator[HopEncoder]:
        return (bank for bank in super()._candidates(x, nodes) if bank.name == self.BANK)


class OnlyPagerank(OneBank):
    """PageRank on every graph, no choice of views."""

    BANK = "pagerank"


class OnlyTwoHops(OneBank):
    """Two hops on every graph, no choice of views."""

    BANK = "two hops"


class OnlyOwnAndPagerank(OneBank):
    """Own features and PageRank on every graph, no choice of views."""

    BANK = "own and pagerank"


class OnlyOwnAndTwoHops(OneBank):
    """Own features and two hops on every graph, no choice of views."""

    BANK = "own and two hops"


class OnlyRaw(OneBank):
    """Own features alone, no edges."""

    BANK = "raw"


# -- what is done to the features -----------------------------------------------------------------


class NoRoots(ALGNN):
    """Features as they are, without roots where they are never negative."""

    def _candidates(self, x: Tensor, nodes: int) -> Iterator[HopEncoder]:
        return (replace(bank, root=False) for bank in super()._candidates(x, nodes))


class NoUnits(ALGNN):
    """No random units beside the views, on any graph."""

    def _candidates(self, x: Tensor, nodes: int) -> Iterator[HopEncoder]:
        return (replace(bank, expanded=0) for bank in super()._candidates(x, nodes))


class AlwaysUnits(ALGNN):
    """Random units beside the views on every graph, however wide these are."""

    def _candidates(self, x: Tensor, nodes: int) -> Iterator[HopEncoder]:
        return (replace(bank, expanded=UNITS) for bank in super()._candidates(x, nodes))


class TrainedEncoder(ALGNN):
    """The paper's features instead: a GCN trained on the base session, expanded."""

    def __init__(self, *, encoder: str = "gcn", seed: int = 0, device: str = "auto") -> None:
        super().__init__(encoder=encoder, seed=seed, device=device)


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


class OtherHead(ALGNN):
    """The default's features, sums and γ, turned into weights by another head.

    γ is chosen as ever, in units of the trace: γ tr(G) is the penalty of the other head. With
    classes of one size, ridge regression then has the balanced head's weights but for their scale.
    """

    HEAD: ClassVar[str]

    def _settled(self, state: State) -> State:
        chosen = super()._settled(state)
        penalty = chosen.gamma * float(chosen.statistics.G.trace())
        other = replace(chosen, head=self.HEAD, gamma=penalty, solved=None)
        return replace(other, solved=other.affine)


class RidgeHead(OtherHead):
    """Ridge regression, in which every node counts the same."""

    HEAD = "ridge"


class SldaHead(OtherHead):
    """Streaming linear discriminant analysis."""

    HEAD = "slda"


class NcmHead(OtherHead):
    """Nearest class mean."""

    HEAD = "ncm"


VARIANTS: tuple[type[ALGNN], ...] = (
    *(OnlyPagerank, OnlyTwoHops, OnlyOwnAndPagerank, OnlyOwnAndTwoHops, OnlyRaw),
    *(NoRoots, NoUnits, AlwaysUnits, TrainedEncoder),
    *(OneHalving, LargeGamma, SmallGamma),
    *(RidgeHead, SldaHead, NcmHead),
)


def methods() -> str:
    """The default and its variants, as --methods of `algnn bench` takes them."""
    return ",".join(["algnn", *map(name, VARIANTS)])


def name(variant: type[ALGNN]) -> str:
    """What records call a variant."""
    return f"ablation:{variant.__name__}"


def main(what: str = "") -> None:
    if what == "methods":
        print(methods())
    elif what:
        # apart: a record's code is known by this file, and must not change with a document's words
        from ablation_page import write

        write(what, [(name(variant), str(variant.__doc__)) for variant in VARIANTS])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
