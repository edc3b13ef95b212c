"""How nodes become frozen features, a block of rows at a time."""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar, cast

from torch import Tensor
from torch_geometric.data import Data

from algnn.analytic.features.blocked import Prepared, encoded
from algnn.analytic.features.expansion import ExpandedGCN
from algnn.analytic.features.hops import HopEncoder
from algnn.checks import onto
from algnn.graph.propagate import blocks
from algnn.graph.store import whole
from algnn.graphs import inputs_of
from algnn.learner import Learner
from algnn.progress import tell

Known = TypeVar("Known")


class Encoding(Learner, Generic[Known]):
    """A learner with frozen features, which caches what it has made of a graph.

    Features have a width, that of their `inputs`, `prepare` for a graph, and a call for some rows.
    """

    _takes_stores = True

    @property
    def n_features_in_(self) -> int:
        """The width of `x` in the base session."""
        self._check_fitted()
        return cast(int, self._learned.features.inputs)

    @property
    def _known(self) -> Known:
        self._check_fitted()
        return cast(Known, self._learned)

    def _features(self, graph: Data, nodes: Tensor, features: Any) -> Iterator[Tensor]:
        """Z of some nodes, float64, in blocks of rows."""
        prepared = self._prepared(graph, features)
        rows = onto(nodes, prepared.device)
        for block in blocks(nodes.numel(), 8 * features.width, prepared.device):
            tell("nodes", block.start, nodes.numel())
            yield features(prepared[rows[block]])

    def _prepared(self, graph: Data, features: Any) -> Prepared:
        """What features are made of, a row for each node; cached for the last graph."""

        def build() -> Prepared:
            if type(features) is HopEncoder:
                return encoded(features, self._rows(graph), self._device)
            here = whole(graph)
            x = self._inputs(here, sparse=not isinstance(features, ExpandedGCN))
            return cast(Tensor, features.prepare(self._adjacency(here), x))

        return cast(Prepared, self._memos["prepared"].get((features, *inputs_of(graph)), build))
