"""The variants of the ablation learn what learners learn, and its document is what records say."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import algnn
from algnn.analytic.features.expansion import ExpandedGCN
from algnn.analytic.selection import GAMMAS

ROOT = Path(__file__).parent.parent


def benchmark(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"benchmarks/{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ablation = benchmark("ablation")


@pytest.fixture(scope="module")
def digits():
    return algnn.load("digits").subgraph(torch.arange(500))


# what each variant has in the place of the default's choice
LACKS = {
    **{
        variant.__name__: lambda known, name=variant.VIEWS: known.features.name == name
        for variant in ablation.OtherViews.__subclasses__()
    },
    "NoRoots": lambda known: not known.features.root,
    "NoSizes": lambda known: not known.features.sizes and known.features.width == 320,
    "NoUnits": lambda known: known.features.expanded == 0,
    # the digits have 64 columns: nothing is reduced
    **dict.fromkeys(
        ("Rank256", "Rank512", "Walk1024", "Near256", "Sketch"),
        lambda known: known.features.basis is None,
    ),
    # `taught` makes all of them as narrow
    **dict.fromkeys(("Width2560", "Width4096"), lambda known: known.features.width == 320),
    "TrainedEncoder": lambda known: isinstance(known.features, ExpandedGCN) and known.gamma > 0,
    "OneHalving": lambda known: known.ways == 1,
    "GammaOfHalves": lambda known: known.gamma in GAMMAS,
    "LargeGamma": lambda known: known.gamma == 1e-2,
    "SmallGamma": lambda known: known.gamma == 1e-4,
    "RidgeHead": lambda known: known.head == "ridge" and known.ways == 8,
    **{
        variant.__name__: lambda known, head=variant.HEAD: known.head == head
        for variant in ablation.OtherHead.__subclasses__()
    },
}


def taught(variant, graph, count=100):
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
    tested = range(300, 500)
    predicted = model.predict(digits, tested)
    assert (predicted == digits.y[300:500].numpy()).mean() > 0.6
    assert LACKS[variant.__name__](model._learned)
    model.save(tmp_path / "model.safetensors")
    again = variant.load(tmp_path / "model.safetensors")
    assert np.array_equal(again.predict(digits, tested), predicted)
    assert again.seed == 1


def test_the_default_has_what_variants_lack(digits):
    known = taught(algnn.ALGNN, digits)._learned
    assert (known.features.name, known.features.expanded) == ("all", 320 - 4 * 64 - 16)
    assert known.features.root
    assert known.features.sizes
    assert (known.ways, known.head) == (8, "balanced")


def test_wide_features_are_reduced_otherwise():
    x = torch.rand(530, 530, generator=torch.Generator().manual_seed(0))
    graph = Data(x=x, edge_index=torch.arange(530).repeat(2, 1))
    default = algnn.ALGNN(device="cpu")._hop_encoder(graph)
    assert default.widths == [384, 384, 384, 530]  # as many as there are, for the walk
    for variant, near, walk in (
        (ablation.Rank512, 512, 512),
        (ablation.Rank256, 256, 256),
        (ablation.Walk1024, 384, 530),
        (ablation.Near256, 256, 530),
        (ablation.Sketch, 512, 512),
    ):
        found = variant(device="cpu")._hop_encoder(graph)
        assert found.widths == [near, near, near, walk]
        assert found.width == default.width == 3072
        assert (found.basis is None) == (variant is ablation.Sketch)


def test_units_of_all_views_alone(digits):
    features = taught(ablation.OneKindOfUnits, digits)._learned.features
    assert bool((features.unit_weights(torch.device("cpu")) != 0).all())


# -- the document ---------------------------------------------------------------------------------


def test_the_document_is_what_its_runs_say():
    rows = ablation.read()
    assert {row["variant"] for row in rows} >= {v.__name__ for v in ablation.VARIANTS}
    text = (ROOT / "docs/ablation.md").read_text("utf-8")
    assert ablation.document(rows) == text, "run `make results`"


def test_it_shows_differences_on_validation_nodes():
    facts = {"seed": 42, "machine": {"gpu": "a GPU"}, "versions": {"torch": "2"}}
    rows = [
        {"graph": graph, "variant": name, "val_ap": val, "test_ap": test, **facts}
        for graph, name, val, test in [
            ("cora", "ALGNN", 80.0, 81.0),
            ("cora", "NoUnits", 78.5, 82.0),
            ("digits", "ALGNN", 90.0, 91.0),
        ]
    ]
    text = ablation.document(rows)
    assert "| `ALGNN`: the default | 80.0 | 90.0 | 85.00 |" in text
    assert "| `NoUnits`: No random units beside the views | -1.5 | – | – |" in text
    assert "| `NoUnits`: No random units beside the views | 82.0 | – | – |" in text
    assert "On a GPU, torch 2." in text


def test_a_variant_is_asked_about_validation_and_test_nodes(digits):
    found = ablation.measured(algnn.ALGNN(width=320, device="cpu"), algnn.load("digits"))
    assert found.keys() == {"val_ap", "val_micro", "test_ap", "test_micro"}
    assert min(found.values()) > 90
