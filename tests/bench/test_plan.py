from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_geometric.data import Data

from algnn import load
from algnn.bench import runs
from algnn.bench.plan import Plan, carry_out, perform, planned, recorded_name, rehearse
from algnn.bench.record import file_name, same
from algnn.errors import AlgnnError, InputError

SMALL = {"width": 32, "hidden": 8, "epochs": 3}


@pytest.fixture
def file(small_graph: Data, tmp_path: Path) -> str:
    path = tmp_path / "mine.npz"
    np.savez(path, **{key: value.numpy() for key, value in small_graph.to_dict().items()})
    return str(path)


@pytest.mark.parametrize(
    "changes",
    [{}, {"order": "random"}, {"order": [3, 1, 0, 2], "edges": "seen"}, {"base": 3, "step": 5}],
)
def test_a_run_is_known_before_it_is_run(file: str, changes: dict[str, Any]) -> None:
    plan = Plan(file, "algnn", [7, 8], SMALL, device="cpu", **changes)
    graph = load(file)
    heard: list[tuple[int, int]] = []
    for run, seed in zip(planned(plan, graph), plan.seeds, strict=True):
        record = perform(plan, seed, graph, 3, lambda *place: heard.append(place))
        assert same(run, record)
        assert file_name(run) == file_name(record)
        assert record.machine["jobs"] == 3
    count = len(record.outcome.sessions)
    assert heard == 2 * [(index, count) for index in range(count)]


def test_alone_or_with_others(file: str, tmp_path: Path) -> None:
    plan = Plan(file, "bare", [1, 2], {"hidden": 8, "epochs": 3}, device="cpu")
    together = carry_out(plan, tmp_path / "records")
    for record in together:
        alone = perform(plan, record.seed, load(file))
        assert same(record, alone)
        np.testing.assert_array_equal(record.outcome.correct, alone.outcome.correct)
    assert list(runs.read_runs(tmp_path / "records")["seed"]) == [1, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": 0}, "step=0"),
        ({"base": 9}, "base=9"),
        ({"edges": "most"}, "edges='most'"),
        ({"order": [0, 1]}, "order="),
        ({"seeds": []}, "seeds is empty"),
        ({"seeds": [1, -1]}, "seed=-1"),
        ({"seeds": [1, 0.5]}, "seed=0.5"),
        ({"method": "best"}, "method='best'"),
        ({"changes": {"gamma": -1.0}}, "gamma=-1.0"),
        ({"changes": {"gama": 1.0}}, "'gama' is not a setting"),
        ({"device": "abacus"}, "device='abacus'"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    file: str, changes: dict[str, Any], message: str
) -> None:
    facts = {"dataset": file, "method": "algnn", "seeds": [1], **changes}
    with pytest.raises(AlgnnError) as caught:
        planned(Plan(**facts), load(file))
    assert message in str(caught.value)


def test_a_session_without_test_nodes_is_seen_beforehand(small_graph: Data) -> None:
    small_graph.test_mask &= small_graph.y != 2
    with pytest.raises(InputError, match="no test node in session 1"):
        planned(Plan("mine.npz", "algnn", [1]), small_graph)


DICE = """
import random
import numpy as np
import torch
from algnn import ALGNN

class Dice(ALGNN):
    '''Draws its answers from the generators that everyone shares.'''

    def predict(self, graph, nodes=None):
        draws = torch.rand(len(nodes)).numpy() + np.random.rand(len(nodes)) + random.random()
        return self.classes_[(10 * draws).astype(int) % len(self.classes_)]
"""


def test_generators_that_everyone_shares_follow_the_seed(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_dice.py").write_text(DICE)
    monkeypatch.syspath_prepend(tmp_path)
    plan = Plan(file, "own_dice:Dice", [1, 2], SMALL, device="cpu")
    first, second, again = (perform(plan, seed, load(file)).outcome for seed in (1, 2, 1))
    np.testing.assert_array_equal(first.correct, again.correct)
    assert (first.correct != second.correct).any()


def test_names_in_records() -> None:
    assert recorded_name("CORA") == "cora"
    assert recorded_name("/home/someone/cora.npz") == "cora.npz"


@pytest.mark.parametrize("method", ["algnn", "bare", "joint"])
def test_a_run_is_the_same_after_a_rehearsal(file: str, method: str) -> None:
    changes = {} if method == "algnn" else {"hidden": 8, "epochs": 3}
    plan, graph = Plan(file, method, [1], changes, device="cpu"), load(file)
    alone = perform(plan, 1, graph)
    rehearse(plan, 1, graph)
    again = perform(plan, 1, graph)
    np.testing.assert_array_equal(alone.outcome.correct, again.outcome.correct)
