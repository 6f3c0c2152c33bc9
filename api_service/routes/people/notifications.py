"""Being told: where, and of what. Everything here is one's own; administrators see that a target exists."""

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
    NoticeQueued,
    NoticeTargetCreate,
    NoticeTargetCreated,
    NoticeTargetOut,
    NoticeTargetVerify,
)
from reservation_core.domain.notices import NoticeChannel
from reservation_core.ports.people.notices import NoticeTarget, StoredPreferences
from reservation_core.usecases.people import notice_preferences, notice_targets

router = APIRouter(prefix="/v1/notifications", tags=["notifications"])

TargetId = Annotated[str, Path(pattern="^ntg-[0-9a-z]{1,32}$", description="A target's id.", examples=["ntg-2m7f3k9q"])]


class TargetsQuery(PageQuery):
    """Which targets to list."""

    user: Annotated[UserName | None, Field(description="Only this user's targets.")] = None


@router.get(
    "/preferences",
    response_model=NoticePreferences,
    summary="What you want to hear of",
    responses=answers(200, "Every kind, as it is now.", etag=True) | problems(),
)
async def get_preferences(services: Served, caller: Caller) -> Response:
    """Every kind, with the channels by which you are told of it: what you said, or else the default."""
    async with services.runtime.uow() as uow:
        found = await notice_preferences.look(uow, caller)
    return _preferences(found)


@router.put(
    "/preferences",
    response_model=NoticePreferences,
    summary="Say what you want to hear of",
    responses=answers(200, "Every kind, as it is from now on.", etag=True) | problems(400, 412, 413, 415),
    openapi_extra=changes(NoticePreferences),
)
async def put_preferences(request: Request, services: Served, caller: Caller) -> Response:
    """Replaces what you said before: kinds that you leave out have their default again."""
    expected = expected_version(request)
    body = await bodies.read(request, NoticePreferences, limit=services.settings.max_body_bytes)
    async with services.runtime.uow() as uow:
        found = await notice_preferences.replace(uow, caller, body.kinds, expected, services.runtime.clock.now())
    return _preferences(found)


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
    """Be told there. An e-mail address gets a code first, to be confirmed with `verify`.

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


@router.get("/targets", response_model=Page[NoticeTargetOut], summary="List targets", responses=problems(400))
async def list_targets(services: Served, caller: Caller, query: Annotated[TargetsQuery, Query()]) -> Response:
    """Your targets by id, with how the last notice went; for administrators everybody's. Never a secret."""
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
    """Nothing more is sent there, and its address and secret are forgotten."""
    async with services.runtime.uow() as uow:
        target = await notice_targets.remove(uow, caller, target_id, services.runtime.clock.now())
    return Response(_target(target).model_dump_json(), media_type="application/json")


@router.post(
    "/targets/{target_id}/test",
    status_code=202,
    response_model=NoticeQueued,
    summary="Try a target",
    responses=answers(202, "On its way; the target says how it went.") | problems(400, 404, 409),
    openapi_extra=reads(None),
)
async def try_target(request: Request, services: Served, caller: Caller, target_id: TargetId) -> Response:
    """Send a test to your own target, or its code again while it is not confirmed: once a minute.

    A target that was suspended is told again once a test has reached it.
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
    """With the code that was mailed there."""
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
        address=_shown(target),
        status=target.status,
        created_at=target.created_at,
        verified_at=target.verified_at,
        delivered_at=target.delivered_at,
        failed_at=target.failed_at,
        failure=target.failure,
    )


def _shown(target: NoticeTarget) -> str:
    """The whole address of a hook permits posting to it: only its host is shown."""
    if target.channel is NoticeChannel.EMAIL:
        return target.address
    parts = urlsplit(target.address)
    return f"{parts.scheme}://{parts.netloc}/…"


def _preferences(found: StoredPreferences) -> Response:
    shown = NoticePreferences(kinds={kind: sorted(channels) for kind, channels in found.kinds.items()})
    headers = {"ETag": version_tag(found.version)}
    return Response(shown.model_dump_json(), media_type="application/json", headers=headers)
