"""Snapshots of disks: what was on a disk at a time, to be cloned."""

from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from api_service.documents import answers, problems, reads
from api_service.requests import bodies
from api_service.requests.idempotency import Answer, once
from api_service.requests.workloads import copy_rules, refuse_snapshots
from api_service.routes.jobs.disks import Name, OfUser, content_of, owner_of, shown_snapshot
from api_service.services import Caller, Served
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.base import Page
from reservation_core.contracts.job_terms.disks import SnapshotCreate, SnapshotOut
from reservation_core.ports.disks.disks import SnapshotRecord
from reservation_core.usecases.disks import snapshots
from reservation_core.usecases.disks.disk_owners import unknown_disk
from reservation_core.usecases.repeat_lost_transactions import repeat_lost

router = APIRouter(prefix="/v1/disks/{disk}/snapshots", tags=["disks"])

SnapshotName = Annotated[
    str,
    Path(
        pattern="^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", description="A snapshot's name.", examples=["before-cleaning"]
    ),
]


@router.post(
    "",
    status_code=201,
    response_model=SnapshotOut,
    summary="Take a snapshot of a disk",
    responses=answers(201, "The snapshot, which is ready once all of it is copied.")
    | problems(400, 403, 404, 409, 413, 415),
    openapi_extra=reads(SnapshotCreate),
)
async def take_snapshot(
    request: Request, services: Served, caller: Caller, disk: Name, user: OfUser = None
) -> Response:
    """Keep what is on a disk now. On the local cluster, no job may write to the disk until the snapshot is ready."""
    body = await bodies.read(request, SnapshotCreate, limit=services.settings.max_body_bytes)
    refuse_snapshots(services.settings)
    runtime, rules = services.runtime, copy_rules(services.settings)

    async def act(uow: UnitOfWork) -> Answer:
        ids, now = runtime.ids, runtime.clock.now()
        record = await snapshots.take_snapshot(uow, caller, disk, body.name, rules, ids, now, user=user)
        return Answer(201, shown_snapshot(record).model_dump_json().encode())

    return await once(request, caller, content_of(caller, user, body.model_dump_json()), runtime.uow, act)


@router.get("", response_model=Page[SnapshotOut], summary="List a disk's snapshots", responses=problems(403, 404))
async def list_snapshots(
    request: Request, services: Served, caller: Caller, disk: Name, user: OfUser = None
) -> Response:
    """All snapshots of a disk by name, on one page: a disk has 20 at most."""
    async with services.runtime.uow() as uow:
        owner = await owner_of(request, uow, caller, user)
        record = await uow.disks.named(owner.user_id, disk)
        if record is None:
            raise await unknown_disk(uow, owner, disk)
    page = Page[SnapshotOut](items=[shown_snapshot(snapshot) for snapshot in record.snapshots], next_cursor=None)
    return Response(page.model_dump_json(), media_type="application/json")


@router.delete(
    "/{snapshot}",
    response_model=SnapshotOut,
    summary="Delete a snapshot",
    responses=answers(200, "The snapshot, which is removed within seconds.") | problems(403, 404, 409),
)
async def delete_snapshot(
    services: Served, caller: Caller, disk: Name, snapshot: SnapshotName, user: OfUser = None
) -> Response:
    """Delete a snapshot for good. The disk and its clones stay as they are."""

    async def act() -> SnapshotRecord:
        async with services.runtime.uow() as uow:
            now = services.runtime.clock.now()
            return await snapshots.delete_snapshot(uow, caller, disk, snapshot, now, user=user)

    return Response(shown_snapshot(await repeat_lost(act)).model_dump_json(), media_type="application/json")
