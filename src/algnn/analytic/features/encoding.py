"""How nodes become features: decided on in the base session, then frozen."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch_geometric.data import Data

from algnn.analytic.features.hops import FLOAT, VIEWS, Bank, candidates, kernels, plain_bank
from algnn.analytic.selection import MANY, agreements, some_of
from algnn.analytic.classes import distinct
from algnn.analytic.features.gcn import GCNEncoder, Widened
from algnn.analytic.features.expansion import Expansion
from algnn.analytic.state import Encode, Features, Learned
from algnn.checks import check_trained, onto
from algnn.graph.memo import Memo
from algnn.graph.propagate import Operator, blocks, receptive_field
from algnn.learner import Learner

# nodes of the base session by which banks are compared; up to so many in all ways of halving them
SAMPLE = 256
FEW_NODES = 128
FEW_WAYS = 2


class Encoding(Learner):
    """The part of `ALGNN` that decides on features, and remembers what it has made of a graph."""

    hidden: int
    width: int
    expansion: str
    epochs: int
    lr: float
    dropout: float
    weight_decay: float

    def _trained(self, graph: Data, nodes: Tensor, labels: npt.NDArray[Any]) -> Widened:
        """The paper's features: a GCN trained on the base session, its first layer expanded."""
        codes = torch.from_numpy(distinct(labels)[1])
        x = self._inputs(graph)
        field = receptive_field(self._adjacency(graph), x, onto(nodes, x.device))
        with ThreadPoolExecutor(1) as beside:
            # its random weights are made while the encoder is trained
            expansion = beside.submit(self._expansion, x.device)
            encoder = GCNEncoder.fit(
                field,
                onto(codes, x.device),
                hidden=self.hidden,
                epochs=self.epochs,
                lr=self.lr,
                dropout=self.dropout,
                weight_decay=self.weight_decay,
                seed=self.seed,
            )
        check_trained(encoder.weight, encoder.bias)
        return Widened(encoder, expansion.result())

    def _expansion(self, device: torch.device) -> Expansion:
        """The expansion, with its weights on a device already."""
        made = Expansion(self.expansion, self.hidden, self.width, self.seed)
        made.weight(device)
        return made

    def _bank(self, graph: Data, nodes: Tensor, labels: npt.NDArray[Any]) -> Bank:
        """The bank whose views make halves of the base session agree best on its classes."""
        x = self._inputs(graph)
        offered = list(self._candidates(x, nodes.numel()))
        places = some_of(nodes, self.seed, SAMPLE)
        some, classes = nodes[places], labels[places.numpy()]
        views = [view for view in VIEWS if any(view in bank.views for bank in offered)]
        seen = offered[0].look(views, self._transposed(graph), x, onto(some, x.device))
        seen = normalize(seen.to(FLOAT), dim=2).to(torch.float32)
        parts = dict(zip(views, seen, strict=True))
        ways = MANY if some.numel() <= FEW_NODES else FEW_WAYS
        found = agreements(kernels(offered, parts), some, classes, self.seed, ways)
        best = offered[max(range(len(offered)), key=found.__getitem__)]
        if some.numel() == nodes.numel():
            self._first = best, nodes, torch.cat([parts[view] for view in best.views], dim=1)
        return best

    def _candidates(self, x: Tensor, nodes: int) -> Iterator[Bank]:
        """The banks that a base session of so many nodes chooses from: views of one X."""
        plain = plain_bank(x, self.seed)
        return candidates(plain, nodes)

    # the views of a small base session, which were needed to decide on the bank
    _first: tuple[Bank, Tensor, Tensor] | None = None

    def _features(self, graph: Data, nodes: Tensor, learned: Learned) -> Iterator[Tensor]:
        """Z of some nodes, float64, in blocks of rows."""
        prepared, places = self._encoding(graph, nodes, learned.features)
        where = None if places is None else onto(places, prepared.device)
        for block in blocks(nodes.numel(), 8 * learned.features.width, prepared.device):
            yield learned.features(prepared[block if where is None else where[block]])

    def _encoding(
        self, graph: Data, nodes: Tensor, features: Features
    ) -> tuple[Tensor, Tensor | None]:
        """What features are made of, for these nodes or for all, and where these are in it then."""
        key = (graph.x, graph.edge_index)
        # features are frozen, so a graph needs encoding once for as long as it stays the same
        memo = self._prepared(features)
        prepared = memo.peek(key)
        if prepared is None:
            x = self._inputs(graph)
            if isinstance(features, Bank) and features.is_few(nodes.numel(), x.size(0)):
                # a few nodes cost less by themselves than the whole graph does
                return features.rows(self._transposed(graph), x, onto(nodes, x.device)), None
            prepared = memo.get(key, lambda: features.prepare(self._adjacency(graph), x))
        return prepared, nodes

    def _session_features(self, graph: Data, nodes: Tensor, learned: Learned) -> Encode:
        """Z of a session's nodes, encoded once."""
        features, first = learned.features, self._first
        self._first = None
        if first is not None and first[0] is features and first[1] is nodes:
            prepared, where = first[2], None
        else:
            prepared, places = self._encoding(graph, nodes, features)
            where = None if places is None else onto(places, prepared.device)

        def of(places: Tensor | None) -> Iterator[Tensor]:
            at = where
            if places is not None:
                at = onto(places, prepared.device)
                at = at if where is None else where[at]
            count = prepared.size(0) if at is None else at.numel()
            for block in blocks(count, 8 * features.width, prepared.device):
                yield features(prepared[block if at is None else at[block]])

        return of

    def _transposed(self, graph: Data) -> Tensor:
        """Âᵀ in float64, built once for as long as the edges stay the same."""

        def build() -> Tensor:
            return Operator(self._adjacency(graph)).T.matrix.to(FLOAT)

        return self._last_transposed.get((graph.edge_index, graph.x), build)

    @cached_property
    def _last_transposed(self) -> Memo[Tensor]:
        return Memo()

    def _prepared(self, features: Features) -> Memo[Tensor]:
        """What is remembered of graphs under the features of now, and of no others."""
        # read once: another thread may replace it meanwhile
        encoded = self._encoded
        if encoded is None or encoded[0] is not features:
            self._encoded = encoded = features, Memo()
        return encoded[1]

    _encoded: tuple[Features, Memo[Tensor]] | None = None
