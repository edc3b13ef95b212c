"""The paper's claims, on random problems: recursion = joint solution = sums and Cholesky."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algnn.analytic.heads import ridge
from algnn.analytic.linalg.recursion import WIDE, Inverse, Recursion, refined, woodbury
from algnn.analytic.statistics import Statistics


def joint_solution(Z: torch.Tensor, Y: torch.Tensor, gamma: float) -> torch.Tensor:
    """min ‖Y − ZW‖² + γ‖W‖² by orthogonal factors of the stacked problem: no Gram, no inverse."""
    d = Z.size(1)
    stacked = torch.cat([Z, gamma**0.5 * torch.eye(d, dtype=Z.dtype)])
    targets = torch.cat([Y, Y.new_zeros(d, Y.size(1))])
    return torch.linalg.lstsq(stacked, targets, driver="gelsy").solution


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    # features may all be zero, and the weights with them
    return float((found - expected).norm() / max(float(expected.norm()), 1e-300))


@st.composite
def streams(draw: st.DrawFn) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Sessions (Z, Y) of one or more new classes each; classes of one node occur."""
    width = draw(st.integers(2, 40))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    sessions = []
    for _ in range(draw(st.integers(2, 6))):
        classes = draw(st.integers(1, 3))
        counts = [draw(st.integers(1, 12)) for _ in range(classes)]
        codes = torch.arange(classes).repeat_interleave(torch.tensor(counts))
        Z = torch.randn(codes.numel(), width, generator=generator).relu().double()
        sessions.append((Z, torch.nn.functional.one_hot(codes, classes).double()))
    return sessions


def everything(sessions):
    Z = torch.cat([Z for Z, _ in sessions])
    return Z, torch.block_diag(*(Y for _, Y in sessions))


@settings(deadline=None)
@given(streams(), st.sampled_from([0.1, 1.0, 100.0]))
def test_the_recursion_is_the_joint_solution(sessions, gamma):
    state = Recursion.base(*sessions[0], gamma)
    for Z, Y in sessions[1:]:
        state = state.update(Z, Y)
    assert relative_error(state.W, joint_solution(*everything(sessions), gamma)) < 1e-8


@settings(deadline=None)
@given(streams(), st.sampled_from([1e-3, 0.1, 1.0, 100.0]))
def test_sums_and_cholesky_are_the_joint_solution(sessions, gamma):
    statistics, first = Statistics.empty(sessions[0][0].size(1)), 0
    for Z, Y in sessions:
        statistics = statistics.plus([Z], Y.argmax(1).numpy() + first)
        first += Y.size(1)
    found, _ = ridge(statistics, gamma)
    bound = 1e-9 if gamma >= 0.1 else 1e-6
    assert relative_error(found, joint_solution(*everything(sessions), gamma)) < bound


@settings(deadline=None)
@given(streams())
def test_woodbury_is_the_inverse_it_stands_for(sessions):
    Z0, Z1 = sessions[0][0], sessions[1][0]
    identity = torch.eye(Z0.size(1), dtype=torch.float64)
    R = woodbury(torch.linalg.inv(Z0.T @ Z0 + identity), Z1)
    expected = torch.linalg.inv(Z0.T @ Z0 + Z1.T @ Z1 + identity)
    assert relative_error(R, expected) < 1e-10


def test_why_the_sums_are_kept_and_not_the_inverse():
    """At the paper's smallest γ the recursion in float32 is lost; the sums do not care."""
    generator = torch.Generator().manual_seed(0)
    codes = torch.arange(40).repeat_interleave(20)
    Z = torch.randn(800, 512, generator=generator).relu()
    exact = joint_solution(Z.double(), torch.nn.functional.one_hot(codes).double(), 1e-3)
    errors = {}
    for dtype in (torch.float32, torch.float64):
        one = torch.ones(20, 1, dtype=dtype)
        state = Recursion.base(Z[:20].to(dtype), one, 1e-3)
        for start in range(20, 800, 20):
            state = state.update(Z[start : start + 20].to(dtype), one)
        errors[dtype] = relative_error(state.W.double(), exact)
    statistics = Statistics.empty(512).plus([Z], codes.numpy())
    sums = relative_error(ridge(statistics, 1e-3)[0], exact)
    assert sums < 1e-10 < errors[torch.float64] < 1e-3
    assert not errors[torch.float32] < 0.1


def inverse(Z, gamma, whole):
    matrix = Z.mT @ Z + gamma * torch.eye(Z.size(1)).double()
    return Inverse.of(torch.linalg.cholesky(matrix), whole)


@settings(max_examples=50, deadline=None)
@given(streams(), st.sampled_from([0.1, 1.0, 100.0]), st.booleans())
def test_nodes_come_and_go_by_way_of_the_inverse(sessions, gamma, whole):
    """All sessions learned, then all but the first forgotten: R and W each time."""
    Z, Y = everything(sessions)
    first, *later = torch.arange(Z.size(0)).split([z.size(0) for z, _ in sessions])
    R, W = inverse(Z[first], gamma, whole), joint_solution(Z[first], Y[first], gamma)
    known = first
    for sign, parts in ((1, later), (-1, later)):
        for part in parts:
            R, W = R.updated(Z[part], Y[part], W, sign=sign)
            known = torch.cat([known, part]) if sign > 0 else known[~torch.isin(known, part)]
            matrix = Z[known].mT @ Z[known] + gamma * torch.eye(Z.size(1)).double()
            assert relative_error(R.times(matrix), torch.eye(Z.size(1)).double()) < 1e-8
            # features that are left may all be zero, and the weights with them
            exact = joint_solution(Z[known], Y[known], gamma)
            torch.testing.assert_close(W, exact, rtol=1e-8, atol=1e-9)
    assert R.V.size(0) == (0 if whole else 2 * (Z.size(0) - first.numel()))


@pytest.mark.parametrize("whole", [True, False])
def test_what_was_never_learned_cannot_be_taken_out(whole):
    generator = torch.Generator().manual_seed(0)
    Z = torch.randn(4, 9, generator=generator).double()
    R, W, Y = inverse(Z, 0.1, whole), torch.zeros(9, 2).double(), torch.ones(4, 2).double()
    assert bool(R.updated(3 * Z, Y, W, sign=-1)[1].isnan().all())
    assert bool(R.updated(Z, Y, W, sign=-1)[1].isfinite().all())
    # nor what someone else has doubts about
    for doubt in (True, False):
        found = R.updated(Z, Y, W, sign=-1, unless=torch.tensor(doubt))[1]
        assert bool(found.isnan().any()) == doubt
    assert R.has_room(9 // WIDE)
    # a matrix stays one, however many come
    assert R.has_room(9 // WIDE + 1) == whole
    assert R.updated(Z, Y, W)[0].has_room(1) == whole


@settings(max_examples=50, deadline=None)
@given(streams(), st.sampled_from([0.1, 1.0, 100.0]), st.floats(0, 1e-3))
def test_the_sums_correct_what_the_recursion_proposes(sessions, gamma, off):
    Z, Y = everything(sessions)
    G, Q = Z.mT @ Z, Z.mT @ Y
    exact = joint_solution(Z, Y, gamma)
    R, W = inverse(Z, gamma, False), torch.zeros_like(Q)
    for start in (exact, exact + off, W):
        found = refined(start, R, G, Q, gamma)
        assert found is not None
        assert relative_error(found, exact) < 1e-9
    # an R that is off gives the same weights or none, never others
    for factor in (1 + off, 1 - off):
        wrong = Inverse.of(R.root * factor)
        found = refined(exact + off, wrong, G, Q, gamma)
        assert found is None or relative_error(found, exact) < 1e-9
    if bool(Q.any()):
        assert refined(W, Inverse.of(R.root / 3), G, Q, gamma) is None
        assert refined(W, Inverse.of(R.root * 1e6), G, Q, gamma) is None
    assert refined(W, Inverse.of(R.root * torch.nan), G, Q, gamma) is None
