from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from algnn import ALGNN, methods, settings
from algnn.errors import InputError
from algnn.graph.datasets import datasets

# width, γ, epochs, learning rate and dropout of the paper's appendix
PAPER = {
    "cora": (2048, 1.0, 50, 0.001, 0.5),
    "citeseer": (2048, 1.0, 50, 0.001, 0.5),
    "corafull": (2048, 0.001, 50, 0.001, 0.5),
    "computers": (1024, 0.01, 50, 0.001, 0.5),
    "reddit": (1024, 0.01, 20, 0.001, 0.5),
    "arxiv": (8192, 0.01, 1, 0.01, 0.7),
}


@pytest.mark.parametrize("dataset", PAPER)
def test_the_papers_settings(dataset: str) -> None:
    for found in (
        settings.read("algnn-paper", dataset, strict=True),
        methods.settings("algnn-paper", dataset),
        methods.make("algnn-paper", dataset).get_params(),
    ):
        keys = ("width", "gamma", "epochs", "lr", "dropout")
        assert tuple(found[key] for key in keys) == PAPER[dataset]
        assert (found["hidden"], found["expansion"]) == (256, "gcn")
        assert found["weight_decay"] == 5e-4


def test_graphs_without_features_take_the_whole_ones_settings() -> None:
    for name in ("arxiv", "corafull"):
        assert settings.read("algnn-paper", f"{name}-graph", strict=True) == settings.read(
            "algnn-paper", name
        )


def test_a_graph_that_the_paper_does_not_know() -> None:
    for dataset in ("digits", "pubmed", "mine.npz", "default"):
        found = settings.read("algnn-paper", dataset)
        # chosen for graphs like these
        assert (found["width"], found["gamma"]) == (2048, 0.01)
        with pytest.raises(InputError, match="use one of arxiv, arxiv-graph, citeseer"):
            settings.read("algnn-paper", dataset, strict=True)


def test_settings_are_inherited() -> None:
    assert settings.read("ncm", "arxiv-graph") == {
        **settings.read("algnn-paper", "arxiv"),
        "head": "ncm",
    }
    assert settings.read("gem", "computers") == {
        **settings.read("bare", "computers"),
        "margin": 0.5,
        "budget": 200,
    }


def test_what_is_read_can_be_changed_without_harm() -> None:
    settings.read("algnn-paper", "cora")["width"] = 1
    assert settings.read("algnn-paper", "cora")["width"] == 2048


def test_the_librarys_default_is_the_constructors() -> None:
    assert settings.read("algnn", "cora") == {}
    assert methods.make("algnn", "cora").get_params() == ALGNN().get_params()


@pytest.mark.parametrize("name", ["", "nope", "../algnn", "algnn.toml", "ALGNN"])
def test_unknown_methods(name: str) -> None:
    with pytest.raises(InputError, match=", ".join(sorted(methods.METHODS))):
        settings.read(name, "cora")
    for call in (methods.find, methods.settings, methods.make, methods.parse):
        with pytest.raises(InputError, match="use one of " + ", ".join(methods.METHODS)):
            call(*((name,) if call is methods.find else (name, "cora")))


def settings_of(file: str) -> dict[str, Any]:
    return tomllib.loads(files("algnn.settings").joinpath(file).read_text("utf-8"))


VARIANTS = settings_of("variants.toml")


@pytest.mark.parametrize("name", methods.METHODS)
def test_every_method_has_settings_that_its_learner_takes(name: str) -> None:
    method = methods.METHODS[name]
    assert method.name == name
    tables = settings_of(f"{name}.toml") if name not in VARIANTS else dict(VARIANTS[name])
    assert tables.pop("inherits", "bare") in methods.METHODS
    known = {entry.name for entry in datasets()}
    assert tables.keys() - known - {"grid"} == {"default"}
    for dataset, table in tables.items():
        assert set(table) - {"like"} <= set(method.defaults)
        for key, value in methods.settings(name, dataset).items():
            assert type(value) is type(method.defaults[key])
    for text in (method.kind, method.summary, method.retains, method.paper):
        assert text
        assert "\n" not in text


def test_every_settings_file_has_a_method() -> None:
    found = {e.name for e in files("algnn.settings").iterdir() if e.name.endswith(".toml")}
    assert found - {"variants.toml"} == {
        f"{name}.toml" for name in methods.METHODS if name not in VARIANTS
    }


def test_make() -> None:
    learner = methods.make("algnn-paper", "arxiv", 7, "cpu", gamma=2, width=16)
    assert isinstance(learner, ALGNN)
    assert (learner.seed, learner.device) == (7, "cpu")
    assert (learner.gamma, learner.width, learner.lr) == (2.0, 16, 0.01)
    assert isinstance(learner.gamma, float)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"gama": 1.0}, "'gama' is not a setting of algnn: use one of encoder, head, gamma"),
        ({"width": 1.5}, "width=1.5 must be a whole number"),
        ({"width": True}, "width=True must be a whole number"),
        ({"gamma": True}, "gamma=True must be a number"),
        ({"gamma": "1"}, "gamma='1' must be a number"),
        ({"gamma": float("nan")}, "finite"),
        ({"gamma": None}, "must be a number"),
        ({"expansion": 3}, "expansion=3 must be a word"),
    ],
)
def test_wrong_overrides(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        methods.make("algnn", "cora", **overrides)
    assert "\n" not in str(caught.value)


def test_parsed_pairs() -> None:
    pairs = ["gamma=1e-3", "width = 512", "lr=1", "expansion=plain", "dropout=.25"]
    parsed = methods.parse("algnn", pairs)
    assert parsed == {
        "gamma": 0.001, "width": 512, "lr": 1.0, "expansion": "plain", "dropout": 0.25,
    }  # fmt: skip
    assert isinstance(parsed["lr"], float)
    assert methods.parse("algnn", []) == {}
    assert methods.make("algnn", "cora", **parsed).get_params()["width"] == 512


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("gamma", "name=value"),
        ("gamma=", "name=value"),
        ("=3", "name=value"),
        ("", "name=value"),
        ("gamma=big", "gamma=big must be a number"),
        ("gamma=nan", "finite"),
        ("gamma=-inf", "finite"),
        ("width=2048.0", "width=2048.0 must be a whole number"),
        ("width=1e3", "must be a whole number"),
        ("gama=1", "is not a setting"),
        ("seed=3", "an option of its own"),
        ("device=cpu", "an option of its own"),
        ("self=1", "is not a setting"),
        ("__class__=1", "is not a setting"),
    ],
)
def test_pairs_that_make_no_sense(pair: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        methods.parse("algnn", [pair])


def test_a_setting_given_twice() -> None:
    with pytest.raises(InputError, match="gamma is set twice"):
        methods.parse("algnn", ["gamma=1", "gamma=2"])


# -- a learner of one's own -----------------------------------------------------------------------

OWN = """
from algnn import ALGNN, Learner

class Mine(ALGNN):
    '''Mine, in a line.

    And more.
    '''

class Plain(ALGNN):
    def __init__(self, hops=(1, 2), limit=None, need=3, **rest):
        super().__init__()
        self.hops, self.limit, self.need = hops, limit, need

class Needy(ALGNN):
    def __init__(self, budget, seed=0):
        super().__init__(seed=seed)
        self.budget = budget

class Odd(ALGNN):
    def __init__(self, rule=print):
        super().__init__()

class Unfinished(Learner):
    def _learn(self, graph, nodes, labels, learned): ...

class Outer:
    class Inner(ALGNN):
        pass

def function(): ...
number = 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module in the current folder, which nothing else leads to."""
    name, path = f"own_{tmp_path.name}", list(sys.path)
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    yield name
    # whatever was imported, or failed to be
    assert sys.path == path
    sys.modules.pop(name, None)


def test_found_in_the_current_folder(own: str) -> None:
    method = methods.find(f"{own}:Mine")
    assert (method.name, method.kind, method.summary) == (f"{own}:Mine", "own", "Mine, in a line.")
    assert issubclass(method.learner, ALGNN)
    assert methods.find(method.learner) == method
    assert methods.find(f"{own}:Outer.Inner").learner.__name__ == "Inner"
    # its settings are its constructor's, whatever the dataset
    for dataset in ("cora", "mine.npz"):
        assert methods.settings(f"{own}:Mine", dataset) == methods.settings("algnn", "x")
    learner = methods.make(f"{own}:Mine", "cora", 7, "cpu", width=16)
    assert (learner.seed, learner.device, learner.width) == (7, "cpu", 16)
    assert methods.parse(method.learner, ["width=16"]) == {"width": 16}


def test_what_is_installed_is_not_hidden_by_the_current_folder(own: str, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemError")
    (tmp_path / "tabnanny.py").write_text("raise SystemError")
    methods.find(f"{own}:Mine")
    assert importlib.import_module("tabnanny").__file__ != str(tmp_path / "tabnanny.py")


def test_a_constructor_without_seed_and_device(own: str) -> None:
    learner = methods.make(f"{own}:Plain", "cora", 7, "cpu", limit=5, hops=[3])
    assert (learner.seed, learner.device) == (7, "cpu")
    assert (learner.hops, learner.limit, learner.need) == ((3,), 5, 3)
    assert methods.settings(f"{own}:Plain", "cora") == {"hops": (1, 2), "limit": None, "need": 3}


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("limit=5", 5),
        ("limit=0.5", 0.5),
        ("limit=true", True),
        ("limit=null", None),
        ("limit=[1, 2]", [1, 2]),
        ("limit=high", "high"),
        ("hops=3,4", (3, 4)),
        ("hops=[3, 4]", (3, 4)),
        ("hops=3", (3,)),
    ],
)
def test_values_whose_type_the_default_does_not_tell(own: str, pair: str, value: Any) -> None:
    (parsed,) = methods.parse(f"{own}:Plain", [pair]).values()
    assert parsed == value
    assert type(parsed) is type(value)


def test_a_setting_without_a_default(own: str) -> None:
    path = f"{own}:Needy"
    with pytest.raises(InputError, match=f"budget of {path} has no default: set it"):
        methods.settings(path, "cora")
    assert methods.parse(path, ["budget=12"]) == {"budget": 12}
    learner = methods.make(path, "cora", 7, "cpu", budget=12)
    assert (learner.budget, learner.seed, learner.device) == (12, 7, "cpu")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module:Mine", "there is no module no_such_module, neither in this folder"),
        ("{own}.deeper:Mine", "there is no module {own}.deeper"),
        ("{own}:Nothing", "{own} has no Nothing; its learners are Mine, Plain, Needy, Odd"),
        ("{own}:Mine.nothing", "has no nothing"),
        ("{own}:function", "is no learner: give a subclass of algnn.Learner"),
        ("{own}:number", "is no learner: give a subclass of algnn.Learner"),
        ("{own}:Outer", "is no learner: give a subclass of algnn.Learner"),
        ("{own}:Unfinished", "is an unfinished learner: it lacks _restore, _scores"),
        (":Mine", "write it as module:Class"),
        ("{own}:", "write it as module:Class"),
        ("../{own}:Mine", "write it as module:Class"),
        (".{own}:Mine", "write it as module:Class"),
        ("{own}.py:Mine", "there is no module {own}.py"),
        ("broken:Mine", "cannot be imported: ZeroDivisionError: division by zero"),
        (
            "needs_more:Mine",
            "cannot be imported: ModuleNotFoundError: No module named 'no_such_thing'",
        ),
        ("garbled:Mine", "cannot be imported: SyntaxError"),
    ],
)
def test_places_where_no_learner_is(own: str, path: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "needs_more.py").write_text("import no_such_thing")
    (tmp_path / "garbled.py").write_text("class")
    with pytest.raises(InputError) as caught:
        methods.find(path.format(own=own))
    assert message.format(own=own) in str(caught.value)


def test_a_setting_that_no_record_could_hold(own: str) -> None:
    with pytest.raises(InputError, match="rule=<built-in function print> cannot be written"):
        methods.settings(f"{own}:Odd", "cora")
