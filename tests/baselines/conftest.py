"""What the tests of the baselines share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import algnn


@pytest.fixture
def learn() -> Callable[..., Any]:
    """A learner after some sessions (all by default) of a graph's stream, two classes first."""

    def learn(model, graph, sessions=None, *, base=2, **stream):
        stream = algnn.ClassStream(graph, base=base, **stream)
        for index in range(len(stream) if sessions is None else sessions):
            session = stream[index]
            model.partial_fit(session.graph, session.nodes, session.labels)
        return model

    return learn


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Any]:
    """The tensors of a model's checkpoint: its weights, and its memory."""

    def saved(model):
        model.save(tmp_path / "saved.safetensors")
        tensors = load_file(tmp_path / "saved.safetensors")
        return tuple(
            {name.removeprefix(part): t for name, t in tensors.items() if name.startswith(part)}
            for part in ("weights.", "memory.")
        )

    return saved


@pytest.fixture
def task_of() -> Callable[..., Any]:
    """The task that a learner would train on next."""

    def task_of(model, graph, nodes, labels):
        nodes, labels = torch.as_tensor(nodes), np.asarray(labels)
        return model._task(graph, nodes, labels, model._learned)

    return task_of
