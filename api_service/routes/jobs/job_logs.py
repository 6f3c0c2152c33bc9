"""A job's log."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from api_service.documents import problems, stream
from api_service.following import LiveStream
from api_service.job_log import follow_log, read_log
from api_service.routes.jobs.jobs import JobId, recheck_of
from api_service.services import Caller, Served
from reservation_core.usecases.jobs.visible_jobs import view_visible

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


class LogQuery(BaseModel):
    """How to read a log."""

    model_config = ConfigDict(extra="forbid")

    follow: Annotated[
        bool, Field(description="Wait for the job to start, and follow its log until the job has ended.")
    ] = False
    timestamps: Annotated[
        bool,
        Field(description="Begin each line with when it was printed (RFC 3339, UTC), or `-` where that is not known."),
    ] = False


@router.get(
    "/{job_id}/logs",
    summary="Read a job's log",
    response_class=Response,
    responses=stream("text/plain", "The job's output; a gang's lines begin with the rank: `[0] `.", "step 1\n")
    | problems(404, 429),
)
async def read_job_log(
    request: Request, services: Served, caller: Caller, job_id: JobId, query: Annotated[LogQuery, Query()]
) -> Response:
    """Standard output and error of the job's newest attempt. If the connection breaks off, the log is incomplete."""
    async with services.runtime.uow() as uow:
        view = await view_visible(uow, caller, job_id)
    place = services.streams.place(caller.user_id)
    if query.follow:
        chunks = follow_log(services, view.reservation, timed=query.timestamps)
    else:
        chunks = await read_log(services, view.reservation, timed=query.timestamps)
    return LiveStream(
        chunks,
        media_type="text/plain; charset=utf-8",
        place=place,
        wakeups=services.wakeups,
        recheck=recheck_of(request, services, caller, view.reservation),
    )
