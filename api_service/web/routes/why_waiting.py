"""The part of a waiting job's page that shows why it waits, and answers what a smaller request would do."""

from starlette.responses import Response

from api_service.web.jobs.waiting_picture import read_why_waiting
from api_service.web.routing import WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.jobs import Job


async def why_waiting(visit: Visit) -> Response:
    """The picture anew: its job's GPUs changed, or a slider moved. Once the job has started, it is taken away."""
    job = await visit.rest.get(Job, f"/v1/jobs/{visit.path('job_id')}")
    found = await read_why_waiting(visit, job)
    if found is None:
        away = {"HX-Retarget": "#why-waiting", "HX-Reswap": "delete", "Cache-Control": "no-store"}
        return Response(headers=away)
    return visit.part("_waiting_picture.html", waiting=found)


ROUTES = (WebRoute("GET", "/jobs/{job_id}/waiting", why_waiting, part_of="/jobs/{job_id}"),)
