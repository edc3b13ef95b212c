from __future__ import annotations

import sys
from pathlib import Path

import pytest

import algnn
from algnn.bench import environment
from algnn.bench.environment import code_version, machine, versions

FILES = {
    **dict.fromkeys(("gcn.py", "graph/stream.py", "bench/plan.py", "bench/runs.py"), "a = 1\n"),
    **dict.fromkeys(("bench/scheduler.py", "cli/running.py", "report/any.py"), "a = 1\n"),
    **dict.fromkeys(("settings/bare.toml", "bench/paper.toml"), "lr = 0.1\n"),
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The package in small."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


def version(root: Path) -> str:
    return environment._package_digest.__wrapped__(root)


@pytest.mark.parametrize("name", FILES)
def test_what_figures_depend_on(package: Path, name: str) -> None:
    before = version(package)
    with (package / name).open("a") as file:
        file.write("b = 2\n")
    counts = name in ("gcn.py", "graph/stream.py", "bench/plan.py", "settings/bare.toml")
    assert (version(package) != before) == counts


def test_words_and_layout_do_not_matter(package: Path) -> None:
    before = version(package)
    (package / "gcn.py").write_bytes(b"'Doc.'\r\na = (\r\n    1  # why\r\n)\r\n")
    (package / "settings" / "bare.toml").write_text("# a comment\nlr = 0.10\n")
    (package / "gcn.py~").write_bytes(b"x")
    assert version(package) == before
    one = environment._tree('def f(x: int) -> str:\n    """Doc."""\n    return f"{x}"\n')
    two = environment._tree("def f(\n    x: int,\n) -> str:\n    'Other.'\n\n    return f'{x}'")
    assert one == two != environment._tree("def f(x: int) -> str:\n    return f'{x:d}'")


def test_a_new_file_and_a_renamed_one(package: Path) -> None:
    found = {version(package)}
    (package / "settings" / "new.toml").write_text("")
    found.add(version(package))
    (package / "settings" / "new.toml").rename(package / "settings" / "newer.toml")
    assert len({*found, version(package)}) == 3


def test_a_learner_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    base, module = tmp_path / "own_base.py", tmp_path / "own_learner.py"
    base.write_text("import algnn\n\nclass Base(algnn.ALGNN):\n    pass\n")
    module.write_text("from own_base import Base\n\nclass Mine(Base):\n    pass\n")
    import own_learner

    first = code_version(own_learner.Mine)
    own, plus, added = first.partition("+")
    assert (own, plus, len(added)) == (code_version(), "+", 12)
    assert versions(own_learner.Mine)["code"] == first
    assert code_version(algnn.ALGNN) == code_version()
    module.write_text(module.read_text() + "changed = 1\n")
    second = code_version(own_learner.Mine)
    base.write_text(base.read_text() + "changed = 1\n")
    assert len({first, second, code_version(own_learner.Mine)}) == 3
    for name in ("own_base", "own_learner"):
        del sys.modules[name]


def test_a_class_without_a_source() -> None:
    typed_in: dict[str, type] = {}
    exec("import algnn\nclass Mine(algnn.ALGNN): pass", {"__name__": "nowhere"}, typed_in)
    assert code_version(typed_in["Mine"]).startswith(f"{code_version()}+")


def test_how_many_runs_share_the_machine() -> None:
    assert (machine()["jobs"], machine(3)["jobs"]) == (1, 3)
