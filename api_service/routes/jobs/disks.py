"""Disks of users, which outlive the jobs that have them."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from api_service.documents import answers, problems, reads
from api_service.requests import bodies
from api_service.requests.idempotency import Answer, once
from api_service.requests.pagination import PageQuery, decode, encode
from api_service.requests.workloads import copy_rules, refuse_disks
from api_service.services import Caller, Served, Services
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.base import Page, UserName
from reservation_core.contracts.job_terms.disks import DiskChange, DiskCreate, DiskOut, DiskUseOut, SnapshotOut
from reservation_core.domain.disks.disk_life import kept_until
from reservation_core.ports.disks.disks import DiskRecord, SnapshotRecord
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.disks import disks
from reservation_core.usecases.disks.disk_owners import DiskOwner, find_owner, unknown_disk
from reservation_core.usecases.disks.snapshots import clone_disk
from reservation_core.usecases.repeat_lost_transactions import repeat_lost

router = APIRouter(prefix="/v1/disks", tags=["disks"])

Name = Annotated[
    str, Path(pattern="^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", description="A disk's name.", examples=["data"])
]
OfUser = Annotated[
    UserName | None, Query(description="This user's disk (administrators); default: your own.", examples=["alice"])
]
_LIST = "disks"


class DisksQuery(PageQuery):
    """Which disks to list."""

    deleted: Annotated[bool, Field(description="Deleted disks that can still be restored instead.")] = False
    user: Annotated[UserName | None, Field(description="This user's disks (administrators).")] = None


@router.post(
    "",
    status_code=201,
    response_model=DiskOut,
    summary="Create a disk",
    responses=answers(201, "The disk, which is made within seconds; a clone once all of it is copied.")
    | problems(400, 404, 409, 413, 415),
    openapi_extra=reads(DiskCreate),
)
async def create_disk(request: Request, services: Served, caller: Caller) -> Response:
    """Create an empty disk, or a clone of another one or of a snapshot. What jobs write to it outlives them."""
    body = await bodies.read(request, DiskCreate, limit=services.settings.max_body_bytes)
    refuse_disks(services.settings)
    runtime, rules = services.runtime, copy_rules(services.settings)

    async def act(uow: UnitOfWork) -> Answer:
        ids, now = runtime.ids, runtime.clock.now()
        if body.source is not None:
            source = (body.source.disk, body.source.snapshot)
            record = await clone_disk(uow, caller, body.name, source, body.size, rules, ids, now)
        else:
            record = await disks.create_disk(uow, caller, body.name, body.size or 0, rules.bounds, ids, now)
        return _answer(services, record, 201)

    return await once(request, caller, body.model_dump_json().encode(), runtime.uow, act)


@router.get("", response_model=Page[DiskOut], summary="List disks", responses=problems(400, 403, 404))
async def list_disks(
    request: Request, services: Served, caller: Caller, query: Annotated[DisksQuery, Query()]
) -> Response:
    """Your disks by name. Administrators name a user to list the user's, also of a disabled one."""
    key = decode(_LIST, query.cursor, (str, str))
    async with services.runtime.uow() as uow:
        owner = await owner_of(request, uow, caller, query.user)
        found = await uow.disks.page(
            owner.user_id,
            deleted=query.deleted,
            after=("", "") if key is None else (str(key[0]), str(key[1])),
            limit=query.limit + 1,
        )
    records = found[: query.limit]
    page = Page[DiskOut](
        items=[_shown(services, record) for record in records],
        next_cursor=encode(_LIST, (records[-1].name, records[-1].id)) if len(found) > query.limit else None,
    )
    return Response(page.model_dump_json(), media_type="application/json")


@router.get("/{disk}", response_model=DiskOut, summary="Look at a disk", responses=problems(403, 404))
async def get_disk(request: Request, services: Served, caller: Caller, disk: Name, user: OfUser = None) -> Response:
    """One disk, with the jobs that have it."""
    async with services.runtime.uow() as uow:
        owner = await owner_of(request, uow, caller, user)
        record = await uow.disks.named(owner.user_id, disk)
        if record is None:
            raise await unknown_disk(uow, owner, disk)
    return _answer(services, record, 200).response()


@router.patch(
    "/{disk}",
    response_model=DiskOut,
    summary="Rename, resize or hand over a disk",
    responses=answers(200, "The disk. Its new size is there within seconds.") | problems(400, 403, 404, 409, 413, 415),
    openapi_extra=reads(DiskChange),
)
async def change_disk(request: Request, services: Served, caller: Caller, disk: Name, user: OfUser = None) -> Response:
    """Give a disk another name or a larger size. Jobs that have it go on.

    Administrators hand a disk that no job has over to another user."""
    body = await bodies.read(request, DiskChange, limit=services.settings.max_body_bytes)
    bounds, now = services.settings.disks.bounds, services.runtime.clock.now()

    async def act(uow: UnitOfWork) -> Answer:
        changes = disks.DiskChanges(body.name, body.size, body.owner)
        return _answer(services, await disks.change_disk(uow, caller, disk, changes, bounds, now, user=user), 200)

    content = content_of(caller, user, body.model_dump_json())
    return await once(request, caller, content, services.runtime.uow, act)


@router.delete(
    "/{disk}",
    response_model=DiskOut,
    summary="Delete a disk",
    responses=answers(200, "The disk, which is kept for a while.") | problems(403, 404, 409),
)
async def delete_disk(services: Served, caller: Caller, disk: Name, user: OfUser = None) -> Response:
    """Delete a disk that no job has. Its files are kept until `kept_until`, and then removed.

    A disk that could not be made is removed at once.
    """

    async def act() -> DiskRecord:
        async with services.runtime.uow() as uow:
            return await disks.delete_disk(uow, caller, disk, services.runtime.clock.now(), user=user)

    return _answer(services, await repeat_lost(act), 200).response()


@router.post(
    "/{disk}/restore",
    response_model=DiskOut,
    summary="Restore a disk",
    responses=answers(200, "The disk, with what was on it.") | problems(400, 403, 404, 409),
    openapi_extra=reads(None),
)
async def restore_disk(request: Request, services: Served, caller: Caller, disk: Name, user: OfUser = None) -> Response:
    """Restore the disk of this name that was deleted last."""
    bounds, now = services.settings.disks.bounds, services.runtime.clock.now()

    async def act(uow: UnitOfWork) -> Answer:
        return _answer(services, await disks.restore_disk(uow, caller, disk, bounds, now, user=user), 200)

    return await once(request, caller, content_of(caller, user), services.runtime.uow, act)


async def owner_of(request: Request, uow: UnitOfWork, caller: Principal, user: str | None) -> DiskOwner:
    """The user whose disks are looked at; the access log names another one than the caller."""
    owner = await find_owner(uow, caller, user)
    if not owner.is_caller:
        request.scope["of_user"] = owner.name
    return owner


def content_of(caller: Principal, user: str | None, body: str = "") -> bytes:
    """The content of a request beyond its path: another user's disk of the same name is another disk."""
    return body.encode() if user in (None, caller.user) else f"{body} of {user}".encode()


def _shown(services: Services, record: DiskRecord) -> DiskOut:
    return DiskOut(
        name=record.name,
        state=record.state,
        size=record.size_bytes,
        used=record.used_bytes,
        measured_at=record.measured_at,
        created_at=record.created_at,
        deleted_at=record.deleted_at,
        kept_until=None if record.is_given_up else kept_until(record.deleted_at, services.settings.disks.kept),
        problem=record.problem,
        jobs=[DiskUseOut(job=use.job, read_only=use.read_only) for use in record.uses],
        snapshots=[shown_snapshot(snapshot) for snapshot in record.snapshots],
    )


def shown_snapshot(record: SnapshotRecord) -> SnapshotOut:
    """A snapshot as REST shows it."""
    return SnapshotOut(
        name=record.name,
        size=record.size_bytes,
        created_at=record.created_at,
        ready=record.is_made,
        problem=record.problem,
    )


def _answer(services: Services, record: DiskRecord, status: int) -> Answer:
    return Answer(status, _shown(services, record).model_dump_json().encode())
