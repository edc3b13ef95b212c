"""Class-incremental node classification on graphs, by closed-form analytic learning."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from algnn.analytic.cluster import on_cluster
    from algnn.analytic.model import ALGNN
    from algnn.analytic.privacy.model import PrivateALGNN
    from algnn.errors import (
        AlgnnError,
        CheckpointError,
        DatasetError,
        DeviceError,
        InputError,
        NotFittedError,
    )
    from algnn.graph.convert import from_networkx, from_pandas
    from algnn.graph.datasets import load
    from algnn.graph.npz import save_npz
    from algnn.graph.partition import append_nodes, write_graph
    from algnn.graph.store import GraphStore, open_graph
    from algnn.graph.stream import ClassStream, Session
    from algnn.learner import Learner
    from algnn.models import open_model

__version__ = "0.2.0"

__all__ = [
    "ALGNN",
    "AlgnnError",
    "CheckpointError",
    "ClassStream",
    "DatasetError",
    "DeviceError",
    "GraphStore",
    "InputError",
    "Learner",
    "NotFittedError",
    "PrivateALGNN",
    "Session",
    "append_nodes",
    "from_networkx",
    "from_pandas",
    "load",
    "on_cluster",
    "open_graph",
    "open_model",
    "save_npz",
    "write_graph",
]

# Public names are imported when first used: torch takes seconds, and `algnn --help` need not wait.
_HOMES = {
    "ALGNN": "algnn.analytic.model",
    "ClassStream": "algnn.graph.stream",
    "GraphStore": "algnn.graph.store",
    "Learner": "algnn.learner",
    "PrivateALGNN": "algnn.analytic.privacy.model",
    "Session": "algnn.graph.stream",
    "append_nodes": "algnn.graph.partition",
    "from_networkx": "algnn.graph.convert",
    "from_pandas": "algnn.graph.convert",
    "load": "algnn.graph.datasets",
    "on_cluster": "algnn.analytic.cluster",
    "open_graph": "algnn.graph.store",
    "open_model": "algnn.models",
    "save_npz": "algnn.graph.npz",
    "write_graph": "algnn.graph.partition",
}


def __getattr__(name: str) -> Any:
    if name == "plot":
        return import_module("algnn.plot")
    if name not in __all__:
        raise AttributeError(f"module 'algnn' has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "algnn.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__", "plot"]
