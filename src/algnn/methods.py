"""The registry of methods: a name gives a learner with its settings for a dataset.

A learner of the user's own is named by its place: ``mypackage.mymodule:MyLearner``.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import math
import operator
import os
import pkgutil
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, cast

from algnn import settings as files
from algnn.errors import InputError

if TYPE_CHECKING:
    from algnn.learner import Learner

# parameters that are no settings: a run has them beside its settings
APART = ("seed", "device")
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Method:
    """A method by name; ``settings/<name>.toml`` holds its settings."""

    name: str
    kind: str  # its family
    summary: str
    retains: str  # what it keeps between sessions
    paper: str
    # the learner, or ``module:Class``: importing one takes torch, and listing them does not
    place: str | type[Learner]

    @property
    def learner(self) -> type[Learner]:
        """The class that implements it."""
        if isinstance(self.place, type):
            return self.place
        return cast("type[Learner]", pkgutil.resolve_name(f"algnn.{self.place}"))

    @property
    def defaults(self) -> dict[str, Any]:
        """The learner's settings and their defaults; `REQUIRED` where a user's has none."""
        named = inspect.signature(self.learner).parameters.items()
        rest = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return {n: p.default for n, p in named if p.kind not in rest and n not in APART}

    @property
    def grid(self) -> list[dict[str, Any]]:
        """The changes of settings that tuning tries; a user's learner has them in an attribute."""
        if self.name in METHODS:
            return files.grid(self.name)
        return files.combined(getattr(self.learner, "grid", {}))


_TABLES = tomllib.loads(resources.files("algnn").joinpath("methods.toml").read_text("utf-8"))
METHODS: dict[str, Method] = {name: Method(name, **facts) for name, facts in _TABLES.items()}


def find(method: str | type[Learner]) -> Method:
    """A method by its name in `METHODS`, by its class, or by its place ``module:Class``."""
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
        check_known(known.name, name, defaults)
        given[name] = _check_type(name, value, defaults[name])
    chosen = {**defaults, **given}
    for name, value in chosen.items():
        if value is REQUIRED:
            raise InputError(f"{name} of {known.name} has no default: set it ({name}=value)")
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            raise InputError(
                f"{name}={value!r} cannot be written into a record: settings are finite numbers,"
                " words, true or false, or lists of them"
            ) from None
    return chosen


def make(
    method: str | type[Learner], dataset: str, seed: int = 0, device: str = "auto", **overrides: Any
) -> Learner:
    """A fresh learner with a method's settings for a dataset.

    Parameters
    ----------
    method : str or type
        A name that ``algnn methods`` lists; or a learner of your own, as a class or by its place,
        ``"module:Class"``.
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
    for name in set(APART).difference(taken):
        with contextlib.suppress(AttributeError):  # a property: it knows its own
            setattr(learner, name, apart[name])
    return learner


def parse(method: str | type[Learner], pairs: Sequence[str]) -> dict[str, Any]:
    """Settings written as ``name=value``, each read as the type of the parameter's default."""
    known = find(method)
    defaults = known.defaults
    parsed: dict[str, Any] = {}
    for pair in pairs:
        name, text = split(pair)
        check_known(known.name, name, defaults)
        if name in parsed:
            raise InputError(f"{name} is set twice: give it one value")
        parsed[name] = _check_type(name, _value(name, text, type(defaults[name])), defaults[name])
    return parsed


def split(pair: str) -> tuple[str, str]:
    """The name and the value of a setting written as ``name=value``."""
    name, equals, text = (part.strip() for part in pair.partition("="))
    if not (name and equals and text):
        raise InputError(f"{pair!r} is not a setting: write it as name=value")
    return name, text


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
    """What stands at ``module:Class``, on the Python path or in the current folder."""
    from algnn.learner import Learner

    module, _, names = path.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *names.split("."))):
        raise InputError(f"method={path!r} is no place of a learner: write it as module:Class")
    importlib.invalidate_caches()
    here = os.getcwd()
    new = not {here, ""} & set(sys.path)
    if new:
        sys.path.append(here)  # last, so that nothing in this folder hides what is installed
    try:
        found = importlib.import_module(module)
    except Exception as error:  # whatever a user's module does while it is imported
        why = f"cannot be imported: {type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            why = f"there is no module {error.name}, neither in this folder nor on the Python path"
        raise InputError(f"method={path!r}: {why}") from error
    finally:
        if new and here in sys.path:
            sys.path.remove(here)
    try:
        return operator.attrgetter(names)(found)
    except AttributeError as error:
        kinds = [k for k in vars(found).values() if isinstance(k, type)]
        own = [k.__name__ for k in kinds if issubclass(k, Learner) and k.__module__ == module]
        listed = ", ".join(own) or "none"
        raise InputError(
            f"method={path!r}: {module} has no {error.name}; its learners are {listed}"
        ) from None


def check_known(method: str, name: str, defaults: dict[str, Any]) -> None:
    """Raise `InputError` unless this is one of a method's settings."""
    if name not in defaults:
        apart = f" ({name} has an option of its own)" if name in APART else ""
        raise InputError(
            f"{name!r} is not a setting of {method}{apart}: use one of {', '.join(defaults)}"
        )


def _value(name: str, text: str, kind: type) -> Any:
    """A value as it is typed, where its default is of some type."""
    if kind in WORDS:
        try:
            return {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
        except (KeyError, ValueError):
            raise InputError(f"{name}={text} must be {WORDS[kind]}") from None
    # as JSON where it can be, else a word; a list may do without its brackets
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
    if kind is float and type(value) is int:
        value = float(value)
    # bool is an int to Python, not to us
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise InputError(f"{name}={value!r} must be {WORDS[kind]}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{name}={value!r} must be a finite number")
    return value
