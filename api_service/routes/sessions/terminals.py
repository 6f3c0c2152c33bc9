"""Terminals that jobs keep."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from api_service.documents import answers, problems
from api_service.routes.sessions.programs import JobReference, Rank
from api_service.services import Caller, Served
from api_service.sessions.handshakes import refusal
from reservation_core.contracts.base import Page
from reservation_core.contracts.sessions import JobTerminal
from reservation_core.ports.sessions.pod_streams import NoTerminalError
from reservation_core.usecases.sessions.enter import find_pod_to_enter

router = APIRouter(prefix="/v1/jobs", tags=["sessions"])


@router.get(
    "/{job_id}/terminals",
    response_model=Page[JobTerminal],
    summary="List a job's terminals",
    responses=answers(200, "The terminals that are open or were left, newest first.") | problems(404, 409),
)
async def list_terminals(
    services: Served, caller: Caller, job_id: JobReference, rank: Annotated[Rank, Query()] = 0
) -> Response:
    """Terminals that the job keeps, for those who may enter it: `exec` joins one by its name.

    Kubernetes keeps none.
    """
    async with services.runtime.uow() as uow:
        pod = await find_pod_to_enter(uow, job_id, rank, caller.user_id)
    try:
        kept = await services.runtime.pod_streams.terminals(pod)
    except NoTerminalError as error:
        raise refusal(error) from error
    items = [
        JobTerminal(name=terminal.name, user=terminal.person, opened_at=terminal.opened_at, program=terminal.program)
        for terminal in kept
    ]
    return Response(Page[JobTerminal](items=items, next_cursor=None).model_dump_json(), media_type="application/json")
