"""Several jobs of the list, selected and cancelled at once."""

from urllib.parse import quote

from starlette.responses import Response

from api_service.web.rest_calls import RestProblemError
from api_service.web.routing import WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.jobs import Job
from reservation_core.domain.model import FINAL_STATUSES, JobStatus

MOST = 50
"""Jobs on one page of the list."""
_GONE = (404, 409, 422)
"""Answers for a job that is not there, is over, or has no such id."""


async def cancel_selected(visit: Visit) -> Response:
    """Cancel the jobs of the form; without its word that it was confirmed, ask for that."""
    return await (_cancel(visit) if visit.form.has("confirmed") else _confirm(visit))


async def _confirm(visit: Visit) -> Response:
    """Name the jobs that would be cancelled, and what is lost."""
    jobs = [
        job
        for job_id in _ids(visit)
        if (job := await _job(visit, job_id)) is not None and job.status not in FINAL_STATUSES
    ]
    if not jobs:
        return visit.go("/jobs", "Select jobs that are not over, then cancel them.")
    waiting = sum(job.status is JobStatus.QUEUED for job in jobs)
    return visit.page("cancel_jobs.html", title="Cancel jobs?", jobs=jobs, waiting=waiting, held=len(jobs) - waiting)


async def _cancel(visit: Visit) -> Response:
    """Cancel the jobs; those that ended meanwhile are left out."""
    cancelled: list[Job] = []
    for job_id in _ids(visit):
        try:
            cancelled.append(await visit.rest.post(Job, f"/v1/jobs/{job_id}/cancel"))
        except RestProblemError as problem:
            if problem.status not in _GONE:
                raise
    ending = sum(job.status not in FINAL_STATUSES for job in cancelled)
    words = f"{len(cancelled)} {'job is' if len(cancelled) == 1 else 'jobs are'} cancelled."
    return visit.go("/jobs", f"{words} {ending} still {'ends' if ending == 1 else 'end'}." if ending else words)


def _ids(visit: Visit) -> list[str]:
    return [quote(job_id, safe="") for job_id in dict.fromkeys(visit.form.all("job"))][:MOST]


async def _job(visit: Visit, job_id: str) -> Job | None:
    try:
        return await visit.rest.get(Job, f"/v1/jobs/{job_id}")
    except RestProblemError as problem:
        if problem.status not in _GONE:
            raise
        return None


ROUTES = (WebRoute("POST", "/jobs/cancel", cancel_selected),)
