"""Class-incremental node classification on graphs, by closed-form analytic learning."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from algnn.analytic.cluster import on_cluster as on_cluster
    from algnn.analytic.model import ALGNN as ALGNN
    from algnn.analytic.privacy.model import PrivateALGNN as PrivateALGNN
    from algnn.errors import AlgnnError as AlgnnError
    from algnn.errors import CheckpointError as CheckpointError
    from algnn.errors import DatasetError as DatasetError
    from algnn.errors import DeviceError as DeviceError
    from algnn.errors import InputError as InputError
    from algnn.errors import NotFittedError as NotFittedError
    from algnn.graph.convert import from_networkx as from_networkx
    from algnn.graph.convert import from_pandas as from_pandas
    from algnn.graph.datasets import load as load
    from algnn.graph.npz import save_npz as save_npz
    from algnn.graph.partition import append_nodes as append_nodes
    from algnn.graph.partition import write_graph as write_graph
    from algnn.graph.store import GraphStore as GraphStore
    from algnn.graph.store import open_graph as open_graph
    from algnn.graph.stream import ClassStream as ClassStream
    from algnn.graph.stream import Session as Session
    from algnn.learner import Learner as Learner
    from algnn.models import open_model as open_model

__version__ = "0.2.0"

# Public names are imported when first used: torch takes seconds, and `algnn --help` need not wait.
_NAMES = {
    "analytic.cluster": "on_cluster",
    "analytic.model": "ALGNN",
    "analytic.privacy.model": "PrivateALGNN",
    "errors": "AlgnnError CheckpointError DatasetError DeviceError InputError NotFittedError",
    "graph.convert": "from_networkx from_pandas",
    "graph.datasets": "load",
    "graph.npz": "save_npz",
    "graph.partition": "append_nodes write_graph",
    "graph.store": "GraphStore open_graph",
    "graph.stream": "ClassStream Session",
    "learner": "Learner",
    "models": "open_model",
}
_HOMES = {name: f"algnn.{home}" for home, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "plot":
        return import_module("algnn.plot")
    if name not in _HOMES:
        raise AttributeError(f"module 'algnn' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__", "plot"]
