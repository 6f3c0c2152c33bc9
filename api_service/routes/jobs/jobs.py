"""Jobs: submit, list, look at, cancel, extend."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from api_service.access.sight import may_see_owner
from api_service.documents import answers, problems, reads
from api_service.presenting import jobs_and_nodes
from api_service.problems import ProblemError
from api_service.requests import bodies
from api_service.requests.idempotency import Answer, conflict, key_of, once, replay, request_hash
from api_service.requests.pagination import PageQuery, decode, encode, moment_of
from api_service.requests.preconditions import etag, expected_version, version_tag
from api_service.requests.submitted_jobs import prepared
from api_service.routes.jobs.dry_runs import SUBMITS, is_dry_run, say_verdict
from api_service.services import Caller, Served, Services, services_of
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.base import Page, UserName
from reservation_core.contracts.jobs import Job, JobExtend, JobSubmit, JobVerdict
from reservation_core.domain.calendar import to_micros
from reservation_core.domain.errors import (
    CalendarConflictError,
    DomainError,
)
from reservation_core.domain.model import Reservation
from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.jobs.reservations import JobFilter, JobView, SharedFilter
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.disks.submit_with_disks import submit_with_disks
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.dependencies import submit_dependent
from reservation_core.usecases.jobs.extend import extend
from reservation_core.usecases.jobs.job_traces import add_cancelled_waits, add_submission, begin_trace
from reservation_core.usecases.jobs.keep import keep
from reservation_core.usecases.jobs.submit import submit_on_budget
from reservation_core.usecases.jobs.visible_jobs import no_such_job, view_visible, visible_user
from reservation_core.usecases.people.users import require_user

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

JobId = Annotated[
    str,
    Path(
        pattern=r"^job-[0-9a-z]{1,32}(\.(0|[1-9][0-9]{0,3}))?$",
        description="A job's id. Of an array's elements it ends with the index.",
        examples=["job-7f3k9q2m"],
    ),
]
_LIST = "jobs"
_SHARED_LIST = "shared jobs"


class JobsQuery(PageQuery):
    """Which jobs to list."""

    status: Annotated[
        list[JobStatus] | None, Field(max_length=16, description="Only these statuses; may be given several times.")
    ] = None
    user: Annotated[UserName | None, Field(description="Only this user's jobs.")] = None
    shared: Annotated[
        bool, Field(description="The jobs of others that are shared with you instead, the last shared first.")
    ] = False


@router.post(
    "",
    status_code=202,
    response_model=Job,
    summary="Submit a job",
    responses=answers(202, "Accepted and durable: it waits for GPUs.", etag=True)
    | {200: {"model": JobVerdict, "description": "With `dry_run`: when it would start."}}
    | problems(400, 403, 409, 413, 415),
    openapi_extra=SUBMITS,
)
async def submit_job(request: Request) -> Response:
    """Request GPUs. The job waits in the queue, runs when it gets GPUs, and ends after `duration` at the latest."""
    # No dependencies here: this is the one call whose time counts in microseconds.
    services = services_of(request)
    caller: Principal = request.scope["principal"]
    runtime = services.runtime
    key = key_of(request)
    body = await bodies.read(request, JobSubmit, limit=services.settings.max_body_bytes)
    if request.scope["query_string"] and is_dry_run(request):
        return await say_verdict(body, caller, services)
    hashed = b"" if key is None else request_hash("POST /v1/jobs", body.model_dump_json().encode())
    now = runtime.clock.now()
    try:
        new = await prepared(body, caller, services, now)
    except DomainError:
        # A job that is stored was not refused, whatever has changed since.
        if key is None:
            raise
        async with runtime.uow(one_statement=True) as uow:
            first = await uow.idempotency.answer(caller.user_id, key, hashed)
        if first is None:
            raise
        return replay(first.status, first.body)
    new = begin_trace(runtime.traces, new)
    answer = jobs_and_nodes.encode_accepted(new.reservation, new.after)
    if key is not None:
        new = replace(new, idempotency_key=key, request_hash=hashed, answer=answer)
    if new.reservation.workload.disks:
        stored = await submit_with_disks(runtime.uow, caller, new, now)
    elif new.after:
        stored = await submit_dependent(runtime.uow, caller, new, now)
    elif caller.budget_id is None:
        stored = await services.submissions.submit(new)
    else:
        stored = await submit_on_budget(runtime.uow, caller, new, now)
    if stored.conflict:
        raise conflict()
    if stored.refusal is not None:
        raise stored.refusal
    if stored.replayed_answer is not None:
        return replay(202, stored.replayed_answer)
    add_submission(runtime.traces, new, runtime.clock.now())
    headers = {"ETag": version_tag(new.reservation.version), "Location": f"/v1/jobs/{new.reservation.id}"}
    return Response(answer, status_code=202, media_type="application/json", headers=headers)


@router.get("", response_model=Page[Job], summary="List jobs", responses=problems(400, 404))
async def list_jobs(services: Served, caller: Caller, query: Annotated[JobsQuery, Query()]) -> Response:
    """Your jobs, newest first; for administrators all jobs."""
    if query.shared:
        return await _list_shared(services, caller, query)
    after = decode(_LIST, query.cursor, (int,))
    which = JobFilter(
        user_id=visible_user(caller),
        statuses=None if query.status is None else frozenset(query.status),
        user=query.user,
    )
    before = None if after is None else int(after[0])

    async def read(uow: UnitOfWork) -> list[JobView]:
        found = await uow.reservations.views(which, limit=query.limit + 1, before_seq=before)
        if not found and caller.is_admin:  # others see no job of a user whom they name
            await require_user(uow, caller, query.user)
        return found

    views = await services.reads(read)
    more = len(views) > query.limit
    views = views[: query.limit]
    page = Page[Job](
        items=[jobs_and_nodes.job(view) for view in views],
        next_cursor=encode(_LIST, (views[-1].reservation.seq,)) if more else None,
    )
    return Response(page.model_dump_json(), media_type="application/json")


async def _list_shared(services: Services, caller: Principal, query: JobsQuery) -> Response:
    key = decode(_SHARED_LIST, query.cursor, (int, str))
    before = None if key is None else (moment_of(key[0]), str(key[1]))
    which = SharedFilter(None if query.status is None else frozenset(query.status), query.user)
    found = await services.reads(
        lambda uow: uow.reservations.shared_views(caller.user_id, which, limit=query.limit + 1, before=before)
    )
    shown = found[: query.limit]
    last = [(to_micros(at), view.reservation.id) for view, at in shown[-1:]]
    page = Page[Job](
        items=[jobs_and_nodes.job(view) for view, _ in shown],
        next_cursor=encode(_SHARED_LIST, last[0]) if len(found) > query.limit else None,
    )
    return Response(page.model_dump_json(), media_type="application/json")


@router.get(
    "/{job_id}",
    response_model=Job,
    summary="Look at a job",
    responses=answers(200, "The job as it is now.", etag=True) | problems(404),
)
async def get_job(services: Served, caller: Caller, job_id: JobId) -> Response:
    """One job, with its place in the queue, its estimated start or its GPUs."""
    async with services.runtime.uow() as uow:
        view = await view_visible(uow, caller, job_id)
    return _answer(view).response()


@router.post(
    "/{job_id}/cancel",
    response_model=Job,
    summary="Cancel a job",
    responses=answers(200, "The job, cancelled or ending.", etag=True) | problems(400, 404, 409, 412),
    openapi_extra=reads(None, if_match=True),
)
async def cancel_job(request: Request, services: Served, caller: Caller, job_id: JobId) -> Response:
    """End a job: at once while it waits, by SIGTERM, a grace period and SIGKILL while it runs."""
    expected = expected_version(request)
    now = services.runtime.clock.now()
    done: list[JobView] = []  # of the last try

    async def act(uow: UnitOfWork) -> JobView:
        done[:] = [await cancel(uow, caller, job_id, expected, now)]
        return done[0]

    response = await _change(request, services, caller, b"", act)
    add_cancelled_waits(services.runtime.traces, (view.reservation for view in done), now)
    return response


@router.post(
    "/{job_id}/extend",
    response_model=Job,
    summary="Extend a job",
    responses=answers(200, "The job with its new end.", etag=True) | problems(400, 404, 409, 412, 413, 415),
    openapi_extra=reads(JobExtend, if_match=True),
)
async def extend_job(request: Request, services: Served, caller: Caller, job_id: JobId) -> Response:
    """Extend a job, unless its GPUs are promised to another user for that time."""
    expected = expected_version(request)
    body = await bodies.read(request, JobExtend, limit=services.settings.max_body_bytes)
    longest = services.settings.max_duration
    now = services.runtime.clock.now()

    async def act(uow: UnitOfWork) -> JobView:
        return await extend(uow, caller, job_id, body.by, expected, longest, now)

    try:
        return await _change(request, services, caller, body.model_dump_json().encode(), act)
    except CalendarConflictError as error:
        if error.nameless is None:
            raise
        if await may_see_owner(services.runtime.uow, caller, services.settings.holders, error.owner_id):
            raise
        raise CalendarConflictError(error.nameless) from error


@router.post(
    "/{job_id}/keep",
    response_model=Job,
    summary="Keep a job whose GPUs are idle",
    responses=answers(200, "The job without the warning.", etag=True) | problems(400, 404, 409, 412),
    openapi_extra=reads(None, if_match=True),
)
async def keep_job(request: Request, services: Served, caller: Caller, job_id: JobId) -> Response:
    """Take back the warning that its GPUs are idle. Another comes after another window of the policy's rule."""
    expected = expected_version(request)
    now = services.runtime.clock.now()

    async def act(uow: UnitOfWork) -> JobView:
        return await keep(uow, caller, job_id, expected, now)

    return await _change(request, services, caller, b"", act)


def recheck_of(
    request: Request, services: Services, caller: Principal, job: Reservation
) -> Callable[[], Awaitable[None]]:
    """The check that a stream of a job repeats: of the caller's token, and of the share where the job is another's."""
    authorization = request.headers.get("authorization")

    async def recheck() -> None:
        await services.authenticator.principal(authorization)
        if job.user_id == caller.user_id or caller.is_admin:
            return
        async with services.runtime.uow(one_statement=True) as uow:
            if not await uow.shares.includes(job.id, caller.user_id):
                raise ProblemError(404, "not_found", no_such_job(job.id).detail)

    return recheck


async def _change(
    request: Request,
    services: Served,
    caller: Principal,
    canonical: bytes,
    act: Callable[[UnitOfWork], Awaitable[JobView]],
) -> Response:
    async def acted(uow: UnitOfWork) -> Answer:
        return _answer(await act(uow))

    return await once(request, caller, canonical, services.runtime.uow, acted)


def _answer(view: JobView) -> Answer:
    return Answer(200, jobs_and_nodes.job(view).model_dump_json().encode(), etag=etag(view))
