"""How nodes become features: decided in the base session, then frozen."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch_geometric.data import Data

from algnn.analytic.classes import CodedLabels
from algnn.analytic.features.expansion import Expansion
from algnn.analytic.features.gcn import ExpandedGCN, GCNEncoder
from algnn.analytic.features.hops import (
    FLOAT,
    VIEWS,
    HopEncoder,
    candidates,
    kernels,
    plain_encoder,
)
from algnn.analytic.selection import MOST_HALVINGS, agreements, some_of
from algnn.analytic.state import Features, State
from algnn.checks import check_trained, onto
from algnn.graph.memo import Last, Memo
from algnn.graph.propagate import Operator, blocks, receptive_field
from algnn.learner import Learner

# Nodes of the base session by which hop encoders are compared, and the ways of halving them: all
# ways up to so many nodes, else a few.
COMPARED_NODES = 256
THOROUGH_NODES = 128
QUICK_HALVINGS = 2


class Encoding(Learner):
    """The part of `ALGNN` that decides on features, and caches what it has made of a graph."""

    hidden: int
    width: int
    expansion: str
    epochs: int
    lr: float
    dropout: float
    weight_decay: float

    def _trained_encoder(self, graph: Data, nodes: Tensor, labels: CodedLabels) -> ExpandedGCN:
        """The paper's features: a GCN trained on the base session, its first layer expanded."""
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

    def _hop_encoder(self, graph: Data, nodes: Tensor, labels: CodedLabels) -> HopEncoder:
        """The views by which halves of the base session agree best on its classes."""
        x = self._inputs(graph)
        offered = list(self._candidates(x, nodes.numel()))
        places = some_of(nodes, self.seed, COMPARED_NODES)
        some = nodes[places]
        names = [view for view in VIEWS if any(view in one.views for one in offered)]
        rows = offered[0].look(names, self._transposed(graph), x, onto(some, x.device))
        rows = normalize(rows.to(FLOAT), dim=2).to(torch.float32)
        ways = MOST_HALVINGS if some.numel() <= THOROUGH_NODES else QUICK_HALVINGS
        inner = kernels(offered, dict(zip(names, rows, strict=True)))
        chosen = CodedLabels(labels.classes, labels.codes[places.numpy()])
        found = agreements(inner, some, chosen, self.seed, ways)
        return offered[max(range(len(offered)), key=found.__getitem__)]

    def _candidates(self, x: Tensor, nodes: int) -> Iterator[HopEncoder]:
        """The encoders that a base session of so many nodes chooses from."""
        return candidates(plain_encoder(x, self.seed), nodes)

    def _features(self, graph: Data, nodes: Tensor, state: State) -> Iterator[Tensor]:
        """Z of some nodes, float64, in blocks of rows."""
        features = state.features
        prepared, rows = self._prepared(graph, nodes, features)
        for block in blocks(nodes.numel(), 8 * features.width, prepared.device):
            yield features(prepared[rows[block]])

    def _prepared(self, graph: Data, nodes: Tensor, features: Features) -> tuple[Tensor, Tensor]:
        """What features are made of, and the rows of it in which these nodes are."""
        key, memo = (graph.x, graph.edge_index), self._prepared_memo(features)
        x = self._inputs(graph)
        where = onto(nodes, x.device)
        prepared = memo.peek(key)
        if prepared is not None:
            return prepared, where
        if isinstance(features, HopEncoder) and features.is_few(nodes.numel(), x.size(0)):
            # a few nodes cost less by themselves than the whole graph does
            alone = features.rows(self._transposed(graph), x, where)
            return alone, torch.arange(nodes.numel(), device=x.device)
        return memo.get(key, lambda: features.prepare(self._adjacency(graph), x)), where

    def _prepared_memo(self, features: Features) -> Memo[Tensor]:
        """The cache of the last graph under these features, which are frozen, and no others."""
        return self._last_prepared.get(features, Memo)

    @cached_property
    def _last_prepared(self) -> Last[Memo[Tensor]]:
        return Last()

    def _transposed(self, graph: Data) -> Tensor:
        """Âᵀ in float64, built once for as long as the edges stay the same."""

        def build() -> Tensor:
            return Operator(self._adjacency(graph)).T.matrix.to(FLOAT)

        return self._last_transposed.get((graph.edge_index, graph.x), build)

    @cached_property
    def _last_transposed(self) -> Memo[Tensor]:
        return Memo()
