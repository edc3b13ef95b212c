"""The variants of the ablation learn what learners learn, and its document is what records say."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import algnn

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("ablation", ROOT / "benchmarks/ablation.py")
ablation = sys.modules["ablation"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ablation)


@pytest.fixture(scope="module")
def digits():
    return algnn.load("digits")


@pytest.mark.parametrize("variant", ablation.VARIANTS, ids=lambda variant: variant.__name__)
def test_every_variant_learns_and_is_saved(variant, digits, tmp_path):
    model = variant(seed=1, device="cpu")
    old, new = digits.y[:400] < 8, digits.y[:400] >= 8
    for chosen in (old.nonzero().squeeze(1), new.nonzero().squeeze(1)):
        model.partial_fit(digits, chosen, digits.y[chosen])
    tested = range(400, 800)
    predicted = model.predict(digits, tested)
    assert (predicted == digits.y[400:800].numpy()).mean() > 0.8
    model.save(tmp_path / "model.safetensors")
    again = variant.load(tmp_path / "model.safetensors")
    assert np.array_equal(again.predict(digits, tested), predicted)
    assert again.seed == 1
