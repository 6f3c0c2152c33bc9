"""Several jobs of the list, selected and cancelled at once."""

from urllib.parse import quote

from starlette.responses import Response

from api_service.web.confirmation import ask
from api_service.web.jobs.job_losses import what_jobs_lose
from api_service.web.rest_calls import RestProblemError
from api_service.web.routing import WebRoute
from api_service.web.sessions.return_address import safe_return
from api_service.web.visit import Visit
from reservation_core.contracts.jobs import Job
from reservation_core.domain.statuses import FINAL_STATUSES

MOST = 50
"""Jobs on one page of the list."""
_NAMED = 8
_GONE = (404, 409, 422)
"""Answers for a job that is not there, is over, or has no such id."""


async def confirm_cancel(visit: Visit) -> Response:
    """Name the jobs that would be cancelled, and what is lost."""
    found = [await _job(visit, job_id) for job_id in _ids(visit.request.query_params.getlist("job"))]
    jobs = [job for job in found if job is not None and job.status not in FINAL_STATUSES]
    back = safe_return(visit.query("next") or "/jobs")
    if not jobs:
        return visit.go(back, "Nothing was cancelled: select jobs that are not over first.", warns=True)
    one = len(jobs) == 1
    return ask(
        visit,
        "Cancel 1 job?" if one else f"Cancel {len(jobs)} jobs?",
        what_jobs_lose(jobs, visit.principal.user),
        words="Cancel this job" if one else "Cancel these jobs",
        back=back,
        fields={"job": [job.id for job in jobs], "next": back},
    )


async def cancel(visit: Visit) -> Response:
    """Cancel the jobs, and say which were refused."""
    cancelled: list[Job] = []
    refused: list[str] = []
    for job_id in _ids(visit.form.all("job")):
        try:
            cancelled.append(await visit.rest.post(Job, f"/v1/jobs/{job_id}/cancel"))
        except RestProblemError:
            refused.append(job_id)
    ending = sum(job.status not in FINAL_STATUSES for job in cancelled)
    told = [f"{len(cancelled)} {'job is' if len(cancelled) == 1 else 'jobs are'} cancelled."]
    if ending:
        told.append(f"{ending} still {'ends' if ending == 1 else 'end'}.")
    if refused:
        more = f" and {len(refused) - _NAMED} more" if len(refused) > _NAMED else ""
        told.append(f"{len(refused)} could not be cancelled: {', '.join(refused[:_NAMED])}{more}.")
    return visit.go(safe_return(visit.form.get("next") or "/jobs"), " ".join(told), warns=bool(refused))


def _ids(chosen: list[str]) -> list[str]:
    return [quote(job_id, safe="") for job_id in dict.fromkeys(chosen)][:MOST]


async def _job(visit: Visit, job_id: str) -> Job | None:
    try:
        return await visit.rest.get(Job, f"/v1/jobs/{job_id}")
    except RestProblemError as problem:
        if problem.status not in _GONE:
            raise
        return None


ROUTES = (
    WebRoute("GET", "/jobs/cancel", confirm_cancel),
    WebRoute("POST", "/jobs/cancel", cancel),
)
