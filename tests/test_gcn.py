import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algnn.gcn import dropout, glorot, hidden_layer, train
from algnn.graph.propagate import normalised_adjacency


@given(st.floats(0, 0.99), st.integers(0, 1000), st.integers(1, 9))
def test_dropout_keeps_or_scales_and_nothing_else(rate, seed, columns):
    hidden = torch.rand(50, columns) + 1
    found = dropout(hidden, rate, torch.Generator().manual_seed(seed))
    kept = found != 0
    ratio = (found / hidden)[kept]
    assert found.shape == hidden.shape
    if kept.any():
        torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio))
        assert float(ratio[0]) == pytest.approx(1 / (1 - rate), rel=0.3 if rate > 0.9 else 0.02)


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.7])
def test_dropout_drops_its_share_and_keeps_the_mean(rate):
    found = dropout(torch.ones(4000, 250), rate, torch.Generator().manual_seed(0))
    # 10^6 entries: five standard errors
    assert float((found == 0).float().mean()) == pytest.approx(rate, abs=1 / 512 + 0.0025)
    assert float(found.mean()) == pytest.approx(1, abs=0.008)


def test_dropout_masks_are_independent_between_calls_and_entries():
    generator = torch.Generator().manual_seed(0)
    first, second = (dropout(torch.ones(1000, 64), 0.5, generator) > 0 for _ in range(2))
    # 64,000 fair coins: five standard errors are 0.01
    assert float((first == second).float().mean()) == pytest.approx(0.5, abs=0.01)
    assert float((first[:, 1:] == first[:, :-1]).float().mean()) == pytest.approx(0.5, abs=0.01)
    assert float((first[:, 8:] == first[:, :-8]).float().mean()) == pytest.approx(0.5, abs=0.01)


def test_gradients_flow_only_through_what_is_kept():
    hidden = torch.ones(100, 8, requires_grad=True)
    found = dropout(hidden, 0.5, torch.Generator().manual_seed(0))
    found.sum().backward()
    assert torch.equal(hidden.grad, found.detach())


def test_a_layer_worked_out_by_hand():
    pair = normalised_adjacency(torch.tensor([[0, 1], [1, 0]]), 2)
    x = torch.tensor([[2.0, -4.0], [0.0, 0.0]])
    found = hidden_layer(pair, x, torch.eye(2), torch.tensor([0.5, 1.0]))
    torch.testing.assert_close(found, torch.tensor([[1.5, 0.0], [1.5, 0.0]]))


def test_training_finds_a_minimum_and_calls_its_hooks():
    weight, calls = torch.nn.Parameter(torch.tensor(1.0)), []
    train(
        [weight], lambda: weight**2, 200, lr=0.1, weight_decay=0.0,
        adjust=lambda: calls.append(weight.grad.item()), after=calls.append,
    )  # fmt: skip
    assert abs(weight.item()) < 0.01
    assert calls[:2] == [2.0, 0]
    assert calls[-1] == 199


def test_glorot_fills_its_range():
    weights = glorot(40, 56, torch.Generator().manual_seed(0))
    assert 0.24 < float(weights.max()) <= 0.25
    assert -0.25 <= float(weights.min()) < -0.24
