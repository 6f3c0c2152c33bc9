"""Whether a user may use GPUs now, and which pods use bookings: for services that enforce bookings in clusters."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from api_service.documents import problems, reads
from api_service.presenting import pod_reports, policy
from api_service.requests import bodies, headers
from api_service.requests.idempotency import Answer, once
from api_service.services import Caller, Served
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.schedulability import (
    AdmissionsOut,
    PodsSeen,
    Schedulability,
    SchedulabilityAsk,
    SeedSchedulability,
    SeedSchedulabilityAsk,
)
from reservation_core.domain.user_names import folded
from reservation_core.usecases.pods.report_pods import report_pods
from reservation_core.usecases.pods.schedulability import JudgedPod, schedulability

router = APIRouter(tags=["schedulability"])


@router.post(
    "/v1/schedulability",
    response_model=Schedulability,
    summary="May this user use GPUs now?",
    responses=problems(400, 403, 409, 413, 415),
    openapi_extra=reads(SchedulabilityAsk),
)
async def ask(request: Request, services: Served, caller: Caller) -> Response:
    """Services and administrators only. Yes while a booking of the user holds so many GPUs of that type, or if the
    policy requires no booking."""
    body = await bodies.read(request, SchedulabilityAsk, limit=services.settings.max_body_bytes)
    now = services.runtime.clock.now()
    pod = None if body.pod is None else JudgedPod(body.pod.uid)

    async def act(uow: UnitOfWork) -> Answer:
        verdict = await schedulability(uow, caller, body.user, body.gpu_type, body.gpus, now, pod)
        return Answer(200, policy.schedulability(verdict).model_dump_json().encode())

    return await once(request, caller, body.model_dump_json().encode(), services.runtime.uow, act)


@router.post(
    "/v1/schedulability/admissions",
    response_model=AdmissionsOut,
    summary="Report pods that use bookings",
    responses=problems(400, 403, 409, 413, 415),
    openapi_extra=reads(PodsSeen),
)
async def report(request: Request, services: Served, caller: Caller) -> Response:
    """Services and administrators only. A booking with a running pod is in use: it is not released as a no-show, and
    the pod's time counts as used. Report every running pod, repeatedly if you like, and every pod that has ended."""
    body = await bodies.read(request, PodsSeen, limit=services.settings.max_body_bytes)
    reports = [pod_reports.report(pod) for pod in body.pods]

    async def act(uow: UnitOfWork) -> Answer:
        judged = await report_pods(uow, caller, reports)
        return Answer(200, pod_reports.admissions(judged).model_dump_json().encode())

    return await once(request, caller, body.model_dump_json().encode(), services.runtime.uow, act)


@router.post(
    "/gpu-schedulability/",
    response_model=SeedSchedulability,
    summary="May this user use GPUs now? (as older clients ask)",
    responses=problems(400, 403, 409, 413, 415),
    openapi_extra=reads(SeedSchedulabilityAsk),
)
async def ask_as_of_old(request: Request, services: Served) -> Response:
    """For older clients: they name the user by an e-mail address, which is the user's name here, and may send the token
    in the body."""
    body = await bodies.read(request, SeedSchedulabilityAsk, limit=services.settings.max_body_bytes)
    given = headers.values(request.scope, b"authorization")
    credential = given[0] if given else None if body.token is None else f"Bearer {body.token}"
    caller = await services.token_pace.principal(request.scope, credential)
    now = services.runtime.clock.now()

    async def act(uow: UnitOfWork) -> Answer:
        verdict = await schedulability(uow, caller, folded(body.user_email), None, 1, now)
        return Answer(200, policy.seed_schedulability(verdict).model_dump_json().encode())

    canonical = body.model_dump_json(exclude={"token"}).encode()
    return await once(request, caller, canonical, services.runtime.uow, act)
