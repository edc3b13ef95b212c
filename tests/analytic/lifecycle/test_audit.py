import hashlib
import json

import pytest

from algnn.analytic.lifecycle.audit import ACTIONS, AuditLog, Event, now
from algnn.errors import CheckpointError, InputError


def a_log():
    log = AuditLog().plus("learn", {0: 5, 1: 3}, "balanced", 0.1)
    log = log.plus("head", {}, "ridge", 1.0)
    log = log.plus("forget", {1: 3}, "ridge", 1.0)
    return log.plus("merge", {2: 4}, "ridge", 1.0, other=AuditLog().end)


def written(log):
    return json.loads(json.dumps(log.to_json()))


def test_there_and_back():
    log = a_log()
    assert AuditLog.from_json(written(log)) == log
    assert log.adds_up({0: 5, 2: 4})
    assert not log.adds_up({0: 5, 2: 3})
    assert not log.adds_up({0: 5})
    assert [event.count for event in log.events] == [8, 0, 3, 4]


def test_digests_never_change():
    """Checkpoints hold them, so the text that they are made of is part of the format."""
    event = Event("learn", "2001-09-09T01:46:40Z", (("ä", 2), ("b", 0.5)), "ncm", 1e-3, 1, "", "f")
    text = (
        '{"before":"f","gamma":0.001,"head":"ncm","kept":1,"nodes":[["\\u00e4",2],["b",0.5]],'
        '"other":"","time":"2001-09-09T01:46:40Z","what":"learn"}'
    )
    assert event.digest() == hashlib.sha256(text.encode()).hexdigest()


def test_what_json_got_is_no_way_into_the_log():
    log = a_log()
    log.to_json()["events"][0]["head"] = "slda"
    assert log.events[0].head == "balanced"


def test_old_numbers_fade_with_their_sessions():
    log = AuditLog().plus("learn", {"a": 4}, "ncm", 0.0)
    log = log.plus("learn", {"b": 1}, "ncm", 0.0, kept=0.25)
    assert log.adds_up({"a": 1.0, "b": 1})
    assert log.plus("learn", {"b": 1}, "ncm", 0.0, kept=1e-200).adds_up({"b": 1})
    counts, weights = log.plus("learn", {"b": 1, "c": 2}, "ncm", 0.0, kept=0.5).faded()
    assert (counts.tolist(), weights.tolist()) == ([4, 1, 3], [0.125, 0.5, 1])


def test_a_class_that_has_faded_away_is_new_again():
    log = AuditLog().plus("learn", {"a": 4, "b": 4}, "ncm", 0.0)
    assert log.plus("learn", {"b": 1}, "ncm", 0.0, kept=0.5).sessions() == {"a": 0, "b": 0}
    faded = log.plus("learn", {"b": 1}, "ncm", 0.0, kept=1e-200)
    assert faded.sessions() == {"b": 1}
    assert faded.plus("learn", {"a": 1}, "ncm", 0.0, kept=0.5).sessions() == {"a": 2, "b": 1}


@pytest.mark.parametrize("place", range(4))
def test_a_cut_or_changed_log_is_noticed(place):
    whole = written(a_log())
    shorter = json.loads(json.dumps(whole))
    del shorter["events"][place]
    with pytest.raises(CheckpointError, match="the log was changed"):
        AuditLog.from_json(shorter)
    for name, value in (
        ("time", "1999-01-01T00:00:00Z"),
        ("nodes", [[0, 1]]),
        ("what", "learn" if place else "merge"),
        ("gamma", 0.7),
        ("head", "slda"),
        ("kept", 0.5),
        ("other", "f" * 64),
        ("before", "f" * 64),
    ):
        changed = json.loads(json.dumps(whole))
        changed["events"][place][name] = value
        with pytest.raises(CheckpointError, match="the log was changed"):
            AuditLog.from_json(changed)


@pytest.mark.parametrize(
    "changes",
    [
        {"what": "eat"},
        {"time": 3},
        {"nodes": 3},
        {"nodes": [[0]]},
        {"nodes": [[0.5, 1]]},
        {"nodes": [[0, -1]]},
        {"nodes": [[0, "many"]]},
        {"gamma": "one"},
        {"unheard": 1},
    ],
)
def test_nonsense_is_named(changes):
    found = written(a_log())
    found["events"][1].update(changes)
    with pytest.raises(CheckpointError, match="the log is none"):
        AuditLog.from_json(found)


@pytest.mark.parametrize("event", [None, 3, "learn", [], {}, {"what": "learn"}])
def test_entries_of_another_shape_are_named(event):
    found = written(a_log())
    found["events"][1] = event
    with pytest.raises(CheckpointError, match="the log is none"):
        AuditLog.from_json(found)


@pytest.mark.parametrize("found", [None, 3, [], {}, {"events": 3, "end": ""}, {"events": []}])
def test_another_shape_is_named(found):
    with pytest.raises(CheckpointError, match="the log"):
        AuditLog.from_json(found)


def test_the_clock_can_be_held(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    assert now() == "2001-09-09T01:46:40Z"
    assert a_log() == a_log()
    for wrong in ("soon", "", "9" * 40):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", wrong)
        with pytest.raises(InputError, match="SOURCE_DATE_EPOCH"):
            now()
    assert set(ACTIONS.values()) == {-1, 0, 1}
