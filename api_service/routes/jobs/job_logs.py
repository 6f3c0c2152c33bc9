"""A job's log."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from api_service.array_log import follow_array_log, read_array_log
from api_service.documents import problems, stream
from api_service.following import LiveStream
from api_service.job_log import follow_log, of_attempt, read_log
from api_service.routes.jobs.jobs import JobId, recheck_of
from api_service.services import Caller, Served
from reservation_core.usecases.jobs.visible_jobs import view_visible

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


class LogQuery(BaseModel):
    """How to read a log."""

    model_config = ConfigDict(extra="forbid")

    follow: Annotated[
        bool, Field(description="Wait for the job to start, and follow its log until the attempt has ended.")
    ] = False
    timestamps: Annotated[
        bool,
        Field(description="Begin each line with when it was printed (RFC 3339, UTC), or `-` where that is not known."),
    ] = False
    attempt: Annotated[
        int | None, Field(ge=1, le=1_000_000, description="The log of this attempt (default: the newest one).")
    ] = None


@router.get(
    "/{job_id}/logs",
    summary="Read a job's log",
    response_class=Response,
    responses=stream(
        "text/plain",
        "The job's output; a gang's lines begin with the rank, an array's with the index: `[0] `.",
        "step 1\n",
    )
    | problems(404, 429),
)
async def read_job_log(
    request: Request, services: Served, caller: Caller, job_id: JobId, query: Annotated[LogQuery, Query()]
) -> Response:
    """Standard output and error of an attempt of the job. If the connection breaks off, the log is incomplete."""
    async with services.runtime.uow() as uow:
        view = await view_visible(uow, caller, job_id)
    job = of_attempt(view.reservation, query.attempt)
    place = services.streams.place(caller.user_id)
    if job.array is not None:
        read = follow_array_log if query.follow else read_array_log
        chunks = read(services, caller, view, timed=query.timestamps)
    elif query.follow and job.attempt == view.reservation.attempt:
        chunks = follow_log(services, job, timed=query.timestamps, attempt=query.attempt or 0)
    else:
        chunks = await read_log(services, job, timed=query.timestamps)
    return LiveStream(
        chunks,
        media_type="text/plain; charset=utf-8",
        place=place,
        wakeups=services.wakeups,
        recheck=recheck_of(request, services, caller, view.reservation),
    )
