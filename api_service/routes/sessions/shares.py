"""Sharing jobs."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from api_service.documents import answers, problems
from api_service.presenting import jobs_and_nodes
from api_service.requests.preconditions import etag
from api_service.routes.jobs.jobs import JobId
from api_service.services import Caller, Served
from reservation_core.contracts.base import UserName
from reservation_core.contracts.jobs import Job
from reservation_core.ports.jobs.reservations import JobView
from reservation_core.usecases.repeat_lost_transactions import repeat_lost
from reservation_core.usecases.sessions.share import share, unshare

router = APIRouter(prefix="/v1/jobs/{job_id}/shares", tags=["sessions"])

SharedUser = Annotated[UserName, Path(description="The name of a user.", examples=["bob"])]


@router.put(
    "/{user}",
    response_model=Job,
    summary="Share a job",
    responses=answers(200, "The job, shared.", etag=True) | problems(403, 404, 409),
)
async def share_job(services: Served, caller: Caller, job_id: JobId, user: SharedUser) -> Response:
    """Let a user enter your job and look at it: not cancel, extend or share it. A repetition changes nothing."""

    async def act() -> JobView:
        async with services.runtime.uow() as uow:
            return await share(uow, caller, job_id, user, services.runtime.clock.now())

    return _answer(await repeat_lost(act))


@router.delete(
    "/{user}",
    response_model=Job,
    summary="Unshare a job",
    responses=answers(200, "The job, no longer shared with this user.", etag=True) | problems(403, 404),
)
async def unshare_job(services: Served, caller: Caller, job_id: JobId, user: SharedUser) -> Response:
    """End a share. The user's open connections to the job end within seconds."""

    async def act() -> JobView:
        async with services.runtime.uow() as uow:
            return await unshare(uow, caller, job_id, user, services.runtime.clock.now())

    return _answer(await repeat_lost(act))


def _answer(view: JobView) -> Response:
    shown = jobs_and_nodes.job(view).model_dump_json()
    return Response(shown, media_type="application/json", headers={"ETag": etag(view)})
