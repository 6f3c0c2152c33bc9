"""Bookings: make, list, change and cancel them."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.background import BackgroundTask
from starlette.responses import Response

from api_service.access.sight import Sight, may_see_owner, sight_of
from api_service.access.token_reach import require_scopes
from api_service.documents import answers, changes, problems, reads
from api_service.presenting import bookings
from api_service.requests import bodies
from api_service.requests.idempotency import Answer, key_of, once
from api_service.requests.pagination import PageQuery, decode, encode
from api_service.requests.preconditions import expected_version, version_tag
from api_service.requests.workloads import refuse_image
from api_service.services import Caller, Served, Services
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.base import Instant, Page, UserName
from reservation_core.contracts.bookings import (
    BookingChange,
    BookingCreate,
    BookingOut,
    BookingSeries,
    BookingVerdict,
    SeriesVerdict,
)
from reservation_core.domain.bookings.nouns import Booking
from reservation_core.domain.calendar import to_micros, to_moment
from reservation_core.domain.errors import NotBookableError
from reservation_core.domain.policy.limits import Policy
from reservation_core.domain.statuses import BookingStatus, TokenScope
from reservation_core.ports.bookings.bookings import BookingFilter
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.bookings.book import book
from reservation_core.usecases.bookings.book_series import SeriesOutcome, book_series
from reservation_core.usecases.bookings.cancel import Reach, cancel_booking
from reservation_core.usecases.bookings.change import change_booking
from reservation_core.usecases.bookings.visible_bookings import view_owned_booking
from reservation_core.usecases.people.users import require_user
from reservation_core.usecases.rehearse import rehearse
from reservation_core.usecases.repeat_lost_transactions import repeat_lost

_LIST = "bookings"
_JSON = "application/json"


router = APIRouter(prefix="/v1/bookings", tags=["bookings"])

BookingId = Annotated[
    str, Path(pattern="^bkg-[0-9a-z]{1,32}$", description="A booking's id.", examples=["bkg-7f3k9q2m"])
]
DryRun = Annotated[
    bool, Query(description="Only return the verdict that the request would get; nothing is changed or stored.")
]


class BookingsQuery(PageQuery):
    """Which bookings to list."""

    from_: Annotated[
        Instant | None, Field(alias="from", description="Only what ends after this time; by default, now.")
    ] = None
    to: Annotated[Instant | None, Field(description="Only what begins before this time.")] = None
    status: Annotated[
        list[BookingStatus] | None,
        Field(max_length=16, description="Only these statuses; may be given several times."),
    ] = None
    user: Annotated[UserName | None, Field(description="Only this user's bookings.")] = None
    mine: Annotated[bool, Field(description="Only your own.")] = False


@router.post(
    "",
    status_code=201,
    response_model=BookingOut | BookingSeries,
    summary="Book a slot",
    responses=answers(201, "Booked: these GPUs are yours for that time. A series answers with its dates.", etag=True)
    | {
        200: {"model": BookingVerdict | SeriesVerdict, "description": "With `dry_run`: the booking as it would be."},
        202: {"model": BookingOut, "description": "On the waitlist (`wait`): nothing is free."},
    }
    | problems(400, 409, 413, 415),
    openapi_extra=reads(BookingCreate),
)
async def create_booking(request: Request, services: Served, caller: Caller, dry_run: DryRun = False) -> Response:
    """Book GPUs for a slot, or get a 409 with every broken rule and the nearest free slots."""
    body = await bodies.read(request, BookingCreate, limit=services.settings.max_body_bytes)
    if body.workload is not None:  # a job is submitted for it later
        require_scopes(caller, frozenset({TokenScope.SUBMIT}))
    ids = services.runtime.ids

    async def make(uow: UnitOfWork) -> Booking | SeriesOutcome:
        if body.workload is not None and body.workload.image is not None:
            refuse_image(services.settings.cluster)
        if body.series is not None:
            return await book_series(uow, caller, body, body.series, ids)
        return await book(uow, caller, body, ids)

    async def act(uow: UnitOfWork) -> Answer:
        made = await make(uow)
        if isinstance(made, SeriesOutcome):
            return Answer(201, bookings.series(made, caller).model_dump_json().encode())
        return _answer(made, caller, 202 if made.status is BookingStatus.WAITING else 201)

    if dry_run:
        key_of(request)  # one that can't be read is refused here, too; none is remembered
        return await _verdict(make, services)
    return await once(request, caller, body.model_dump_json().encode(), services.runtime.uow, act)


@router.get("", response_model=Page[BookingOut], summary="List bookings", responses=problems(400, 404))
async def list_bookings(services: Served, caller: Caller, query: Annotated[BookingsQuery, Query()]) -> Response:
    """The calendar by start: your own bookings, and other users' bookings that hold GPUs, without their private fields
    and, where you may not see it, without their owner."""
    after = _place(query.cursor)

    async def read(uow: UnitOfWork) -> tuple[list[Booking], Sight]:
        sight = await sight_of(uow, caller, services.settings.holders)
        if query.user is not None and not sight.may_ask_for(query.user):
            return [], sight
        which = BookingFilter(
            user_id=caller.user_id if query.mine or not caller.is_admin else None,
            only_own=query.mine,
            user=query.user,
            statuses=None if query.status is None else frozenset(query.status),
            from_=query.from_ or await uow.now(),
            to=query.to,
        )
        found = await uow.bookings.views(which, limit=query.limit + 1, after=after)
        if not found and caller.is_admin:  # other users do not learn which names exist
            await require_user(uow, caller, query.user)
        return found, sight

    found, sight = await services.reads(read)
    shown = found[: query.limit]
    last = shown[-1] if len(found) > query.limit else None
    page = Page[BookingOut](
        items=[bookings.booking(booking, sight) for booking in shown],
        next_cursor=None if last is None else encode(_LIST, (to_micros(last.span.start), last.id)),
    )
    return Response(page.model_dump_json(), media_type=_JSON)


@router.get(
    "/{booking_id}",
    response_model=BookingOut,
    summary="Look at a booking",
    responses=answers(200, "The booking as it is now.", etag=True) | problems(404),
)
async def get_booking(services: Served, caller: Caller, booking_id: BookingId) -> Response:
    """One of your bookings, with its cards and jobs."""
    async with services.runtime.uow() as uow:
        found = await view_owned_booking(uow, caller, booking_id)
    return _answer(found, caller, 200).response()


@router.patch(
    "/{booking_id}",
    response_model=BookingOut | BookingVerdict,
    summary="Change a booking",
    responses=answers(200, "The booking after the change; with `dry_run`, as it would be.", etag=True)
    | problems(400, 404, 409, 412, 413, 415),
    openapi_extra=changes(BookingChange),
)
async def patch_booking(
    request: Request, services: Served, caller: Caller, booking_id: BookingId, dry_run: DryRun = False
) -> Response:
    """Extend, shorten, move or rename a booking. If the new slot is not available, the booking stays as it is."""
    expected = expected_version(request)
    body = await bodies.read(request, BookingChange, limit=services.settings.max_body_bytes)

    async def change(uow: UnitOfWork) -> Booking:
        return await change_booking(uow, caller, booking_id, body, expected)

    async def act() -> Booking:
        async with services.runtime.uow() as uow:
            return await change(uow)

    try:
        if dry_run:
            return await _verdict(change, services)
        changed = await repeat_lost(act)
    except NotBookableError as error:
        if error.nameless is None:
            raise
        if await may_see_owner(services.runtime.uow, caller, services.settings.holders, error.owner_id):
            raise
        raise error.nameless from error
    response = _answer(changed, caller, 200).response()
    response.background = BackgroundTask(services.serve_waitlist)
    return response


@router.delete(
    "/{booking_id}",
    response_model=BookingOut | BookingSeries,
    summary="Cancel a booking",
    responses=answers(200, "The cancelled booking; with `series`, all cancelled bookings.", etag=True)
    | problems(400, 404, 409, 412),
    openapi_extra=changes(None),
)
async def delete_booking(
    request: Request,
    services: Served,
    caller: Caller,
    booking_id: BookingId,
    series: Annotated[
        Reach, Query(description="Of a series: this date, this and all later ones, or all that are not over.")
    ] = "this",
) -> Response:
    """Release the rest of the booking at once. Its waiting jobs end now, its running jobs after their grace period."""
    expected = expected_version(request)

    async def act() -> list[Booking]:
        async with services.runtime.uow() as uow:
            return await cancel_booking(uow, caller, booking_id, series, expected)

    cancelled = await repeat_lost(act)
    asked = next(booking for booking in cancelled if booking.id == booking_id)
    freed = BackgroundTask(services.serve_waitlist)
    if series == "this" or asked.series_id is None:
        response = _answer(asked, caller, 200).response()
        response.background = freed
        return response
    shown = BookingSeries(
        series_id=asked.series_id,
        items=[bookings.booking(booking, Sight(caller)) for booking in cancelled],
        skipped=[],
    )
    return Response(shown.model_dump_json(), media_type=_JSON, background=freed)


def _answer(found: Booking, caller: Principal, status: int) -> Answer:
    return Answer(
        status,
        bookings.booking(found, Sight(caller)).model_dump_json().encode(),
        etag=version_tag(found.version),
        location=f"/v1/bookings/{found.id}" if status != 200 else None,
    )


async def _verdict(make: Callable[[UnitOfWork], Awaitable[Booking | SeriesOutcome]], services: Services) -> Response:
    """Rehearse a booking or a change, and say what it would be."""

    async def act(uow: UnitOfWork) -> tuple[Booking | SeriesOutcome, Policy]:
        return await make(uow), (await uow.policies.current()).policy

    found, policy = await repeat_lost(lambda: rehearse(services.runtime.uow, act))
    now = services.runtime.clock.now()
    if isinstance(found, SeriesOutcome):
        shown: BookingVerdict | SeriesVerdict = bookings.series_verdict(found, now, policy)
    else:
        shown = bookings.verdict(found, now, policy)
    return Response(shown.model_dump_json(), media_type=_JSON)


def _place(cursor: str | None) -> tuple[datetime, str] | None:
    key = decode(_LIST, cursor, (int, str))
    if key is None:
        return None
    micros = min(max(int(key[0]), 0), to_micros(_LAST))
    return to_moment(micros), str(key[1])


_LAST = datetime.fromisoformat("9999-12-31T00:00:00+00:00")
