"""The GPUs, the nodes and the queue."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from api_service.access.sight import Sight, sight_of
from api_service.documents import problems
from api_service.presenting import jobs_and_nodes
from api_service.requests.pagination import PageQuery, decode, encode
from api_service.services import Caller, Served
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.base import Page
from reservation_core.contracts.jobs import QueuePage, WaitingTotal
from reservation_core.contracts.nodes import GpuOut, NodeOut
from reservation_core.ports.jobs.reservations import JobView
from reservation_core.ports.nodes.inventory import GpuView
from reservation_core.usecases.jobs.visible_jobs import visible_user

router = APIRouter(prefix="/v1", tags=["inventory"])


@router.get("/gpus", response_model=Page[GpuOut], summary="List GPUs", responses=problems(400))
async def list_gpus(services: Served, caller: Caller, query: Annotated[PageQuery, Query()]) -> Response:
    """Every GPU by node and index: its state, its holder (null where you may not see it), and when it is free."""
    key = decode("gpus", query.cursor, (str, int))
    after = None if key is None else (str(key[0]), int(key[1]))

    async def read(uow: UnitOfWork) -> tuple[list[GpuView], Sight]:
        found = await uow.inventory.gpus(after=after, limit=query.limit + 1)
        return found, await sight_of(uow, caller, services.settings.holders)

    found, sight = await services.reads(read)
    views = found[: query.limit]
    page = Page[GpuOut](
        items=[jobs_and_nodes.gpu(view, sight) for view in views],
        next_cursor=encode("gpus", (views[-1].node, views[-1].index)) if len(found) > query.limit else None,
    )
    return Response(page.model_dump_json(), media_type="application/json")


@router.get("/nodes", response_model=Page[NodeOut], summary="List nodes", responses=problems(400))
async def list_nodes(services: Served, _caller: Caller, query: Annotated[PageQuery, Query()]) -> Response:
    """Every node by name."""
    key = decode("nodes", query.cursor, (str,))
    after = None if key is None else str(key[0])
    found = await services.reads(lambda uow: uow.inventory.nodes(after=after, limit=query.limit + 1))
    views = found[: query.limit]
    page = Page[NodeOut](
        items=[jobs_and_nodes.node(view) for view in views],
        next_cursor=encode("nodes", (views[-1].name,)) if len(found) > query.limit else None,
    )
    return Response(page.model_dump_json(), media_type="application/json")


@router.get("/queue", response_model=QueuePage, summary="Look at the queue", responses=problems(400))
async def list_queue(services: Served, caller: Caller, query: Annotated[PageQuery, Query()]) -> Response:
    """Your waiting jobs (for administrators all), the reasons and the estimated starts; and how many wait in all."""
    key = decode("queue", query.cursor, (int, int))
    after = None if key is None else (int(key[0]), int(key[1]))

    async def read(uow: UnitOfWork) -> tuple[list[JobView], list[tuple[str | None, int, int]]]:
        found = await uow.reservations.waiting_views(visible_user(caller), limit=query.limit + 1, after=after)
        return found, await uow.reservations.waiting_totals()

    found, totals = await services.reads(read)
    views = found[: query.limit]
    last = views[-1].reservation if len(found) > query.limit else None
    page = QueuePage(
        items=[jobs_and_nodes.queue_entry(view) for view in views],
        next_cursor=None if last is None else encode("queue", (-last.priority, last.seq)),
        totals=[WaitingTotal(gpu_type=gpu_type, jobs=jobs, gpus=gpus) for gpu_type, jobs, gpus in totals],
    )
    return Response(page.model_dump_json(), media_type="application/json")
