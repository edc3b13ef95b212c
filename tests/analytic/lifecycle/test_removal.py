"""The checks before a subtraction: whether sums can hold the nodes that are to be forgotten."""

import numpy as np
import pytest
import torch

from algnn.analytic.linalg import Span
from algnn.analytic.state import check_left, check_spanned
from algnn.analytic.statistics import Statistics
from algnn.errors import InputError


def sums(Z, labels):
    return Statistics.empty(Z.size(1)).plus([Z], np.asarray(labels))


def test_features_outside_of_the_span_are_named_by_their_node():
    Z = torch.eye(2, 3).double()
    span, nodes = Span.empty(3).extended(Z[:1]), torch.tensor([5, 7])
    check_spanned(span, Z[:1], nodes[:1])
    with pytest.raises(InputError, match="node 7 has other features in this graph"):
        check_spanned(span, Z, nodes)


@pytest.mark.parametrize("rows", [3, 40])
def test_nodes_in_the_sums_pass_and_others_do_not(rows):
    """More nodes than columns, or fewer; features a little off, or far."""
    generator = torch.Generator().manual_seed(rows)
    Z = torch.randn(rows, 6, generator=generator).double().relu()
    labels = np.arange(rows) % 2
    noise = torch.randn(rows, 6, generator=generator).double()
    before = sums(Z, labels)
    for some in (slice(0, 1), slice(0, 2), slice(0, rows)):
        for off, fine in ((0.0, True), (1e-9, True), (10.0, False)):
            gone = sums((Z + off * noise)[some], labels[some])
            if fine:
                check_left(before, gone, before.minus(gone))
                continue
            with pytest.raises(InputError, match="sums that no nodes can have"):
                check_left(before, gone, before.minus(gone))


def test_a_class_without_nodes_has_no_sum():
    """Taken out with less than it had: no direction turns negative, but something is left of it."""
    Z = torch.tensor([[2.0, 0.0], [0.0, 2.0]]).double()
    before, gone = sums(Z, [0, 1]), sums(0.5 * Z[1:], [1])
    with pytest.raises(InputError, match="sums that no nodes can have"):
        check_left(before, gone, before.minus(gone))
