from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from algnn import ALGNN, InputError, NotFittedError
from algnn.analytic.explain import Explanation, contributions
from algnn.analytic.features.expansion import random_weights
from algnn.analytic.features.hops import VIEW_SETS, HopEncoder
from algnn.analytic.heads import HEADS
from algnn.graph.propagate import Operator, normalised_adjacency, to_csr

HOPS = HopEncoder("own and two hops", inputs=12)
ROUNDING = 1e-5  # of features in float32, which `decision_function` has and an explanation has not


def directed_graph(seed: int, nodes: int = 30, features: int = 7) -> Data:
    """Edges that lead one way, nodes that nobody points at, and some without any feature."""
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, features, generator=draws)
    x[::7] = 0
    edges = torch.randint(nodes, (2, 2 * nodes), generator=draws)
    return Data(x=x, edge_index=edges, y=torch.arange(nodes) % 3)


def fitted_with(bank: HopEncoder, graph: Data, **params: object) -> ALGNN:
    """A learner whose base session decided on this encoder."""
    model = ALGNN(device="cpu", **params)
    model._hop_encoder = lambda _: bank  # type: ignore[method-assign]
    return model.fit(graph, range(20), graph.y[:20])


def transposed_adjacency(graph: Data) -> Tensor:
    return Operator(normalised_adjacency(graph.edge_index, graph.num_nodes)).T.matrix


def check_sums(why: Explanation) -> None:
    scale = np.abs(why.by_feature).sum() + np.abs(why.by_neighbour).sum() + abs(why.bias)
    for parts in (why.by_feature, why.by_neighbour):
        assert abs(parts.sum() + why.bias - why.score) <= 1e-12 * scale


@given(
    name=st.sampled_from(sorted(VIEW_SETS)),
    seed=st.integers(0, 10**6),
    projected=st.sampled_from([0, 4]),
    root=st.booleans(),
    expanded=st.sampled_from([0, 16]),
    sizes=st.booleans(),
)
@settings(max_examples=20, deadline=None)
def test_contributions_sum_to_every_score(
    name: str, seed: int, projected: int, root: bool, expanded: int, sizes: bool
) -> None:
    graph = directed_graph(seed)
    bank = HopEncoder(name, 7, projected, root, expanded, seed=5, sizes=sizes)
    model = fitted_with(bank, graph)
    for node in (0, 1, 29):
        scores = model.decision_function(graph, [node])[0]
        for label, score in zip(model.classes_.tolist(), scores, strict=True):
            why = model.explain(graph, node, label)
            assert (why.node, why.label) == (node, label)
            check_sums(why)
            scale = float(model.weights_.abs().max())
            assert why.score == pytest.approx(score, abs=ROUNDING * scale)


@pytest.mark.parametrize("head", HEADS)
def test_every_head_has_scores_that_are_sums(head: str, small_graph: Data) -> None:
    gamma = 0.1 if head == "slda" else 0.0
    model = fitted_with(HOPS, small_graph, head=head, gamma=gamma)
    why = model.explain(small_graph, 40)
    assert why.label == model.predict(small_graph, [40])[0]
    check_sums(why)
    assert why.score == pytest.approx(model.decision_function(small_graph, [40]).max(), rel=1e-4)
    assert ("the same for all nodes" in str(why)) == (head in ("ncm", "slda"))


def by_hand(bank: HopEncoder, graph: Data, node: int, weights: Tensor) -> Tensor:
    """Every term for itself, [N, inputs], from dense matrices; `bank` is own and two hops."""
    dense = normalised_adjacency(graph.edge_index, graph.num_nodes).double().to_dense()
    rows = torch.stack([torch.eye(graph.num_nodes).double()[node], (dense @ dense)[node]])
    x = graph.x.double()
    x = x.abs().sqrt() * x.sign() if bank.root else x
    reduction = bank.reduction(x.device)
    P = torch.eye(7).double() if reduction is None else reduction.mT
    lengths = (rows @ x @ P.mT).norm(dim=1).clamp_min(1e-12)
    z = (rows @ x @ P.mT / lengths[:, None]).view(1, -1)
    worth = weights[: bank.breadth]
    if bank.expanded:
        drawn = random_weights(bank.breadth, bank.expanded, bank.seed).double()
        on = (z @ drawn > 0).squeeze(0)
        slopes = drawn[:, on] @ weights[bank.prepared_width :][on]
        worth = worth + slopes / (z @ drawn).relu().norm().clamp_min(1e-12)
    per_view = worth.view(2, -1) @ P / lengths[:, None]
    terms = (rows[:, :, None] * x * per_view[:, None]).sum(0)
    if bank.sizes:
        squares = graph.x[node].double().square()
        size = torch.log2(1 + squares.sum())
        near = (1 - (size - torch.arange(1, 17)).abs()).clamp_min(0)
        worth = 0.5 * near @ weights[bank.breadth : bank.prepared_width]
        terms[node] += worth * squares / squares.sum().clamp_min(1e-12)
    return terms


@given(
    seed=st.integers(0, 10**6),
    node=st.integers(0, 29),
    projected=st.sampled_from([0, 4]),
    root=st.booleans(),
    expanded=st.sampled_from([0, 16]),
    sizes=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_each_contribution_is_the_sum_of_its_terms(
    seed: int, node: int, projected: int, root: bool, expanded: int, sizes: bool
) -> None:
    graph = directed_graph(seed)
    bank = HopEncoder("own and two hops", 7, projected, root, expanded, seed=5, sizes=sizes)
    weights = torch.randn(bank.width, generator=torch.Generator().manual_seed(seed)).double()
    transposed = transposed_adjacency(graph)
    by_feature, neighbours, by_neighbour = contributions(bank, transposed, graph.x, node, weights)
    terms = by_hand(bank, graph, node, weights)
    torch.testing.assert_close(by_feature, terms.sum(0), rtol=1e-9, atol=1e-9)
    everyone = torch.zeros(30).double()
    everyone[neighbours] = by_neighbour
    torch.testing.assert_close(everyone, terms.sum(1), rtol=1e-9, atol=1e-9)


def test_wide_features_are_explained_in_their_own_columns(small_graph: Data) -> None:
    """Through the basis that they are reduced in, dense and sparse alike."""
    x = torch.rand(60, 600, generator=torch.Generator().manual_seed(0))
    x[x < 0.9] = 0
    for given_x in (x, to_csr(x)):
        graph = Data(x=given_x, edge_index=small_graph.edge_index)
        model = ALGNN(width=300, device="cpu").fit(graph, range(20), small_graph.y[:20])
        assert model._learned.features.basis is not None
        why = model.explain(graph, 40)
        check_sums(why)
        assert why.by_feature.shape == (600,)
        assert why.score == pytest.approx(model.decision_function(graph, [40]).max(), rel=1e-4)


@pytest.mark.parametrize("shift", [0.0, 2.0])
@pytest.mark.parametrize("expanded", [0, 30])
def test_a_score_over_views_of_different_widths_is_the_sum_of_its_parts(
    expanded: int, shift: float
) -> None:
    graph = directed_graph(4)
    graph.x += shift
    bank = HopEncoder.of(graph.x, 0, seed=1, widest=5, near=2, rank=6)
    assert (bank.centre is not None) == (shift > 0)
    bank = replace(bank, expanded=expanded)
    weights = torch.randn(bank.width, generator=torch.Generator().manual_seed(0)).double()
    adjacency = normalised_adjacency(graph.edge_index, 30)
    score = float(bank(bank.prepare(adjacency, graph.x))[7] @ weights)
    by_feature, _, by_neighbour = contributions(
        bank, transposed_adjacency(graph), graph.x, 7, weights
    )
    assert float(by_feature.sum()) == pytest.approx(score, abs=1e-5)
    assert float(by_neighbour.sum()) == pytest.approx(score, abs=1e-5)


def test_who_is_out_of_sight_has_no_part() -> None:
    """On a path that leads one way, a node sees those that lead to it, and nobody behind."""
    path = Data(
        x=torch.eye(6),
        edge_index=torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]]),
        y=torch.arange(6),
    )
    transposed = transposed_adjacency(path)
    ones = torch.ones(6).double()
    by_feature, neighbours, _ = contributions(
        HopEncoder("two hops", 6), transposed, path.x, 3, ones
    )
    assert neighbours.tolist() == [1, 2, 3]
    assert by_feature.nonzero().squeeze(1).tolist() == [1, 2, 3]
    _, alone, parts = contributions(HopEncoder("raw", 6), transposed, path.x, 3, ones)
    assert (alone.tolist(), parts.tolist()) == ([3], [1.0])


def test_a_node_that_shows_nothing(small_graph: Data) -> None:
    model = fitted_with(HOPS, small_graph)
    x = torch.cat([small_graph.x, torch.zeros(1, small_graph.x.size(1))])
    why = model.explain(Data(x=x, edge_index=small_graph.edge_index), len(x) - 1, 1)
    assert why.score == 0
    assert str(why) == f"node {len(x) - 1} scores +0.0000 for class 1"


def test_it_reads_well() -> None:
    why = Explanation(
        7, "fraud", 0.75, 0.0,
        np.array([0.0, 0.5, -0.25, 0.5]), np.array([3, 7]), np.array([0.25, 0.5]),
    )  # fmt: skip
    assert str(why).splitlines() == [
        "node 7 scores +0.7500 for class fraud",
        "  feature 1             +0.5000",
        "  feature 3             +0.5000",
        "  feature 2             -0.2500",
        "  neighbour 7 (itself)  +0.5000",
        "  neighbour 3           +0.2500",
    ]
    many = replace(why, by_feature=np.full(8, 0.75 / 8))
    assert "  3 other features      +0.2812" in str(many)
    assert many.top_features(2) == [(0, 0.09375), (1, 0.09375)]


def test_what_cannot_be_explained(small_graph: Data, make_graph: Callable[..., Data]) -> None:
    with pytest.raises(NotFittedError):
        ALGNN().explain(small_graph, 0)
    model = fitted_with(HOPS, small_graph)
    with pytest.raises(
        InputError, match=r"label=9 is none of the classes learned: use one of 0, 1"
    ):
        model.explain(small_graph, 0, 9)
    with pytest.raises(InputError, match="label='1' is none"):
        model.explain(small_graph, 0, "1")
    for node in (-1, 60, 2.5, "x", True):
        with pytest.raises(InputError, match="nodes"):
            model.explain(small_graph, node)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="features"):
        model.explain(make_graph(features=5), 0)
    paper = ALGNN(encoder="gcn", hidden=4, width=8, epochs=1, head="ridge", gamma=1.0)
    with pytest.raises(InputError, match="encoder='gcn' is trained and not linear"):
        paper.fit(small_graph, range(20), small_graph.y[:20]).explain(small_graph, 0)


def test_prediction_in_inference_mode_spoils_nothing(small_graph):
    mask = small_graph.train_mask
    with torch.inference_mode():
        model = ALGNN(seed=77, device="cpu").fit(small_graph, mask, small_graph.y[mask])
        model.predict(small_graph, [1])
        inside = model.explain(small_graph, 5)
    assert model._learned.features.expanded
    assert model.explain(small_graph, 5).score == inside.score
