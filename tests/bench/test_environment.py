from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import algnn
from algnn.bench import environment
from algnn.bench.environment import code_version, machine, versions

SOURCE = Path(algnn.__file__).parent


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package, as installed somewhere else."""
    shutil.copytree(SOURCE, tmp_path / "algnn", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "algnn"


def version(root: Path) -> str:
    return environment._package_digest.__wrapped__(root)


def test_the_place_does_not_matter(copy: Path) -> None:
    assert version(copy) == version(SOURCE)
    source = copy / "gcn.py"
    source.write_bytes(source.read_bytes().replace(b"\n", b"\r\n"))
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "gcn.cpython-311.pyc").write_bytes(b"x")
    (copy / "gcn.py~").write_bytes(b"x")
    assert version(copy) == version(SOURCE)


@pytest.mark.parametrize(
    "name",
    ["gcn.py", "learner.py", "methods.py", "settings/bare.toml", "graph/stream.py",
     "analytic/model.py", "bench/protocol.py", "bench/plan.py"],
)  # fmt: skip
def test_what_figures_depend_on(copy: Path, name: str) -> None:
    with (copy / name).open("a") as file:
        file.write("\nchanged = 1\n")
    assert version(copy) != version(SOURCE)


def test_words_and_layout_do_not_matter(copy: Path) -> None:
    one = environment._tree('"""Doc."""\n\ndef f(x: int) -> str:\n    """Doc."""\n    return f"{x}"\n')
    two = environment._tree("def f(\n    x: int,  # why\n) -> str:\n    'Other.'\n\n    return f'{x}'")
    assert one == two != environment._tree("def f(x: int) -> str:\n    return f'{x:d}'")
    with (copy / "settings" / "bare.toml").open("a") as file:
        file.write("\n# a comment\n")
    assert version(copy) == version(SOURCE)


def test_a_new_file_and_a_renamed_one(copy: Path) -> None:
    (copy / "settings" / "new.toml").write_text("")
    added = version(copy)
    (copy / "settings" / "new.toml").rename(copy / "settings" / "newer.toml")
    assert len({version(SOURCE), added, version(copy)}) == 3


@pytest.mark.parametrize(
    "name", ["cli/running.py", "bench/runs.py", "bench/scheduler.py", "bench/paper.toml"]
)
def test_what_no_figure_depends_on(copy: Path, name: str) -> None:
    with (copy / name).open("a") as file:
        file.write("\nchanged = 1\n")
    (copy / "report").mkdir(exist_ok=True)
    (copy / "report" / "anything.py").write_text("")
    assert version(copy) == version(SOURCE)


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
