"""The list of the visitor's bookings, and one booking with its forms."""

import asyncio
from datetime import datetime, timedelta
from itertools import zip_longest

from pydantic import TypeAdapter
from starlette.responses import Response

from api_service.web.calendar.booking_life import life_of_booking
from api_service.web.calendar.booking_losses import what_bookings_lose, what_goes_back
from api_service.web.calendar.turn_notices import why_not_at_turn
from api_service.web.confirmation import ask
from api_service.web.finding.address_words import chosen_word, no_such_choice
from api_service.web.finding.list_order import Column, read_choice
from api_service.web.forms.booking_form import TypedBooking, typed_change
from api_service.web.listing import read_list
from api_service.web.rest_calls import Query, RestProblemError
from api_service.web.routing import WebRoute
from api_service.web.sessions.return_address import safe_return
from api_service.web.visit import Visit
from reservation_core.contracts.audit_log import EventOut
from reservation_core.contracts.base import Page
from reservation_core.contracts.bookings import BookingOut, BookingSeries, BookingVerdict
from reservation_core.contracts.jobs import Job
from reservation_core.domain.bookings.nouns import FINAL_BOOKINGS
from reservation_core.domain.jobs.workload_words import workload_words
from reservation_core.domain.statuses import FINAL_STATUSES, BookingStatus, JobStatus

_PAST = timedelta(days=90)
_REFUSALS = (400, 403, 409, 412, 413, 422)
_MOST_DATES = 400
_STEPS = 200
_MOST_JOBS = 2000
_SHOWN_JOBS = 20
_ASKED_AT_ONCE = 5
_FOLLOWED = 5
_CANCELLED: TypeAdapter[BookingOut | BookingSeries] = TypeAdapter(BookingOut | BookingSeries)


_COLUMNS: tuple[Column[BookingOut], ...] = (
    Column("title", "Title", lambda booking: (booking.title or booking.id).casefold()),
    Column("from", "From, soonest first", lambda booking: booking.start),
    Column("to", "To, soonest first", lambda booking: booking.end),
    Column("gpus", "Most GPUs", lambda booking: booking.gpus * booking.nodes, largest_first=True),
)


async def list_page(visit: Visit) -> Response:
    """Show bookings ahead; with `?when=past` also those of the last three months."""
    choice = read_choice("/bookings", visit.request.query_params.multi_items(), ("when", "status"), _COLUMNS)
    past = choice.chosen("when") == "past"
    status = chosen_word(BookingStatus, choice.chosen("status"), "status", "The list")
    if choice.chosen("when") not in ("", "ahead", "past"):
        raise no_such_choice("The list", "when", ("ahead", "past"))
    ahead = [status for status in BookingStatus if past or status not in FINAL_BOOKINGS]
    asked: Query = {
        "mine": True,
        "from": (visit.now - _PAST if past else visit.now).isoformat(),
        "status": status or (None if past else ahead),
    }
    return visit.page(
        "bookings.html",
        title="Your bookings",
        live="calendar",
        listing=await read_list(visit, Page[BookingOut], "/v1/bookings", asked, choice, _COLUMNS, _words_of),
        past=past,
        chosen_status=status or "",
        statuses=ahead,
    )


def _words_of(booking: BookingOut) -> tuple[str | None, ...]:
    nodes = (part.node for part in booking.allocations)
    return booking.title, booking.id, booking.project, booking.gpu_type, booking.node, *nodes


async def booking_page(visit: Visit) -> Response:
    return await _page(visit)


async def check(visit: Visit) -> Response:
    """Show the verdict on a change, for browsers without scripts."""
    typed = typed_change(visit.form, visit.zone.key)
    if typed.wrong:
        return await _page(visit, typed=typed)
    try:
        verdict = await visit.rest.call(
            BookingVerdict, "PATCH", _address(visit), query={"dry_run": True}, body=typed.body
        )
    except RestProblemError as problem:
        return await _refused(visit, problem)
    return await _page(visit, typed=typed, verdict=verdict.body)


async def change(visit: Visit) -> Response:
    """Change the booking, unless what the form showed of it changed since. A refusal is shown beside the input."""
    typed = typed_change(visit.form, visit.zone.key)
    if typed.wrong:
        return await _page(visit, 422, typed=typed)
    try:
        changed = await _changed(visit, typed)
    except RestProblemError as problem:
        return await _refused(visit, problem)
    return visit.go(_next(visit), f"{changed.title or changed.id} is changed.")


async def _changed(visit: Visit, typed: TypedBooking) -> BookingOut:
    """The changed booking. What the form did not show, such as an offer that came, does not stop the change."""
    try:
        answer = await visit.rest.call(
            BookingOut, "PATCH", _address(visit), body=typed.body, match=visit.form.get("etag")
        )
    except RestProblemError as problem:
        if problem.status != 412:
            raise
        now_is = await visit.rest.call(BookingOut, "GET", _address(visit))
        if _meanwhile(visit, _fields(visit, now_is.body)):
            raise
        answer = await visit.rest.call(
            BookingOut, "PATCH", _address(visit), body=typed.body, match=now_is.headers["etag"]
        )
    return answer.body


def _meanwhile(visit: Visit, now_is: dict[str, str]) -> list[str]:
    """The fields that have changed since the form was shown."""
    return [name for name, value in now_is.items() if (visit.form.get(f"was_{name}") or "") != value]


async def confirm_cancel(visit: Visit) -> Response:
    """Explain what cancelling the booking, or dates of its series, would lose."""
    answer = await visit.rest.call(BookingOut, "GET", _address(visit))
    booking, reach = answer.body, visit.query("reach") or "this"
    if reach not in _CANCELS:
        raise RestProblemError.because(404, "There is no such part of a series.")
    dates = [booking]
    if reach != "this" and booking.series_id is not None:
        series = [date for date in await _dates(visit, booking) if date.status not in FINAL_BOOKINGS]
        dates = [date for date in series if reach == "all" or date.start >= booking.start]
    if all(date.status in FINAL_BOOKINGS for date in dates):
        raise RestProblemError.because(409, "The booking is over already.")
    title, words = _CANCELS[reach]
    name = booking.title or booking.id
    return ask(
        visit,
        title.format(name),
        what_bookings_lose(dates, await _unfinished_jobs(visit, dates), visit.principal.user),
        words=words,
        back=_next(visit),
        fields={"etag": answer.headers["etag"], "reach": reach},
    )


async def _unfinished_jobs(visit: Visit, dates: list[BookingOut]) -> list[Job]:
    """The jobs that end with these bookings."""
    ids = {job for date in dates for job in date.jobs}
    if not ids:
        return []
    query: Query = {"user": dates[0].user, "status": [status for status in JobStatus if status not in FINAL_STATUSES]}
    return [job for job in await visit.rest.all(Page[Job], "/v1/jobs", query, at_most=_MOST_JOBS) if job.id in ids]


_CANCELS = {
    "this": ("Cancel {}?", "Cancel the booking"),
    "following": ("Cancel this date of {} and those after it?", "Cancel these dates"),
    "all": ("Cancel the whole series {}?", "Cancel the series"),
}


async def cancel(visit: Visit) -> Response:
    """Cancel the booking; of a series also later dates, or all."""
    reach = visit.form.get("reach") or "this"
    try:
        answer = await visit.rest.send("DELETE", _address(visit), query={"series": reach}, match=visit.form.get("etag"))
    except RestProblemError as problem:
        return await _refused(visit, problem)
    cancelled = _CANCELLED.validate_json(answer.body)
    count = len(cancelled.items) if isinstance(cancelled, BookingSeries) else 1
    return visit.go(_next(visit), "The booking is cancelled." if count == 1 else f"{count} bookings are cancelled.")


async def accept(visit: Visit) -> Response:
    """Accept an offer of the waitlist."""
    return await _answer_offer(visit, "accept", "The GPUs are booked for you.")


async def confirm_decline(visit: Visit) -> Response:
    """Explain what declining an offer would lose."""
    answer = await visit.rest.call(BookingOut, "GET", _address(visit))
    booking = answer.body
    if booking.status is not BookingStatus.OFFERED:
        raise RestProblemError.because(409, "These GPUs are no longer offered to you.")
    return ask(
        visit,
        f"Decline {booking.title or booking.id}?",
        (what_goes_back([booking], visit.principal.user), "They are offered to the next on the waitlist."),
        words="Decline it",
        back=_next(visit),
        fields={"etag": answer.headers["etag"]},
    )


async def decline(visit: Visit) -> Response:
    """Decline an offer of the waitlist."""
    return await _answer_offer(visit, "decline", "You declined the offer. The GPUs go to the next on the waitlist.")


async def _answer_offer(visit: Visit, answer: str, words: str) -> Response:
    try:
        await visit.rest.send("POST", f"{_address(visit)}/{answer}", match=visit.form.get("etag"))
    except RestProblemError as problem:
        return await _refused(visit, problem)
    return visit.go(f"/bookings/{visit.path('booking_id')}", words)


def _address(visit: Visit) -> str:
    return f"/v1/bookings/{visit.path('booking_id')}"


def _next(visit: Visit) -> str:
    wanted = visit.form.get("next")
    return f"/bookings/{visit.path('booking_id')}" if wanted is None else safe_return(wanted)


async def _refused(visit: Visit, problem: RestProblemError) -> Response:
    """The page of the booking as it is now, with the reason. Raises problems that the form can't show."""
    if problem.status not in _REFUSALS:
        raise problem
    return await _page(visit, problem.status, problem=problem, typed=typed_change(visit.form, visit.zone.key))


async def _page(
    visit: Visit,
    status: int = 200,
    *,
    typed: TypedBooking | None = None,
    problem: RestProblemError | None = None,
    verdict: BookingVerdict | None = None,
) -> Response:
    answer = await visit.rest.call(BookingOut, "GET", _address(visit))
    booking = answer.body
    events = await visit.rest.get(Page[EventOut], "/v1/events", {"subject": booking.id, "limit": _STEPS})
    now_is = _fields(visit, booking)
    jobs = await _jobs(visit, booking)
    mine = booking.user == visit.principal.user
    waits = mine and booking.status is BookingStatus.WAITING
    stale = problem is not None and problem.status == 412
    return visit.page(
        "booking.html",
        title=booking.title or booking.id,
        status=status,
        live=" ".join([f"booking:{booking.id}", *_followed(jobs)]),
        booking=booking,
        etag=answer.headers["etag"],
        now_is=now_is,
        fields=now_is | ({} if typed is None else _typed_fields(visit, now_is)),
        wrong=() if typed is None else typed.wrong,
        problem=problem,
        stale=stale,
        meanwhile=[name for name in _meanwhile(visit, now_is) if visit.form.has(f"was_{name}")] if stale else (),
        verdict=verdict,
        dates=await _dates(visit, booking),
        jobs=jobs,
        steps=life_of_booking(events.items, visit.zone, visit.now),
        older_steps=events.next_cursor is not None,
        over=booking.status in FINAL_BOOKINGS,
        begun=booking.status is BookingStatus.ACTIVE,
        usable=booking.status in (BookingStatus.CONFIRMED, BookingStatus.ACTIVE),
        mine=mine,
        waits=waits,
        runs=workload_words(booking.workload),
        not_notified=await why_not_at_turn(visit, booking) if waits else None,
    )


def _typed_fields(visit: Visit, now_is: dict[str, str]) -> dict[str, str]:
    """What the user typed. A field that was left as it was shown is not kept: it would undo a change of others."""
    shown = visit.form.shown()
    return {name: shown[name] for name in now_is if name in shown and shown[name] != shown.get(f"was_{name}", "")}


async def _jobs(visit: Visit, booking: BookingOut) -> list[tuple[str, Job | None]]:
    """The ids of the jobs in it, newest first; the newest, which people look for, with all that they are."""
    ids = booking.jobs[::-1]
    bound = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def looked_at(job_id: str) -> Job | None:
        async with bound:
            return await _job(visit, job_id)

    try:
        async with asyncio.TaskGroup() as group:
            shown = [group.create_task(looked_at(job_id)) for job_id in ids[:_SHOWN_JOBS]]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed
    return list(zip_longest(ids, [task.result() for task in shown]))


def _followed(jobs: list[tuple[str, Job | None]]) -> list[str]:
    """The live topics of the newest jobs that go on."""
    open_jobs = [job for _, job in jobs if job is not None and job.status not in FINAL_STATUSES]
    return [f"job:{job.id}" for job in open_jobs[:_FOLLOWED]]


async def _job(visit: Visit, job_id: str) -> Job | None:
    """A job that the visitor may see."""
    try:
        return await visit.rest.get(Job, f"/v1/jobs/{visit.encoded(job_id)}")
    except RestProblemError as problem:
        if problem.status != 404:
            raise
        return None


def _fields(visit: Visit, booking: BookingOut) -> dict[str, str]:
    """The form's first values."""

    def wall(when: datetime) -> str:
        return f"{when.astimezone(visit.zone):%Y-%m-%dT%H:%M}"

    return {
        "start": wall(booking.start),
        "end": wall(booking.end),
        "node": booking.node or "",
        "title": booking.title or "",
    }


async def _dates(visit: Visit, booking: BookingOut) -> list[BookingOut]:
    """The dates of the booking's series; empty without a series."""
    if booking.series_id is None:
        return []
    query: Query = {"user": booking.user, "from": (visit.now - _PAST).isoformat()}
    found = await visit.rest.all(Page[BookingOut], "/v1/bookings", query, at_most=10 * _MOST_DATES)
    return [occurrence for occurrence in found if occurrence.series_id == booking.series_id][:_MOST_DATES]


ROUTES = (
    WebRoute("GET", "/bookings", list_page),
    WebRoute("GET", "/bookings/{booking_id}", booking_page),
    WebRoute("POST", "/bookings/{booking_id}", change),
    WebRoute("POST", "/bookings/{booking_id}/check", check),
    WebRoute("GET", "/bookings/{booking_id}/cancel", confirm_cancel),
    WebRoute("POST", "/bookings/{booking_id}/cancel", cancel),
    WebRoute("POST", "/bookings/{booking_id}/accept", accept),
    WebRoute("GET", "/bookings/{booking_id}/decline", confirm_decline),
    WebRoute("POST", "/bookings/{booking_id}/decline", decline),
)
