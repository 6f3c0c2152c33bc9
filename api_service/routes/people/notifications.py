"""Notifications: the caller's targets and preferences. Administrators see which targets other users have."""

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from api_service.documents import answers, changes, problems, reads
from api_service.requests import bodies
from api_service.requests.idempotency import Answer, once
from api_service.requests.pagination import PageQuery, decode, encode
from api_service.requests.preconditions import expected_version, version_tag
from api_service.services import Caller, Served
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.base import Page, UserName
from reservation_core.contracts.notices import (
    NoticePreferences,
    NoticePreferencesOut,
    NoticeQueued,
    NoticeTargetCreate,
    NoticeTargetCreated,
    NoticeTargetOut,
    NoticeTargetVerify,
)
from reservation_core.domain.notices.kinds import NoticeChannel
from reservation_core.ports.people.notices import NoticeTarget, StoredPreferences
from reservation_core.usecases.people import notice_preferences, notice_targets

router = APIRouter(prefix="/v1/notifications", tags=["notifications"])

TargetId = Annotated[str, Path(pattern="^ntg-[0-9a-z]{1,32}$", description="A target's id.", examples=["ntg-2m7f3k9q"])]


class TargetsQuery(PageQuery):
    """Which targets to list."""

    user: Annotated[UserName | None, Field(description="Only this user's targets.")] = None


@router.get(
    "/preferences",
    response_model=NoticePreferencesOut,
    summary="Read your notification preferences",
    responses=answers(200, "The channels of every kind.", etag=True) | problems(),
)
async def get_preferences(services: Served, caller: Caller) -> Response:
    """Every kind of notification with its channels (your preference, or else the default)."""
    async with services.runtime.uow() as uow:
        found = await notice_preferences.read(uow, caller)
        return _preferences(found, await notice_targets.unavailable_channels(uow))


@router.put(
    "/preferences",
    response_model=NoticePreferencesOut,
    summary="Replace your notification preferences",
    responses=answers(200, "The channels of every kind after the change.", etag=True) | problems(400, 412, 413, 415),
    openapi_extra=changes(NoticePreferences),
)
async def put_preferences(request: Request, services: Served, caller: Caller) -> Response:
    """Replace your preferences: kinds that you leave out get their default again."""
    expected = expected_version(request)
    body = await bodies.read(request, NoticePreferences, limit=services.settings.max_body_bytes)
    async with services.runtime.uow() as uow:
        found = await notice_preferences.replace(uow, caller, body.kinds, expected, services.runtime.clock.now())
        return _preferences(found, await notice_targets.unavailable_channels(uow))


@router.post(
    "/targets",
    status_code=201,
    response_model=NoticeTargetCreated,
    summary="Add a target",
    responses=answers(201, "The target. A webhook's signing secret is in this answer and nowhere else.")
    | problems(400, 409, 413, 415),
    openapi_extra=reads(NoticeTargetCreate),
)
async def create_target(request: Request, services: Served, caller: Caller) -> Response:
    """Add a target for notifications. An e-mail address first gets a code: confirm it with `verify`.

    A repeated request gets `secret: null`.
    """
    body = await bodies.read(request, NoticeTargetCreate, limit=services.settings.max_body_bytes)
    runtime = services.runtime
    now = runtime.clock.now()

    async def act(uow: UnitOfWork) -> Answer:
        target, secret = await notice_targets.create(
            uow, caller, channel=body.channel, address=body.address, name=body.name, ids=runtime.ids, now=now
        )
        shown = _target(target).model_dump()
        return Answer(
            201,
            NoticeTargetCreated(**shown, secret=secret).model_dump_json().encode(),
            kept=NoticeTargetCreated(**shown, secret=None).model_dump_json().encode(),
        )

    return await once(request, caller, body.model_dump_json().encode(), runtime.uow, act)


@router.get("/targets", response_model=Page[NoticeTargetOut], summary="List targets", responses=problems(400, 404))
async def list_targets(services: Served, caller: Caller, query: Annotated[TargetsQuery, Query()]) -> Response:
    """Your targets by id, with the result of the last notification; for administrators all. Never a secret."""
    key = decode("targets", query.cursor, (str,))
    async with services.runtime.uow() as uow:
        found = await notice_targets.page(
            uow, caller, user=query.user, after=None if key is None else str(key[0]), limit=query.limit + 1
        )
    targets = found[: query.limit]
    page = Page[NoticeTargetOut](
        items=[_target(target) for target in targets],
        next_cursor=encode("targets", (targets[-1].id,)) if len(found) > query.limit else None,
    )
    return Response(page.model_dump_json(), media_type="application/json")


@router.delete(
    "/targets/{target_id}", response_model=NoticeTargetOut, summary="Remove a target", responses=problems(404)
)
async def remove_target(services: Served, caller: Caller, target_id: TargetId) -> Response:
    """No more notifications are sent there, and its address and secret are deleted."""
    async with services.runtime.uow() as uow:
        target = await notice_targets.remove(uow, caller, target_id, services.runtime.clock.now())
    return Response(_target(target).model_dump_json(), media_type="application/json")


@router.post(
    "/targets/{target_id}/test",
    status_code=202,
    response_model=NoticeQueued,
    summary="Send a test to a target",
    responses=answers(202, "Queued; the target shows the result.") | problems(400, 404, 409),
    openapi_extra=reads(None),
)
async def try_target(request: Request, services: Served, caller: Caller, target_id: TargetId) -> Response:
    """Send a test to your own target, or its code again while it is not confirmed: once a minute.

    A suspended target gets notifications again once a test has reached it.
    """
    runtime = services.runtime
    now = runtime.clock.now()

    async def act(uow: UnitOfWork) -> Answer:
        delivery = await notice_targets.try_out(uow, caller, target_id, runtime.ids, now)
        return Answer(202, NoticeQueued(delivery=delivery).model_dump_json().encode())

    return await once(request, caller, b"", runtime.uow, act)


@router.post(
    "/targets/{target_id}/verify",
    response_model=NoticeTargetOut,
    summary="Confirm an e-mail address",
    responses=problems(400, 404, 409, 413, 415),
    openapi_extra=reads(NoticeTargetVerify),
)
async def verify_target(request: Request, services: Served, caller: Caller, target_id: TargetId) -> Response:
    """Confirm an address with the code that was mailed to it."""
    body = await bodies.read(request, NoticeTargetVerify, limit=services.settings.max_body_bytes)
    now = services.runtime.clock.now()

    async def act(uow: UnitOfWork) -> Answer:
        target = await notice_targets.verify(uow, caller, target_id, body.code, now)
        return Answer(200, _target(target).model_dump_json().encode())

    return await once(request, caller, body.model_dump_json().encode(), services.runtime.uow, act)


def _target(target: NoticeTarget) -> NoticeTargetOut:
    return NoticeTargetOut(
        id=target.id,
        user=target.user,
        channel=target.channel,
        name=target.name,
        address=_visible_address(target),
        status=target.status,
        created_at=target.created_at,
        verified_at=target.verified_at,
        delivered_at=target.delivered_at,
        failed_at=target.failed_at,
        failure=target.failure,
    )


def _visible_address(target: NoticeTarget) -> str:
    """The address; of a webhook only its host, since the whole address permits posting to it."""
    if target.channel is NoticeChannel.EMAIL:
        return target.address
    parts = urlsplit(target.address)
    return f"{parts.scheme}://{parts.netloc}/…"


def _preferences(found: StoredPreferences, unavailable: list[NoticeChannel]) -> Response:
    kinds = {kind: sorted(chosen) for kind, chosen in found.kinds.items()}
    shown = NoticePreferencesOut(kinds=kinds, unavailable=unavailable)
    headers = {"ETag": version_tag(found.version)}
    return Response(shown.model_dump_json(), media_type="application/json", headers=headers)
