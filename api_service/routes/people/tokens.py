"""Tokens: the caller's credentials."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from api_service.documents import answers, problems, reads
from api_service.presenting import jobs_and_nodes
from api_service.requests import bodies
from api_service.requests.idempotency import Answer, once
from api_service.requests.pagination import PageQuery, decode, encode
from api_service.services import Caller, Served
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.base import Page, UserName
from reservation_core.contracts.people import TokenCreate, TokenCreated, TokenOut, TokenRenew, TokensRevoked
from reservation_core.ports.people.identities import TokenRecord
from reservation_core.usecases.people import tokens
from reservation_core.usecases.repeat_lost_transactions import repeat_lost

router = APIRouter(prefix="/v1/tokens", tags=["tokens"])

TokenId = Annotated[str, Path(pattern="^tok-[0-9a-z]{1,32}$", description="A token's id.", examples=["tok-2m7f3k9q"])]


class TokensQuery(PageQuery):
    """Which tokens to list."""

    user: Annotated[UserName | None, Field(description="Only this user's tokens.")] = None


@router.post(
    "",
    status_code=201,
    response_model=TokenCreated,
    summary="Create a token",
    responses=answers(201, "The token. Its secret is in this answer and nowhere else.")
    | problems(400, 403, 404, 409, 413, 415),
    openapi_extra=reads(TokenCreate),
)
async def create_token(request: Request, services: Served, caller: Caller) -> Response:
    """Create a token for yourself; administrators also create tokens for others. A repeated request gets `token: null`.

    The token has `scopes`, or else all scopes of the token that makes it. It never exceeds that one, does not outlast
    it, and is revoked with it. Without `expires_in` it never expires, if the server allows that. Requests with the
    token are charged to its `budget`, and to the budgets of the tokens that it descends from.
    """
    body = await bodies.read(request, TokenCreate, limit=services.settings.max_body_bytes)
    runtime = services.runtime
    now = runtime.clock.now()

    async def act(uow: UnitOfWork) -> Answer:
        record, secret = await tokens.create(
            uow,
            caller,
            name=body.name,
            user=body.user,
            expires_in=body.expires_in,
            scopes=None if body.scopes is None else frozenset(body.scopes),
            budget=body.budget,
            longest=services.settings.auth.longest_token,
            ids=runtime.ids,
            now=now,
        )
        shown = jobs_and_nodes.token(record).model_dump()
        return Answer(
            201,
            TokenCreated(**shown, token=secret).model_dump_json().encode(),
            kept=TokenCreated(**shown, token=None).model_dump_json().encode(),
        )

    return await once(request, caller, body.model_dump_json().encode(), runtime.uow, act)


@router.get("", response_model=Page[TokenOut], summary="List tokens", responses=problems(400, 404))
async def list_tokens(services: Served, caller: Caller, query: Annotated[TokensQuery, Query()]) -> Response:
    """Your tokens by id, without their secrets; for administrators all tokens."""
    key = decode("tokens", query.cursor, (str,))
    async with services.runtime.uow() as uow:
        found = await tokens.page(
            uow, caller, user=query.user, after=None if key is None else str(key[0]), limit=query.limit + 1
        )
    records = found[: query.limit]
    page = Page[TokenOut](
        items=[jobs_and_nodes.token(record) for record in records],
        next_cursor=encode("tokens", (records[-1].id,)) if len(found) > query.limit else None,
    )
    return Response(page.model_dump_json(), media_type="application/json")


@router.post(
    "/renew",
    response_model=TokenOut,
    summary="Replace a token's secret",
    responses=problems(400, 409, 413, 415),
    openapi_extra=reads(TokenRenew),
)
async def renew_token(request: Request, services: Served, caller: Caller) -> Response:
    """The token that you use gets the secret that you send, and the old secret stops working. Its scopes, its end and
    the tokens that were made with it stay."""
    body = await bodies.read(request, TokenRenew, limit=services.settings.max_body_bytes)
    runtime = services.runtime
    shown = services.authenticator.digest(request.headers.get("authorization"))
    digest = runtime.ids.digest(body.token)

    async def act(uow: UnitOfWork) -> Answer:
        record = await tokens.renew(uow, caller, shown, digest, runtime.clock.now())
        return Answer(200, jobs_and_nodes.token(record).model_dump_json().encode())

    answer = await once(request, caller, digest, runtime.uow, act)
    services.authenticator.forget_user(caller.user)
    return answer


@router.delete("", response_model=TokensRevoked, summary="Revoke all tokens", responses=problems(400, 403, 404))
async def revoke_all_tokens(
    services: Served,
    caller: Caller,
    user: Annotated[UserName | None, Query(description="Of this user (administrators); default: your own.")] = None,
) -> Response:
    """Revoke all tokens and sessions of a user, except the token in use and the tokens that it descends from.

    The calendar's address stops working, too."""

    async def act() -> tuple[str, int]:
        async with services.runtime.uow() as uow:
            return await tokens.revoke_all(uow, caller, user, services.runtime.clock.now())

    name, revoked = await repeat_lost(act)
    services.authenticator.forget_revoked(caller, name)
    return Response(TokensRevoked(user=name, revoked=revoked).model_dump_json(), media_type="application/json")


@router.delete("/{token_id}", response_model=TokenOut, summary="Revoke a token", responses=problems(404))
async def revoke_token(services: Served, caller: Caller, token_id: TokenId) -> Response:
    """Revoke a token and all tokens that were made with it: at once here, within seconds on other servers."""

    async def act() -> TokenRecord:
        async with services.runtime.uow() as uow:
            return await tokens.revoke(uow, caller, token_id, services.runtime.clock.now())

    record = await repeat_lost(act)
    services.authenticator.forget_revoked(caller, record.user)
    return Response(jobs_and_nodes.token(record).model_dump_json(), media_type="application/json")
