"""The form of a job, with a verdict before it is submitted."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from starlette.responses import Response

from api_service.web.forms.equivalents import by_curl, job_by_cli
from api_service.web.forms.form import Form
from api_service.web.forms.job_form import FIELDS, FIRST, TypedJob, fields_of, typed_job
from api_service.web.jobs.job_prospects import JobProspects, prospects_of
from api_service.web.jobs.waiting_picture import foresee_waiting
from api_service.web.rest_calls import RestProblemError
from api_service.web.routing import WebRoute
from api_service.web.sessions.cookies import browser_zone
from api_service.web.visit import Visit
from reservation_core.contracts.base import Page
from reservation_core.contracts.bookings import BookingOut
from reservation_core.contracts.job_terms.disks import DiskOut
from reservation_core.contracts.jobs import Job, JobSpec
from reservation_core.contracts.policy import ProjectOut
from reservation_core.domain.disks.disk_uses import MOST_DISKS
from reservation_core.domain.people.token_budgets import OVER, SPENT
from reservation_core.domain.statuses import BookingStatus, JobStatus, RequestVerdict

_USABLE = (BookingStatus.CONFIRMED, BookingStatus.ACTIVE)
_RECENT = 30
_TEMPLATES = 8


async def submit_page(visit: Visit) -> Response:
    """Show the form: empty, or like a former job (`?again=job-…`); the address can fill in fields (`?gpus=2`)."""
    again = visit.query("again")
    like = fields_of(await visit.rest.get(JobSpec, f"/v1/jobs/{visit.encoded(again)}/spec")) if again else FIRST
    fields = {**like, **{name: value for name in FIELDS if (value := visit.query(name))}}
    # A browser whose scripts run asks for the verdict itself: it takes many times as long as the form.
    scripted = browser_zone(visit.request.cookies) is not None
    return await _form_page(visit, fields, instead_of=visit.query("instead_of"), judged=not scripted)


async def submit(visit: Visit) -> Response:
    """Submit the job. A refusal is shown beside the input."""
    typed = typed_job(visit.form)
    if typed.wrong:
        return await _form_page(visit, visit.form.shown(), typed, status=422)
    replaced = visit.form.get("instead_of")
    try:
        job = await _submitted(visit, typed.body, replaced)
    except RestProblemError as problem:
        if problem.status not in (400, 403, 409, 413, 422):
            raise
        return await _form_page(visit, visit.form.shown(), typed, problem, status=problem.status)
    words = f"{job.id} is submitted."
    if replaced is None:
        return visit.go(f"/jobs/{job.id}", words)
    if await _cancel_replaced(visit, replaced):
        return visit.go(f"/jobs/{job.id}", f"{words} {replaced} is cancelled.")
    return visit.go(f"/jobs/{job.id}", f"{words} {replaced} was not cancelled: it no longer waits.", warns=True)


async def check(visit: Visit) -> Response:
    """Show the verdict with the form, with the smaller request in it that the user takes over."""
    smaller = parse_qsl(visit.form.get("use") or "")
    return await _form_page(visit, {**visit.form.shown(), **{name: value for name, value in smaller if name in FIELDS}})


async def verdict(visit: Visit) -> Response:
    """The verdict, requested while the user types, and the picture beside it."""
    shown = await _verdict(visit, typed_job(visit.form), visit.form.get("instead_of"))
    return visit.part("_verdict.html", beside=True, **shown)


async def would_wait(visit: Visit) -> Response:
    """The picture anew, after a slider moved. Once the job would wait no longer, it is taken away."""
    shown = await _verdict(visit, typed_job(visit.form), visit.form.get("instead_of"))
    if shown["waiting"] is not None:
        return visit.part("_waiting_picture.html", **shown)
    gone = visit.part("_why_waiting.html", **shown)
    gone.headers.update({"HX-Retarget": "#why-waiting", "HX-Reswap": "outerHTML"})
    return gone


async def _form_page(
    visit: Visit,
    fields: Mapping[str, str],
    typed: TypedJob | None = None,
    problem: RestProblemError | None = None,
    status: int = 200,
    instead_of: str | None = None,
    *,
    judged: bool = True,
) -> Response:
    typed = typed or typed_job(Form({name: [value] for name, value in fields.items()}))
    replaced = await _waiting_job(visit, instead_of or visit.form.get("instead_of"))
    gpus = await visit.services.reads(lambda uow: uow.inventory.gpu_counts())
    projects = await visit.rest.all(Page[ProjectOut], "/v1/projects")
    bookings = await visit.rest.all(Page[BookingOut], "/v1/bookings", {"mine": True}, at_most=100)
    disks = await visit.rest.all(Page[DiskOut], "/v1/disks", at_most=MOST_DISKS)
    recent = await visit.rest.get(Page[Job], "/v1/jobs", {"limit": _RECENT, "user": visit.principal.user})
    return visit.page(
        "submit.html",
        title="Submit a job",
        status=status,
        fields={name: fields.get(name, "") for name in FIELDS},
        problem=problem,
        gpu_types=sorted({gpu_type for gpu_type, _, _ in gpus}),
        projects=[project.name for project in projects],
        bookings=[booking for booking in bookings if booking.status in _USABLE],
        disks=[disk.name for disk in disks],
        templates=_distinct(recent.items),
        replaced=replaced,
        judged=judged,
        **await _verdict(visit, typed, None if replaced is None else replaced.id, judged=judged),
    )


async def _waiting_job(visit: Visit, job_id: str | None) -> Job | None:
    """The visitor's own job that waits, and may be replaced."""
    try:
        job = await visit.rest.get(Job, f"/v1/jobs/{visit.encoded(job_id)}") if job_id else None
    except RestProblemError as problem:
        if problem.status != 404:
            raise
        return None
    return job if job and job.status is JobStatus.QUEUED and job.user == visit.principal.user else None


async def _submitted(visit: Visit, body: Mapping[str, Any], replaced: str | None) -> Job:
    """Submit the job. If only the GPU-hours of the replaced job are missing from a budget, cancel that one first."""
    try:
        return await visit.rest.post(Job, "/v1/jobs", body)
    except RestProblemError as refusal:
        rules = {broken.code for broken in refusal.problem.broken_rules or ()}
        if replaced is None or not rules or not rules <= {SPENT, OVER}:
            raise
        found = await prospects_of(visit.rest, {**body, "instead_of": replaced})
        if found.answer is None or found.answer.verdict is RequestVerdict.REFUSED:
            raise
    await _cancel_replaced(visit, replaced)
    return await visit.rest.post(Job, "/v1/jobs", body)


async def _cancel_replaced(visit: Visit, job_id: str) -> bool:
    """Cancel the replaced job unless it has started; whether it is cancelled."""
    address = f"/v1/jobs/{visit.encoded(job_id)}"
    try:
        before = await visit.rest.call(Job, "GET", address)
        if before.body.status is JobStatus.QUEUED:
            await visit.rest.send("POST", f"{address}/cancel", match=before.headers["etag"])
        elif before.body.status is not JobStatus.CANCELLED:
            return False
    except RestProblemError as problem:
        if problem.status not in (404, 409, 412):
            raise
        return False
    return True


async def _verdict(
    visit: Visit, typed: TypedJob, instead_of: str | None = None, *, judged: bool = True
) -> dict[str, Any]:
    found, waiting = JobProspects(), None
    if judged and not typed.wrong:
        body = typed.body if instead_of is None else {**typed.body, "instead_of": instead_of}
        found = await prospects_of(visit.rest, body)
        if instead_of is not None and found.problem is not None and found.problem.status == 404:
            body = typed.body  # it has started meanwhile
            found = await prospects_of(visit.rest, body)
        waiting = None if found.answer is None else await foresee_waiting(visit, body, found.answer)
    base = visit.services.settings.web.public_url or str(visit.request.base_url).rstrip("/")
    return {
        "wrong": typed.wrong,
        "prospects": found,
        "waiting": waiting,
        "by_cli": job_by_cli(typed.body),
        "by_curl": by_curl(base, "/v1/jobs", typed.body),
    }


def _distinct(jobs: Sequence[Job]) -> list[Job]:
    """The newest of each kind of job, by name and size."""
    seen: dict[tuple[object, ...], Job] = {}
    for job in jobs:
        seen.setdefault((job.name, job.gpus, job.gpu_type, job.nodes, job.duration), job)
    return list(seen.values())[:_TEMPLATES]


ROUTES = (
    WebRoute("GET", "/submit", submit_page),
    WebRoute("POST", "/submit", submit),
    WebRoute("POST", "/submit/check", check),
    WebRoute("POST", "/submit/verdict", verdict),
    WebRoute("POST", "/submit/waiting", would_wait),
)
