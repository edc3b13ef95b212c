"""Checkpoints of this version and of earlier ones: each is read, and says what it always said."""

import importlib.util
import json
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

import algnn

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(
    name.removesuffix(".safetensors")
    for archive in GOLDEN.glob("*.zip")
    for name in ZipFile(archive).namelist()
    if name.endswith(".safetensors")
)
spec = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)
KINDS = {type(model).__name__: type(model) for model in make.LEARNERS.values()}


def loaded(golden, name):
    said = json.loads((golden / f"{name}.json").read_text("utf-8"))
    # by its name: a class may have moved to another module since
    kind = KINDS[said["kind"].partition(":")[2]]
    path = golden / f"{name}.safetensors"
    assert path.stat().st_size < 80_000
    return kind.load(path, device="cpu"), said


def test_this_version_has_its_files():
    assert {f"{algnn.__version__}-{name}" for name in make.LEARNERS} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_said_and_goes_on(golden, name):
    model, said = loaded(golden, name)
    assert model.classes_.tolist() == said["classes"]
    scores = model.decision_function(make.graph())
    assert np.allclose(scores, said["scores"], rtol=1e-5, atol=1e-6)
    model.partial_fit(make.graph(), [25, 27], ["east", "east"])
    assert model.classes_.tolist() == ["east", "north", "south", "west"]
    assert set(model.predict(make.graph())) <= set(model.classes_)


@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith(("default", "halves", "paper"))])
def test_it_can_forget_what_was_learned_then(golden, name):
    model, _ = loaded(golden, name)
    nodes, labels = make.sessions()[1]
    model.forget(make.graph(), nodes, labels)
    assert model.classes_.tolist() == ["north", "south"]
    with pytest.raises(algnn.InputError):
        model.forget(make.graph(), nodes[-1:], labels[-1:])


def test_a_new_learner_is_added_and_the_others_stay(tmp_path, monkeypatch):
    """`make.py` writes what is missing, and with --again what this version has already."""
    archive = tmp_path / f"{algnn.__version__}.zip"
    monkeypatch.setattr(make, "HERE", tmp_path)
    monkeypatch.setattr(make, "LEARNERS", {"replay": make.LEARNERS["replay"]})
    make.write({"kept.json": b"{}"}, archive)
    make.main()
    first = make.read(archive)
    stem = f"{algnn.__version__}-replay"
    assert sorted(first) == [f"{stem}.json", f"{stem}.safetensors", "kept.json"]
    damaged = first | {f"{stem}.json": b"damaged"}
    make.write(damaged, archive)
    make.main()
    assert make.read(archive) == damaged
    make.main("--again")
    assert make.read(archive).keys() == first.keys()
    assert make.read(archive)[f"{stem}.json"] != b"damaged"
