"""Fence and cordon nodes, and undo it."""

from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from api_service.documents import problems, reads
from api_service.presenting import jobs_and_nodes
from api_service.requests import bodies
from api_service.requests.idempotency import Answer, once
from api_service.services import Caller, Served
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.nodes import GpuQuarantine, NodeCordon, NodeFence, NodeOut
from reservation_core.usecases.nodes import cordon_node, fence_node, quarantine_gpu

router = APIRouter(prefix="/v1/nodes", tags=["operators"])

NodeName = Annotated[
    str,
    Path(pattern="^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$", description="A node's name.", examples=["node1"]),
]
GpuIndex = Annotated[int, Path(ge=0, le=1023, description="A GPU's index on its node.", examples=[0])]


@router.post(
    "/{node}/fence",
    response_model=NodeOut,
    summary="Fence a node that is without power",
    responses=problems(400, 403, 404, 409, 413, 415),
    openapi_extra=reads(NodeFence, required=False),
)
async def fence(request: Request, services: Served, caller: Caller, node: NodeName) -> Response:
    """Administrators only, and only for a machine that is known to be off: jobs with pods there end at once, without a
    sign from the node. Its GPUs are not used until it is unfenced."""
    body = await bodies.read_optional(request, NodeFence, limit=services.settings.max_body_bytes)
    now = services.runtime.clock.now()

    async def act(uow: UnitOfWork) -> Answer:
        view = await fence_node.fence(uow, caller, node, body.reason, now)
        return Answer(200, jobs_and_nodes.node(view).model_dump_json().encode())

    return await once(request, caller, body.model_dump_json().encode(), services.runtime.uow, act)


@router.post(
    "/{node}/unfence",
    response_model=NodeOut,
    summary="Unfence a node",
    responses=problems(400, 403, 404, 409),
    openapi_extra=reads(None),
)
async def unfence(request: Request, services: Served, caller: Caller, node: NodeName) -> Response:
    """Administrators only. The node's GPUs are available again as soon as it is ready."""
    now = services.runtime.clock.now()

    async def act(uow: UnitOfWork) -> Answer:
        view = await fence_node.unfence(uow, caller, node, now)
        return Answer(200, jobs_and_nodes.node(view).model_dump_json().encode())

    return await once(request, caller, b"", services.runtime.uow, act)


@router.post(
    "/{node}/cordon",
    response_model=NodeOut,
    summary="Cordon a node",
    responses=problems(400, 403, 404, 409, 413, 415),
    openapi_extra=reads(NodeCordon, required=False),
)
async def cordon(request: Request, services: Served, caller: Caller, node: NodeName) -> Response:
    """Administrators only. Running jobs and bookings on the node stay; no job is started there, no booking made and no
    slot planned until it is uncordoned. A node that is already cordoned stays as it is."""
    body = await bodies.read_optional(request, NodeCordon, limit=services.settings.max_body_bytes)
    now = services.runtime.clock.now()

    async def act(uow: UnitOfWork) -> Answer:
        view = await cordon_node.cordon(uow, caller, node, body.reason, now)
        return Answer(200, jobs_and_nodes.node(view).model_dump_json().encode())

    return await once(request, caller, body.model_dump_json().encode(), services.runtime.uow, act)


@router.post(
    "/{node}/uncordon",
    response_model=NodeOut,
    summary="Uncordon a node",
    responses=problems(400, 403, 404, 409),
    openapi_extra=reads(None),
)
async def uncordon(request: Request, services: Served, caller: Caller, node: NodeName) -> Response:
    """Administrators only. A node that is not cordoned stays as it is."""
    now = services.runtime.clock.now()

    async def act(uow: UnitOfWork) -> Answer:
        view = await cordon_node.uncordon(uow, caller, node, now)
        return Answer(200, jobs_and_nodes.node(view).model_dump_json().encode())

    return await once(request, caller, b"", services.runtime.uow, act)


@router.post(
    "/{node}/gpus/{index}/quarantine",
    response_model=NodeOut,
    summary="Quarantine a GPU",
    responses=problems(400, 403, 404, 409, 413, 415),
    openapi_extra=reads(GpuQuarantine, required=False),
)
async def quarantine(request: Request, services: Served, caller: Caller, node: NodeName, index: GpuIndex) -> Response:
    """Administrators only. No new job or booking gets the GPU until it is released; a job that has it goes on. A GPU
    that is quarantined already stays as it is."""
    body = await bodies.read_optional(request, GpuQuarantine, limit=services.settings.max_body_bytes)
    now = services.runtime.clock.now()

    async def act(uow: UnitOfWork) -> Answer:
        view = await quarantine_gpu.quarantine(uow, caller, node, index, body.reason, now)
        return Answer(200, jobs_and_nodes.node(view).model_dump_json().encode())

    return await once(request, caller, body.model_dump_json().encode(), services.runtime.uow, act)


@router.post(
    "/{node}/gpus/{index}/release",
    response_model=NodeOut,
    summary="End the quarantine of a GPU",
    responses=problems(400, 403, 404, 409),
    openapi_extra=reads(None),
)
async def release(request: Request, services: Served, caller: Caller, node: NodeName, index: GpuIndex) -> Response:
    """Administrators only. Errors until now no longer count. A GPU that is not quarantined stays as it is."""
    now = services.runtime.clock.now()

    async def act(uow: UnitOfWork) -> Answer:
        view = await quarantine_gpu.release(uow, caller, node, index, now)
        return Answer(200, jobs_and_nodes.node(view).model_dump_json().encode())

    return await once(request, caller, b"", services.runtime.uow, act)
