"""The calendar: who has which GPUs when, the form to book, and verdicts on bookings and changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from starlette.responses import Response

from api_service.web.calendar.slot_offers import find_offers, rows_of_offer
from api_service.web.calendar.timeline_data import Shown, read_calendar
from api_service.web.calendar.timeline_query import TimelineQuery, read_query
from api_service.web.calendar.timeline_rows import By
from api_service.web.calendar.timeline_table import columns, table
from api_service.web.calendar.timeline_window import TimelineScale
from api_service.web.confirmation import ask
from api_service.web.forms.booking_form import USUAL_LENGTH, Repeats, TypedBooking, typed_booking, typed_change
from api_service.web.rendering import json_data
from api_service.web.rest_calls import RestProblemError
from api_service.web.routing import WebRoute
from api_service.web.sessions.return_address import safe_return
from api_service.web.visit import Visit
from reservation_core.contracts.base import Page
from reservation_core.contracts.bookings import BookingOut, BookingSeries, BookingVerdict, FeedCreated, SeriesVerdict
from reservation_core.contracts.policy import ProjectOut
from reservation_core.domain.statuses import BookingStatus

_REFUSALS = (400, 403, 404, 409, 412, 413, 422)
_TYPED = ("gpus", "type", "nodes", "node", "start", "end", "length", "title", "project")
_HOUR = timedelta(hours=1)
_MORNING = time(9)


@dataclass(frozen=True, slots=True)
class BookingPreview:
    """The verdict on a form: a booking, a series, or a problem; none of them if the input can't be sent.

    `elsewhere`: with a problem, the booking on another node at that time, if that can be had.
    """

    typed: TypedBooking
    booking: BookingVerdict | None = None
    series: SeriesVerdict | None = None
    problem: RestProblemError | None = None
    elsewhere: BookingVerdict | None = None


async def calendar_page(visit: Visit) -> Response:
    """Show the calendar. Its address can fill in the form (`?gpus=2&type=h100&start=2030-01-31T09:00`)."""
    fields = {name: value for name in _TYPED if (value := visit.query(name))}
    if "end" in fields:
        fields.setdefault("length", "")
    return await _page(visit, _read_query(visit), fields)


async def calendar_events(visit: Visit) -> Response:
    """The timeline's data as JSON, requested again after a change."""
    shown = await read_calendar(visit, _read_query(visit))
    return json_data(visit.request, shown.as_json())


async def book(visit: Visit) -> Response:
    """Book the typed times, or the clicked slot. A refusal is shown with the form."""
    typed = typed_booking(visit.form, visit.zone.key)
    if typed.wrong:
        return await _again(visit, BookingPreview(typed), 422)
    try:
        answer = await visit.rest.send("POST", "/v1/bookings", body=typed.body)
    except RestProblemError as problem:
        if problem.status not in _REFUSALS:
            raise
        return await _again(visit, BookingPreview(typed, problem=problem), problem.status)
    if typed.is_series:
        made = BookingSeries.model_validate_json(answer.body)
        count = len(made.skipped)
        left_out = "1 was not free and is" if count == 1 else f"{count} were not free and are"
        skipped = f" {left_out} left out." if count else ""
        dates = "1 date is" if len(made.items) == 1 else f"{len(made.items)} dates are"
        return visit.go(f"/bookings/{made.items[0].id}", f"{dates} booked.{skipped}", warns=bool(count))
    booking = BookingOut.model_validate_json(answer.body)
    waits = booking.status is BookingStatus.WAITING
    words = "You are on the waitlist." if waits else "Booked: these GPUs are yours for that time."
    return visit.go(f"/bookings/{booking.id}", words)


async def check(visit: Visit) -> Response:
    """Show the verdict on the input, for browsers without scripts."""
    return await _again(visit, await _verdict(visit), 200)


async def verdict(visit: Visit) -> Response:
    """The verdict on the input, requested while the user types or drags."""
    return visit.part("_booking_verdict.html", verdict=await _verdict(visit), fields=visit.form.shown())


async def change_verdict(visit: Visit) -> Response:
    """The verdict on a dragged booking, with a button to confirm it."""
    typed = typed_change(visit.form, visit.zone.key)
    address = f"/v1/bookings/{visit.encoded(visit.form.get('booking') or '')}"
    before = await visit.rest.call(BookingOut, "GET", address)
    preview = BookingPreview(typed)
    try:
        if not typed.wrong:
            changed = await visit.rest.call(BookingVerdict, "PATCH", address, query={"dry_run": True}, body=typed.body)
            preview = BookingPreview(typed, booking=changed.body)
    except RestProblemError as problem:
        if problem.status not in _REFUSALS:
            raise
        pinned = typed.body.get("node", before.body.node) is not None
        other = await _elsewhere(visit, "PATCH", address, {**typed.body, "node": None}) if pinned else None
        preview = BookingPreview(typed, problem=problem, elsewhere=other)
    return visit.part("_change_verdict.html", verdict=preview, booking=before.body, etag=before.headers["etag"])


async def make_feed(visit: Visit) -> Response:
    """Create a private address for calendar programs, shown once."""
    made = await visit.rest.post(FeedCreated, "/v1/bookings/feed")
    base = visit.services.settings.web.public_url or str(visit.request.base_url)
    feed = None if made.path is None else base.rstrip("/") + made.path
    return visit.page("calendar_feed.html", title="Your calendar address", feed=feed, ends=made.expires_at)


async def confirm_remove_feed(visit: Visit) -> Response:
    """Explain what deleting the private address would end."""
    sentences = (
        "Calendar programs that follow it stop showing your bookings.",
        "If you make another address later, give it to each program again.",
    )
    return ask(visit, "End your iCal address?", sentences, words="End it", back="/calendar")


async def remove_feed(visit: Visit) -> Response:
    """Delete the private address."""
    try:
        await visit.rest.send("DELETE", "/v1/bookings/feed")
    except RestProblemError as problem:
        if problem.status != 404:
            raise
        return visit.go("/calendar", "You have no calendar address.", warns=True)
    return visit.go("/calendar", "Your calendar address does not work any more.")


async def to_calendar(visit: Visit) -> Response:
    """Redirect a reload of a form's answer."""
    return visit.go(safe_return(visit.query("next") or "/calendar"))


def _read_query(visit: Visit) -> TimelineQuery:
    return read_query(visit.query, visit.now.astimezone(visit.zone).date())


async def _verdict(visit: Visit) -> BookingPreview:
    typed = typed_booking(visit.form, visit.zone.key)
    if typed.wrong:
        return BookingPreview(typed)
    try:
        answer = await visit.rest.send("POST", "/v1/bookings", body=typed.body, query={"dry_run": True})
    except RestProblemError as problem:
        if problem.status not in _REFUSALS:
            raise
        other = None
        if "node" in typed.body and not typed.is_series:
            anywhere = {name: value for name, value in typed.body.items() if name != "node"}
            other = await _elsewhere(visit, "POST", "/v1/bookings", anywhere)
        return BookingPreview(typed, problem=problem, elsewhere=other)
    if typed.is_series:
        return BookingPreview(typed, series=SeriesVerdict.model_validate_json(answer.body))
    return BookingPreview(typed, booking=BookingVerdict.model_validate_json(answer.body))


async def _elsewhere(visit: Visit, method: str, address: str, body: object) -> BookingVerdict | None:
    """The verdict on the same booking on any node; None where it is refused, too, or would wait."""
    try:
        answer = await visit.rest.call(BookingVerdict, method, address, query={"dry_run": True}, body=body)
    except RestProblemError as problem:
        if problem.status not in _REFUSALS:
            raise
        return None
    return answer.body if len(answer.body.allocations) == 1 else None


async def _again(visit: Visit, found: BookingPreview, status: int) -> Response:
    """The page around the typed time."""
    fields = visit.form.shown()
    try:
        day = date.fromisoformat(fields.get("start", "")[:10])
    except ValueError:
        day = visit.now.astimezone(visit.zone).date()
    asked = TimelineQuery(TimelineScale.WEEK, None, day, None, None, 1, as_table=False)
    return await _page(visit, asked, fields, found, status)


async def _page(
    visit: Visit,
    asked: TimelineQuery,
    fields: Mapping[str, str],
    found: BookingPreview | None = None,
    status: int = 200,
) -> Response:
    shown = await read_calendar(visit, asked)
    headings = columns(shown.window, shown.now)
    offers = None
    if visit.query("find"):
        gpus, length = fields.get("gpus", ""), fields.get("length", "")
        offers = await find_offers(visit, gpus, length, asked.gpu_type, asked.node)
    return visit.page(
        "calendar.html",
        title=f"Calendar, {_title(shown)}",
        status=status,
        live="calendar now",
        shown=shown,
        asked=asked,
        heading=_title(shown),
        columns=headings,
        table=table(shown.rows.page.rows, headings, shown.found, shown.merged, shown.rows.extremes),
        today=visit.now.astimezone(visit.zone).date(),
        views=list(TimelineScale),
        bys=list(By),
        repeats=list(Repeats),
        fields={**_first_fields(visit, asked), **fields},
        verdict=found,
        offers=offers,
        rows_of_offer=rows_of_offer,
        projects=[project.name for project in await visit.rest.all(Page[ProjectOut], "/v1/projects")],
    )


def _first_fields(visit: Visit, asked: TimelineQuery) -> dict[str, str]:
    hour = (visit.now + _HOUR).astimezone(visit.zone).replace(minute=0)
    if asked.day > hour.date():
        hour = datetime.combine(asked.day, _MORNING, visit.zone)
    return {
        "gpus": "1",
        "type": asked.gpu_type or "",
        "nodes": "1",
        "node": asked.node or "",
        "start": f"{hour:%Y-%m-%dT%H:%M}",
        "end": "",
        "length": USUAL_LENGTH,
        "title": "",
        "project": "",
        "repeats": Repeats.NEVER,
        "rule": "",
        "count": "",
        "until": "",
        "zone": visit.zone.key,
    }


def _title(shown: Shown) -> str:
    window = shown.window
    first, last = window.first, window.last - timedelta(days=1)
    if window.view is TimelineScale.DAY:
        return f"{first:%A} {first.day} {first:%B %Y}"
    begin = f"{first.day}" if first.month == last.month else f"{first.day} {first:%b}"
    if first.year != last.year:
        begin = f"{begin} {first.year}"
    return f"{begin} – {last.day} {last:%b %Y}"


ROUTES = (
    WebRoute("GET", "/calendar", calendar_page),
    WebRoute("GET", "/calendar/events", calendar_events),
    WebRoute("GET", "/calendar/bookings", to_calendar),
    WebRoute("POST", "/calendar/bookings", book),
    WebRoute("GET", "/calendar/check", to_calendar),
    WebRoute("POST", "/calendar/check", check),
    WebRoute("POST", "/calendar/verdict", verdict),
    WebRoute("POST", "/calendar/change-verdict", change_verdict),
    WebRoute("GET", "/calendar/feed", to_calendar),
    WebRoute("POST", "/calendar/feed", make_feed),
    WebRoute("GET", "/calendar/feed/remove", confirm_remove_feed),
    WebRoute("POST", "/calendar/feed/remove", remove_feed),
)
