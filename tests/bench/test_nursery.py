from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from torch_geometric.data import Data

from algnn.bench import nursery
from algnn.bench.fleet import carry_out
from algnn.bench.plan import Plan


@pytest.fixture
def as_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A nursery as it is where there is a GPU, in the place of the one that others use."""
    monkeypatch.setattr(nursery, "has_gpu", lambda: True)
    monkeypatch.setattr(nursery, "_nursery", None)
    yield
    nursery._close()


def test_where_there_is_a_gpu_workers_are_programs_of_their_own(
    as_with_a_gpu: None, small_graph: Data, tmp_path: Path
) -> None:
    file = tmp_path / "mine.npz"
    np.savez(file, **{key: value.numpy() for key, value in small_graph.to_dict().items()})
    small = {"width": 32, "hidden": 8, "epochs": 3}
    plan = Plan(str(file), "algnn", [1, 2], small, device="cpu")
    assert len(carry_out([plan], tmp_path / "r", 1, progress=False).done) == 2
    # two threads or more cannot be forked safely: the nursery has but one
    tasks = Path(f"/proc/{nursery._nursery.process.pid}/task")
    assert not tasks.exists() or len(list(tasks.iterdir())) == 1
