"""Checkpoints: tensors in safetensors, everything else as JSON in the header; no pickle."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from algnn.errors import AlgnnError, CheckpointError, InputError
from algnn.files import replacing

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Path = str | os.PathLike[str]
Facts = dict[str, Any]  # JSON values
Shapes = dict[str, tuple[int, ...]]
VERSION = 1
# files of early versions have no SHA-256; an unknown key may be one that was damaged
KEYS = {"format", "version", "kind", "facts", "sha256"}
# errors raised by values of an unexpected type
MISFITS = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError)
LONGEST = 200


def check_path(path: Path, ending: str = "") -> None:
    """Raise `InputError` for a name under which a learner could not be loaded again."""
    name = os.fsdecode(path)
    shown = name.encode(errors="replace").decode()  # not as it is: safetensors could not open it
    if os.path.isdir(path) or not name.endswith(ending) or name.endswith(".npz") or shown != name:
        wanted = "give a file that ends in .safetensors, in UTF-8"
        raise InputError(f"path {shown} is no name for a model: {wanted}")


def write(path: Path, kind: str, tensors: dict[str, Tensor], facts: Facts) -> None:
    """Write a checkpoint of a learner of class `kind`: whole, or not at all."""
    from safetensors import torch as safetensors

    # one key for all facts: safetensors writes its own keys in no fixed order, and the same learner
    # shall give the same bytes
    text = json.dumps(facts, default=np.generic.item)  # a parameter may be a NumPy scalar
    contents = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    header = {"format": "algnn", "version": VERSION, "kind": kind, "facts": json.loads(text)}
    header["sha256"] = digest(json.dumps(header["facts"]), contents)
    with replacing(path) as temporary:
        try:
            # not by `save_file`: that writes to a file of another name first, which would stay
            # behind if this process were killed
            temporary.write_bytes(safetensors.save(contents, {"algnn": json.dumps(header)}))
        except (SafetensorError, OSError) as error:
            # 100 MB of header, a log of hundreds of thousands of events; or a disk that is full
            raise CheckpointError(f"{path} cannot be written: {in_short(error)}") from error


def read(path: Path, kind: str, *, verify: bool = True) -> tuple[dict[str, Tensor], Facts]:
    """Tensors, on the CPU, and JSON values of a checkpoint of a learner of class `kind`."""
    import torch

    with _opened(path) as (file, header):
        if (held := header["kind"]) != kind:
            raise CheckpointError(f"{path} holds a {held}, not a {kind}: load it with {held}.load")
        tensors = {name: torch.from_numpy(file.get_tensor(name)) for name in list(file.keys())}
        text = json.dumps(header["facts"])
        if verify and "sha256" in header and header["sha256"] != digest(text, tensors):
            raise CheckpointError(
                f"{path} is damaged (its content is not that of its SHA-256): use a copy, or save"
                " the learner again"
            )
    return tensors, header["facts"]


def peek(path: Path, names: Sequence[str] = ()) -> tuple[Facts, Shapes, dict[str, Any]]:
    """Header, shapes of all tensors, and the named ones; without torch, and no SHA-256 compared."""
    with _opened(path) as (file, header):
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in list(file.keys())}
        arrays = {name: file.get_tensor(name) for name in names if name in shapes}
    return header, shapes, arrays


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Facts]]:
    """The file and its header, once that is one of ours."""
    if not os.path.isfile(path):
        raise CheckpointError(f"{path} is not a file: give the path of a saved learner")
    if os.fspath(path).endswith(".npz"):
        raise CheckpointError(
            f"{path} is a graph and no saved learner: give a model, which comes before the graph"
        )
    try:
        # as NumPy's arrays, which are copies: for those of torch it would open the file twice, of
        # which the second may be another that has replaced it
        with safe_open(path, framework="numpy") as file:
            yield file, _header(path, file.metadata())
    except AlgnnError:
        raise
    except (SafetensorError, OSError, *MISFITS) as error:
        raise CheckpointError(
            f"{path} is damaged or not a checkpoint ({in_short(error)}): save the learner again"
        ) from error


def digest(text: str, tensors: dict[str, Tensor]) -> str:
    """SHA-256 of a text and of tensors with their names, equal on every device."""
    import torch

    total = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        total.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        if tensor.numel():
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            total.update(flat.view(torch.uint8).numpy().data)  # the memory itself, not a copy
    return total.hexdigest()


def check_tensor(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The tensor, if it is what a checkpoint should hold under that name."""
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise CheckpointError(
            f"{name} is {tensor.dtype} {list(tensor.shape)} where {dtype} {list(shape)} belongs"
        )
    return tensor


def in_short(error: BaseException) -> str:
    """One printable line of an error's message, which may quote anything from a foreign file."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    shown = "".join(c if c.isprintable() else "?" for c in line[: 2 * LONGEST])
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def _header(path: Path, metadata: dict[str, str] | None) -> Facts:
    try:
        header: Facts = json.loads((metadata or {})["algnn"])
        version, kind = header["version"], header["kind"]
        ours = header["format"] == "algnn" and isinstance(header["facts"], dict)
        # a name, and a number that is not as long as the file
        ours = ours and header.keys() <= KEYS and isinstance(version, int) and abs(version) <= 10**6
        ours = ours and kind.isidentifier() and len(kind) <= LONGEST
    except MISFITS:
        ours = False
    if not ours:
        raise CheckpointError(f"{path} is a safetensors file but not one that algnn wrote")
    if version != VERSION:
        raise CheckpointError(
            f"{path} has checkpoint version {version} and this algnn reads {VERSION}: use the"
            " algnn that wrote it, or a newer one"
        )
    return header
