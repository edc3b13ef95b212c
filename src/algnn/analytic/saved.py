"""What an `ALGNN` knows as tensors and facts for a checkpoint, and back; every value is checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from algnn.analytic.bank import Bank
from algnn.analytic.choice import MANY
from algnn.analytic.encoder import GCNEncoder, Widened
from algnn.analytic.expansion import EXPANSIONS, Expansion
from algnn.analytic.heads import HEADS
from algnn.analytic.learned import Features, Learned
from algnn.analytic.span import Span
from algnn.analytic.statistics import Statistics
from algnn.checkpoint import check_tensor
from algnn.checks import check_number
from algnn.errors import CheckpointError

FLOAT = torch.float64
# what a checkpoint may ask for that is not in it: weights that follow from a seed, or from a width
WIDEST_INPUTS = 2**20
LARGEST_EXPANSION = 2**26


def state(known: Learned) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors, and what JSON can hold.

    Parameters
    ----------
    known : Learned

    Returns
    -------
    tensors : dict of Tensor
    facts : dict
    """
    tensors = {f"statistics.{name}": t for name, t in known.statistics.tensors().items()}
    for place, half in enumerate(known.seconds):
        named = half._on(known.statistics.classes).tensors().items()
        tensors |= {f"second{place}.{name}": t for name, t in named}
    if known.span.basis is not None:
        tensors["span.basis"] = known.span.basis
    facts: dict[str, Any] = {"head": known.head, "gamma": known.gamma}
    if isinstance(known.features, Bank):
        facts["bank"] = vars(known.features).copy()
    else:
        encoder, expansion = known.features.encoder, known.features.expansion
        tensors |= {"encoder.weight": encoder.weight, "encoder.bias": encoder.bias}
        names = ("kind", "inputs", "width", "seed")
        facts["expansion"] = {name: getattr(expansion, name) for name in names}
    return tensors, facts


def restored(tensors: dict[str, Tensor], facts: dict[str, Any], device: torch.device) -> Learned:
    """The reverse of `state`.

    Parameters
    ----------
    tensors : dict of Tensor
    facts : dict
    device : device
        Where it shall be.

    Returns
    -------
    Learned
    """
    classes = _restored_classes(facts["classes"])
    if facts["head"] not in HEADS:
        raise CheckpointError(f"head {facts['head']!r} is unknown")
    if not isinstance(facts["gamma"], int | float) or not 0 <= facts["gamma"] < np.inf:
        raise CheckpointError(f"gamma {facts['gamma']!r} is no number of at least 0")
    # a value that is not finite would make one of every prediction; n has no such values
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise CheckpointError(f"{name} holds values that are not finite")
    features, width = _restored_features(tensors, facts, device)
    span = Span(width, None)
    if "span.basis" in tensors:
        basis = tensors["span.basis"]
        check_tensor("span.basis", basis, (basis.size(0), width), FLOAT)
        off = basis @ basis.mT - torch.eye(basis.size(0), dtype=FLOAT)
        if bool((off.abs() > 1e-8).any()):
            raise CheckpointError("span.basis is not orthonormal")
        span = Span(width, basis.to(device))
    statistics = _restored(tensors, "statistics", span.rank, classes, device)
    places = [place for place in range(MANY) if f"second{place}.G" in tensors]
    halves = [_restored(tensors, f"second{p}", span.rank, classes, device) for p in places]
    for n, least in ((statistics.n, 1), *((half.n, 0) for half in halves)):
        if bool((n < least).any()) or bool((n > statistics.n).any()):
            raise CheckpointError("n holds counts that cannot be")
    seconds = tuple(half.only(classes[half.n.numpy() > 0]) for half in halves)
    # only now, when the file has shown that it is as large as it says
    return Learned(features(), span, statistics, seconds, facts["head"], float(facts["gamma"]))


def _restored_features(
    tensors: dict[str, Tensor], facts: dict[str, Any], device: torch.device
) -> tuple[Callable[[], Features], int]:
    """How to make the features, and their width."""
    if "bank" in facts:
        bank = Bank(**facts["bank"])
        # weights are as long as this says, whatever the size of the file
        check_number("inputs", bank.inputs, 1, WIDEST_INPUTS, whole=True)
        check_number("projected", bank.projected, 0, WIDEST_INPUTS, whole=True)
        check_number("seed", bank.seed, 0, whole=True)
        return lambda: bank, bank.width
    shape = facts["expansion"]
    d, h = shape["width"], shape["inputs"]
    weight = tensors["encoder.weight"]
    weight = check_tensor("encoder.weight", weight, (weight.size(0), h), torch.float32)
    bias = check_tensor("encoder.bias", tensors["encoder.bias"], (h,), torch.float32)
    if weight.size(0) < 1 or h * d > LARGEST_EXPANSION or shape["kind"] not in EXPANSIONS:
        raise CheckpointError("expansion is none that this version makes")
    encoder = GCNEncoder(weight.to(device), bias.to(device))
    return lambda: Widened(encoder, Expansion(shape["kind"], h, d, shape["seed"])), d


def _restored(
    tensors: dict[str, Tensor], name: str, d: int, classes: npt.NDArray[Any], device: torch.device
) -> Statistics:
    C = classes.size
    shapes = {"G": ((d * (d + 1) // 2,), FLOAT), "Q": ((d, C), FLOAT), "n": ((C,), torch.int64)}
    G, Q, n = (
        check_tensor(f"{name}.{part}", tensors[f"{name}.{part}"], *expected).to(device)
        for part, expected in shapes.items()
    )
    return Statistics.from_tensors(G, Q, n, classes)


def _restored_classes(found: Any) -> npt.NDArray[Any]:
    kinds = {type(c) for c in found} if isinstance(found, list) else set()
    classes = np.array(found)
    if kinds not in ({int}, {str}) or classes.dtype.kind not in "iU":
        raise CheckpointError("classes is not a list of ints or of strings")
    if not np.array_equal(np.unique(classes), classes):
        raise CheckpointError("classes are not different and sorted")
    return classes
