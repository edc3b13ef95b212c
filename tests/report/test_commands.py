from __future__ import annotations

import shlex

from typer.testing import CliRunner

from algnn import methods
from algnn.cli import app
from algnn.report.commands import commands
from algnn.report.evidence import gather

GPU = {"architecture": "x86_64", "processor": "Xeon", "cores": 16, "gpu": "A GPU", "jobs": 4}


def test_a_whole_benchmark_is_one_command(make):
    records = [
        make(dataset=graph, method=name, seed=seed, step=step, device="cuda", machine=GPU)
        for graph in ("cora", "digits")
        for name in methods.METHODS
        for seed in (42, 43)
        for step in (1, 5)
    ]
    assert commands(gather(records).runs) == [
        "algnn bench --datasets digits,cora --methods all --steps 1,5 --seeds 42,43 --device cuda"
    ]


def test_holes_are_not_filled(make):
    given = [("gem", 42), ("gem", 43), ("ewc", 42)]
    found = commands(gather([make(method=name, seed=seed) for name, seed in given]).runs)
    assert sorted(found) == [
        "algnn bench --datasets digits --methods ewc --steps 1 --seeds 42 --device cpu --jobs 1",
        "algnn bench --datasets digits --methods gem --steps 1 --seeds 42,43 --device cpu --jobs 1",
    ]


def test_what_differs_is_said(make):
    usual = methods.settings("gem", "digits")
    records = [
        make(method="gem", settings={**usual, "budget": 12}),
        make(method="gem", edges="seen", order="random"),
        make(method="gem", base=1),
    ]
    assert commands(gather(records).runs) == [
        "algnn bench --datasets digits --methods gem --steps 1 --seeds 42 --device cpu --jobs 1"
        " --set budget=12",
        "algnn bench --datasets digits --methods gem --steps 1 --seeds 42 --device cpu --jobs 1"
        " --edges seen --order random",
        "algnn bench --datasets digits --methods gem --steps 1 --seeds 42 --device cpu --jobs 1"
        " --base 1",
    ]


def test_all_settings_of_a_users_learner_are_said(make):
    settings = {"width": 8, "lr": 0.001, "fast": True, "word": "a b"}
    records = [make(method="mine:Own", settings=settings), make(method="gem")]
    assert sorted(commands(gather(records).runs)) == [
        "algnn bench --datasets digits --methods gem --steps 1 --seeds 42 --device cpu --jobs 1",
        "algnn bench --datasets digits --methods mine:Own --steps 1 --seeds 42 --device cpu"
        " --jobs 1 --set width=8 --set lr=0.001 --set fast=true --set 'word=a b'",
    ]


def test_a_setting_that_a_record_does_not_name_is_not_said(make):
    fewer = {k: v for k, v in methods.settings("gem", "digits").items() if k != "budget"}
    assert commands(gather([make(method="gem", settings=fewer)]).runs) == [
        "algnn bench --datasets digits --methods gem --steps 1 --seeds 42 --device cpu --jobs 1"
    ]


def test_sweeps(make):
    usual = methods.settings("algnn-paper", "cora")
    records = [
        make(dataset="cora", method="algnn-paper", seed=seed, settings={**usual, name: value})
        for seed in (42, 43)
        for name, values in (("width", (512, 128)), ("gamma", (10.0, 0.001)))
        for value in values
    ]
    assert sorted(commands(gather(records).runs)) == [
        "algnn sweep expansion cora --method algnn-paper --values 128,512 --seeds 42,43"
        " --device cpu --jobs 1",
        "algnn sweep gamma cora --method algnn-paper --values 0.001,10 --seeds 42,43"
        " --device cpu --jobs 1",
    ]


def test_names_are_safe_for_a_shell(make, nasty):
    line = commands(gather([make(method=nasty, dataset="my graph.npz; rm x")]).runs)[0]
    words = shlex.split(line)
    assert words[words.index("--methods") + 1] == nasty
    assert words[words.index("--datasets") + 1] == "my graph.npz; rm x"
    assert "\n" not in commands(gather([make(method="a:b\nreboot")]).runs)[0]


def test_the_command_line_has_these_options():
    runner = CliRunner()
    everywhere = ("--seeds", "--device", "--jobs")
    for name, options in (
        ("bench", ("--datasets", "--methods", "--base", "--steps", "--edges", "--order", "--set")),
        ("sweep", ("--method", "--values")),
    ):
        text = runner.invoke(app, [name, "--help"], env={"COLUMNS": "200"}).output
        assert all(option in text for option in (*options, *everywhere)), name
