"""Users: administrators make and disable them; everybody can see who they are themselves."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from api_service import bodies, presenting
from api_service.documents import answers, problems, reads
from api_service.idempotency import Answer, once
from api_service.pagination import PageQuery, decode, encode
from api_service.services import Caller, Served
from reservation_core.contracts import Page, UserCreate, UserOut
from reservation_core.ports.transactions import UnitOfWork
from reservation_core.usecases import users

router = APIRouter(prefix="/v1/users", tags=["users"])

Name = Annotated[
    str,
    Path(
        pattern="^[a-z0-9]([a-z0-9._@-]{0,61}[a-z0-9])?$",
        description="A user's name, or `me`.",
        examples=["me"],
    ),
]


@router.post(
    "",
    status_code=201,
    response_model=UserOut,
    summary="Make a user",
    responses=answers(201, "The user.") | problems(400, 403, 409, 413, 415),
    openapi_extra=reads(UserCreate),
)
async def create_user(request: Request, services: Served, caller: Caller) -> Response:
    """Administrators only. Make a token for the user next."""
    users.require_admin(caller)
    body = await bodies.read(request, UserCreate, limit=services.settings.max_body_bytes)
    now = services.runtime.clock.now()

    async def act(uow: UnitOfWork) -> Answer:
        record = await users.create(uow, caller, body.name, body.role, now)
        return Answer(201, presenting.user(record).model_dump_json().encode())

    return await once(request, caller, body.model_dump_json().encode(), services.runtime.uow, act)


@router.get("", response_model=Page[UserOut], summary="List users", responses=problems(400, 403))
async def list_users(services: Served, caller: Caller, query: Annotated[PageQuery, Query()]) -> Response:
    """Administrators only: everybody by name."""
    users.require_admin(caller)
    key = decode("users", query.cursor, (str,))
    async with services.runtime.uow() as uow:
        found = await users.page(uow, caller, after=None if key is None else str(key[0]), limit=query.limit + 1)
    records = found[: query.limit]
    page = Page[UserOut](
        items=[presenting.user(record) for record in records],
        next_cursor=encode("users", (records[-1].name,)) if len(found) > query.limit else None,
    )
    return Response(page.model_dump_json(), media_type="application/json")


@router.get("/{name}", response_model=UserOut, summary="Look at a user", responses=problems(404))
async def get_user(services: Served, caller: Caller, name: Name) -> Response:
    """Yourself as `me` or by name; for administrators anybody."""
    async with services.runtime.uow() as uow:
        record = await users.find(uow, caller, name)
    return Response(presenting.user(record).model_dump_json(), media_type="application/json")


@router.delete("/{name}", response_model=UserOut, summary="Disable a user", responses=problems(403, 404))
async def disable_user(services: Served, caller: Caller, name: Name) -> Response:
    """Administrators only. The user's tokens stop working; their jobs go on."""
    async with services.runtime.uow() as uow:
        record = await users.disable(uow, caller, name, services.runtime.clock.now())
    services.authenticator.forget_user(name)
    return Response(presenting.user(record).model_dump_json(), media_type="application/json")
