"""Sharing a job on its page."""

from starlette.responses import Response

from api_service.web.confirmation import ask
from api_service.web.rest_calls import RestProblemError
from api_service.web.routes.jobs import show_job
from api_service.web.routing import WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.jobs import Job

_REFUSALS = (404, 409, 422)


async def share(visit: Visit) -> Response:
    """Share the job with a user."""
    job_id, user = visit.path("job_id"), visit.form.get("user")
    await visit.rest.get(Job, f"/v1/jobs/{job_id}")
    try:
        if user is None:
            raise RestProblemError.because(422, "Name the user to share the job with.")
        await visit.rest.send("PUT", f"/v1/jobs/{job_id}/shares/{visit.encoded(user)}")
    except RestProblemError as problem:
        if problem.status not in _REFUSALS:
            raise
        return await show_job(visit, problem, typed_user=user or "")
    return visit.go(f"/jobs/{job_id}", f"{job_id} is shared with {user}.")


async def confirm_unshare(visit: Visit) -> Response:
    """Explain what the end of a share means."""
    job = await visit.rest.get(Job, f"/v1/jobs/{visit.path('job_id')}")
    user = visit.request.path_params["user"]
    if user not in (job.shared_with or ()):
        raise RestProblemError.because(404, f"The job is not shared with {user}.")
    return ask(
        visit,
        f"Stop sharing {job.name or job.id} with {user}?",
        (f"{user} no longer sees the job. Terminals and connections that {user} has open in it end within seconds.",),
        words="Stop sharing",
        back=f"/jobs/{job.id}",
    )


async def unshare(visit: Visit) -> Response:
    """End a share."""
    job_id, user = visit.path("job_id"), visit.request.path_params["user"]
    await visit.rest.send("DELETE", f"/v1/jobs/{job_id}/shares/{visit.path('user')}")
    return visit.go(f"/jobs/{job_id}", f"{job_id} is no longer shared with {user}.")


ROUTES = (
    WebRoute("POST", "/jobs/{job_id}/shares", share),
    WebRoute("GET", "/jobs/{job_id}/shares/{user}/end", confirm_unshare),
    WebRoute("POST", "/jobs/{job_id}/shares/{user}/end", unshare),
)
