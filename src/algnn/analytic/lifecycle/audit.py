"""The audit log of a learner: what was done to it, when, with how many nodes of each class.

Events are only ever added. Each holds the SHA-256 of the one before, so an event that is changed,
removed or cut off is noticed when the learner is loaded; so is a log whose counts do not add up to
the learner's own. Whoever can write the file can also write another log: keep `AuditLog.end`
elsewhere to prove that nobody did. The log names classes, forgotten ones too, and no node.
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from algnn.analytic.classes import GONE
from algnn.errors import CheckpointError, InputError

Label = int | str
Counts = Mapping[Any, float]  # a number for each class

# what can be done, and whether it adds nodes (1), removes nodes (-1) or does neither (0)
ACTIONS = {
    "learn": 1,
    "merge": 1,
    "found": 1,  # nodes of a file that had no log
    "forget": -1,
    "forget node": -1,
    "head": 0,
    "drop record": 0,
}
START = "0" * 64


@dataclass(frozen=True)
class Event:
    """One entry of the audit log."""

    what: str  # a key of `ACTIONS`
    time: str  # as `now` gives it
    nodes: tuple[tuple[Label, float], ...]  # added or removed, of each class
    head: str  # the head and its γ afterwards
    gamma: float
    kept: float  # the factor by which the weight of everything older changed: below 1, it decays
    other: str  # the end of the other learner's log, where one was merged
    before: str  # the end of this log before the event

    @property
    def count(self) -> float:
        """How many nodes it was about."""
        return sum(number for _, number in self.nodes)

    def digest(self) -> str:
        """SHA-256 of the whole event, as a text of which no byte may ever change."""
        text = json.dumps(vars(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class AuditLog:
    """All events, the oldest first, and the SHA-256 of the last one, `end`."""

    events: tuple[Event, ...] = ()
    end: str = START

    def plus(
        self, what: str, nodes: Counts, head: str, gamma: float, kept: float = 1.0, other: str = ""
    ) -> Self:
        """With one more event, now; `nodes` has a number for each class."""
        event = Event(what, now(), tuple(nodes.items()), head, gamma, kept, other, self.end)
        return replace(self, events=(*self.events, event), end=event.digest())

    def sessions(self) -> dict[Label, int]:
        """For each class the event that brought it, of those that added nodes, from 0."""
        return self._replayed()[1]

    def adds_up(self, nodes: Counts) -> bool:
        """Whether all events together leave these nodes of each class."""
        left, _ = self._replayed()
        # not to the last bit: counts that fade are rounded
        return left.keys() == nodes.keys() and all(math.isclose(left[c], nodes[c]) for c in nodes)

    def faded(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """How many nodes events have added (or removed), and what each of them still counts for."""
        counts = np.array([ACTIONS[event.what] * event.count for event in self.events], float)
        kept = np.array([event.kept for event in self.events], float)
        # each event fades all nodes before it
        return counts, np.append(kept[:0:-1].cumprod()[::-1], 1.0)

    def _replayed(self) -> tuple[dict[Label, float], dict[Label, int]]:
        """The nodes that are left of each class, and the event that brought it."""
        held: dict[Label, float] = {}
        brought: dict[Label, int] = {}
        number = -1
        for event in self.events:
            number += ACTIONS[event.what] > 0
            if event.kept != 1:
                held = {c: n * event.kept for c, n in held.items() if n * event.kept >= GONE}
            for label, nodes in event.nodes:
                if label not in held:
                    brought[label] = number
                held[label] = held.get(label, 0) + ACTIONS[event.what] * nodes
                if not held[label]:
                    del held[label]
        return held, {label: brought[label] for label in held}

    def to_json(self) -> dict[str, Any]:
        """The log as JSON values."""
        return {"events": [dict(vars(event)) for event in self.events], "end": self.end}

    @classmethod
    def of(cls, facts: dict[str, Any], nodes: Counts) -> Self:
        """The log of a checkpoint; of one from before there were logs, that it was found."""
        if "log" in facts:
            return cls.from_json(facts["log"])
        return cls().plus("found", nodes, facts["head"], float(facts["gamma"]))

    @classmethod
    def from_json(cls, found: Any) -> Self:
        """The inverse of `to_json`; `CheckpointError` where the log is damaged or was changed."""
        try:
            events = tuple(_event(one) for one in found["events"])
            end = found["end"]
        except (LookupError, TypeError, ValueError) as error:
            raise CheckpointError("the log is none that this version writes") from error
        last = START
        for place, event in enumerate(events):
            if event.before != last:
                raise CheckpointError(f"the log was changed: entry {place} does not follow")
            last = event.digest()
        if end != last:
            raise CheckpointError("the log was changed or cut at its end")
        return cls(events, last)


def now() -> str:
    """The time in UTC, to the second; that of ``SOURCE_DATE_EPOCH``, for files to be reproduced."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH", time.time())
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(seconds)))
    except (ValueError, OverflowError, OSError):
        raise InputError(
            f"SOURCE_DATE_EPOCH={seconds} must be a whole number of seconds since 1970, or unset"
        ) from None


def _event(found: Any) -> Event:
    """An event of which every value is of its type."""
    event = Event(**{**found, "nodes": tuple((label, count) for label, count in found["nodes"])})
    kinds = {"nodes": tuple, "gamma": int | float, "kept": int | float}  # all others are texts
    sound = all(isinstance(value, kinds.get(name, str)) for name, value in vars(event).items())
    sound = sound and event.what in ACTIONS
    for label, count in event.nodes:
        sound = sound and type(label) in (int, str) and type(count) in (int, float) and count >= 0
    if not sound:
        raise ValueError("an entry of another kind")
    return event
