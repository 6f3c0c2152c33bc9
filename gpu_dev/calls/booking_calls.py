"""Bookings over REST: book, read, change, cancel; free slots and availability; the waitlist; the calendar's address."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Literal
from urllib.parse import quote

import msgspec

from gpu_dev.calls.calls import Calls, given
from gpu_dev.server.exchange import read_answer
from gpu_dev.wire.base import Page
from gpu_dev.wire.bookings import (
    Availability,
    BookingChange,
    BookingCreate,
    BookingOut,
    BookingSeries,
    BookingVerdict,
    FeedCreated,
    FreeSlotOut,
    SeriesVerdict,
)
from reservation_core.domain.statuses import BookingStatus
from reservation_core.domain.time_words import rfc3339

_PATH = "/v1/bookings"
_DRY = {"dry_run": "true"}
Reach = Literal["this", "following", "all"]


class BookingCalls(Calls):
    """Bookings, free slots and availability."""

    def book(self, request: BookingCreate) -> BookingOut | BookingSeries:
        """Book a slot, or all slots of a series; a request that may wait goes on the waitlist if nothing is free."""
        if request.recurrence:
            return self._post(BookingSeries, _PATH, request)
        return self._post(BookingOut, _PATH, request)

    def would_book(self, request: BookingCreate) -> BookingVerdict | SeriesVerdict:
        """The answer that `book` would get now; nothing is booked."""
        answer = self._exchange.send("POST", _PATH, body=request, params=_DRY).content
        if request.recurrence:
            return read_answer(SeriesVerdict, answer)
        return read_answer(BookingVerdict, answer)

    def get(self, booking_id: str) -> BookingOut:
        """One of your bookings."""
        return self._get(BookingOut, _path(booking_id))

    def get_with_etag(self, booking_id: str) -> tuple[BookingOut, str | None]:
        """A booking and its ETag, to give as `if_match` when a change must not overwrite another one."""
        response = self._exchange.send("GET", _path(booking_id))
        return read_answer(BookingOut, response.content), response.headers.get("etag")

    def calendar(
        self,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        statuses: Iterable[BookingStatus] = (),
        user: str | None = None,
        mine: bool = False,
    ) -> Iterator[BookingOut]:
        """The bookings that end after `start` (by default now) and begin before `end`, by start."""
        params = given(from_=_time(start), to=_time(end), user=user)
        params["status"] = sorted(status.value for status in statuses)
        params["mine"] = str(mine).lower()
        return self._items(Page[BookingOut], _PATH, params)

    def change(self, booking_id: str, change: BookingChange, *, if_match: str | None = None) -> BookingOut:
        """Extend, shorten, move or rename a booking."""
        return self._change("PATCH", BookingOut, _path(booking_id), change, if_match=if_match)

    def would_change(self, booking_id: str, change: BookingChange, *, if_match: str | None = None) -> BookingVerdict:
        """The answer that `change` would get now; nothing is changed."""
        return self._change("PATCH", BookingVerdict, _path(booking_id), change, if_match=if_match, **_DRY)

    def cancel(self, booking_id: str, *, series: Reach = "this") -> list[BookingOut]:
        """Cancel a booking or its series, and release the rest of the time."""
        response = self._exchange.send("DELETE", _path(booking_id), params={"series": series})
        if "items" in msgspec.json.decode(response.content):
            return read_answer(BookingSeries, response.content).items
        return [read_answer(BookingOut, response.content)]

    def accept(self, booking_id: str) -> BookingOut:
        """Accept an offer of the waitlist."""
        return self._post(BookingOut, f"{_path(booking_id)}/accept")

    def decline(self, booking_id: str) -> BookingOut:
        """Decline an offer of the waitlist."""
        return self._post(BookingOut, f"{_path(booking_id)}/decline")

    def slots(
        self,
        gpus: int,
        duration: timedelta,
        *,
        gpu_type: str | None = None,
        nodes: int = 1,
        node: str | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int = 20,
    ) -> list[FreeSlotOut]:
        """The first `limit` ranges of starts at which the request fits."""
        params = given(gpu_type=gpu_type, node=node, from_=_time(start), to=_time(end))
        params |= {"gpus": gpus, "nodes": nodes, "duration": int(duration.total_seconds()), "limit": limit}
        return read_answer(Page[FreeSlotOut], self._exchange.send("GET", f"{_PATH}/slots", params=params).content).items

    def availability(
        self, *, start: datetime | None = None, end: datetime | None = None, step: timedelta | None = None
    ) -> Availability:
        """Free GPUs by type over time."""
        seconds = None if step is None else int(step.total_seconds())
        return self._get(Availability, "/v1/availability", given(from_=_time(start), to=_time(end), step=seconds))

    def make_feed(self) -> FeedCreated:
        """Make a private address of your calendar; the one before stops working."""
        return self._post(FeedCreated, f"{_PATH}/feed")

    def drop_feed(self) -> None:
        self._exchange.send("DELETE", f"{_PATH}/feed")


def _path(booking_id: str) -> str:
    return f"{_PATH}/{quote(booking_id, safe='')}"


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else rfc3339(moment)
