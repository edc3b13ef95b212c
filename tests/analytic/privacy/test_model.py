import copy
import importlib.util
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp
from scipy.special import ndtr
from torch_geometric.data import Data

import algnn
from algnn import checkpoint
from algnn.analytic.features.hops import HopEncoder
from algnn.analytic.lifecycle.glance import glance
from algnn.analytic.lifecycle.io import WIDEST_INPUTS
from algnn.analytic.privacy.accountant import attained_delta, attained_epsilon, noise_scale
from algnn.analytic.privacy.model import SHARES, PrivateALGNN, PrivateState, with_noise
from algnn.analytic.statistics import Statistics
from algnn.errors import CheckpointError, InputError

EPSILONS = st.floats(0.001, 200)
DELTAS = st.floats(-40, -0.5).map(lambda exponent: 10.0**exponent)


def exact_delta(epsilon, sigma):
    """The definition with fifty digits: the largest of P(A) − e^ε P'(A) over events A.

    mpmath comes with torch.
    """
    with mp.workdps(50):
        mu, epsilon = 1 / mp.mpf(sigma), mp.mpf(epsilon)
        # the likelihood ratio of N(μ, 1) to N(0, 1) is above e^ε to the right of this point
        cut = epsilon / mu + mu / 2
        return mp.ncdf(mu - cut) - mp.exp(epsilon) * mp.ncdf(-cut)


@given(EPSILONS, st.floats(0.02, 100))
def test_delta_is_right_in_the_tails(epsilon, sigma):
    exact = exact_delta(epsilon, sigma)
    if exact > 1e-250:
        assert attained_delta(epsilon, sigma) == pytest.approx(float(exact), rel=1e-9)


@given(EPSILONS, DELTAS)
def test_the_noise_is_enough_and_no_more(epsilon, delta):
    sigma = noise_scale(epsilon, delta)
    assert exact_delta(epsilon, sigma) <= delta * (1 + 1e-9)
    assert exact_delta(epsilon, sigma * (1 - 1e-6)) > delta


@given(EPSILONS, DELTAS)
def test_epsilon_is_the_reverse_of_the_noise(epsilon, delta):
    assert attained_epsilon(delta, noise_scale(epsilon, delta)) == pytest.approx(epsilon, rel=1e-6)


def test_the_classical_noise_is_more():
    for epsilon, delta in ((0.1, 1e-5), (0.5, 1e-6), (0.99, 1e-8)):
        assert noise_scale(epsilon, delta) < math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def test_no_budget_is_spent_where_noise_hides_everything():
    assert attained_epsilon(0.5, 1e3) == 0.0


def as_vector(statistics):
    """Coordinates in which the shares are weights and symmetric matrices have their own norm."""
    G, rows, columns = statistics.G, *torch.tril_indices(*statistics.G.shape, -1)
    parts = {
        "G": torch.cat([G.diagonal(), G[rows, columns] * math.sqrt(2)]),
        "Q": statistics.Q.flatten(),
        "n": statistics.n.double(),
    }
    return torch.cat([part * math.sqrt(SHARES[name]) for name, part in parts.items()])


def sums(Z, labels):
    rows = Z / torch.linalg.vector_norm(Z, dim=1, keepdim=True).clamp_min(1)
    return Statistics.empty(Z.size(1)).plus([rows], labels)


@given(st.integers(0, 2**32), st.integers(1, 6), st.sampled_from([0.1, 1.0, 10.0]))
def test_one_node_moves_the_sums_by_at_most_one(seed, width, length):
    generator = torch.Generator().manual_seed(seed)
    Z = torch.randn(8, width, generator=generator, dtype=torch.float64) * length
    labels = np.array([0, 0, 1, 1, 2, 2, 0, 1])
    moved = as_vector(sums(Z, labels)) - as_vector(sums(Z[:-1], labels[:-1]))
    assert float(moved.norm()) <= 1 + 1e-12
    if length == 10.0 and width > 3:
        assert float(moved.norm()) == pytest.approx(1)


def draws(count, statistics, sigma, seed=0):
    entropy = np.random.default_rng(seed).bytes
    return torch.stack([as_vector(with_noise(statistics, sigma, entropy)) for _ in range(count)])


def test_noise_is_of_one_scale_in_every_coordinate():
    exact = sums(torch.eye(3).double(), np.array([0, 1, 1]))
    noise = draws(2000, exact, 2.0) - as_vector(exact)
    covariance = noise.mT @ noise / 2000
    assert torch.allclose(covariance, 4 * torch.eye(noise.size(1)).double(), atol=0.5)
    assert torch.allclose(noise.mean(0), torch.zeros(noise.size(1)).double(), atol=0.15)
    assert torch.allclose(
        (noise.abs() > 4).double().mean(0), torch.tensor(0.0455).double(), atol=0.02
    )


def test_an_attacker_who_knows_all_else_does_as_well_as_the_theory_says():
    Z, labels = torch.eye(3).double(), np.array([0, 1, 1])
    with_it, without = sums(Z, labels), sums(Z[:2], labels[:2])
    direction = as_vector(with_it) - as_vector(without)
    sigma = noise_scale(2.0, 1e-3)
    present = draws(1200, with_it, sigma, seed=1) @ direction
    absent = draws(1200, without, sigma, seed=2) @ direction
    auroc = float((present[:, None] > absent).double().mean())
    assert auroc == pytest.approx(ndtr(1 / sigma / math.sqrt(2)), abs=0.03)


def test_noise_differs_from_learner_to_learner_and_hides_in_no_lowest_bit(small_graph):
    first, second = (PrivateALGNN(epsilon=1.0).fit(small_graph, [0, 1], [0, 1]) for _ in range(2))
    assert not (first.statistics_.Q == second.statistics_.Q).any()
    steps = first.statistics_.Q * 2.0**18
    assert torch.equal(steps, steps.round())
    assert torch.equal(first.statistics_.G, first.statistics_.G.mT)


def learned(graph, epsilon=1e5, **params):
    model = PrivateALGNN(epsilon=epsilon, device="cpu", **params)
    for session in algnn.ClassStream(graph):
        model.partial_fit(session.graph, session.nodes, session.labels)
    return model


def test_with_next_to_no_noise_it_knows_its_classes(small_graph):
    nodes = small_graph.test_mask
    right = learned(small_graph).predict(small_graph, nodes) == small_graph.y[nodes].numpy()
    assert right.mean() > 0.9


def test_nothing_is_kept_but_noisy_sums(small_graph, tmp_path):
    """With all noise and no signal: what is left of the nodes is not to be seen anywhere."""
    path, model = tmp_path / "private.safetensors", learned(small_graph, 1e-3)
    model.save(path)
    tensors, facts = checkpoint.read(path, "PrivateALGNN")
    assert sorted(tensors) == ["shown.G", "shown.Q", "shown.n", "spent"]
    assert sorted(facts) == ["bank", "classes", "params", "variance"]
    scale = noise_scale(1e-3, model.delta)
    for name, share in SHARES.items():
        # noise is not from a seed: of the four numbers in n, this fails once in three million times
        size = float(tensors[f"shown.{name}"].square().mean().sqrt())
        assert size > 0.02 * scale / math.sqrt(share)
    assert (facts["bank"]["name"], facts["bank"]["expanded"]) == ("pagerank", 0)


def test_a_long_row_counts_no_more_than_a_short_one(small_graph):
    small_graph.x = small_graph.x * 1000
    model = PrivateALGNN(epsilon=1.0, width=5).fit(small_graph, [0, 1], [0, 1])
    rows = torch.cat(list(model._features(small_graph, torch.arange(50), model._learned.features)))
    assert float(torch.linalg.vector_norm(rows, dim=1).max()) <= 1 + 1e-12
    assert rows.size(1) == 5


def test_the_budget_is_counted_per_class_and_composes(small_graph):
    model = PrivateALGNN(epsilon=1.0, delta=1e-5)
    model.fit(small_graph, [0, 1], [0, 1])
    model.partial_fit(small_graph, [2, 3], [2, 3])
    assert model.spent_ == pytest.approx([1, 1, 1, 1])
    model.partial_fit(small_graph, [0, 6], [0, 2])
    twice = attained_epsilon(1e-5, noise_scale(1.0, 1e-5) / math.sqrt(2))
    assert model.spent_ == pytest.approx([twice, 1, twice, 1])
    # less than twice ε, which is what sequential composition alone would say
    assert 1.4 < twice < 2
    model.epsilon = 3.0
    model.partial_fit(small_graph, [1], [1])
    both = noise_scale(1.0, 1e-5) ** -2 + noise_scale(3.0, 1e-5) ** -2
    assert model.spent_[1] == pytest.approx(attained_epsilon(1e-5, both**-0.5))


def test_saved_and_loaded_it_is_the_same(small_graph, tmp_path):
    path, model = tmp_path / "private.safetensors", learned(small_graph, 2.0, width=5, seed=7)
    model.save(path)
    again = PrivateALGNN.load(path)
    assert np.array_equal(again.predict(small_graph), model.predict(small_graph))
    assert np.array_equal(again.spent_, model.spent_)
    assert again.get_params() == model.get_params()
    again.partial_fit(small_graph, [0], [0])
    assert again.spent_[0] > model.spent_[0]
    with pytest.raises(CheckpointError, match=r"load it with PrivateALGNN\.load"):
        algnn.ALGNN.load(path)


def test_a_model_of_very_wide_features_is_read_again(tmp_path):
    """2^20 columns are what scikit-learn hashes words to."""
    at = torch.stack([torch.arange(40), torch.arange(40) * 26_000])
    x = torch.sparse_coo_tensor(at, torch.ones(40), (40, 2**20)).to_sparse_csr()
    graph = Data(x=x, edge_index=torch.randint(0, 40, (2, 80)))
    model = PrivateALGNN(epsilon=8.0, width=4).fit(graph, range(20), np.arange(20) % 2)
    model.save(tmp_path / "m.safetensors")
    again = PrivateALGNN.load(tmp_path / "m.safetensors")
    assert again.predict(graph).tolist() == model.predict(graph).tolist()


def test_features_too_wide_to_be_read_again_cost_no_epsilon():
    x = torch.sparse_coo_tensor([[0], [0]], [1.0], (4, WIDEST_INPUTS)).coalesce()
    graph = Data(x=x, edge_index=torch.tensor([[0, 1], [1, 0]]))
    model = PrivateALGNN(epsilon=8.0, width=4)
    with pytest.raises(InputError, match=r"width of graph\.x=67108864"):
        model.fit(graph, [0, 1], [0, 1])
    assert not hasattr(model, "classes_")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("variance", 0.0),
        ("variance", "1"),
        ("spent", -torch.ones(4).double()),
        ("spent", torch.full((4,), math.inf).double()),
        ("spent", torch.ones(3).double()),
        ("shown.Q", torch.full((12, 4), math.nan).double()),
        ("shown.n", torch.ones(4).long()),
        ("bank", {"name": "unheard of", "inputs": 12}),
        ("bank", None),
    ],
)
def test_a_damaged_file_is_refused(small_graph, tmp_path, name, value):
    path = tmp_path / "private.safetensors"
    learned(small_graph).save(path)
    tensors, facts = checkpoint.read(path, "PrivateALGNN")
    (tensors if isinstance(value, torch.Tensor) else facts)[name] = value
    checkpoint.write(path, "PrivateALGNN", tensors, facts)
    with pytest.raises(CheckpointError):
        PrivateALGNN.load(path)


@pytest.mark.parametrize("damage", [{"delta": -1.0}, {"delta": math.nan}, math.nan, -1.0, 0.0])
def test_a_glance_at_a_damaged_file_comes_to_an_end(small_graph, tmp_path, damage):
    """Where no budget is enough, none is searched for without end."""
    path = tmp_path / "private.safetensors"
    learned(small_graph).save(path)
    tensors, facts = checkpoint.read(path, "PrivateALGNN")
    if isinstance(damage, dict):
        facts["params"] |= damage
    else:
        tensors["spent"].fill_(damage)
    checkpoint.write(path, "PrivateALGNN", tensors, facts)
    with pytest.raises(CheckpointError, match="no model that this version knows"):
        glance(path)


@pytest.mark.parametrize(
    "params",
    [
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"epsilon": math.inf},
        {"epsilon": "1"},
        {"epsilon": 1.0, "delta": 0.0},
        {"epsilon": 1.0, "delta": 1.0},
        {"epsilon": 1.0, "width": -1},
        {"epsilon": 1.0, "width": 2.5},
    ],
)
def test_what_cannot_be_promised_is_refused(small_graph, params):
    model = PrivateALGNN(**params)
    with pytest.raises(InputError, match=r"epsilon|delta|width"):
        model.fit(small_graph, [0, 1], [0, 1])
    assert model._learned is None


def test_what_was_learned_depends_on_cannot_change(small_graph):
    model = algnn.PrivateALGNN(epsilon=4.0, width=4).fit(small_graph, range(40), small_graph.y[:40])
    for change in ({"width": 3}, {"seed": 9}):
        changed = copy.deepcopy(model).set_params(**change)
        with pytest.raises(InputError, match="was set after fit"):
            changed.partial_fit(small_graph, [50], [1])
    for delta in (-3, float("nan"), 0):
        with pytest.raises(InputError, match="delta="):
            copy.deepcopy(model).set_params(delta=delta).spent_  # noqa: B018


def test_a_node_twice_in_a_session_is_refused(small_graph):
    """The sums would move by two, and the promise would not hold."""
    with pytest.raises(InputError, match="nodes"):
        PrivateALGNN(epsilon=1.0).fit(small_graph, [0, 1, 1], [0, 1, 1])


@given(st.integers(0, 2**32), st.floats(1e-3, 1e4))
def test_weights_are_finite_whatever_the_noise(seed, sigma):
    exact = sums(torch.eye(4).double(), np.array([0, 1, 1, 2]))
    shown = with_noise(exact, sigma, np.random.default_rng(seed).bytes)
    state = PrivateState(HopEncoder("pagerank", 4), shown, sigma**2, torch.zeros(3))
    assert bool(state.weights.isfinite().all())


def test_empty_features_are_learned_too(small_graph):
    small_graph.x = torch.zeros_like(small_graph.x)
    model = PrivateALGNN(epsilon=1.0).fit(small_graph, [0, 1], ["a", "b"])
    assert set(model.predict(small_graph).tolist()) <= {"a", "b"}
    assert json.dumps(model.get_params())


ROOT = Path(__file__).parents[3]
spec = importlib.util.spec_from_file_location("privacy_benchmark", ROOT / "benchmarks/privacy.py")
benchmark = importlib.util.module_from_spec(spec)
spec.loader.exec_module(benchmark)


def test_the_document_says_what_the_records_say():
    records, text = benchmark.read_records(), (ROOT / "docs/privacy.md").read_text("utf-8")
    assert set(records) == set(benchmark.GRAPHS)
    assert benchmark.document(text, records) == text
    assert all(f"<!-- privacy {part} -->" in text for part in benchmark.PARTS)
    # what a sentence of it says of the best attack
    assert f"AUROC of {ndtr(1 / noise_scale(1.0, 1e-6) / 2**0.5):.2f} whether" in text


def test_the_attacks_find_what_is_there(small_graph):
    """Two nodes of a class read from sums, on a graph small enough to look at."""
    assert benchmark.auroc([2.0, 3.0], [1.0, 2.0]) == pytest.approx(0.875)
    Z = torch.nn.functional.normalize(torch.arange(12.0).reshape(3, 4).double().sin())
    before, after = sums(Z[:1], np.array([0])), sums(Z, np.array([0, 1, 1]))
    guess, truth = benchmark.two_rows(before, after, Z[1:])
    assert torch.allclose(guess, truth, atol=1e-7)
    scores = benchmark.familiarity(after.G, torch.cat([Z, torch.eye(4).double()]))
    assert scores[:3].min() > scores[3:].max()
