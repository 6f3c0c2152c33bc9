"""The forms of bookings: their input as a request body, or what is wrong with it in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any, assert_never

from api_service.problems import ProblemError
from api_service.web.forms.form import Form
from reservation_core.domain.short_durations import seconds_in

USUAL_LENGTH = "2h"
"""The length that the form of a new booking begins with."""


class Repeats(StrEnum):
    NEVER = "never"
    DAILY = "daily"
    WEEKDAYS = "weekdays"
    WEEKLY = "weekly"
    RULE = "rule"


@dataclass(frozen=True, slots=True)
class TypedBooking:
    """The input of a form. `wrong`: what the user must correct; then `body` must not be sent."""

    body: dict[str, Any]
    wrong: tuple[str, ...]

    @property
    def is_series(self) -> bool:
        return "recurrence" in self.body


class _NotReadableError(Exception):
    """A field that can't be read; the text is for the user."""


def typed_booking(form: Form, zone: str) -> TypedBooking:
    """The body for POST /v1/bookings. A clicked `slot` (`start/end`) has precedence over typed times.

    So has a clicked `elsewhere`, the name of a node, over the typed node.
    """
    body: dict[str, Any] = {"time_zone": form.get("zone") or zone}
    wrong: list[str] = []
    for name, words in (("gpus", "The number of GPUs"), ("nodes", "The number of nodes")):
        try:
            number = form.number(name, words)
        except ProblemError as error:
            wrong.append(error.detail)
            continue
        if number is not None:
            body[name] = number
        elif name == "gpus":
            wrong.append("Say how many GPUs you need.")
    for name, field in (("gpu_type", "type"), ("node", "node"), ("title", "title"), ("project", "project")):
        if (value := form.get(field)) is not None:
            body[name] = value
    if (elsewhere := form.get("elsewhere")) is not None:
        body["node"] = elsewhere
    for read in (_times, _recurrence):
        try:
            body |= read(form)
        except _NotReadableError as error:
            wrong.append(str(error))
    body |= {name: True for name in ("wait", "auto_accept") if form.has(name)}
    return TypedBooking(body, tuple(wrong))


def typed_change(form: Form, zone: str) -> TypedBooking:
    """The body for PATCH /v1/bookings/ID: what differs from the form's first values (`was_…`)."""
    body: dict[str, Any] = {}
    slot = form.get("slot")
    if slot is not None:
        start, _, end = slot.partition("/")
        body = {"start": start, "end": end}
    else:
        for name in ("start", "end"):
            value = form.get(name)
            # Typed local times are ambiguous in the hour that comes twice, so an unchanged time is not sent.
            if value is not None and value != form.get(f"was_{name}"):
                body[name] = value
    if body:
        body["time_zone"] = form.get("zone") or zone
    node = form.get("elsewhere") or form.get("node")
    if node != form.get("was_node"):
        body["node"] = node
    title = form.get("title")
    if title != form.get("was_title"):
        body["title"] = title
    wrong = () if body else ("Nothing has changed. Change a time, the node or the title.",)
    return TypedBooking(body, wrong)


def _times(form: Form) -> Mapping[str, Any]:
    slot = form.get("slot")
    if slot is not None:
        start, _, end = slot.partition("/")
        return {"start": start, "end": end}
    start_typed, end_typed, length = form.get("start"), form.get("end"), form.get("length")
    if start_typed is None:
        raise _NotReadableError("Say when it begins.")
    if end_typed is not None and length == USUAL_LENGTH:
        length = None  # the form had it, and the user typed an end
    if (end_typed is None) == (length is None):
        raise _NotReadableError("Say either when it ends or how long it lasts.")
    if end_typed is not None:
        return {"start": start_typed, "end": end_typed}
    seconds = seconds_in(length or "")
    if seconds is None:
        raise _NotReadableError("Write how long it lasts like 4h, 90m, 1h30m or 2d.")
    return {"start": start_typed, "duration": seconds}


def _recurrence(form: Form) -> Mapping[str, Any]:
    try:
        repeats = Repeats(form.get("repeats") or Repeats.NEVER)
    except ValueError:
        raise _NotReadableError("Choose how often it repeats from the list.") from None
    match repeats:
        case Repeats.NEVER:
            return {}
        case Repeats.RULE:
            rule = form.get("rule")
            if rule is None:
                raise _NotReadableError("Write the rule, such as FREQ=WEEKLY;BYDAY=MO,WE;COUNT=8.")
        case Repeats.DAILY:
            rule = f"FREQ=DAILY;{_limit(form)}"
        case Repeats.WEEKDAYS:
            rule = f"FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;{_limit(form)}"
        case Repeats.WEEKLY:
            rule = f"FREQ=WEEKLY;{_limit(form)}"
        case _:
            assert_never(repeats)
    return {"recurrence": {"rrule": rule, "on_conflict": "skip" if form.has("skip") else "fail"}}


def _limit(form: Form) -> str:
    """The end of a series, as an RRULE says it."""
    count, until = form.get("count"), form.get("until")
    if (count is None) == (until is None):
        raise _NotReadableError("A series needs an end: say either how many times or until which day.")
    if count is not None:
        if not (count.isascii() and count.isdecimal() and len(count) <= 3 and int(count) > 0):
            raise _NotReadableError("Write how many times it repeats as a whole number from 1 to 366.")
        return f"COUNT={int(count)}"
    try:
        return f"UNTIL={date.fromisoformat(until or ''):%Y%m%d}"
    except ValueError:
        raise _NotReadableError("Write its last day like 2030-01-31.") from None
