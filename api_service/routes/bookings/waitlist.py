"""Accept or decline an offer of the waitlist."""

from fastapi import APIRouter, Request
from starlette.background import BackgroundTask
from starlette.responses import Response

from api_service.access.sight import Sight
from api_service.documents import answers, problems, reads
from api_service.presenting import bookings
from api_service.requests.idempotency import Answer, once
from api_service.requests.preconditions import expected_version, version_tag
from api_service.routes.bookings.bookings import BookingId
from api_service.services import Caller, Served
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.bookings import BookingOut
from reservation_core.usecases.bookings.waitlist import accept, decline

router = APIRouter(prefix="/v1/bookings", tags=["bookings"])


@router.post(
    "/{booking_id}/accept",
    response_model=BookingOut,
    summary="Accept an offer",
    responses=answers(200, "The booking, which now has the GPUs that were kept for it.", etag=True)
    | problems(400, 404, 409, 412),
    openapi_extra=reads(None, if_match=True),
)
async def accept_offer(request: Request, services: Served, caller: Caller, booking_id: BookingId) -> Response:
    """Take the GPUs offered to a booking on the waitlist. They are kept for it until its `offer_until`."""
    expected = expected_version(request)

    async def act(uow: UnitOfWork) -> Answer:
        found = await accept(uow, caller, booking_id, expected, services.runtime.ids)
        body = bookings.booking(found, Sight(caller)).model_dump_json().encode()
        return Answer(200, body, etag=version_tag(found.version))

    return await once(request, caller, b"", services.runtime.uow, act)


@router.post(
    "/{booking_id}/decline",
    response_model=BookingOut,
    summary="Decline an offer",
    responses=answers(200, "The cancelled booking; the GPUs go to the next one on the waitlist.", etag=True)
    | problems(400, 404, 409, 412),
    openapi_extra=reads(None, if_match=True),
)
async def decline_offer(request: Request, services: Served, caller: Caller, booking_id: BookingId) -> Response:
    """Decline the offered GPUs, which ends the request. Book another time if you like."""
    expected = expected_version(request)

    async def act(uow: UnitOfWork) -> Answer:
        found = await decline(uow, caller, booking_id, expected, services.runtime.ids)
        body = bookings.booking(found, Sight(caller)).model_dump_json().encode()
        return Answer(200, body, etag=version_tag(found.version))

    response = await once(request, caller, b"", services.runtime.uow, act)
    response.background = BackgroundTask(services.serve_waitlist)
    return response
