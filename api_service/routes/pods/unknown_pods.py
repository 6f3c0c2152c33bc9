"""Pods that carry our marks but belong to no reservation: administrators list and end them."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from api_service.documents import problems, reads
from api_service.presenting import jobs_and_nodes
from api_service.requests.idempotency import Answer, once
from api_service.requests.pagination import PageQuery, decode, encode
from api_service.services import Caller, Served
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.base import Page
from reservation_core.contracts.nodes import UnknownPodOut
from reservation_core.usecases.people.users import require_admin
from reservation_core.usecases.running import unknown_pods

router = APIRouter(prefix="/v1/pods/unknown", tags=["operators"])

PodNameInPath = Annotated[
    str,
    Path(pattern="^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$", description="A pod's name.", examples=["job-7f3k9q-1-0"]),
]


@router.get("", response_model=Page[UnknownPodOut], summary="List unknown pods", responses=problems(400, 403))
async def list_unknown_pods(services: Served, caller: Caller, query: Annotated[PageQuery, Query()]) -> Response:
    """Administrators only: pods that the ledger does not know, by name. Their GPUs are not used while they exist."""
    require_admin(caller)
    key = decode("unknown-pods", query.cursor, (str,))
    async with services.runtime.uow() as uow:
        found = await uow.unknown_pods.page(after=None if key is None else str(key[0]), limit=query.limit + 1)
    pods = found[: query.limit]
    page = Page[UnknownPodOut](
        items=[jobs_and_nodes.unknown_pod(pod) for pod in pods],
        next_cursor=encode("unknown-pods", (pods[-1].name,)) if len(found) > query.limit else None,
    )
    return Response(page.model_dump_json(), media_type="application/json")


@router.post(
    "/{pod}/end",
    status_code=202,
    response_model=UnknownPodOut,
    summary="End an unknown pod",
    responses=problems(400, 403, 404, 409),
    openapi_extra=reads(None),
)
async def end_unknown_pod(request: Request, services: Served, caller: Caller, pod: PodNameInPath) -> Response:
    """Administrators only: the processor ends it, with the usual grace. It is listed until it is gone."""
    now = services.runtime.clock.now()

    async def act(uow: UnitOfWork) -> Answer:
        found = await unknown_pods.end(uow, caller, pod, now)
        return Answer(202, jobs_and_nodes.unknown_pod(found).model_dump_json().encode())

    return await once(request, caller, b"", services.runtime.uow, act)
