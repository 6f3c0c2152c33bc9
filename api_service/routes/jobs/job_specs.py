"""A job's request, so that it can be submitted again."""

from fastapi import APIRouter
from starlette.responses import Response

from api_service.documents import answers, problems
from api_service.presenting import jobs_and_nodes
from api_service.routes.jobs.jobs import JobId
from api_service.services import Caller, Served
from reservation_core.contracts.jobs import JobSpec
from reservation_core.usecases.jobs.visible_jobs import view_visible

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.get(
    "/{job_id}/spec",
    response_model=JobSpec,
    summary="Read a job's request",
    responses=answers(200, "The request, as `POST /v1/jobs` takes it.") | problems(404),
)
async def get_job_spec(services: Served, caller: Caller, job_id: JobId) -> Response:
    """The request of a job, to submit it again. Only the owner sees the values of its variables."""
    async with services.runtime.uow() as uow:
        view = await view_visible(uow, caller, job_id)
    shown = jobs_and_nodes.job_spec(view, caller)
    return Response(shown.model_dump_json(), media_type="application/json", headers={"Cache-Control": "no-store"})
