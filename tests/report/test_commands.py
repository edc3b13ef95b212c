from __future__ import annotations

import shlex

import pytest
from typer.testing import CliRunner

from algnn import methods
from algnn.cli import app
from algnn.report.commands import commands

GPU = {"architecture": "x86_64", "processor": "Xeon", "cores": 16, "gpu": "A GPU", "jobs": 4}
GEM = "algnn bench --datasets digits --methods gem --steps 1 --seeds 42 --device cpu --jobs 1"


def test_a_whole_benchmark_is_one_command(study_of):
    study = study_of(
        *(
            {"dataset": d, "method": m, "seed": seed, "step": s, "device": "cuda", "machine": GPU}
            for d in ("cora", "digits")
            for m in methods.METHODS
            for seed in (42, 43)
            for s in (1, 5)
        )
    )
    assert commands(study.runs) == (
        "algnn bench --datasets digits,cora --methods all --steps 1,5 --seeds 42,43 --device cuda",
    )


def test_holes_are_not_filled(study_of):
    given = [("gem", 42), ("gem", 43), ("ewc", 42)]
    found = commands(study_of(*({"method": name, "seed": seed} for name, seed in given)).runs)
    assert set(found) == {GEM.replace("gem", "ewc"), GEM.replace("42", "42,43")}


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"settings": {**methods.settings("gem", "digits"), "budget": 12}}, " --set budget=12"),
        ({"edges": "seen", "order": "random"}, " --edges seen --order random"),
        ({"base": 1}, " --base 1"),
        # a setting that a record does not name is not in its command
        (
            {
                "settings": {
                    k: v for k, v in methods.settings("gem", "digits").items() if k != "budget"
                }
            },
            "",
        ),
    ],
)
def test_what_differs_is_an_option(study_of, changes, more):
    assert commands(study_of({"method": "gem", **changes}).runs) == (GEM + more,)


def test_all_settings_of_a_users_learner_are_options(study_of):
    settings = {"width": 8, "lr": 0.001, "fast": True, "word": "a b", "order": 2, "graph": "knn"}
    (line,) = commands(study_of({"method": "mine:Own", "settings": settings}).runs)
    more = " --set width=8 --set lr=0.001 --set fast=true --set 'word=a b'"
    more += " --set order=2 --set graph=knn"
    assert line == GEM.replace("gem", "mine:Own") + more


def test_sweeps(study_of):
    usual = methods.settings("algnn-paper", "cora")
    study = study_of(
        *(
            {"dataset": "cora", "method": "algnn-paper", "seed": seed,
             "settings": {**usual, name: value}}
            for seed in (42, 43)
            for name, values in (("width", (512, 128)), ("gamma", (10.0, 0.001)))
            for value in values
        )
    )  # fmt: skip
    start, end = "cora --method algnn-paper --values", "--seeds 42,43 --device cpu --jobs 1"
    assert set(commands(study.runs)) == {
        f"algnn sweep expansion {start} 128,512 {end}",
        f"algnn sweep gamma {start} 0.001,10 {end}",
    }


def test_names_are_safe_for_a_shell(study_of, nasty):
    (line,) = commands(study_of({"method": nasty, "dataset": "my graph.npz; rm x"}).runs)
    words = shlex.split(line)
    assert words[words.index("--methods") + 1] == nasty
    assert words[words.index("--datasets") + 1] == "my graph.npz; rm x"
    assert "\n" not in commands(study_of({"method": "a:b\nreboot"}).runs)[0]


def test_the_command_line_has_these_options():
    runner = CliRunner()
    everywhere = ("--seeds", "--device", "--jobs")
    for name, options in (
        ("bench", ("--datasets", "--methods", "--base", "--steps", "--edges", "--order", "--set")),
        ("sweep", ("--method", "--values")),
    ):
        text = runner.invoke(app, [name, "--help"], env={"COLUMNS": "200"}).output
        assert all(option in text for option in (*options, *everywhere)), name
