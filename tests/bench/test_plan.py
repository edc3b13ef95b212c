"""A run before it is run, and what its figures depend on."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import algnn
from algnn import load, methods
from algnn.bench import environment, runs
from algnn.bench.environment import code_version, machine, versions
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
    assert heard == 2 * [(index, count) for index in range(1, count + 1)]


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
        ({"base": 1}, "the base session needs at least two classes"),
        ({"edges": "most"}, "edges='most'"),
        ({"order": [0, 1]}, "order="),
        ({"seeds": []}, "seeds is empty"),
        ({"seeds": [1, -1]}, "seed=-1"),
        ({"seeds": [1, 0.5]}, "seed=0.5"),
        ({"method": "best"}, "method='best'"),
        ({"changes": {"gamma": -1.0}}, "gamma=-1.0"),
        ({"changes": {"gama": 1.0}}, "'gama' is not a setting"),
        ({"device": "abacus"}, "device='abacus'"),
        ({"device": "abacus", "dataset": "reddit"}, "device='abacus'"),  # before it is downloaded
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    file: str, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    plan = Plan(**{"dataset": file, "method": "algnn", "seeds": [1], **changes})
    for refuse in (lambda: planned(plan, load(file)), lambda: carry_out(plan, tmp_path / "r")):
        with pytest.raises(AlgnnError) as caught:
            refuse()
        assert message in str(caught.value)
    assert not (tmp_path / "r").exists()


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


def test_integers_of_any_kind_make_one_run(file: str) -> None:
    graph = load(file)
    usual = Plan(file, "bare", [7], {"epochs": 3}, step=2, device="cpu", order=[3, 1, 0, 2])
    other: Any = {
        "seeds": list(np.array([7])),
        "step": np.int64(2),
        "order": torch.tensor([3, 1, 0, 2]),
    }
    (one,), (again,) = planned(usual, graph), planned(replace(usual, **other), graph)
    assert json.dumps(vars(one)) == json.dumps(vars(again))


def test_names_in_records() -> None:
    assert recorded_name("CORA") == "cora"
    assert recorded_name("/home/someone/cora.npz") == "cora.npz"
    assert recorded_name("été.npz") == "été.npz"
    with pytest.raises(InputError, match="is not in UTF-8, and records need its name: rename it"):
        recorded_name(os.fsdecode(b"\xe9t\xe9.npz"))


@pytest.mark.parametrize("method", ["algnn", "bare", "joint"])
def test_a_run_is_the_same_after_a_rehearsal(file: str, method: str) -> None:
    changes = {} if method == "algnn" else {"hidden": 8, "epochs": 3}
    plan, graph = Plan(file, method, [1], changes, device="cpu"), load(file)
    alone = perform(plan, 1, graph)
    rehearse(plan, 1, graph)
    again = perform(plan, 1, graph)
    np.testing.assert_array_equal(alone.outcome.correct, again.outcome.correct)


# -- the environment ------------------------------------------------------------------------------


# what each file of a package in small imports
FILES = {
    "bench/plan.py": "from algnn.bench.record import Run\nfrom algnn.graph import stream\n",
    "bench/record.py": "import algnn.files\n",
    "graph/stream.py": "import torch\nfrom algnn.checks import onto\n",
    "checks.py": "",
    "baselines/__init__.py": "",
    "baselines/training.py": "def train():\n    import algnn.gcn\n",
    "baselines/replay.py": "from algnn.baselines.training import train\n",
    "gcn.py": "",
    "report/any.py": "from algnn.bench import plan\n",
    "settings/bare.toml": "lr = 0.1\n",
}
OF_ALL = {"bench/plan.py", "graph/stream.py", "checks.py"}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package in small."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(algnn, "__file__", str(tmp_path / "__init__.py"))
    return tmp_path


def version(module: str) -> str:
    environment._sources.cache_clear()
    return code_version(type("Any", (), {"__module__": f"algnn.{module}"}))


@pytest.mark.parametrize(
    ("module", "needs"),
    [
        ("checks", set()),
        ("baselines.training", {"baselines/training.py", "gcn.py"}),
        ("baselines.replay", {"baselines/replay.py", "baselines/training.py", "gcn.py"}),
    ],
)
def test_what_figures_depend_on(package: Path, module: str, needs: set[str]) -> None:
    before, counted = version(module), set()
    for name, content in FILES.items():
        (package / name).write_text(content + "b = 2\n")
        if version(module) != before:
            counted.add(name)
        (package / name).write_text(content)
    assert counted == needs | OF_ALL
    assert version(module) == before


def test_words_layout_and_other_files_do_not_matter(package: Path) -> None:
    before = version("gcn")
    (package / "gcn.py").write_bytes(b"'Doc.'\r\n# why\r\n")
    (package / "gcn.py~").write_bytes(b"x")
    (package / "baselines" / "newer.py").write_text("a = 1\n")
    assert version("gcn") == before
    one = environment._tree('def f(x: int) -> str:\n    """Doc."""\n    return f"{x}"\n')
    two = environment._tree("def f(\n    x: int,\n) -> str:\n    'Other.'\n\n    return f'{x}'")
    assert one == two != environment._tree("def f(x: int) -> str:\n    return f'{x:d}'")


def test_methods_have_versions_of_their_own() -> None:
    found = {m.name: code_version(m.learner) for m in methods.METHODS.values()}
    assert found["algnn"] == found["algnn-nodes"] != found["joint"] == found["joint-balanced"]
    assert len({code_version(), *found.values()}) == 1 + 9


def test_a_learner_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    base, module = tmp_path / "own_base.py", tmp_path / "own_learner.py"
    base.write_text("import algnn\n\nclass Base(algnn.ALGNN):\n    pass\n")
    module.write_text("from own_base import Base\n\nclass Mine(Base):\n    pass\n")
    import own_learner

    first = code_version(own_learner.Mine)
    own, plus, added = first.partition("+")
    assert (own, plus, len(added)) == (code_version(algnn.ALGNN), "+", 12)
    assert versions(own_learner.Mine)["code"] == first
    module.write_text(module.read_text() + "changed = 1\n")
    second = code_version(own_learner.Mine)
    base.write_text(base.read_text() + "changed = 1\n")
    assert len({first, second, code_version(own_learner.Mine)}) == 3
    for name in ("own_base", "own_learner"):
        del sys.modules[name]


def test_a_class_without_a_source() -> None:
    typed_in: dict[str, type] = {}
    exec("import algnn\nclass Mine(algnn.ALGNN): pass", {"__name__": "nowhere"}, typed_in)
    assert code_version(typed_in["Mine"]).startswith(f"{code_version(algnn.ALGNN)}+")


def test_how_many_runs_share_the_machine() -> None:
    assert (machine()["jobs"], machine(3)["jobs"]) == (1, 3)
