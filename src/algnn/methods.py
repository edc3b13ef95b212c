"""The registry of methods: a name gives a learner with its settings for a dataset.

A learner of the user's own is named by its place: ``mypackage.mymodule:MyLearner``.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from algnn import settings as files
from algnn.errors import InputError

if TYPE_CHECKING:
    from algnn.learner import Learner

# learners by their place: importing them takes torch, and listing them does not
ALGNN = "algnn.analytic.model:ALGNN"
JointRidge = "algnn.analytic.joint:JointRidge"
CaT = "algnn.baselines.condensation:CaT"
CGNN = "algnn.baselines.replay:CGNN"
DeLoMe = "algnn.baselines.condensation:DeLoMe"
ERGNN = "algnn.baselines.replay:ERGNN"
EWC = "algnn.baselines.regularisation:EWC"
GEM = "algnn.baselines.replay:GEM"
Joint = "algnn.baselines.joint:Joint"
LwF = "algnn.baselines.regularisation:LwF"
MAS = "algnn.baselines.regularisation:MAS"
PIGNN = "algnn.baselines.isolation:PIGNN"
RanPAC = "algnn.baselines.sums:RanPAC"
KLDA = "algnn.baselines.sums:KLDA"
UGCN = "algnn.baselines.sums:UGCN"
LinearBank = "algnn.baselines.sums:LinearBank"
TPP = "algnn.baselines.isolation:TPP"
Bare = "algnn.baselines.training:Bare"
TWP = "algnn.baselines.regularisation:TWP"

# parameters that are no settings: a run has them beside its settings
APART = ("seed", "device")
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Method:
    """A method by name; ``settings/<name>.toml`` holds its settings.

    A user's own learner is named ``module:Class`` and has its constructor's defaults.

    `kind` is its family, `retains` what it keeps between sessions, and `place` the learner or where
    it is, ``module:Class``: nothing is imported before `learner` is asked for.

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
    place: str | type[Learner]

    @property
    def learner(self) -> type[Learner]:
        """The class that implements it."""
        if isinstance(self.place, type):
            return self.place
        module, _, name = self.place.partition(":")
        found: type[Learner] = getattr(importlib.import_module(module), name)
        return found

    @property
    def defaults(self) -> dict[str, Any]:
        """The learner's parameters and their defaults, without seed and device.

        A parameter of a user's learner that has no default is `REQUIRED`.
        """
        catch_all = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        parameters = inspect.signature(self.learner).parameters.values()
        named = [p for p in parameters if p.kind not in catch_all]
        return {p.name: p.default for p in named if p.name not in APART}


_SUMS = "sums G, Q, n: no node, label or edge"
_ALL = "weights, every node and label"
_EVEN = "with each class counting the same"
_ANEW = "trained anew on all labels so far, best epoch by validation"

# fmt: off
METHODS: dict[str, Method] = {row[0]: Method(*row) for row in (
    ("algnn", "analytic",
     "ALGNN() as it comes: label-free views, balanced weights, γ from sums",
     "sums G, Q, n of all nodes and of half of them: no node, label or edge",
     "this library, after AL-GNN", ALGNN),
    ("algnn-nodes", "analytic",
     "ALGNN() with head=ridge: every node counts the same, γ from sums",
     "sums G, Q, n of all nodes and of half of them: no node, label or edge",
     "this library, after AL-GNN", ALGNN),
    ("algnn-ssl", "analytic",
     "ALGNN() with encoder=self-supervised: a GCN trained without labels beside the views",
     "sums G, Q, n of all nodes and of half of them: no node, label or edge",
     "this library, after AL-GNN and CCA-SSG (Zhang et al., NeurIPS 2021)", ALGNN),
    ("algnn-paper", "analytic", "AL-GNN with the settings of its paper for each dataset",
     _SUMS, "AL-GNN, Zhang et al.", ALGNN),
    ("bare", "reference", "fine-tuning on each session, with no defence against forgetting",
     "weights", "–", Bare),
    ("bare-balanced", "reference", "bare, with each class of a session counting the same",
     "weights", "–", Bare),
    ("ewc", "regularisation", "weights held where their Fisher information was large",
     "weights, Fisher, anchor", "Kirkpatrick et al., PNAS 2017", EWC),
    ("lwf", "regularisation", "the old model's answers distilled on the new nodes",
     "weights", "Li and Hoiem, TPAMI 2018", LwF),
    ("mas", "regularisation", "weights held where the output was sensitive to them",
     "weights, importances", "Aljundi et al., ECCV 2018", MAS),
    ("twp", "regularisation", "weights held where loss and topology were sensitive to them",
     "weights, two importances, anchors", "Liu et al., AAAI 2021", TWP),
    ("gem", "replay", "gradients projected so that no past session's loss rises",
     "weights, memory nodes, labels and sessions", "Lopez-Paz and Ranzato, NeurIPS 2017", GEM),
    ("ergnn", "replay", "training on memory nodes chosen by coverage",
     "weights, memory nodes and labels", "Zhou and Cao, AAAI 2021", ERGNN),
    ("cgnn", "replay", "class-balanced memory and elastic weights",
     "weights, memory nodes and labels, a count for each", "Wang et al., CIKM 2020", CGNN),
    ("cat", "condensation", "training on condensed synthetic nodes only",
     "weights, synthetic nodes and labels", "Liu et al., ICDM 2023", CaT),
    ("cat-long", "condensation", "cat with the encoders and epochs of its authors' code",
     "weights, synthetic nodes and labels", "Liu et al., ICDM 2023", CaT),
    ("delome", "condensation", "synthetic nodes with the gradients of real ones, debiased logits",
     "weights, synthetic nodes and labels", "Niu et al., ECAI 2024", DeLoMe),
    ("pignn", "isolation", "old units frozen, a new block of units per session",
     "all blocks, memory nodes and labels", "Zhang et al., SIGIR 2023", PIGNN),
    ("pignn-paper", "isolation", "pignn with the paper's weight of the memory",
     "all blocks, memory nodes and labels", "Zhang et al., SIGIR 2023", PIGNN),
    ("tpp", "prompting", "a prototype names the node's task; a prompt and a head for each task",
     "a prototype, a prompt and a head per session", "Niu et al., NeurIPS 2024", TPP),
    ("ranpac", "closed form", "random ReLU units of label-free views, ridge, λ on held-out nodes",
     _SUMS, "McDonnell et al., NeurIPS 2023", RanPAC),
    ("klda", "closed form", "random Fourier features of label-free views, discriminant analysis",
     _SUMS, "Momeni et al., AAAI 2025", KLDA),
    ("ugcn-slda", "closed form", "an untrained wide GCN, streaming discriminant analysis",
     _SUMS, "Donghi et al., 2025", UGCN),
    ("linear-bank", "closed form", "five graph filters, least squares for each, their mean",
     _SUMS, "after GraphAny, Zhao et al., ICLR 2025", LinearBank),
    ("ncm", "reference", "AL-GNN's features, nearest class mean", _SUMS, "–", ALGNN),
    ("slda", "reference", "AL-GNN's features, streaming linear discriminant analysis",
     _SUMS, "Hayes and Kanan, CVPR Workshops 2020", ALGNN),
    ("joint-ridge", "reference",
     "AL-GNN's features, solved at once on all labels: must equal algnn-paper",
     "sums, every node and label", "–", JointRidge),
    ("joint", "reference", f"a GCN {_ANEW}", _ALL, "–", Joint),
    ("joint-appnp", "reference", f"APPNP {_ANEW}", _ALL, "Gasteiger et al., ICLR 2019", Joint),
    ("joint-sage", "reference", f"GraphSAGE {_ANEW}", _ALL, "Hamilton et al., NeurIPS 2017", Joint),
    ("joint-balanced", "reference", f"joint, {_EVEN}", _ALL, "–", Joint),
    ("joint-appnp-balanced", "reference", f"joint-appnp, {_EVEN}",
     _ALL, "Gasteiger et al., ICLR 2019", Joint),
    ("joint-sage-balanced", "reference", f"joint-sage, {_EVEN}",
     _ALL, "Hamilton et al., NeurIPS 2017", Joint),
)}
# fmt: on


def find(method: str | type[Learner]) -> Method:
    """A method by its name in `METHODS`, by its class, or by its place ``module:Class``.

    A module is imported from the Python path or from the current folder.

    Examples
    --------
    >>> find("algnn-paper").kind, find("algnn.baselines.ewc:EWC").learner.__name__
    ('analytic', 'EWC')
    """
    if isinstance(method, type):
        return _own(f"{method.__module__}:{method.__qualname__}", method)
    if ":" in method:
        return _own(method, _imported(method))
    if method not in METHODS:
        raise InputError(
            f"method={method!r} is unknown: use one of {', '.join(METHODS)}; or, for a learner of"
            " your own, module:Class"
        )
    return METHODS[method]


def settings(method: str | type[Learner], dataset: str, **changes: Any) -> dict[str, Any]:
    """Every parameter of a method's learner for a dataset, but seed and device.

    A dataset that the settings do not know gets their default; a learner of the user's own has its
    constructor's defaults for every dataset.

    Examples
    --------
    >>> settings("algnn-paper", "computers")["width"]
    1024
    """
    known = find(method)
    defaults = known.defaults
    given = files.read(known.name, dataset) if known.name in METHODS else {}
    for name, value in changes.items():
        _check_known(known.name, name, defaults)
        given[name] = _check_type(name, value, defaults[name])
    chosen = {**defaults, **given}
    for name, value in chosen.items():
        if value is REQUIRED:
            raise InputError(f"{name} of {known.name} has no default: set it ({name}=value)")
        _check_plain(name, value)
    return chosen


def make(
    method: str | type[Learner],
    dataset: str,
    seed: int = 0,
    device: str = "auto",
    **overrides: Any,
) -> Learner:
    """A fresh learner with a method's settings for a dataset.

    Parameters
    ----------
    method : str or type
        As for `find`.
    dataset : str
        As for `settings`.
    seed : int
        The seed of all that is random in the learner.
    device : str
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    **overrides
        Settings to change.

    Returns
    -------
    Learner
        One whose constructor takes no `seed` or `device` has them as attributes all the same.

    Examples
    --------
    >>> learner = make("algnn-paper", "cora", seed=42, gamma=0.1)
    >>> learner.get_params()["gamma"], learner.get_params()["seed"]
    (0.1, 42)
    """
    chosen = settings(method, dataset, **overrides)
    build: Callable[..., Learner] = find(method).learner
    taken = inspect.signature(build).parameters
    apart = {"seed": seed, "device": device}
    learner = build(**{name: apart[name] for name in APART if name in taken}, **chosen)
    for name in APART:
        if name not in taken:
            with contextlib.suppress(AttributeError):  # a property: it knows its own
                setattr(learner, name, apart[name])
    return learner


def parse(method: str | type[Learner], pairs: Sequence[str]) -> dict[str, Any]:
    """Settings written as ``name=value``, each read as the type of the parameter's default.

    Where that is neither a number, a word nor true or false, the value is read as JSON where it can
    be, and is a word otherwise; a list may do without its brackets.

    Examples
    --------
    >>> parse("algnn", ["gamma=1e-3", "width=512", "expansion=plain"])
    {'gamma': 0.001, 'width': 512, 'expansion': 'plain'}
    """
    known = find(method)
    defaults = known.defaults
    parsed: dict[str, Any] = {}
    for pair in pairs:
        name, text = split(pair)
        _check_known(known.name, name, defaults)
        if name in parsed:
            raise InputError(f"{name} is set twice: give it one value")
        parsed[name] = _parse_value(name, text, defaults[name])
    return parsed


def split(pair: str) -> tuple[str, str]:
    """The name and the value of a setting written as ``name=value``."""
    name, equals, text = (part.strip() for part in pair.partition("="))
    if not (name and equals and text):
        raise InputError(f"{pair!r} is not a setting: write it as name=value")
    return name, text


# -- a user's own learner -------------------------------------------------------------------------


def _own(path: str, learner: Any) -> Method:
    from algnn.learner import Learner

    if not (isinstance(learner, type) and issubclass(learner, Learner)):
        raise InputError(f"method={path!r} is no learner: give a subclass of algnn.Learner")
    lacking = sorted(getattr(learner, "__abstractmethods__", ()))
    if lacking:
        raise InputError(f"method={path!r} is an unfinished learner: it lacks {', '.join(lacking)}")
    summary = (inspect.getdoc(learner) or "").partition("\n")[0]
    return Method(path, "own", summary, retains="", paper="–", place=learner)


def _imported(path: str) -> Any:
    """What stands at ``module:Class``."""
    module, _, names = path.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *names.split("."))):
        raise InputError(f"method={path!r} is no place of a learner: write it as module:Class")
    found: Any = _module(path, module)
    for name in names.split("."):
        if not hasattr(found, name):
            raise InputError(
                f"method={path!r}: {module} has no {name}; its learners are"
                f" {', '.join(_learners_of(module)) or 'none'}"
            )
        found = getattr(found, name)
    return found


def _module(path: str, name: str) -> ModuleType:
    importlib.invalidate_caches()
    try:
        with _current_folder_on_path():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise InputError(
                f"method={path!r}: there is no module {error.name}, neither in this folder nor on"
                " the Python path"
            ) from None
        raise InputError(f"method={path!r} cannot be imported: {error}") from error
    except Exception as error:  # whatever a user's module does while it is imported
        raise InputError(
            f"method={path!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error


@contextlib.contextmanager
def _current_folder_on_path() -> Iterator[None]:
    """The current folder on the Python path, for as long as a user's module is imported."""
    here = os.getcwd()
    if here in sys.path or "" in sys.path:
        yield
        return
    sys.path.append(here)  # last, so that nothing in this folder hides what is installed
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(here)


def _learners_of(module: str) -> list[str]:
    from algnn.learner import Learner

    members = vars(sys.modules[module]).items()
    return [
        name
        for name, member in members
        if isinstance(member, type) and issubclass(member, Learner) and member.__module__ == module
    ]


# -- values of settings ---------------------------------------------------------------------------


def _check_known(method: str, name: str, defaults: dict[str, Any]) -> None:
    if name not in defaults:
        apart = f" ({name} has an option of its own)" if name in APART else ""
        raise InputError(
            f"{name!r} is not a setting of {method}{apart}: use one of {', '.join(defaults)}"
        )


def _parse_value(name: str, text: str, default: Any) -> Any:
    kind = type(default)
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        value = kind(text) if kind in WORDS else _loose(text, kind)
        return _check_type(name, value, default)
    except (KeyError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name}={text} must be {WORDS[kind]}") from error


def _loose(text: str, kind: type) -> Any:
    """A value whose type the default does not tell."""
    for written in (text, f"[{text}]") if kind in (list, tuple) else (text,):
        with contextlib.suppress(ValueError):
            value = json.loads(written)
            if kind not in (list, tuple) or isinstance(value, list):
                return value
    return text


def _check_type(name: str, value: Any, default: Any) -> Any:
    kind = type(default)
    if kind in (list, tuple):
        if not isinstance(value, list | tuple):
            raise InputError(f"{name}={value!r} must be a list")
        return kind(value)
    if kind not in WORDS:
        return value  # None, say: its learner knows what else it may be
    # bool is an int to Python, not to us
    fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value, fits = float(value), True
    if not fits:
        raise InputError(f"{name}={value!r} must be {WORDS[kind]}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{name}={value!r} must be a finite number")
    return value


def _check_plain(name: str, value: Any) -> None:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise InputError(
            f"{name}={value!r} cannot be written into a record: settings are finite numbers, words,"
            " true or false, or lists of them"
        ) from None
