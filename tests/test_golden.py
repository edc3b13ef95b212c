"""Checkpoints of this version and of earlier ones: each is read, and says what it always said."""

import importlib.util
import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import algnn

GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(GOLDEN.glob("*.safetensors"))
spec = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)


def loaded(path):
    said = json.loads(path.with_suffix(".json").read_text("utf-8"))
    module, _, name = said["kind"].partition(":")
    return getattr(import_module(module), name).load(path, device="cpu"), said


def test_this_version_has_its_files():
    names = {f"{algnn.__version__}-{name}" for name in make.LEARNERS}
    assert names <= {path.stem for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_it_says_what_it_said(path):
    model, said = loaded(path)
    assert model.classes_.tolist() == said["classes"]
    scores = model.decision_function(make.graph())
    assert np.allclose(scores, said["scores"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_it_goes_on(path):
    model, _ = loaded(path)
    model.partial_fit(make.graph(), [25, 27], ["east", "east"])
    assert model.classes_.tolist() == ["east", "north", "south", "west"]
    assert set(model.predict(make.graph())) <= set(model.classes_)


@pytest.mark.parametrize(
    "path",
    [p for p in FILES if p.stem.endswith(("default", "halves", "paper"))],
    ids=lambda p: p.stem,
)
def test_it_can_forget_what_was_learned_then(path):
    model, _ = loaded(path)
    nodes, labels = make.sessions()[1]
    model.forget(make.graph(), nodes, labels)
    assert model.classes_.tolist() == ["north", "south"]
    with pytest.raises(algnn.InputError):
        model.forget(make.graph(), nodes[-1:], labels[-1:])


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_it_is_small(path):
    assert path.stat().st_size < 80_000
