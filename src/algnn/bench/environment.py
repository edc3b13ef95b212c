"""When and where a run took place: the time, the code, the packages and the hardware."""

import ast
import contextlib
import hashlib
import inspect
import os
import platform
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import algnn

PACKAGES = ("torch", "torch_geometric", "numpy", "scipy")
START = "bench.plan"  # where every run begins; what a learner needs comes on top
# modules that no figure depends on, whoever imports them: they keep files and logs, or show them
OUTSIDE = {
    *("errors", "checkpoint", "files", "progress"),
    *(f"bench.{name}" for name in ("environment", "record", "runs")),
    *(f"graph.{name}" for name in ("partition", "tables", "convert")),
    *(f"analytic.{name}" for name in ("cluster", "explain", "lifecycle.io")),
    *(f"analytic.lifecycle.{name}" for name in ("audit", "glance", "preconditions")),
}
# modules whose versions are recorded, or come with Python; a user's own program is none of these
RECORDED = {"algnn", "sklearn", *PACKAGES, *sys.stdlib_module_names} - {"__main__"}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions(learner: type | None = None) -> dict[str, str]:
    """Versions of Python, the packages and the code, with a user's own learner in the latter."""
    ours = {"algnn": algnn.__version__, "code": code_version(learner)}
    return ours | {"python": platform.python_version()} | {p: metadata.version(p) for p in PACKAGES}


def code_version(learner: type | None = None) -> str:
    """A digest of the sources that a learner's figures depend on; after a ``+``, of a user's own.

    They are the learner's module, the one that starts runs, and what these import in turn: a change
    of one method is no change of another. Settings are no part of it; each run has them by itself.
    """
    sources = _sources(Path(algnn.__file__).parent)
    modules = {cls.__module__ for cls in (learner or object).__mro__}
    reached: dict[str, str] = {}
    found = [START, *(name.removeprefix("algnn.") for name in modules)]
    while found:
        if (name := found.pop()) in sources and name not in reached:
            reached[name], imported = sources[name]
            found += imported
    own = _short_digest(part for name in sorted(reached) for part in (name, reached[name]))
    foreign = sorted(name for name in modules if name.partition(".")[0] not in RECORDED)
    return f"{own}+{_short_digest(map(_module_tree, foreign))}" if foreign else own


def machine(jobs: int = 1) -> dict[str, Any]:
    """The hardware, without names of hosts or people, and how many runs share it."""
    import torch

    return {
        "architecture": platform.machine(),
        "processor": from_kernel("cpuinfo", "model name") or platform.processor() or None,
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "jobs": jobs,
    }


@cache
def _sources(root: Path) -> dict[str, tuple[str, list[str]]]:
    """The syntax tree of each module that a figure may depend on, and what the module imports."""
    found = {}
    for path in root.rglob("*.py"):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        if name not in OUTSIDE:
            text = path.read_text("utf-8")
            found[name] = _tree(text), _imported(text)
    return found


def _imported(source: str) -> list[str]:
    """Modules of the package that a source may import, by their names inside it."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name.removeprefix("algnn.") for name in names if name.startswith("algnn.")]


def _tree(source: str) -> str:
    """The syntax tree of a source without docstrings: comments and layout do not count."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    # Python 3.12 adds an empty field to functions and an empty string to some f-strings
    return ast.dump(tree).replace(", type_params=[]", "").replace(", Constant(value='')", "")


def _module_tree(module: str) -> str:
    try:
        return _tree(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, KeyError, SyntaxError):
        return module  # compiled, or typed in: its name is all there is


def _short_digest(parts: Iterable[str]) -> str:
    whole = "".join(f"{len(part)} {part}" for part in parts)
    return hashlib.sha256(whole.encode()).hexdigest()[:12]


def from_kernel(file: str, name: str) -> str:
    """What a file below /proc says of a name; nothing where there is none."""
    with contextlib.suppress(OSError):
        lines = Path("/proc", file).read_text("utf-8", errors="replace").splitlines()
        return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
    return ""
