"""The prospects of a job if it were submitted now: broken rules, its share of quotas, and its earliest start."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from api_service.web.rest_calls import RestCalls, RestProblemError
from reservation_core.contracts.base import Page
from reservation_core.contracts.bookings import FreeSlotOut
from reservation_core.contracts.policy import Explanation, LimitOut

_MINUTE = timedelta(minutes=1)
_TOLD_BY_SERVER = (400, 403, 404, 409, 422)


@dataclass(frozen=True, slots=True)
class LimitShare:
    """How much of a limit is used now and with the job. `after` is None where the job does not count."""

    words: str
    used: float
    after: float | None
    limit: float

    @property
    def percent(self) -> int:
        """Of the limit, with the job; at most 100."""
        counted = self.used if self.after is None else self.after
        return min(100, round(100 * counted / self.limit)) if self.limit else 100

    @property
    def too_much(self) -> bool:
        """Whether the job would exceed the limit."""
        return self.after is not None and self.after > self.limit


@dataclass(frozen=True, slots=True)
class JobProspects:
    """`problem`: why REST refuses the request; `rules`: the rules it breaks; `start`: the earliest time at which the
    calendar has room, None without one; `known`: whether REST was asked."""

    known: bool = False
    problem: RestProblemError | None = None
    rules: Sequence[str] = ()
    shares: Sequence[LimitShare] = ()
    start: datetime | None = None
    in_booking: bool = False


async def prospects_of(rest: RestCalls, body: Mapping[str, Any], beside: timedelta) -> JobProspects:
    """Ask REST, without submitting.

    A job has its GPUs for `beside` longer than its duration: until its pods run, and until they are gone.
    """
    try:
        explained = await rest.post(Explanation, "/v1/policy/explain", body)
    except RestProblemError as problem:
        if problem.status not in _TOLD_BY_SERVER:
            raise
        return JobProspects(known=True, problem=problem)
    rules = [rule.detail for rule in explained.broken_rules]
    in_booking = body.get("booking_id") is not None
    start = None if in_booking else await _start(rest, body, beside)
    shares = shares_of(explained.limits, body)
    return JobProspects(known=True, rules=rules, shares=shares, start=start, in_booking=in_booking)


def shares_of(limits: Sequence[LimitOut], body: Mapping[str, Any]) -> list[LimitShare]:
    """The limits with a counted use, with what the job would add."""
    gpus = int(body.get("gpus", 1)) * int(body.get("nodes", 1))
    hours = _hours(body.get("duration"))
    found = []
    for limit in limits:
        value, used = limit.value, limit.used
        if isinstance(value, bool) or not isinstance(value, int | float) or used is None:
            continue
        words = limit.rule.removeprefix("max_").replace("_", " ")
        added: float | None = None
        if "hours" in limit.rule:
            added = None if hours is None else gpus * hours
        elif "gpus" in limit.rule:
            added = gpus
        found.append(LimitShare(words, used, None if added is None else used + added, value))
    return found


async def _start(rest: RestCalls, body: Mapping[str, Any], beside: timedelta) -> datetime | None:
    query = {name: body.get(name) for name in ("gpus", "gpu_type", "nodes", "duration")}
    duration = query["duration"]
    if isinstance(duration, int):
        needed = timedelta(seconds=duration) + beside
        query["duration"] = -(-needed // _MINUTE) * 60  # the calendar knows minutes
    try:
        found = await rest.get(Page[FreeSlotOut], "/v1/bookings/slots", {**query, "limit": 1})
    except RestProblemError as problem:
        if problem.status not in _TOLD_BY_SERVER:
            raise
        return None
    return found.items[0].start if found.items else None


def _hours(duration: object) -> float | None:
    return duration / 3600 if isinstance(duration, int) else None
