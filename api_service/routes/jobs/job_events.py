"""A job's life as server-sent events."""

import asyncio
import re
from collections.abc import AsyncGenerator

import structlog
from fastapi import APIRouter, Request
from starlette.responses import Response

from api_service.access.sight import Sight, sight_of
from api_service.documents import problems, stream
from api_service.following import RECHECK_S, LiveStream
from api_service.presenting import jobs_and_nodes
from api_service.problems import ProblemError
from api_service.routes.jobs.jobs import JobId, recheck_of
from api_service.services import Caller, Served, Services
from reservation_core.domain.statuses import FINAL_STATUSES
from reservation_core.ports.history.events import EventRecord
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.usecases.jobs.visible_jobs import view_visible, visible_user

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

_PAGE = 500
_FINAL = frozenset(status.value for status in FINAL_STATUSES)
_EVENT_ID = re.compile(r"[0-9]{1,18}")
_EXAMPLE = "id: 12\nevent: started\ndata: {…}\n\n"
_LAST_EVENT_ID = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "Continue after this event.",
    "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"},
}
_log = structlog.get_logger(__name__)


@router.get(
    "/{job_id}/events",
    summary="Follow a job",
    response_class=Response,
    responses=stream("text/event-stream", "Events (`data` is a JobEvent) until the job has ended.", _EXAMPLE)
    | problems(400, 404, 429),
    openapi_extra={"parameters": [_LAST_EVENT_ID]},
)
async def follow_job(request: Request, services: Served, caller: Caller, job_id: JobId) -> Response:
    """Every event of the job so far, then new events as they happen; a comment every 15 s keeps the stream alive.

    The stream ends after the job's final event. It also ends when the server stops: continue with `Last-Event-ID`.
    """
    after = _last_event_id(request)
    async with services.runtime.uow() as uow:
        view = await view_visible(uow, caller, job_id)
        sight = await sight_of(uow, caller, services.settings.holders)
    place = services.streams.place(caller.user_id)
    return LiveStream(
        _events(services, sight, job_id, after, ended=view.reservation.status in FINAL_STATUSES),
        media_type="text/event-stream",
        place=place,
        wakeups=services.wakeups,
        recheck=recheck_of(request, services, caller, view.reservation),
    )


async def _events(services: Services, sight: Sight, job_id: str, after: int, *, ended: bool) -> AsyncGenerator[bytes]:
    loop = asyncio.get_running_loop()
    sent_at = loop.time()
    while True:
        ticket = services.wakeups.ticket()
        records = await _read(services, job_id, after)
        for record in records:
            yield _encode(record, sight)
            sent_at = loop.time()
            after = record.id
            if record.after in _FINAL and record.before != record.after:
                return
        if len(records) == _PAGE:
            continue
        if ended and not records:
            return
        await services.wakeups.wait(ticket)
        if loop.time() - sent_at >= RECHECK_S:
            yield b": still here\n\n"
            sent_at = loop.time()
            # A client may resume after an event that does not exist: without this it would wait for ever.
            ended = ended or await _has_ended(services, sight.caller, job_id)


async def _read(services: Services, job_id: str, after: int) -> list[EventRecord]:
    try:
        async with services.stream_reads, services.runtime.uow() as uow:
            return await uow.events.of_reservation(job_id, after, _PAGE)
    except DatabaseUnavailableError as error:
        # The stream continues at the same place once the database is back.
        _log.warning("events_not_read", error=str(error))
        return []


async def _has_ended(services: Services, caller: Principal, job_id: str) -> bool:
    try:
        async with services.stream_reads, services.runtime.uow() as uow:
            view = await uow.reservations.view(job_id, visible_user(caller))
    except DatabaseUnavailableError as error:
        _log.warning("events_not_read", error=str(error))
        return False
    return view is None or view.reservation.status in FINAL_STATUSES


def _encode(record: EventRecord, sight: Sight) -> bytes:
    # JSON has no bare line ends, so one `data:` line holds it.
    data = jobs_and_nodes.event(record, sight).model_dump_json()
    return f"id: {record.id}\nevent: {record.kind}\ndata: {data}\n\n".encode()


def _last_event_id(request: Request) -> int:
    given = request.headers.get("last-event-id")
    if not given:
        return 0
    if not _EVENT_ID.fullmatch(given):
        raise ProblemError(
            400,
            "bad_last_event_id",
            "Last-Event-ID must be an `id` that this stream sent. Leave it out to begin again.",
        )
    return int(given)
