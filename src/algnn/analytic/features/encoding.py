"""How nodes become features: decided in the base session, then frozen."""

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.data import Data

from algnn.analytic.classes import CodedLabels
from algnn.analytic.features.blocked import Prepared, encoded
from algnn.analytic.features.expansion import Expansion
from algnn.analytic.features.gcn import ExpandedGCN, GCNEncoder
from algnn.analytic.features.hops import HopEncoder
from algnn.analytic.features.selfsupervised import SelfSupervisedEncoder
from algnn.analytic.state import Features, State
from algnn.checks import check_trained, onto, resolve_device
from algnn.graph.memo import Last, Memo, inputs_of
from algnn.graph.propagate import Operator, blocks, receptive_field
from algnn.graph.rows import FLOAT
from algnn.graph.store import whole
from algnn.learner import Learner
from algnn.progress import tell


class Encoding(Learner):
    """The part of `ALGNN` that decides on features, and caches what it has made of a graph."""

    encoder: str
    hidden: int
    width: int
    expansion: str
    epochs: int
    lr: float
    dropout: float
    weight_decay: float

    def _trained_encoder(self, graph: Data, nodes: Tensor, labels: CodedLabels) -> ExpandedGCN:
        """The paper's features: a GCN trained on the base session, its first layer expanded."""
        graph = whole(graph)
        x = self._inputs(graph)
        encoder = GCNEncoder.fit(
            receptive_field(self._adjacency(graph), x, onto(nodes, x.device)),
            onto(torch.from_numpy(labels.codes), x.device),
            hidden=self.hidden,
            epochs=self.epochs,
            lr=self.lr,
            dropout=self.dropout,
            weight_decay=self.weight_decay,
            seed=self.seed,
        )
        check_trained(encoder.weight, encoder.bias)
        expansion = Expansion(self.expansion, self.hidden, self.width, self.seed)
        return ExpandedGCN(encoder, expansion)

    def _hop_encoder(self, graph: Data) -> HopEncoder:
        """The label-free encoder of a graph."""
        hops = HopEncoder.of(self._rows(graph), self.width, self.seed)
        if self.encoder == "hops":
            return hops
        here = whole(graph)
        inputs = self._inputs(here, sparse=True)
        return SelfSupervisedEncoder.trained(hops, self._adjacency(here), inputs, self.hidden)

    def _features(self, graph: Data, nodes: Tensor, state: State) -> Iterator[Tensor]:
        """Z of some nodes, float64, in blocks of rows."""
        features = state.features
        prepared, rows = self._prepared(graph, nodes, features)
        for block in blocks(nodes.numel(), 8 * features.width, prepared.device):
            tell("nodes", block.start, nodes.numel())
            yield features(prepared[rows[block]])

    def _prepared(self, graph: Data, nodes: Tensor, features: Features) -> tuple[Prepared, Tensor]:
        """What features are made of, and the rows of it in which these nodes are."""

        def build() -> Prepared:
            if type(features) is HopEncoder:
                return encoded(features, self._rows(graph), resolve_device(self.device))
            here = whole(graph)
            x = self._inputs(here, sparse=isinstance(features, HopEncoder))
            return features.prepare(self._adjacency(here), x)

        prepared = self._prepared_memo(features).get(inputs_of(graph), build)
        return prepared, onto(nodes, prepared.device)

    def _prepared_memo(self, features: Features) -> Memo[Prepared]:
        """The cache of the last graph under these features, which are frozen, and no others."""
        return self._last_prepared.get(features, Memo)

    @cached_property
    def _last_prepared(self) -> Last[Memo[Prepared]]:
        return Last()

    def _transposed(self, graph: Data) -> Tensor:
        """Âᵀ in float64, built once for as long as the edges stay the same."""

        def build() -> Tensor:
            return Operator(self._adjacency(graph)).T.matrix.to(FLOAT)

        return self._last_transposed.get(inputs_of(graph), build)

    @cached_property
    def _last_transposed(self) -> Memo[Tensor]:
        return Memo()
