"""What may be forgotten and what may be merged: the conditions under which both are exact."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from algnn.analytic.state import Learned
from algnn.analytic.lifecycle.io import fingerprint
from algnn.errors import InputError


def check_forgettable(known: Learned) -> None:
    """Raise `InputError` unless every node counts for one, so that it can be taken out again.

    Parameters
    ----------
    known : Learned

    Examples
    --------
    >>> import algnn
    >>> graph = algnn.load("digits")
    >>> model = algnn.ALGNN(head="ncm", half_life=2).fit(graph, range(50), graph.y[:50])
    >>> check_forgettable(model._learned)
    >>> check_forgettable(model.partial_fit(graph, [60], graph.y[60:61])._learned)
    Traceback (most recent call last):
        ...
    algnn.errors.InputError: half_life has made old sessions count for less, and what a node...
    """
    if known.decays:
        raise InputError(
            "half_life has made old sessions count for less, and what a node still counts for is"
            " not kept: a learner can forget only with half_life=0, or before its second session"
        )


def check_reached(known: Learned, within: Tensor, chosen: Tensor) -> None:
    """Raise `InputError` unless these are all learned nodes whose features change.

    Parameters
    ----------
    known : Learned
    within : Tensor [m], int64
        The nodes whose features change.
    chosen : Tensor [n], int64
        Those that are said to have been learned.

    Examples
    --------
    >>> import algnn
    >>> graph = algnn.load("digits")
    >>> model = algnn.ALGNN(head="ncm").fit(graph, range(50), graph.y[:50])
    >>> check_reached(model._learned, torch.tensor([7, 8, 60]), torch.tensor([7]))
    Traceback (most recent call last):
        ...
    algnn.errors.InputError: nodes lacks 1 of 2 learned nodes whose features change (the first...
    """
    outside = chosen[~torch.isin(chosen, within)]
    if outside.numel():
        raise InputError(
            f"nodes holds {int(outside[0])}, whose features do not change: name the learned nodes"
            " among reach(graph, node) and no others"
        )
    if known.record is None:
        return
    learned = torch.from_numpy(known.record.times(within, known.statistics.classes))
    lacking = learned - torch.bincount(chosen, minlength=int(within.max()) + 1)[within]
    missing = within[lacking > 0]
    if missing.numel():
        raise InputError(
            f"nodes lacks {missing.numel()} of {int((learned > 0).sum())} learned nodes whose"
            f" features change (the first is {int(missing[0])}): name all learned nodes among"
            " reach(graph, node), each with its label, as often as it was learned"
        )


def check_mergeable(ours: Learned, theirs: Learned, seeds: tuple[int, int]) -> None:
    """Raise `InputError` unless the sums of two learners can be added up.

    Parameters
    ----------
    ours, theirs : Learned
    seeds : tuple of int
        Those by which each halves its nodes.

    Examples
    --------
    >>> import algnn
    >>> graph = algnn.load("digits")
    >>> model = algnn.ALGNN(head="ncm").fit(graph, range(50), graph.y[:50])
    >>> check_mergeable(model._learned, model.blank()._learned, (0, 0))
    """
    widths = ours.span.width, theirs.span.width
    if widths[0] != widths[1]:
        raise InputError(
            f"other has features {widths[1]} wide and this learner {widths[0]}: merge learners that"
            " come from one blank()"
        )
    prints = fingerprint(ours.features), fingerprint(theirs.features)
    if prints[0] != prints[1]:
        raise InputError(
            f"other encodes nodes in another way (encoder {prints[1][:12]}… and here"
            f" {prints[0][:12]}…): merge learners that come from one blank()"
        )
    if ours.decays or theirs.decays:
        raise InputError(
            "half_life has made old sessions count for less, and which sessions of two learners are"
            " the older is not known: merge learners with half_life=0"
        )
    kinds = {one.statistics.classes.dtype.kind for one in (ours, theirs) if one.taught}
    if len(kinds) > 1:
        raise InputError("other has other labels, ints and strings: keep to one kind")
    if ours.ways and theirs.taught and not theirs.ways:
        raise InputError(
            "gamma=0 needs the sums of two halves, which other does not keep: give this learner a"
            " positive gamma and merge again, or teach other with gamma=0"
        )
    if ours.ways and seeds[0] != seeds[1]:
        raise InputError(
            f"other halves its nodes by seed={seeds[1]} and this learner by seed={seeds[0]}: merge"
            " learners that come from one blank()"
        )


@contextmanager
def as_usual() -> Iterator[None]:
    """Tensors that can be used anywhere, whatever the caller has switched off.

    Examples
    --------
    >>> with torch.inference_mode(), as_usual():
    ...     torch.ones(1).is_inference()
    False
    """
    with torch.inference_mode(False), torch.enable_grad():
        yield
