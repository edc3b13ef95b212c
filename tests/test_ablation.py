"""The variants of the ablation learn what learners learn, and its document is what records say."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import algnn
from algnn.analytic.features.gcn import ExpandedGCN
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
    return algnn.load("digits").subgraph(torch.arange(800))


# what each variant has in the place of the default's choice
LACKS = {
    **{
        variant.__name__: lambda known, name=variant.VIEWS: known.features.name == name
        for variant in ablation.OtherViews.__subclasses__()
    },
    "NoRoots": lambda known: not known.features.root,
    "NoUnits": lambda known: known.features.expanded == 0,
    # the digits have 64 columns: nothing is reduced
    **dict.fromkeys(("Rank256", "Rank1024", "Sketch"), lambda known: known.features.basis is None),
    "TrainedEncoder": lambda known: isinstance(known.features, ExpandedGCN) and known.gamma > 0,
    "OneHalving": lambda known: known.ways == 1,
    "LargeGamma": lambda known: known.gamma == 1e-2,
    "SmallGamma": lambda known: known.gamma == 1e-4,
    "RidgeHead": lambda known: known.head == "ridge" and known.ways == 8,
    **{
        variant.__name__: lambda known, head=variant.HEAD: known.head == head
        for variant in ablation.OtherHead.__subclasses__()
    },
}


def taught(variant, graph, count=150):
    """In two sessions; features are narrower than they would be, to be quick."""
    model = variant(seed=1, device="cpu")
    model.width = 320
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
    assert (known.features.name, known.features.expanded) == ("all", 320 - 4 * 64)
    assert known.features.root
    assert (known.ways, known.head) == (8, "balanced")


@pytest.mark.parametrize(
    ("variant", "columns"),
    [(ablation.Rank256, 256), (ablation.Rank1024, 600), (ablation.Sketch, 512)],
)
def test_wide_features_are_reduced_otherwise(variant, columns):
    x = torch.rand(600, 600, generator=torch.Generator().manual_seed(0))
    graph = Data(x=x, edge_index=torch.arange(600).repeat(2, 1))
    model = variant(device="cpu")
    default = algnn.ALGNN(device="cpu")._hop_encoder(graph)
    found = model._hop_encoder(graph)
    assert (default.view_width, found.view_width) == (512, columns)
    assert found.expanded == default.expanded == 1024
    assert (found.basis is None) == (variant is not ablation.Rank256)


def test_units_of_all_views_alone(digits):
    features = taught(ablation.OneKindOfUnits, digits)._learned.features
    assert bool((features.unit_weights(torch.device("cpu")) != 0).all())


def test_thirteen_graphs_by_name_and_path():
    graphs = ablation.datasets("data").split(",")
    assert len(graphs) == 13
    assert graphs[-1] == str(Path("data/more/chameleon.npz"))


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
    kept = read([RECORDS])
    if not {name for name, _ in NAMED} <= set(kept.runs.method):
        pytest.skip("docs/ablation/records are of an earlier default: not all variants have any")
    folder = RECORDS.relative_to(ROOT).as_posix()
    text = (ROOT / "docs/ablation.md").read_text("utf-8")
    assert page.document(kept, folder, NAMED) == text, "run `make results`"


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
