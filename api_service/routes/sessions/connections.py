"""Open connections to a job."""

from fastapi import APIRouter
from starlette.responses import Response

from api_service.documents import answers, problems
from api_service.routes.jobs.jobs import JobId
from api_service.services import Caller, Served
from reservation_core.contracts.base import Page
from reservation_core.contracts.sessions import JobConnection
from reservation_core.usecases.jobs.visible_jobs import view_visible

router = APIRouter(prefix="/v1/jobs", tags=["sessions"])

_MOST = 1000


@router.get(
    "/{job_id}/connections",
    response_model=Page[JobConnection],
    summary="List who is connected to a job",
    responses=answers(200, "The open connections, oldest first; at most 1,000.") | problems(404),
)
async def list_connections(services: Served, caller: Caller, job_id: JobId) -> Response:
    """Terminals, programs and ports that are open in a job: who, how, from where, since when."""
    now = services.runtime.clock.now()
    async with services.runtime.uow() as uow:
        await view_visible(uow, caller, job_id)
        connections = await uow.connections.of_job(job_id, _MOST, now)
    items = [
        JobConnection(
            user=connection.user,
            way=connection.way,
            address=connection.address,
            opened_at=connection.opened_at,
            last_byte_at=connection.last_byte_at,
        )
        for connection in connections
    ]
    return Response(Page[JobConnection](items=items, next_cursor=None).model_dump_json(), media_type="application/json")
