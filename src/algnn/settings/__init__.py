"""Each method's settings per dataset, as data.

``<method>.toml`` holds a table ``[default]`` and a table per dataset that is laid over it. A table
may say ``like = "other"`` to start from another dataset's settings, and a file may say
``inherits = "other"`` to start from another method's; ``variants.toml`` has methods that are little
more than that, a table each. All combinations of the values in ``[grid]`` are tried in tuning.
"""

import ast
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from algnn.errors import InputError


def read(method: str, dataset: str, strict: bool = False) -> dict[str, Any]:
    """Parameters of a method's learner for a dataset; those left out keep their defaults."""
    # a dataset without a table of its own gets [default], or is refused where `strict`
    tables = _tables(method)
    inherited = read(tables["inherits"], dataset) if "inherits" in tables else {}
    known = tables.keys() - {"default", "grid", "inherits"}
    if strict and dataset not in known:
        every = ", ".join(sorted(known))
        raise InputError(f"dataset={dataset!r} has no settings for {method}: use one of {every}")
    own = dict(tables[dataset]) if dataset in known else {}
    like = tables[own.pop("like")] if "like" in own else {}
    return {**inherited, **tables["default"], **like, **own}


def grid(method: str) -> list[dict[str, Any]]:
    """The changes of settings that are tried where a method is tuned; none where it has no grid."""
    tables = _tables(method)
    if "grid" not in tables:
        return grid(tables["inherits"]) if "inherits" in tables else []
    return combined(tables["grid"])


def combined(values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """All combinations of some settings' values; none where there are no settings."""
    some = product(*values.values()) if values else ()
    return [dict(zip(values, one, strict=True)) for one in some]


@cache
def declared(module: str, name: str) -> dict[str, Any]:
    """Parameters of a learner of this package and their defaults from its source, without torch."""
    # they are literals, the fields of a dataclass and of its bases
    path = Path(__file__).parents[1].joinpath(*module.split(".")[1:]).with_suffix(".py")
    body = ast.parse(path.read_text("utf-8")).body
    classes = {part.name: part for part in body if isinstance(part, ast.ClassDef)}
    imports = [part for part in body if isinstance(part, ast.ImportFrom)]
    places = {alias.name: str(part.module) for part in imports for alias in part.names}
    found: dict[str, Any] = {}
    for base in map(ast.unparse, reversed(classes[name].bases)):
        home = module if base in classes else places.get(base, "")
        found |= declared(home, base) if home.startswith("algnn.") else {}
    fields = any("dataclass" in ast.unparse(one) for one in classes[name].decorator_list)
    for part in classes[name].body:
        if fields and isinstance(part, ast.AnnAssign) and part.value:
            key = ast.unparse(part.target)
            if "ClassVar" in ast.unparse(part.annotation):
                found.pop(key, None)  # no longer for the user to choose
            else:
                found[key] = ast.literal_eval(part.value)
    return found


def _tables(method: str) -> dict[str, Any]:
    if method not in _every():
        every = ", ".join(sorted(_every()))
        raise InputError(f"method={method!r} has no settings: use one of {every}")
    return _every()[method]


@cache
def _every() -> dict[str, dict[str, Any]]:
    files = Path(__file__).parent.glob("*.toml")
    found = {path.stem: tomllib.loads(path.read_text("utf-8")) for path in files}
    return found.pop("variants") | found
