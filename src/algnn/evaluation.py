"""Answers against true labels, class by class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import pandas as pd

from algnn.errors import InputError

if TYPE_CHECKING:
    from algnn.learner import Learner


def by_class(
    learner: Learner, probabilities: npt.NDArray[Any], labels: npt.NDArray[Any]
) -> pd.DataFrame:
    """The table that `Learner.evaluate` gives, of probabilities [n, C] and true labels [n]."""
    if not len(labels):
        raise InputError("nodes is empty: accuracy needs at least one labelled node")
    answers = learner.classes_[probabilities.argmax(axis=1)]
    nodes = pd.DataFrame({"label": labels, "right": answers == labels, "answer": answers})
    nodes["sure"] = probabilities.max(axis=1)
    groups = nodes.groupby("label")
    wrong = nodes[~nodes.right].groupby("label").answer.agg(lambda found: found.mode().iloc[0])
    sessions = learner._sessions()
    known = [sessions.get(name) for name in groups.groups]
    table = pd.DataFrame(
        {
            "n": groups.size(),
            "accuracy": groups.right.mean(),
            "confidence": groups.sure.mean(),
            "mistaken_for": wrong.astype(object).reindex(list(groups.groups)),
            "session": pd.array(known, dtype="Int64"),
        }
    ).rename_axis("class")
    table = table.sort_values("session", kind="stable")
    table.attrs = {
        "n": len(nodes),
        "accuracy": float(nodes.right.mean()),
        "macro": float(table.accuracy.mean()),
        "confidence": float(nodes.sure.mean()),
    }
    return table
