"""Tickets that open apps of jobs in browsers."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from api_service.apps.hosts import ENTRANCE, AppsHost
from api_service.documents import answers, problems, reads
from api_service.requests import bodies
from api_service.routes.sessions.programs import JobReference
from api_service.services import Caller, Served
from reservation_core.contracts.sessions import AppTicketMake, AppTicketOut
from reservation_core.usecases.sessions.app_tickets import make_ticket

router = APIRouter(prefix="/v1/jobs", tags=["sessions"])


@router.post(
    "/{job_id}/app-tickets",
    response_model=AppTicketOut,
    status_code=201,
    summary="Open an app in a browser",
    responses=answers(201, "The ticket's address.") | problems(400, 404, 409, 413, 415),
    openapi_extra=reads(AppTicketMake),
)
async def make_app_ticket(request: Request, services: Served, caller: Caller, job_id: JobReference) -> Response:
    """Make an address that opens an app of a running job: a server that listens at a port, such as a notebook.

    The address is good once, for a minute. The browser that opens it may use the app from then on, until the job ends,
    or the token with which the ticket was made, or the share.
    """
    body = await bodies.read(request, AppTicketMake, limit=services.settings.max_body_bytes)
    runtime = services.runtime
    async with runtime.uow() as uow:
        app, secret, expires_at = await make_ticket(uow, runtime.ids, caller, job_id, body.port, runtime.clock.now())
    address = AppsHost.of(services.settings).address(request.scope, app)
    made = AppTicketOut(url=f"{address}{ENTRANCE}?ticket={secret}", expires_at=expires_at)
    headers = {"Cache-Control": "no-store"}
    return Response(made.model_dump_json(), 201, media_type="application/json", headers=headers)
