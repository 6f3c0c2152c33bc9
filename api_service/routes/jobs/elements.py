"""The elements of an array."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from api_service.documents import problems
from api_service.presenting import jobs_and_nodes
from api_service.requests.pagination import PageQuery, decode, encode
from api_service.routes.jobs.jobs import JobId
from api_service.services import Caller, Served
from reservation_core.contracts.base import Page
from reservation_core.contracts.jobs import Job
from reservation_core.domain.statuses import JobStatus
from reservation_core.usecases.jobs.arrays import elements

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

_LIST = "elements"


class ElementsQuery(PageQuery):
    """Which elements to list."""

    status: Annotated[
        list[JobStatus] | None, Field(max_length=16, description="Only these statuses; may be given several times.")
    ] = None


@router.get(
    "/{job_id}/elements",
    response_model=Page[Job],
    summary="List an array's elements",
    responses=problems(400, 404),
)
async def list_elements(
    services: Served, caller: Caller, job_id: JobId, query: Annotated[ElementsQuery, Query()]
) -> Response:
    """The elements of an array in the order of their indexes, also those that have not entered the queue."""
    key = decode(_LIST, query.cursor, (int,))
    after = -1 if key is None else int(key[0])
    statuses = None if query.status is None else frozenset(query.status)
    async with services.runtime.uow() as uow:
        views = await elements(uow, caller, job_id, statuses, after=after, limit=query.limit + 1)
    shown = views[: query.limit]
    last = [view.reservation.element.index for view in shown[-1:] if view.reservation.element is not None]
    page = Page[Job](
        items=[jobs_and_nodes.job(view) for view in shown],
        next_cursor=encode(_LIST, (last[0],)) if len(views) > query.limit else None,
    )
    return Response(page.model_dump_json(), media_type="application/json")
