"""Users: administrators make and disable them; all users can see themselves."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from api_service.documents import answers, problems, reads
from api_service.presenting import jobs_and_nodes
from api_service.presenting import users as presenting_users
from api_service.requests import bodies
from api_service.requests.idempotency import Answer, once
from api_service.requests.pagination import PageQuery, decode, encode
from api_service.services import Caller, Served
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.base import Page, UserName
from reservation_core.contracts.people import UserCreate, UserDisabled, UserOut
from reservation_core.usecases.people import disable_user as disabling
from reservation_core.usecases.people import users

router = APIRouter(prefix="/v1/users", tags=["users"])

Name = Annotated[UserName, Path(description="A user's name, or `me`.", examples=["me"])]


@router.post(
    "",
    status_code=201,
    response_model=UserOut,
    summary="Add a user",
    responses=answers(201, "The user.") | problems(400, 403, 409, 413, 415),
    openapi_extra=reads(UserCreate),
)
async def create_user(request: Request, services: Served, caller: Caller) -> Response:
    """Administrators only. Create a token for the user next."""
    users.require_admin(caller)
    body = await bodies.read(request, UserCreate, limit=services.settings.max_body_bytes)
    now = services.runtime.clock.now()

    async def act(uow: UnitOfWork) -> Answer:
        record = await users.create(uow, caller, body.name, body.role, now)
        return Answer(201, jobs_and_nodes.user(record).model_dump_json().encode())

    return await once(request, caller, body.model_dump_json().encode(), services.runtime.uow, act)


@router.get("", response_model=Page[UserOut], summary="List users", responses=problems(400, 403))
async def list_users(services: Served, caller: Caller, query: Annotated[PageQuery, Query()]) -> Response:
    """Administrators only: all users by name."""
    users.require_admin(caller)
    key = decode("users", query.cursor, (str,))
    async with services.runtime.uow() as uow:
        found = await users.page(uow, caller, after=None if key is None else str(key[0]), limit=query.limit + 1)
    records = found[: query.limit]
    page = Page[UserOut](
        items=[jobs_and_nodes.user(record) for record in records],
        next_cursor=encode("users", (records[-1].name,)) if len(found) > query.limit else None,
    )
    return Response(page.model_dump_json(), media_type="application/json")


@router.get("/{name}", response_model=UserOut, summary="Look at a user", responses=problems(404))
async def get_user(services: Served, caller: Caller, name: Name) -> Response:
    """Yourself, as `me` or by name; for administrators any user."""
    async with services.runtime.uow() as uow:
        record = await users.find(uow, caller, name)
    return Response(jobs_and_nodes.user(record).model_dump_json(), media_type="application/json")


@router.post(
    "/{name}/enable",
    response_model=UserOut,
    summary="Enable a user",
    responses=problems(400, 403, 404, 409),
    openapi_extra=reads(None),
)
async def enable_user(request: Request, services: Served, caller: Caller, name: Name) -> Response:
    """Administrators only. A disabled user has access again; tokens that were not revoked work again."""

    async def act(uow: UnitOfWork) -> Answer:
        return Answer(200, jobs_and_nodes.user(await users.enable(uow, caller, name)).model_dump_json().encode())

    return await once(request, caller, b"", services.runtime.uow, act)


class DisableQuery(BaseModel):
    """The fate of the user's jobs and bookings."""

    model_config = ConfigDict(extra="forbid")

    end: Annotated[bool, Query(description="Also end running jobs and bookings, not only waiting ones.")] = False


@router.delete("/{name}", response_model=UserDisabled, summary="Disable a user", responses=problems(400, 403, 404))
async def disable_user(
    services: Served, caller: Caller, name: Name, query: Annotated[DisableQuery, Query()]
) -> Response:
    """Administrators only. The user's tokens stop working, none of their jobs starts, and waiting jobs and requests on
    the waitlist are cancelled. Running jobs and bookings are listed in `left` and go on, but no workload starts with a
    booking; with `end` they are cancelled, too. The call can be repeated."""
    uow_factory = services.runtime.uow
    async with uow_factory() as uow:
        record = await disabling.disable(uow, caller, name, end=query.end)
    services.authenticator.forget_user(name)
    cancelled = await disabling.cancel_belongings(uow_factory, record, caller.user, end=query.end)
    async with uow_factory() as uow:
        left = await disabling.left(uow, record)
    return Response(presenting_users.disabled(record, cancelled, left).model_dump_json(), media_type="application/json")
