"""A user's bookings for calendar programs: a private address that only reads."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from api_service.access.access_log import name_user
from api_service.documents import answers, problems, reads, stream
from api_service.gate import FEED
from api_service.presenting import calendar_file
from api_service.problems import ProblemError
from api_service.requests.idempotency import Answer, once
from api_service.requests.preconditions import is_known
from api_service.services import Caller, Served, Services
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.bookings import FeedCreated
from reservation_core.usecases.people.calendar_feed import MOST, Feed, make_feed, read_feed, remove_feed

router = APIRouter(tags=["bookings"])

_IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "The ETag of the answer before: 304 while nothing has changed.",
    "schema": {"type": "string", "maxLength": 8192},
}
_EXAMPLE = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nEND:VCALENDAR\r\n"


@router.post(
    "/v1/bookings/feed",
    status_code=201,
    response_model=FeedCreated,
    summary="Make your calendar address",
    responses=answers(201, "The address. It is in this answer and nowhere else.") | problems(400, 409),
    openapi_extra=reads(None),
)
async def create_feed(request: Request, services: Served, caller: Caller) -> Response:
    """A private address of your bookings for calendar programs; the one before stops working.

    The address ends with the token that made it (in the browser: the one that you signed in with), at `expires_at` or
    by its revocation, and when all of your tokens are revoked. A repeated request gets `path: null`.
    """

    async def act(uow: UnitOfWork) -> Answer:
        made = await make_feed(uow, caller, services.runtime.ids)
        shown = FeedCreated(path=f"{FEED}?token={made.secret}", created_at=made.created_at, expires_at=made.expires_at)
        kept = shown.model_copy(update={"path": None})
        return Answer(201, shown.model_dump_json().encode(), kept=kept.model_dump_json().encode())

    return await once(request, caller, b"", services.runtime.uow, act)


@router.delete(
    "/v1/bookings/feed",
    status_code=204,
    summary="Remove your calendar address",
    responses={**answers(204, "It no longer works."), **problems(404)},
)
async def delete_feed(services: Served, caller: Caller) -> Response:
    """The address stops working at once."""
    async with services.runtime.uow() as uow:
        await remove_feed(uow, caller)
    return Response(status_code=204)


@router.get(
    FEED,
    response_class=Response,
    summary="Your bookings as iCalendar",
    responses={
        **problems(429),
        **stream("text/calendar", f"Your bookings, from 90 days ago on; of more than {MOST} the latest.", _EXAMPLE),
        304: {"description": "Unchanged since the ETag in If-None-Match."},
    },
    openapi_extra={"parameters": [_IF_NONE_MATCH]},
)
async def get_feed(
    request: Request,
    services: Served,
    token: Annotated[
        str | None, Query(max_length=512, description="The secret in the address that POST /v1/bookings/feed gave.")
    ] = None,
) -> Response:
    """For calendar programs, which send nothing but this address. It only reads."""
    found = await _read(request, services, token or "")
    name_user(request.scope, found.user, found.made_with)
    tag = calendar_file.tag_of(found.user, found.bookings)
    # The client may keep the file, and must check its tag each time.
    headers = {"Cache-Control": "private, no-cache", "ETag": tag}
    if is_known(request, tag):
        return Response(status_code=304, headers=headers)
    body = calendar_file.calendar_of(found.user, found.bookings, found.now)
    return Response(body, media_type=calendar_file.MEDIA_TYPE, headers=headers)


async def _read(request: Request, services: Services, secret: str) -> Feed:
    """Read the bookings of an address. Raises ProblemError: 401 for a wrong address, 429 for too many of these."""
    async with services.token_pace.checking(request.scope):
        found = None
        if secret.isascii():
            found = await services.reads(lambda uow: read_feed(uow, secret, services.runtime.ids))
        if found is None:
            detail = "This calendar address is wrong or no longer works. Make a new one with `gpu-dev book feed`."
            raise ProblemError(401, "unauthenticated", detail, headers={"WWW-Authenticate": 'Bearer realm="gpu-dev"'})
        return found
