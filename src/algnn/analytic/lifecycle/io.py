"""The state of an `ALGNN` as a checkpoint's tensors and JSON values, and back, all checked."""

import json
import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from algnn.analytic.classes import GONE
from algnn.analytic.features.expansion import EXPANSIONS, ExpandedGCN
from algnn.analytic.features.hops import HopEncoder
from algnn.analytic.features.selfsupervised import SelfSupervisedEncoder
from algnn.analytic.heads import HEADS
from algnn.analytic.lifecycle.audit import AuditLog
from algnn.analytic.lifecycle.membership import Membership, no_prints
from algnn.analytic.linalg import Span
from algnn.analytic.selection import MOST_HALVINGS
from algnn.analytic.state import Features, State, per_class
from algnn.analytic.statistics import Statistics
from algnn.checkpoint import Facts, check_tensor, digest
from algnn.checks import Array, check_choice, check_number
from algnn.errors import CheckpointError
from algnn.graph.store import FLOAT

Tensors = dict[str, Tensor]
# limits of what a checkpoint may claim without holding it: weights drawn from a seed, widths
WIDEST_INPUTS = 2**26
LARGEST_EXPANSION = 2**26
MOST_UNITS = 2**14
MOST_HIDDEN = 1 + LARGEST_EXPANSION // MOST_UNITS
LARGEST_WEIGHTS = 2**20
# of a sum; features in float32 are below 1e39, and their squares below 1e78
LARGEST_VALUE = 1e100


def state(known: State) -> tuple[Tensors, Facts]:
    """The state as tensors and JSON values."""
    sums = {"statistics": known.statistics}
    sums |= {f"second{place}": known.half_sums[place] for place in range(known.ways)}
    tensors = {f"{of}.{name}": t for of, one in sums.items() for name, t in one.tensors().items()}
    if known.span.basis is not None:
        tensors["span.basis"] = known.span.basis
    if known.membership is not None:
        hashes, prints = map(torch.from_numpy, known.membership.ordered)
        tensors |= {"record.hashes": hashes, "record.prints": prints}
    encoder, facts = encoder_state(known.features)
    facts |= {"head": known.head, "gamma": known.gamma, "log": known.log.to_json()}
    return tensors | encoder, facts


def fingerprint(features: Features) -> str:
    """SHA-256 of everything that determines how nodes are encoded, equal on every device."""
    tensors, facts = encoder_state(features)
    return digest(json.dumps(facts, sort_keys=True), tensors)


def encoder_state(features: Features) -> tuple[Tensors, Facts]:
    """Tensors and facts of the encoder alone."""
    if isinstance(features, HopEncoder):
        every = {f.name: getattr(features, f.name) for f in fields(features)}
        tensors = {f"encoder.{name}": v for name, v in every.items() if isinstance(v, Tensor)}
        # under the name that this encoder had when the format was made
        bank = {name: v for name, v in every.items() if not isinstance(v, Tensor | None)}
        for name in ("sizes", "near"):
            if not bank[name]:
                del bank[name]  # the fingerprint is that of encoders from before there were any
        return tensors, {"bank": bank}
    shape = {"kind": features.kind, "inputs": features.bias.numel()}
    facts = {"expansion": {**shape, "width": features.width, "seed": features.seed}}
    return {"encoder.weight": features.weight, "encoder.bias": features.bias}, facts


def restored(tensors: Tensors, facts: Facts, device: torch.device) -> State:
    """The inverse of `state`; `CheckpointError` for values that no learner has."""
    classes = np.empty(0, np.int64)
    if facts["classes"] != []:  # as of a learner that was never taught, or has forgotten everything
        classes = restored_classes(facts["classes"])
    check_choice("head", facts["head"], HEADS)
    check_number("gamma", facts["gamma"], 0)
    check_values(tensors)
    features = restored_features(tensors, facts, device)
    width = features.width
    span = Span(width, None)
    if "span.basis" in tensors:
        basis = tensors["span.basis"]
        check_tensor("span.basis", basis, (basis.size(0), width), FLOAT)
        # a basis without rows takes no bytes, and shows no width that weights could have
        if not basis.size(0) and width * max(1, classes.size) > LARGEST_WEIGHTS:
            raise CheckpointError("span.basis has no rows, and a width that is not to be believed")
        off = basis @ basis.mT - torch.eye(basis.size(0), dtype=FLOAT)
        if bool((off.abs() > 1e-8).any()):
            raise CheckpointError("span.basis is not orthonormal")
        span = Span(width, basis.to(device))
    statistics = restored_sums(tensors, "statistics", span.rank, classes, device)
    names = [f"second{place}" for place in range(MOST_HALVINGS) if f"second{place}.G" in tensors]
    halves = [restored_sums(tensors, name, span.rank, classes, device) for name in names]
    half_sums = Statistics.empty(span.rank, device, ways=0).on(classes)
    if halves:
        G, Q, n = (torch.stack([getattr(half, name) for half in halves]) for name in "GQn")
        half_sums = Statistics(G, Q, n, classes)
    n = statistics.n
    fewest = GONE if n.is_floating_point() else 1
    if bool((n < fewest).any() or ((half_sums.n < 0) | (half_sums.n > n)).any()):
        raise CheckpointError("n holds counts that cannot be")
    log = AuditLog.of(facts, per_class(statistics))
    if not log.adds_up(per_class(statistics)):
        raise CheckpointError("the log does not add up to the nodes that were learned")
    members = None
    if "record.hashes" in tensors:
        count = int(statistics.n.sum())
        # before anything is made of a size that a file only claims
        hashes = check_tensor("record.hashes", tensors["record.hashes"], (count,), torch.int64)
        # files of early versions have no sketches
        prints = tensors.get("record.prints", torch.from_numpy(no_prints(count)))
        check_tensor("record.prints", prints, (count,), torch.int64)
        members = Membership(fingerprint(features), hashes.numpy(), prints.numpy())
    gamma = float(facts["gamma"])
    return State(features, span, statistics, half_sums, facts["head"], gamma, members, log)


def restored_features(tensors: Tensors, facts: Facts, device: torch.device) -> Features:
    """The features; weights that follow from a seed are drawn when they are first needed."""

    def part(name: str, *shape: int) -> Tensor:
        return check_tensor(name, tensors[name], shape, torch.float32).to(device)

    if "bank" in facts:
        bank = HopEncoder(**facts["bank"])
        # weights are as long as this says, whatever the size of the file
        most = math.inf if "encoder.basis" in tensors else WIDEST_INPUTS
        check_number("inputs", bank.inputs, 1, most, whole=True)
        check_number("projected", bank.projected, 0, WIDEST_INPUTS, whole=True)
        check_number("expanded", bank.expanded, 0, MOST_UNITS, whole=True)
        check_number("seed", bank.seed, 0, 2**63, whole=True)
        if "encoder.basis" in tensors:
            basis = part("encoder.basis", bank.inputs, tensors["encoder.basis"].size(-1))
            if not basis.numel() or bank.projected:
                raise CheckpointError("encoder.basis has no columns, or a projection beside it")
            bank = replace(bank, basis=basis)
        check_number("near", bank.near, 0, bank.view_width + 1, whole=True)
        names = [name for name in ("scales", "centre") if f"encoder.{name}" in tensors]
        rows: dict[str, Any] = {name: part(f"encoder.{name}", bank.inputs) for name in names}
        bank = replace(bank, **rows)
        if bank.scales is not None and not bool((bank.scales > 0).all()):
            raise CheckpointError("encoder.scales holds values that no scale has")
        plain = all(isinstance(each, bool) for each in (bank.root, bank.sizes))
        if bank.breadth * bank.expanded > LARGEST_EXPANSION or not plain:
            raise CheckpointError("bank is none that this version makes")
        if "encoder.weight1" in tensors:
            hidden = tensors["encoder.weight1"].size(-1)
            first = part("encoder.weight1", bank.widths[0], hidden)
            second = part("encoder.weight2", hidden, hidden)
            bank = SelfSupervisedEncoder.beside(bank, first, second)
        return bank
    shape = facts["expansion"]
    d, h = shape["width"], shape["inputs"]
    weight = part("encoder.weight", tensors["encoder.weight"].size(0), h)
    bias = part("encoder.bias", h)
    if not weight.numel() or h * d > LARGEST_EXPANSION or shape["kind"] not in EXPANSIONS:
        raise CheckpointError("expansion is none that this version makes")
    return ExpandedGCN(weight, bias, shape["kind"], d, shape["seed"])


def check_values(tensors: Tensors) -> None:
    """Raise `CheckpointError` for a value that is not finite, or whose square would not be."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool((tensor.abs() < LARGEST_VALUE).all()):
            raise CheckpointError(f"{name} holds values that are not finite, or too large")


def restored_sums(
    tensors: Tensors, name: str, d: int, classes: Array, device: torch.device
) -> Statistics:
    """The sums of a checkpoint under some name."""
    C = classes.size
    # where old sessions count for less, n is no longer whole
    kind = FLOAT if tensors[f"{name}.n"].dtype == FLOAT else torch.int64
    shapes = {"G": ((d * (d + 1) // 2,), FLOAT), "Q": ((d, C), FLOAT), "n": ((C,), kind)}
    G, Q, n = (
        check_tensor(f"{name}.{part}", tensors[f"{name}.{part}"], *expected).to(device)
        for part, expected in shapes.items()
    )
    return Statistics.from_tensors(G, Q, n, classes)


def restored_classes(found: Any, name: str = "classes", *, ordered: bool = True) -> Array:
    """Classes of a checkpoint, ints or strings: some, each once and, where `ordered`, sorted."""
    kinds = {type(c) for c in found} if isinstance(found, list) else set()
    classes = np.array(found)
    if kinds not in ({int}, {str}) or classes.dtype.kind not in "iU":
        raise CheckpointError(f"{name} is not a list of ints or of strings")
    if np.unique(classes).size < classes.size:
        raise CheckpointError(f"{name} names a class twice")
    if ordered and not np.array_equal(np.sort(classes), classes):
        raise CheckpointError(f"{name} is not sorted")
    return classes
