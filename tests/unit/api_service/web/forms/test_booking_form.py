"""Forms of bookings, read: what was typed becomes a body that REST takes, or a sentence on what is wrong."""

from urllib.parse import parse_qs, urlencode

import pytest

from api_service.web.forms.booking_form import TypedBooking, typed_booking, typed_change
from api_service.web.forms.form import Form
from reservation_core.contracts.bookings import BookingChange, BookingCreate

WELL = {"gpus": "2", "type": "h100", "start": "2030-01-31T09:00", "length": "1h30m"}


def form(**fields: str) -> Form:
    return Form(parse_qs(urlencode(fields), keep_blank_values=True))


def typed(**fields: str) -> TypedBooking:
    return typed_booking(form(**{**WELL, **fields}), "Europe/Berlin")


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({}, {"duration": 5400}),
        ({"length": "", "end": "2030-01-31T12:00"}, {"end": "2030-01-31T12:00"}),
        ({"length": "2h", "end": "2030-01-31T12:00"}, {"end": "2030-01-31T12:00"}),
        ({"node": "titan", "title": "x", "project": "p", "nodes": "1"}, {"node": "titan", "duration": 5400}),
        ({"wait": "yes", "auto_accept": "yes"}, {"wait": True, "auto_accept": True}),
        ({"zone": "Asia/Tokyo"}, {"time_zone": "Asia/Tokyo"}),
        (
            {"repeats": "weekdays", "count": "5", "skip": "yes"},
            {"recurrence": {"rrule": "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;COUNT=5", "on_conflict": "skip"}},
        ),
        (
            {"repeats": "daily", "until": "2030-02-10"},
            {"recurrence": {"rrule": "FREQ=DAILY;UNTIL=20300210", "on_conflict": "fail"}},
        ),
        ({"repeats": "weekly", "count": "3"}, {"recurrence": {"rrule": "FREQ=WEEKLY;COUNT=3", "on_conflict": "fail"}}),
        (
            {"repeats": "rule", "rule": "FREQ=MONTHLY;COUNT=2"},
            {"recurrence": {"rrule": "FREQ=MONTHLY;COUNT=2", "on_conflict": "fail"}},
        ),
        (
            {"slot": "2030-02-01T08:00:00Z/2030-02-01T09:00:00Z"},
            {"start": "2030-02-01T08:00:00Z", "end": "2030-02-01T09:00:00Z"},
        ),
    ],
)
def test_what_is_typed_well_is_a_body_that_is_taken(fields: dict[str, str], body: dict[str, object]) -> None:
    found = typed(**fields)
    assert found.wrong == ()
    assert found.body.items() >= body.items()
    BookingCreate.model_validate(found.body)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"gpus": ""}, "how many GPUs"),
        ({"gpus": "two"}, "whole number"),
        ({"start": ""}, "when it begins"),
        ({"end": "2030-01-31T12:00"}, "either when it ends or how long"),
        ({"length": ""}, "either when it ends or how long"),
        ({"length": "long"}, "how long it lasts like 4h"),
        ({"repeats": "daily"}, "needs an end"),
        ({"repeats": "daily", "count": "3", "until": "2030-02-02"}, "needs an end"),
        ({"repeats": "daily", "count": "many"}, "whole number from 1"),
        ({"repeats": "daily", "count": "0"}, "whole number from 1"),
        ({"repeats": "daily", "until": "later"}, "last day like 2030-01-31"),
        ({"repeats": "rule"}, "Write the rule"),
        ({"repeats": "hourly"}, "from the list"),
    ],
)
def test_what_is_wrong_is_said_in_words(fields: dict[str, str], words: str) -> None:
    found = typed(**fields)
    assert len(found.wrong) == 1
    assert words in found.wrong[0]


def test_all_that_is_wrong_is_said_at_once() -> None:
    assert len(typed(gpus="", start="", repeats="daily").wrong) == 3


WAS = {"was_start": "2030-01-31T02:30", "was_end": "2030-01-31T05:00", "was_node": "", "was_title": "x"}
SAME = {"start": "2030-01-31T02:30", "end": "2030-01-31T05:00", "node": "", "title": "x"}


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({"end": "2030-01-31T06:00"}, {"end": "2030-01-31T06:00", "time_zone": "Europe/Berlin"}),
        ({"title": ""}, {"title": None}),
        ({"node": "titan"}, {"node": "titan"}),
        ({"start": "2030-01-31T03:00", "zone": "UTC"}, {"start": "2030-01-31T03:00", "time_zone": "UTC"}),
        (
            {"slot": "2030-02-01T08:00:00Z/2030-02-01T09:00:00Z"},
            {"start": "2030-02-01T08:00:00Z", "end": "2030-02-01T09:00:00Z", "time_zone": "Europe/Berlin"},
        ),
    ],
)
def test_only_what_differs_is_changed(fields: dict[str, str], body: dict[str, object]) -> None:
    """An hour that comes twice can't be typed: what was not touched must not move."""
    found = typed_change(form(**{**WAS, **SAME, **fields}), "Europe/Berlin")
    assert (found.body, found.wrong) == (body, ())
    BookingChange.model_validate(found.body)


def test_a_change_of_nothing_is_none() -> None:
    assert "Nothing has changed" in typed_change(form(**WAS, **SAME), "UTC").wrong[0]
