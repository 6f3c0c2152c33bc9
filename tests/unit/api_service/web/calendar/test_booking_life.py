"""A booking's life, as its page tells it."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from api_service.web.calendar.booking_life import life_of_booking
from reservation_core.contracts.audit_log import EventOut

NOW = datetime(2030, 4, 1, 12, 0, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
SLOT = {"start": "2030-04-02T08:00:00+00:00", "end": "2030-04-02T10:00:00+00:00"}


def event(kind: str, **more: Any) -> EventOut:
    """An event of a booking of alice's."""
    line = {"id": 1, "at": NOW, "kind": kind, "actor": "alice", "subject": "bkg-1", "before": None}
    line |= {"after": "confirmed", "reason_code": "booked", "reason": "Booked from 2030 …", "data": SLOT}
    return EventOut(**line | more)


def told(*newest_first: EventOut) -> list[str]:
    return [step.words for step in life_of_booking(newest_first, BERLIN, NOW)]


def test_the_oldest_comes_first_with_who_did_it() -> None:
    why = {"reason_code": "cancelled_by_admin", "reason": "Cancelled by root. The fans are loud."}
    cancelled = event("booking_cancelled", actor="root", before="confirmed", after="cancelled", **why)
    first, last = life_of_booking([cancelled, event("booking_confirmed")], BERLIN, NOW)
    assert (first.words, first.who, first.why) == ("booked: Tue 2 Apr 10:00 to 12:00", "alice", None)
    assert (last.words, last.who, last.why) == ("cancelled", "root", "Cancelled by root. The fans are loud.")


def test_a_change_tells_what_was_before_in_the_readers_zone() -> None:
    data = SLOT | {"start_before": "2030-04-02T06:00:00+00:00", "end_before": "2030-04-02T10:00:00+00:00"}
    moved = event("booking_moved", before="confirmed", data=data)
    assert told(moved) == ["changed: Tue 2 Apr 10:00 to 12:00, before Tue 2 Apr 08:00 to 12:00"]
    elsewhere = event("booking_moved", before="confirmed", data=SLOT | {"why": "titan is serviced.", "where": "rhea"})
    assert told(elsewhere) == ["put on other GPUs"]
    [step] = life_of_booking([elsewhere], BERLIN, NOW)
    assert step.why == "titan is serviced."


def test_what_the_server_does_is_nobodys_doing() -> None:
    why = {"reason_code": "in_slot", "reason": "The slot runs until 2030-04-02T10:00:00Z."}
    started = event("booking_started", actor="system", before="confirmed", after="active", **why)
    [step] = life_of_booking([started], BERLIN, NOW)
    assert (step.words, step.who, step.why) == ("its time has begun", None, None)
    why = {"reason_code": "not_used", "reason": "Nothing ran in it."}
    given_up = event("booking_released", actor="system", before="active", after="released", **why)
    [step] = life_of_booking([given_up], BERLIN, NOW)
    assert step.why == "Nothing ran in it."


def test_the_waitlist_is_told_step_by_step() -> None:
    assert told(
        event("booking_confirmed", before="offered"),
        event("booking_offered", before="waiting", actor="system"),
        event("booking_waitlisted"),
    ) == [
        "put on the waitlist for Tue 2 Apr 10:00 to 12:00",
        "offered",
        "the offer is accepted: Tue 2 Apr 10:00 to 12:00",
    ]


def test_what_has_no_words_yet_is_told_by_its_name() -> None:
    assert told(event("something_new")) == ["something new"]
