from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data

import algnn
from algnn.analytic.features.columns import sample
from algnn.analytic.features.hops import HopEncoder
from algnn.graph.propagate import normalised_adjacency, to_csr


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_a_column_that_drowns_the_others_is_scaled(layout):
    x = torch.randn(50, 40, generator=torch.Generator().manual_seed(0))
    x[:, 4:] *= torch.rand(50, 36, generator=torch.Generator().manual_seed(1)) < 0.02
    given = to_csr if layout == "sparse" else torch.clone
    assert HopEncoder.of(given(x), 64, 0).scales is None
    assert HopEncoder.of(torch.ones(50, 1), 64, 0).scales is None  # one column drowns none
    assert HopEncoder.of(given(torch.zeros(50, 4)), 64, 0).scales is None
    x[:, 2] *= 1000
    encoder = HopEncoder.of(given(x), 512, 0)
    assert encoder.scales is not None
    assert bool((encoder.scales.log2() % 1 == 0).all())
    scaled = x * encoder.scales
    counts = (x != 0).sum(0)
    lengths = (scaled.square().sum(0) / counts)[counts > 0].sqrt()
    assert bool(((lengths > 0.7) & (lengths < 1.42)).all())
    assert bool((encoder.scales[counts == 0] == encoder.scales[counts > 0].median()).all())
    # views, units and sizes are those of columns that were scaled beforehand
    adjacency = normalised_adjacency(torch.tensor([[0, 1], [1, 0]]), 50)
    plain = replace(encoder, scales=None)
    torch.testing.assert_close(
        encoder.prepare(adjacency, given(x)), plain.prepare(adjacency, given(scaled))
    )
    assert encoder.fingerprint != plain.fingerprint


def test_columns_in_units_of_their_own_cost_no_accuracy():
    graph, chance = algnn.load("digits"), torch.Generator().manual_seed(0)
    x = (graph.x - graph.x.mean(0)) / graph.x.std(0).clamp_min(0.1)
    noise = 1e4 * torch.randn(graph.num_nodes, 3, generator=chance)
    some = torch.rand(graph.num_nodes, 1, generator=chance) < 0.2
    units = 10 ** (4 * torch.rand(x.size(1), generator=chance) - 2)
    nodes = graph.train_mask.nonzero().squeeze(1)
    for features in (
        torch.cat([graph.x, noise[:, :1]], dim=1),
        torch.cat([graph.x, noise], dim=1),
        torch.cat([graph.x, noise[:, :1] * some], dim=1),  # only some nodes have it
        x * units,
        x + 3,
        x + 1000,
        x + 3 + 1e6 * (torch.rand(graph.num_nodes, 1, generator=chance) < 0.01),
    ):
        given = graph.clone()
        given.x = features
        model = algnn.ALGNN(width=512, device="cpu").fit(given, nodes, graph.y[nodes])
        assert model.score(given, graph.test_mask, graph.y[graph.test_mask]) > 0.93


@pytest.mark.parametrize("width", [16, 600])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_columns_whose_common_unit_is_far_from_one_are_scaled_alike(width, layout):
    x = torch.randn(60, width, generator=torch.Generator().manual_seed(0))
    given = to_csr if layout == "sparse" else torch.clone
    adjacency = normalised_adjacency(torch.tensor([[0, 1], [1, 0]]), 60)
    encoders = [HopEncoder.of(given(x * 2.0**power), 64, 0) for power in (0, -100, 60, 120)]
    assert encoders[0].scales is None
    views = [
        encoder.prepare(adjacency, given(x * 2.0**power))
        for encoder, power in zip(encoders, (0, -100, 60, 120), strict=True)
    ]
    assert bool(views[0].any())
    # but for the sizes, which are those of columns of about 1
    for encoder, found in zip(encoders[1:], views[1:], strict=True):
        assert encoder.scales.unique().numel() == 1
        torch.testing.assert_close(found[:, : encoder.breadth], views[0][:, : encoder.breadth])


@pytest.mark.parametrize("sizes", [(1e6, 1e6), (1e6, 1.0), (100.3, 1e-4)])
def test_what_is_left_where_neighbours_cancel_is_no_view(sizes):
    signs = torch.tensor([1.0, -1.0]).repeat(30)[:, None]
    near = torch.arange(60).repeat(2), torch.cat([torch.arange(1, 61), torch.arange(2, 62)]) % 60
    edges = torch.stack([torch.cat(near), torch.cat(near[::-1])])
    lengths = torch.tensor(sizes).repeat_interleave(30)[:, None]
    graph, y = Data(x=lengths * signs, edge_index=edges), torch.arange(60) % 3
    model = algnn.ALGNN(width=64, gamma=1e-3, device="cpu").fit(graph, range(30), y[:30])
    # of each node's four neighbours two have its sign and two the other
    scores = model.decision_function(graph, range(60))
    for node in range(60):
        assert abs(model.explain(graph, node).score - scores[node].max()) < 1e-4


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_rows_that_have_much_in_common_are_centred(layout):
    given = to_csr if layout == "sparse" else torch.clone
    x = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    assert HopEncoder.of(given(x), 64, 0).centre is None
    few = (x + 2) * (torch.arange(6) < 5)
    assert HopEncoder.of(given(few), 64, 0).centre is None  # some are zero
    x += 2
    x[7] = 0  # a node without features
    encoder = HopEncoder.of(given(x), 64, 0)
    off = (encoder.centre - x[x.any(1)].mean(0)).abs()
    assert bool((off < x[x.any(1)].std(0) / 200).all())
    other = x.clone()
    other[9] *= 1e6
    assert float((HopEncoder.of(given(other), 64, 0).centre - encoder.centre).abs().max()) < 0.1
    adjacency = normalised_adjacency(torch.tensor([[0, 7], [7, 0]]), 50)
    plain = replace(encoder, centre=None)
    centred = torch.where(x.any(1, keepdim=True), x - encoder.centre, 0.0)
    torch.testing.assert_close(
        encoder.prepare(adjacency, given(x)), plain.prepare(adjacency, given(centred))
    )
    assert encoder.fingerprint != plain.fingerprint
    assert bool(HopEncoder.of(given(x * 1e18), 64, 0).centre.isfinite().all())
    # of equal rows, or of one, nothing would be left
    for alike in (torch.full((9, 2), -3.0), torch.full((9, 2), 2.5), x[:1]):
        assert HopEncoder.of(given(alike), 64, 0).centre is None
    # few rows have something in common by chance
    few = [torch.randn(9, 64, generator=torch.Generator().manual_seed(k)) for k in range(20)]
    assert sum(HopEncoder.of(given(one), 64, 0).centre is not None for one in few) < 5


def test_rows_are_sampled_without_a_pattern():
    """Nodes of several kinds in turn, as in a list of users and items, are all seen."""
    rows = sample(torch.arange(4 * 512.0)[:, None], 512)[:, 0]
    assert bool((rows.diff() > 0).all())
    counts = (rows % 4).long().bincount()
    assert counts.sum() == 512
    assert counts.min() > 90
    for nodes in (1, 511, 512, 513, 1000):
        some = sample(torch.arange(float(nodes))[:, None], 512)[:, 0]
        assert some.unique().numel() == some.numel() <= 512
        assert some.numel() > 0.4 * min(nodes, 512)
