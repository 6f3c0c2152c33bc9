"""Slots to offer for a number of GPUs and a length: the earliest that can be booked, and mornings if these are few."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from api_service.web.calendar.timeline_rows import By
from api_service.web.rest_calls import Query, RestProblemError
from api_service.web.visit import Visit
from reservation_core.contracts.base import Page
from reservation_core.contracts.bookings import BookingVerdict, FreeSlotOut
from reservation_core.domain.short_durations import seconds_in

_BEST, _TRIED, _MORNINGS = 5, 8, 14
_MORNING = time(9)
_DAY = timedelta(days=1)
_MOST_GPUS = 64
_REFUSALS = (409, 422)
"""Answers for what can't be booked, and for what no GPU is like."""


@dataclass(frozen=True, slots=True)
class SlotOffers:
    """The answer to "find a slot": at most five, by start. `why`: the reason that there is none, in words."""

    gpus: int
    length: timedelta
    slots: tuple[BookingVerdict, ...] = ()
    why: str | None = None


def rows_of_offer(offer: BookingVerdict, by: By) -> list[str]:
    """The ids of the timeline's rows that an offer is on."""
    if by is By.TYPE:
        return [offer.gpu_type or ""]
    if by is By.NODE:
        return [part.node for part in offer.allocations]
    return [f"{part.node}/{index}" for part in offer.allocations for index in part.gpu_indices]


async def find_offers(visit: Visit, gpus: str, length: str, gpu_type: str | None, node: str | None) -> SlotOffers:
    """Look from now on, for 30 days; each offer was rehearsed, so no rule forbids it."""
    seconds = seconds_in(length)
    number = int(gpus) if gpus.isascii() and gpus.isdecimal() and len(gpus) < 3 else 0
    if not 1 <= number <= _MOST_GPUS or not seconds:
        why = f"Say how many GPUs (1 to {_MOST_GPUS}), and how long you need them: 4h, 90m, 1h30m or 2d."
        return SlotOffers(0, timedelta(0), why=why)
    lasts = timedelta(seconds=seconds)
    asked: Query = {"gpus": number, "gpu_type": gpu_type, "node": node, "duration": seconds, "limit": _TRIED}
    try:
        found = await visit.rest.get(Page[FreeSlotOut], "/v1/bookings/slots", asked)
    except RestProblemError as problem:
        if problem.status not in _REFUSALS:
            raise
        return SlotOffers(number, lasts, why=problem.detail)
    offers: list[BookingVerdict] = []
    why = "They are never free together in the next 30 days. Ask for fewer, or for a shorter time."
    for gpu_type_free, start in starts(found.items, visit.zone, visit.now):
        body = {"gpus": number, "gpu_type": gpu_type_free, "start": start.isoformat(), "duration": seconds}
        body |= {} if node is None else {"node": node}
        try:
            answer = await visit.rest.send("POST", "/v1/bookings", body=body, query={"dry_run": True})
        except RestProblemError as problem:
            if problem.status not in _REFUSALS:
                raise
            why = " ".join(problem.rules) or problem.detail
            continue
        offers.append(BookingVerdict.model_validate_json(answer.body))
        if len(offers) == _BEST:
            break
    return SlotOffers(number, lasts, tuple(offers), None if offers else why)


def starts(free: Iterable[FreeSlotOut], zone: ZoneInfo, now: datetime) -> list[tuple[str, datetime]]:
    """Types and starts to try, by start: the first of each free time, then mornings within these."""
    ranges = list(free)
    found = [(slot.gpu_type, slot.start) for slot in ranges]
    today = now.astimezone(zone).date()
    for number in range(1, _MORNINGS + 1):
        if len(found) >= _BEST:
            break
        morning = datetime.combine(today + number * _DAY, _MORNING, zone)
        fitting = [slot.gpu_type for slot in ranges if slot.start < morning <= slot.latest_start]
        found += [(gpu_type, morning) for gpu_type in fitting[:1]]
    return sorted(found[:_TRIED], key=lambda offer: offer[1])
