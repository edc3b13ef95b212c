"""The log of what was done to a learner: what, when, with how many nodes of each class.

It is only ever added to. Each entry holds the SHA-256 of the one before, so an entry that is
changed, taken out or cut off is noticed when the learner is loaded; so is a log whose counts do not
add up to the learner's own. That guards against accidents and careless hands. Whoever can write the
file can also write another log: keep `Journal.end` somewhere else to prove that none did.

It names classes, those that were forgotten too, and no node.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from algnn.analytic.statistics import COUNT_ROUNDING as ROUNDING
from algnn.analytic.statistics import GONE
from algnn.errors import CheckpointError, InputError

Label = int | str

# what can be done, and whether nodes were added by it (1), taken away (-1) or neither (0)
DEEDS = {
    "learn": 1,
    "merge": 1,
    "found": 1,  # nodes of a file that had no log
    "forget": -1,
    "forget node": -1,
    "head": 0,
    "drop record": 0,
}
START = "0" * 64
# digests are made of its text, so no byte of it may ever change
TEXT = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Event:
    """One thing that was done.

    Attributes
    ----------
    what : str
        A key of `DEEDS`.
    time : str
        In UTC, to the second; that of ``SOURCE_DATE_EPOCH`` where this is set, so that the same
        deeds can give the same file.
    nodes : tuple of (label, number)
        How many nodes of each class were added or taken away.
    head : str
    gamma : float
        The head and its γ afterwards.
    kept : float
        What everything older counted for afterwards, per unit before: below 1 where it decays.
    other : str
        The end of the other learner's log, where one was merged.
    before : str
        SHA-256 of the entry before this one.
    """

    what: str
    time: str
    nodes: tuple[tuple[Label, float], ...]
    head: str
    gamma: float
    kept: float
    other: str
    before: str

    @property
    def count(self) -> float:
        """How many nodes it was about."""
        return sum(number for _, number in self.nodes)

    def digest(self) -> str:
        """SHA-256 of the whole entry.

        Returns
        -------
        str
        """
        return hashlib.sha256(TEXT.encode(vars(self)).encode()).hexdigest()


@dataclass(frozen=True)
class Journal:
    """All events, the oldest first.

    Attributes
    ----------
    events : tuple of Event
    end : str
        SHA-256 of the last one.

    Examples
    --------
    >>> journal = Journal().plus("learn", {"fraud": 3, "fine": 9}, "balanced", 0.1)
    >>> journal = journal.plus("forget", {"fraud": 1}, "balanced", 0.1)
    >>> journal.nodes()
    {'fraud': 2, 'fine': 9}
    >>> Journal.from_json(journal.to_json()) == journal
    True
    """

    events: tuple[Event, ...] = ()
    end: str = START

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def plus(
        self,
        what: str,
        nodes: Mapping[Any, float],
        head: str,
        gamma: float,
        *,
        kept: float = 1.0,
        other: str = "",
    ) -> Journal:
        """With one more event, now.

        Parameters
        ----------
        what : str
        nodes : mapping
            A number for each class.
        head : str
        gamma, kept : float
        other : str
            As in `Event`.

        Returns
        -------
        Journal
        """
        event = Event(what, now(), tuple(nodes.items()), head, gamma, kept, other, self.end)
        return Journal((*self.events, event), event.digest())

    def nodes(self) -> dict[Label, float]:
        """What all events together make of each class.

        Returns
        -------
        dict
            A number for each class that has any left.
        """
        total: dict[Label, float] = {}
        for event in self.events:
            if event.kept != 1:
                total = {c: n * event.kept for c, n in total.items() if n * event.kept >= GONE}
            for label, number in event.nodes:
                total[label] = total.get(label, 0) + DEEDS[event.what] * number
        return {label: number for label, number in total.items() if number > 0}

    def adds_up(self, nodes: Mapping[Any, float]) -> bool:
        """Whether these are the numbers that the events lead to.

        Parameters
        ----------
        nodes : mapping
            A number for each class.

        Returns
        -------
        bool
        """
        total = self.nodes()
        return total.keys() == nodes.keys() and all(
            math.isclose(total[label], nodes[label], rel_tol=ROUNDING) for label in nodes
        )

    def to_json(self) -> dict[str, Any]:
        """What JSON can hold of it.

        Returns
        -------
        dict
        """
        return {"events": [dict(vars(event)) for event in self.events], "end": self.end}

    @classmethod
    def from_json(cls, found: Any) -> Journal:
        """The reverse of `to_json`; `CheckpointError` where it is not whole.

        Parameters
        ----------
        found : object

        Returns
        -------
        Journal
        """
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
    """The time in UTC, to the second.

    Returns
    -------
    str
        That of the environment's ``SOURCE_DATE_EPOCH`` where this is set.

    Examples
    --------
    >>> now()
    '20...T...Z'
    """
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    try:
        seconds = time.time() if fixed is None else int(fixed)
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):
        raise InputError(
            f"SOURCE_DATE_EPOCH={fixed} must be a whole number of seconds since 1970, or unset"
        ) from None


def _event(found: Any) -> Event:
    """An entry of which every value is of its type."""
    number = (int, float)
    kinds: dict[str, Any] = {"nodes": (list, tuple), "gamma": number, "kept": number}
    values = {field.name: found[field.name] for field in fields(Event)}
    if found.keys() != values.keys() or values["what"] not in DEEDS:
        raise ValueError("an entry of another kind")
    for name, value in values.items():
        if not isinstance(value, kinds.get(name, str)):
            raise ValueError(f"{name} of another type")
    pairs = tuple((label, count) for label, count in values["nodes"])
    for label, count in pairs:
        if type(label) not in (int, str) or type(count) not in number or not count >= 0:
            raise ValueError("nodes are not counted")
    return Event(**{**values, "nodes": pairs})
