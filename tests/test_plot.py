"""What `evaluate` counts and what the pictures of a model show."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from torch_geometric.data import Data

import algnn
from algnn import ALGNN, AlgnnError, InputError, NotFittedError, plot
from algnn.baselines.training import Bare
from algnn.cli import main


@pytest.fixture(scope="module")
def graph() -> Data:
    return algnn.load("digits")


@pytest.fixture(scope="module")
def model(graph: Data) -> ALGNN:
    """Digits 0 to 4, then 7, then 5; 6, 8 and 9 were never learned."""
    learner = ALGNN(device="cpu", width=256)
    for classes in (range(5), (7,), (5,)):
        nodes = [i for i in range(900) if int(graph.y[i]) in classes]
        learner.partial_fit(graph, nodes, graph.y[nodes])
    return learner


@pytest.fixture(scope="module")
def test(graph: Data) -> tuple[np.ndarray, np.ndarray]:
    nodes = np.arange(900, 1500)
    return nodes, graph.y.numpy()[nodes]


# -- numbers --------------------------------------------------------------------------------------


def test_evaluate_counts_what_predict_says(graph, model, test):
    nodes, labels = test
    table = model.evaluate(graph, nodes, labels)
    answers, sure = model.predict(graph, nodes), model.predict_proba(graph, nodes).max(axis=1)
    # in the order of learning, and what was never learned last
    assert table.index.to_list() == [0, 1, 2, 3, 4, 7, 5, 6, 8, 9]
    assert table.session.to_list()[:7] == [0, 0, 0, 0, 0, 1, 2]
    assert table.session.isna().to_list()[7:] == [True] * 3
    for name, row in table.iterrows():
        mine = labels == name
        assert row.n == mine.sum()
        assert row.accuracy == pytest.approx((answers[mine] == name).mean())
        assert row.confidence == pytest.approx(sure[mine].mean())
        wrong = answers[mine][answers[mine] != name]
        if wrong.size:
            assert (wrong == row.mistaken_for).sum() == np.bincount(wrong).max()
        else:
            assert np.isnan(row.mistaken_for)
    assert table.attrs["accuracy"] == pytest.approx(model.score(graph, nodes, labels))
    assert table.attrs["macro"] == pytest.approx(table.accuracy.mean())
    assert table.attrs["n"] == 600


def test_a_class_that_was_forgotten_and_came_back_is_as_young_as_its_return(graph, model):
    learner = ALGNN(device="cpu", width=64)
    by_class = {c: [i for i in range(300) if int(graph.y[i]) == c] for c in range(4)}
    base = by_class[0] + by_class[1]
    learner.fit(graph, base, graph.y[base])
    learner.partial_fit(graph, by_class[2], graph.y[by_class[2]])
    learner.forget(graph, by_class[1], graph.y[by_class[1]])
    learner.set_head("ridge")
    learner.partial_fit(graph, by_class[1], graph.y[by_class[1]])
    table = learner.evaluate(graph, range(300, 600), graph.y[300:600])
    assert table.session.dropna().to_dict() == {0: 0, 2: 1, 1: 2}


def test_every_learner_can_be_evaluated(graph):
    words = np.array([f"digit {int(y)}" for y in graph.y])
    learner = Bare(device="cpu", hidden=8, epochs=2).fit(graph, range(100), words[:100])
    table = learner.evaluate(graph, range(100, 300), words[100:300])
    assert table.index[0] == "digit 0"
    assert table.session.isna().all()
    for draw in (plot.confusion, plot.accuracy, plot.class_map):
        assert draw(learner, graph, range(100, 300), words[100:300]).axes


def test_nothing_to_evaluate(graph, model):
    with pytest.raises(InputError, match="nodes is empty"):
        model.evaluate(graph, [], [])
    with pytest.raises(InputError, match="labels has shape"):
        model.evaluate(graph, [1, 2], [1])
    with pytest.raises(NotFittedError):
        ALGNN().evaluate(graph, [1], [1])


# -- pictures -------------------------------------------------------------------------------------


def test_a_confusion_matrix_has_the_shares_of_each_row(graph, model, test):
    nodes, labels = test
    figure = plot.confusion(model, graph, nodes, labels)
    shares = figure.axes[0].images[0].get_array().filled(np.nan)
    assert shares.shape == (10, 7)
    np.testing.assert_allclose(shares.sum(axis=1), 100)
    table = model.evaluate(graph, nodes, labels)
    # on the diagonal the accuracy of the classes learned, in their order
    np.testing.assert_allclose(np.diag(shares), 100 * table.accuracy[:7])
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == list("0123475")


def test_bars_of_accuracy_and_its_course_over_sessions(graph, model, test):
    table = model.evaluate(graph, *test)
    bars, ages = plot.accuracy(model, graph, *test).axes
    np.testing.assert_allclose([b.get_height() for b in bars.patches], 100 * table.accuracy)
    np.testing.assert_allclose(bars.lines[0].get_ydata(), 100 * table.confidence)
    means = [100 * table.accuracy[:5].mean(), 100 * table.accuracy[7], 100 * table.accuracy[5]]
    np.testing.assert_allclose(ages.lines[0].get_ydata(), means)


def test_calls_that_brought_no_class_take_no_room_on_the_axis(small_graph):
    model = ALGNN(device="cpu", width=64).fit(small_graph, [0, 1], [0, 1])
    for node in range(4, 60, 2):
        model.partial_fit(small_graph, [node], [0])
    model.partial_fit(small_graph, [2], [2])
    nodes = [0, 1, 2]
    ages = plot.accuracy(model, small_graph, nodes, nodes).axes[1]
    assert ages.lines[0].get_xdata().tolist() == [0, 29]
    assert 2 < len(ages.get_xticks()) < 14


def test_a_class_whose_name_starts_with_an_underscore_has_its_place_in_the_legend(small_graph):
    model = ALGNN(device="cpu", width=64).fit(small_graph, [0, 1], ["a", "b"])
    legend = plot.class_map(model, small_graph, [0, 2], ["a", "_other"]).axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["never learned: _other"]


def test_novelty_marks_what_was_never_learned(graph, model, test):
    nodes, labels = test
    times = np.linspace(2020, 2026, nodes.size)[::-1]
    axes = plot.novelty(model, graph, nodes, labels, threshold=0.3, times=times).axes[0]
    known, new, middle, _ = axes.lines
    found = model.novelty(graph, nodes)
    strange = np.isin(labels, [6, 8, 9])
    np.testing.assert_array_equal(new.get_ydata(), found[strange])
    np.testing.assert_array_equal(known.get_xdata(), times[~strange])
    assert (np.diff(middle.get_xdata()) > 0).all()
    assert axes.get_title() == f"{(found > 0.3).sum()} of 600 nodes above 0.3"
    with pytest.raises(InputError, match="times has shape"):
        plot.novelty(model, graph, nodes, times=[1, 2])
    with pytest.raises(InputError, match="threshold"):
        plot.novelty(model, graph, nodes, threshold=2.0)
    assert "0 of 600" in plot.novelty(model, graph, nodes, threshold=1).axes[0].get_title()


def test_an_explanation_accounts_for_the_whole_score(graph, model):
    why = model.explain(graph, 3)
    features, neighbours = plot.explanation(model, graph, 3, count=4).axes
    for axes in (features, neighbours):
        widths = [bar.get_width() for bar in axes.patches]
        assert len(widths) == 5
        assert sum(widths) + why.bias == pytest.approx(why.score)
    with pytest.raises(InputError, match="only an ALGNN explains"):
        plot.explanation(Bare(), graph, 3)


def test_a_node_lies_between_the_classes_that_it_may_be(graph, model, test):
    nodes, labels = test
    axes = plot.class_map(model, graph, nodes, labels).axes[0]
    corners = {int(t.get_text()): np.array(t.get_position()) / 1.09 for t in axes.texts}
    assert set(corners) == set(model.classes_)
    np.testing.assert_allclose([np.hypot(*place) for place in corners.values()], 1)
    sure = model.predict_proba(graph, nodes[labels == 7])
    wanted = sure @ np.array([corners[name] for name in model.classes_])
    drawn = [line.get_xydata() for line in axes.lines if line.get_xydata().shape == wanted.shape]
    assert any(np.allclose(one, wanted) for one in drawn)


def test_names_are_shown_as_they_are_and_shortened(graph):
    names = np.array(["$10k - $20k", r"$\x0$", "_" * 99, "plain"])
    labels = names[graph.y[:200].numpy() % 4]
    priced = ALGNN(device="cpu", width=128).fit(graph, range(200), labels)
    figure = plot.confusion(priced, graph, range(200), labels)
    figure.canvas.draw()  # a formula would fail, or lose its dollar signs
    shown = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert [text.replace(r"\$", "$") for text in shown if "_" not in text] == sorted(
        name for name in names if "_" not in name
    )
    assert max(map(len, shown)) < 40


def test_one_node_is_enough(graph, model):
    for draw in (plot.confusion, plot.accuracy, plot.class_map):
        assert draw(model, graph, [7], graph.y[[7]]).axes


def test_files_of_pictures(graph, model, tmp_path: Path):
    figure = plot.novelty(model, graph)
    for name, start in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")):
        assert plot.save(figure, tmp_path / name).read_bytes().startswith(start)
    with pytest.raises(InputError, match="is no name for a picture"):
        plot.save(figure, tmp_path / "a.jpg")
    (tmp_path / "file").write_text("")
    with pytest.raises(AlgnnError, match="cannot be written"):
        plot.save(figure, tmp_path / "file" / "a.png")


# -- from a shell ---------------------------------------------------------------------------------


@pytest.fixture
def desk(tmp_path: Path, graph, model, test, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    model.save("m.safetensors")
    rows = [f"{node},{label}" for node, label in zip(*test, strict=True)]
    (tmp_path / "test.csv").write_text("\n".join(["node,label", *rows]))
    return tmp_path


def test_evaluate_from_a_shell(desk, graph, model, test, capsys):
    table = model.evaluate(graph, *test)
    assert main(["evaluate", "m.safetensors", "digits", "test.csv"]) == 0
    told = capsys.readouterr().out.splitlines()
    first = next(table.itertuples())
    assert told[1].split()[:4] == ["0", str(first.n), f"{100 * first.accuracy:.1f}%",
                                   f"{first.confidence:.3f}"]  # fmt: skip
    assert told[-2].startswith(f"accuracy {100 * table.attrs['accuracy']:.2f}% over 600 nodes")
    assert told[-1] == "3 classes never learned, whose nodes count as wrong: 6, 8, 9"
    (desk / "known.csv").write_text("node,label\n0,0\n1,1\n")
    assert main(["evaluate", "m.safetensors", "digits", "known.csv"]) == 0
    assert "never learned" not in capsys.readouterr().out
    for kind in ("confusion", "accuracy", "map"):
        command = ["evaluate", "m.safetensors", "digits", "test.csv", "--json"]
        assert main([*command, "--plot", f"deep/{kind}.png", "--kind", kind]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["accuracy"] == pytest.approx(table.attrs["accuracy"], rel=1e-5)
        assert [row["class"] for row in found["classes"]] == table.index.to_list()
        assert found["classes"][-1]["session"] is None
        assert (desk / "deep" / f"{kind}.png").stat().st_size > 10_000


def test_a_column_of_what_is_novel(desk, graph, model, capsys):
    command = ["predict", "m.safetensors", "digits", "--novel-above", "0.3", "--plot", "n.svg"]
    assert main(command) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head == "node,label,probability,novelty,novel"
    novel = [row.split(",")[4] == "True" for row in rows]
    assert novel == (model.novelty(graph) > 0.3).tolist()
    assert 0 < sum(novel) < len(novel)
    assert (desk / "n.svg").exists()
    assert main(["explain", "m.safetensors", "digits", "3", "--plot", "why.pdf"]) == 0
    assert (desk / "why.pdf").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("evaluate m.safetensors digits test.csv --plot a.txt", "is no name for a picture"),
        ("evaluate m.safetensors digits test.csv --kind pie", "'pie' is not one of"),
        ("evaluate m.safetensors digits none.csv", "there is no such file"),
        ("predict m.safetensors digits --novel-above 2", "--novel-above"),
        ("explain m.safetensors digits 3 --plot test.csv/a.png", "cannot be a folder"),
    ],
)
def test_mistakes_are_one_line(desk, capsys, command, message):
    assert main(command.split()) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
