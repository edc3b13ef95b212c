"""The paper's claims: its recursion = joint solution = sums and Cholesky.

The recursion carries R_t and W_t from session to session, where the library carries sums. Both give
the joint solution; the sums give it with a smaller error, so nothing in the library runs this.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import algnn
from algnn.analytic.heads import ridge
from algnn.analytic.linalg import MOST_ROWS_DIVISOR, UpdatedFactor
from algnn.analytic.statistics import Statistics


@dataclass(frozen=True)
class Recursion:
    """R_t = (Σ ZᵀZ + γI)⁻¹ [d, d] of Eq. (Rt_def) and Ŵ_cls^(t) [d, C] after session t."""

    R: Tensor
    W: Tensor

    @classmethod
    def base(cls, Z: Tensor, Y: Tensor, gamma: float) -> "Recursion":
        """The base session, with one-hot labels Y: R_0 of Eq. (R0), W of Eq. (base_closed_form)."""
        R = torch.linalg.inv(Z.mT @ Z + gamma * torch.eye(Z.size(1), dtype=Z.dtype))
        return cls(R, R @ Z.mT @ Y)

    def update(self, Z: Tensor, Y: Tensor) -> "Recursion":
        """A session that brings only new classes, with one-hot labels Y."""
        R = woodbury(self.R, Z)
        # Eq. (Wt_recursive): correct the old columns, append the new ones
        corrected = self.W - R @ Z.mT @ (Z @ self.W)
        return Recursion(R, torch.cat([corrected, R @ Z.mT @ Y], dim=1))


def woodbury(R: Tensor, Z: Tensor) -> Tensor:
    """Eq. (Rt_woodbury): R_t = R − R Zᵀ (I + Z R Zᵀ)⁻¹ Z R."""
    ZR = Z @ R
    inner = ZR @ Z.mT
    inner.diagonal().add_(1)
    # not checked: rounding may cost R its definiteness, and a reference shows that
    factor, _ = torch.linalg.cholesky_ex(inner)
    half = torch.linalg.solve_triangular(factor, ZR, upper=False)
    return torch.addmm(R, half.mT, half, alpha=-1)


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


@pytest.mark.parametrize(("name", "gamma"), [("digits", 0.1), ("cora", 1.0), ("citeseer", 0.1)])
def test_a_learner_of_real_graphs_has_the_weights_of_the_recursion(real_graph, name, gamma):
    settings = {"encoder": "gcn", "head": "ridge", "gamma": gamma, "width": 256, "epochs": 2}
    model, state = algnn.ALGNN(**settings, seed=1, device="cpu"), None
    for session in algnn.ClassStream(real_graph(name)):
        model.partial_fit(session.graph, session.nodes, session.labels)
        Z = torch.cat(list(model._features(session.graph, session.nodes, model._learned.features)))
        codes = torch.from_numpy(np.unique(session.labels, return_inverse=True)[1])
        Y = torch.nn.functional.one_hot(codes).double()
        state = Recursion.base(Z, Y, gamma) if state is None else state.update(Z, Y)
        assert relative_error(model.weights_, state.W) <= 1e-5


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


@settings(max_examples=50, deadline=None)
@given(streams(), st.sampled_from([0.1, 1.0, 100.0]))
def test_an_updated_factor_is_the_inverse_of_the_recursion(sessions, gamma):
    """Session by session, with weights that the sums correct."""
    Z, Y = everything(sessions)
    counts = [z.size(0) for z, _ in sessions]
    seen = counts[0]
    factor = UpdatedFactor.of(Z[:seen].mT @ Z[:seen], gamma)
    reference = Recursion.base(*sessions[0], gamma)
    for (z, y), count in zip(sessions[1:], counts[1:], strict=True):
        factor, reference, seen = factor.plus(z), reference.update(z, y), seen + count
        identity = torch.eye(Z.size(1)).double()
        assert relative_error(factor.times(identity), reference.R) < 1e-8
        G, Q = Z[:seen].mT @ Z[:seen], Z[:seen].mT @ Y[:seen]
        found = factor.weights(G, Q, gamma)
        assert relative_error(found, joint_solution(Z[:seen], Y[:seen], gamma)) < 1e-9
    assert factor.V.size(0) == sum(counts[1:])


@settings(max_examples=50, deadline=None)
@given(streams(), st.sampled_from([0.1, 1.0, 100.0]), st.floats(-1e-3, 1e-3))
def test_a_factor_that_is_off_gives_the_same_weights_or_none(sessions, gamma, off):
    Z, Y = everything(sessions)
    G, Q = Z.mT @ Z, Z.mT @ Y
    exact = joint_solution(Z, Y, gamma)
    right = UpdatedFactor.of(G, gamma)

    def spoiled(factor):
        return UpdatedFactor(right.L * factor, right.V).weights(G, Q, gamma)

    found = spoiled(1 + off)
    assert found is None or relative_error(found, exact) < 1e-9
    if bool(Q.any()):
        assert spoiled(1 / 3) is None
        assert spoiled(1e6) is None
    assert spoiled(torch.nan) is None


def test_a_factor_takes_in_few_rows():
    factor = UpdatedFactor.of(torch.eye(9).double(), 1.0)
    most = 9 // MOST_ROWS_DIVISOR
    assert factor.has_room(most)
    assert not factor.has_room(most + 1)
    assert not factor.plus(torch.ones(1, 9).double()).has_room(most)
