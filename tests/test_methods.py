from __future__ import annotations

import tomllib
from importlib.resources import files
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
        # the width and γ of ALGNN(), which were chosen for graphs like these
        assert (found["width"], found["gamma"]) == (ALGNN().width, ALGNN().gamma)
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


@pytest.mark.parametrize("name", methods.METHODS)
def test_every_method_has_settings_that_its_learner_takes(name: str) -> None:
    method = methods.METHODS[name]
    assert method.name == name
    tables = tomllib.loads(files("algnn.settings").joinpath(f"{name}.toml").read_text("utf-8"))
    assert tables.pop("inherits", "bare") in methods.METHODS
    known = {entry.name for entry in datasets()}
    assert tables.keys() - known == {"default"}
    for dataset, table in tables.items():
        assert set(table) - {"like"} <= set(method.defaults)
        for key, value in methods.settings(name, dataset).items():
            assert type(value) is type(method.defaults[key])
    for text in (method.kind, method.summary, method.retains, method.paper):
        assert text
        assert "\n" not in text


def test_every_settings_file_has_a_method() -> None:
    found = {e.name for e in files("algnn.settings").iterdir() if e.name.endswith(".toml")}
    assert found == {f"{name}.toml" for name in methods.METHODS}


def test_make() -> None:
    learner = methods.make("algnn-paper", "arxiv", 7, "cpu", gamma=2, width=16)
    assert isinstance(learner, ALGNN)
    assert (learner.seed, learner.device) == (7, "cpu")
    assert (learner.gamma, learner.width, learner.lr) == (2.0, 16, 0.01)
    assert isinstance(learner.gamma, float)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"gama": 1.0}, "'gama' is not a setting of algnn: use one of hidden, width, gamma"),
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
