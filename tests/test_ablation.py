"""The variants of the ablation learn what learners learn, and its document is what records say."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import algnn
from algnn.analytic.features.gcn import Widened
from algnn.bench.runs import frame
from algnn.errors import InputError
from algnn.report.data import gather, read

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "docs/ablation/records"


def benchmark(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"benchmarks/{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ablation, page = benchmark("ablation"), benchmark("ablation_page")
NAMED = [(ablation.name(variant), variant.__doc__) for variant in ablation.VARIANTS]


@pytest.fixture(scope="module")
def digits():
    return algnn.load("digits")


# what each variant has in the place of the default's choice
LACKS = {
    **{
        variant.__name__: lambda known, name=variant.BANK: known.features.name == name
        for variant in ablation.OneBank.__subclasses__()
    },
    "NoRoots": lambda known: not known.features.root,
    "NoUnits": lambda known: known.features.expanded == 0,
    "AlwaysUnits": lambda known: known.features.expanded == ablation.UNITS,
    "TrainedEncoder": lambda known: isinstance(known.features, Widened) and known.gamma > 0,
    "OneHalving": lambda known: known.ways == 1,
    "LargeGamma": lambda known: known.gamma == 1e-2,
    "SmallGamma": lambda known: known.gamma == 1e-4,
    **{
        variant.__name__: lambda known, head=variant.HEAD: known.head == head
        for variant in ablation.OtherHead.__subclasses__()
    },
}


def taught(variant, graph, count=150):
    """In two sessions; a trained encoder is narrower than it would be, to be quick."""
    model = variant(seed=1, device="cpu")
    model.width = 128
    for chosen in (graph.y[:count] < 8, graph.y[:count] >= 8):
        nodes = chosen.nonzero().squeeze(1)
        model.partial_fit(graph, nodes, graph.y[nodes])
    return model


@pytest.mark.parametrize("variant", ablation.VARIANTS, ids=lambda variant: variant.__name__)
def test_every_variant_learns_and_is_saved(variant, digits, tmp_path):
    model = taught(variant, digits)
    tested = range(400, 800)
    predicted = model.predict(digits, tested)
    assert (predicted == digits.y[400:800].numpy()).mean() > 0.6
    assert LACKS[variant.__name__](model._learned)
    model.save(tmp_path / "model.safetensors")
    again = variant.load(tmp_path / "model.safetensors")
    assert np.array_equal(again.predict(digits, tested), predicted)
    assert again.seed == 1


def test_the_default_has_what_variants_lack(digits):
    known = taught(algnn.ALGNN, digits)._learned
    assert known.features.root
    assert known.features.expanded == ablation.UNITS
    assert known.ways == 8
    assert known.head == "balanced"
    assert known.gamma not in (1e-2, 1e-4)
    # too few nodes for units
    assert taught(algnn.ALGNN, digits, 30)._learned.features.expanded == 0
    assert taught(ablation.AlwaysUnits, digits, 30)._learned.features.expanded == ablation.UNITS


def test_features_of_a_variant_do_not_depend_on_how_they_were_computed(digits):
    # those of the base session are left over from the choice of views
    model = taught(ablation.NoRoots, digits)
    nodes = (digits.y[:200] < 8).nonzero().squeeze(1)
    only = ablation.NoRoots(seed=1, device="cpu").fit(digits, nodes, digits.y[nodes])
    Z = np.concatenate([z.numpy() for z in model._features(digits, nodes, only._learned)])
    assert np.allclose(Z.T @ Z, only.statistics_.G.numpy())


def test_ridge_has_the_balanced_heads_answers_where_classes_have_one_size(digits):
    nodes = np.concatenate([np.flatnonzero(digits.y.numpy() == c)[:10] for c in range(10)])
    models = [
        variant(device="cpu").fit(digits, nodes, digits.y[nodes])
        for variant in (algnn.ALGNN, ablation.RidgeHead)
    ]
    balanced, ridge = (model.decision_function(digits, range(300)) for model in models)
    scale = (balanced * ridge).sum() / (ridge * ridge).sum()
    assert np.allclose(balanced, scale * ridge, atol=1e-9)


# -- the document ---------------------------------------------------------------------------------


def some_records(example, changed=8):
    """The default, and a variant that gets some nodes of the last class wrong."""
    outcome = example().outcome
    correct = outcome.correct.copy()
    correct[1, 2] = changed
    other = replace(outcome, correct=correct)
    return [
        example(seed=seed, method=method, outcome=found)
        for seed in (42, 43)
        for method, found in (("algnn", outcome), ("ablation:NoRoots", other))
    ]


def study_of(example, changed=8):
    return gather(frame(some_records(example, changed)))


def test_the_document_is_what_its_records_say():
    if not RECORDS.is_dir():
        pytest.skip("docs/ablation/records is not there: no records of the variants yet")
    folder = RECORDS.relative_to(ROOT).as_posix()
    text = (ROOT / "docs/ablation.md").read_text("utf-8")
    assert page.document(read([RECORDS]), folder, NAMED) == text, "run `make docs`"


def test_it_shows_the_best_and_the_differences(make_record):
    text = page.document(study_of(make_record), "records", NAMED)
    # AP 65 and 80: the last class has 5 and 8 of its 10 nodes
    assert "| `ALGNN()`, the default | 65.0 ± 0.0 |" in text
    assert "| **80.0 ± 0.0** |" in text
    assert "| `NoRoots` | +15.0 ± 0.0 | +15.0 |" in text
    assert "It is behind on digits by 15.0." in text
    assert "OnlyRaw on digits (0 of 2 seeds)" in text
    # of three classes in two sessions 16 of 20 and 5 of 10 nodes are right
    moves = 100 * 1.96 * (0.8 * 0.2 / 20 + 0.5 * 0.5 / 10) ** 0.5 / 2
    assert f"| the default's AP, other test nodes | ± {moves:.1f} |" in text
    same = page.document(study_of(make_record, changed=5), "records", NAMED)
    assert "The very same on digits." in same
    worse = page.document(study_of(make_record, changed=3), "records", NAMED)
    assert "| `NoRoots` | −10.0 ± 0.0 | −10.0 |" in worse
    assert "The default is ahead on digits by 10.0." in worse


def test_clocks_of_runs_side_by_side_are_not_shown(make_record):
    shared = [replace(r, machine={**r.machine, "jobs": 4}) for r in some_records(make_record)]
    assert "| `NoRoots` | 0.60 |" in page.document(study_of(make_record), "records", NAMED)
    text = page.document(gather(frame(shared)), "records", NAMED)
    assert "0.60" not in text
    assert "--jobs 4" in text


def test_records_without_the_default_are_refused(make_record, tmp_path):
    alone = [record for record in some_records(make_record) if record.method != "algnn"]
    with pytest.raises(InputError, match="no run of algnn"):
        page.document(gather(frame(alone)), "records", NAMED)
    with pytest.raises(InputError, match="not a folder"):
        page.write(str(tmp_path / "none"), NAMED, tmp_path / "page.md")
    assert not (tmp_path / "page.md").exists()
