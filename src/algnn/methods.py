"""The registry: a name gives a learner with its settings for a dataset."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from algnn import settings as files
from algnn.analytic.joint import JointRidge
from algnn.analytic.model import ALGNN
from algnn.baselines.cat import CaT
from algnn.baselines.cgnn import CGNN
from algnn.baselines.ergnn import ERGNN
from algnn.baselines.ewc import EWC
from algnn.baselines.gem import GEM
from algnn.baselines.joint import Joint
from algnn.baselines.lwf import LwF
from algnn.baselines.mas import MAS
from algnn.baselines.pignn import PIGNN
from algnn.baselines.training import Bare
from algnn.baselines.twp import TWP
from algnn.errors import InputError
from algnn.learner import Learner

# not settings: a run names them by themselves
APART = ("seed", "device")
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}


@dataclass(frozen=True)
class Method:
    """A way of learning a stream, by name.

    Attributes
    ----------
    name : str
        As the command line takes it; ``settings/<name>.toml`` holds its settings.
    kind : str
        The family it belongs to.
    summary : str
        What it does, in a line.
    retains : str
        What it keeps between sessions.
    paper : str
        Where it comes from.
    learner : type
        The class that does it.

    Examples
    --------
    >>> METHODS["algnn-paper"].learner.__name__, METHODS["algnn-paper"].defaults["hidden"]
    ('ALGNN', 256)
    """

    name: str
    kind: str
    summary: str
    retains: str
    paper: str
    learner: type[Learner]

    @property
    def defaults(self) -> dict[str, Any]:
        """The learner's parameters and their defaults, without seed and device."""
        parameters = inspect.signature(self.learner).parameters.values()
        return {p.name: p.default for p in parameters if p.name not in APART}


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            name="algnn",
            kind="analytic",
            summary="ALGNN() as it comes, for a graph nobody has tuned for",
            retains="sums G, Q, n: no node, label or edge",
            paper="this library, after AL-GNN",
            learner=ALGNN,
        ),
        Method(
            name="algnn-paper",
            kind="analytic",
            summary="AL-GNN with the settings of its paper for each dataset",
            retains="sums G, Q, n: no node, label or edge",
            paper="AL-GNN, Zhang et al.",
            learner=ALGNN,
        ),
        Method(
            name="bare",
            kind="reference",
            summary="fine-tuning on each session, with no defence against forgetting",
            retains="weights",
            paper="–",
            learner=Bare,
        ),
        Method(
            name="ewc",
            kind="regularisation",
            summary="weights held where their Fisher information was large",
            retains="weights, Fisher, anchor",
            paper="Kirkpatrick et al., PNAS 2017",
            learner=EWC,
        ),
        Method(
            name="lwf",
            kind="regularisation",
            summary="the old model's answers distilled on the new nodes",
            retains="weights",
            paper="Li and Hoiem, TPAMI 2018",
            learner=LwF,
        ),
        Method(
            name="mas",
            kind="regularisation",
            summary="weights held where the output was sensitive to them",
            retains="weights, importances",
            paper="Aljundi et al., ECCV 2018",
            learner=MAS,
        ),
        Method(
            name="twp",
            kind="regularisation",
            summary="weights held where loss and topology were sensitive to them",
            retains="weights, two importances, anchors",
            paper="Liu et al., AAAI 2021",
            learner=TWP,
        ),
        Method(
            name="gem",
            kind="replay",
            summary="gradients projected so that no past session's loss rises",
            retains="weights, memory nodes, labels and sessions",
            paper="Lopez-Paz and Ranzato, NeurIPS 2017",
            learner=GEM,
        ),
        Method(
            name="ergnn",
            kind="replay",
            summary="training on memory nodes chosen by coverage",
            retains="weights, memory nodes and labels",
            paper="Zhou and Cao, AAAI 2021",
            learner=ERGNN,
        ),
        Method(
            name="cgnn",
            kind="replay",
            summary="class-balanced memory and elastic weights",
            retains="weights, memory nodes and labels, a count for each",
            paper="Wang et al., CIKM 2020",
            learner=CGNN,
        ),
        Method(
            name="cat",
            kind="condensation",
            summary="training on condensed synthetic nodes only",
            retains="weights, synthetic nodes and labels",
            paper="Liu et al., ICDM 2023",
            learner=CaT,
        ),
        Method(
            name="pignn",
            kind="isolation",
            summary="old units frozen, a new block of units per session",
            retains="all blocks, memory nodes and labels",
            paper="Zhang et al., SIGIR 2023",
            learner=PIGNN,
        ),
        Method(
            name="ncm",
            kind="reference",
            summary="AL-GNN's features, nearest class mean",
            retains="sums G, Q, n: no node, label or edge",
            paper="–",
            learner=ALGNN,
        ),
        Method(
            name="slda",
            kind="reference",
            summary="AL-GNN's features, streaming linear discriminant analysis",
            retains="sums G, Q, n: no node, label or edge",
            paper="Hayes and Kanan, CVPR Workshops 2020",
            learner=ALGNN,
        ),
        Method(
            name="joint-ridge",
            kind="reference",
            summary="AL-GNN's features, solved at once on all labels: must equal algnn-paper",
            retains="sums, every node and label",
            paper="–",
            learner=JointRidge,
        ),
        Method(
            name="joint",
            kind="reference",
            summary="a GCN trained anew on all labels so far, best epoch by validation",
            retains="weights, every node and label",
            paper="–",
            learner=Joint,
        ),
    )
}


def find(method: str) -> Method:
    """A method by its name.

    Parameters
    ----------
    method : str
        A key of `METHODS`.

    Returns
    -------
    Method

    Examples
    --------
    >>> find("algnn-paper").kind
    'analytic'
    """
    if method not in METHODS:
        raise InputError(f"method={method!r} is unknown: use one of {', '.join(METHODS)}")
    return METHODS[method]


def settings(method: str, dataset: str) -> dict[str, Any]:
    """A method's settings for a dataset.

    Parameters
    ----------
    method : str
        A key of `METHODS`.
    dataset : str
        A dataset's name; one that the settings do not know gets their default.

    Returns
    -------
    dict
        Every parameter of the learner but seed and device.

    Examples
    --------
    >>> settings("algnn-paper", "computers")["width"]
    1024
    """
    known = find(method)
    return {**known.defaults, **files.read(method, dataset)}


def make(
    method: str, dataset: str, seed: int = 0, device: str = "auto", **overrides: Any
) -> Learner:
    """A fresh learner with a method's settings for a dataset.

    Parameters
    ----------
    method, dataset : str
        As for `settings`.
    seed : int
        Of all that is random in the learner.
    device : str
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    **overrides
        Settings to change.

    Returns
    -------
    Learner

    Examples
    --------
    >>> learner = make("algnn-paper", "cora", seed=42, gamma=0.1)
    >>> learner.get_params()["gamma"], learner.get_params()["seed"]
    (0.1, 42)
    """
    defaults = find(method).defaults
    changed = {}
    for name, value in overrides.items():
        _check_known(method, name, defaults)
        changed[name] = _check_type(name, value, type(defaults[name]))
    chosen = {**settings(method, dataset), **changed}
    build: Callable[..., Learner] = find(method).learner
    return build(seed=seed, device=device, **chosen)


def parse(method: str, pairs: Sequence[str]) -> dict[str, Any]:
    """Settings written as ``name=value``, each read as the type of the parameter's default.

    Parameters
    ----------
    method : str
        A key of `METHODS`.
    pairs : sequence of str
        Such as ``"gamma=1e-3"``.

    Returns
    -------
    dict
        Ready to be overrides of `make`.

    Examples
    --------
    >>> parse("algnn", ["gamma=1e-3", "width=512", "expansion=plain"])
    {'gamma': 0.001, 'width': 512, 'expansion': 'plain'}
    """
    defaults = find(method).defaults
    parsed: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not (name and equals and text):
            raise InputError(f"{pair!r} is not a setting: write it as name=value")
        _check_known(method, name, defaults)
        if name in parsed:
            raise InputError(f"{name} is set twice: give it one value")
        parsed[name] = _parse_value(name, text, type(defaults[name]))
    return parsed


def _check_known(method: str, name: str, defaults: dict[str, Any]) -> None:
    if name not in defaults:
        apart = f" ({name} has an option of its own)" if name in APART else ""
        raise InputError(
            f"{name!r} is not a setting of {method}{apart}: use one of {', '.join(defaults)}"
        )


def _parse_value(name: str, text: str, kind: type) -> Any:
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return _check_type(name, kind(text), kind)
    except (KeyError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name}={text} must be {WORDS.get(kind, kind.__name__)}") from error


def _check_type(name: str, value: Any, kind: type) -> Any:
    # bool is an int to Python, not to us
    fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value, fits = float(value), True
    if not fits:
        raise InputError(f"{name}={value!r} must be {WORDS.get(kind, kind.__name__)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{name}={value!r} must be a finite number")
    return value
