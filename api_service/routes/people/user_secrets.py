"""Secrets of people: values go in, never out."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from api_service.documents import answers, problems, reads
from api_service.requests import bodies
from api_service.requests.pagination import PageQuery, decode, encode
from api_service.services import Caller, Served
from reservation_core.contracts.base import Page
from reservation_core.contracts.people import SecretOut, SecretSet
from reservation_core.ports.people.user_secrets import SecretRecord
from reservation_core.usecases.people import user_secrets
from reservation_core.usecases.repeat_lost_transactions import repeat_lost

router = APIRouter(prefix="/v1/secrets", tags=["secrets"])

Name = Annotated[
    str,
    Path(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", description="A secret's name.", examples=["HF_TOKEN"]),
]
_LIST = "secrets"


@router.put(
    "/{secret}",
    response_model=SecretOut,
    summary="Set a secret",
    responses=answers(200, "The secret with its new value, which is not shown.")
    | {201: {"model": SecretOut, "description": "The new secret. Its value is not shown."}}
    | problems(400, 409, 413, 415),
    openapi_extra=reads(SecretSet),
)
async def set_secret(request: Request, services: Served, caller: Caller, secret: Name) -> Response:
    """Store a value for your jobs, or replace it. It is sealed in the database, and no answer has it.

    Jobs that start later get the new value. You can have 100 secrets.
    """
    body = await bodies.read(request, SecretSet, limit=services.settings.max_body_bytes)
    runtime = services.runtime

    # Without an Idempotency-Key: a repeated PUT changes nothing, and a digest of the value is not kept.
    async def put() -> tuple[SecretRecord, bool]:
        async with runtime.uow() as uow:
            return await user_secrets.set_secret(uow, caller, secret, body.value, runtime.clock.now())

    record, is_new = await repeat_lost(put)
    return _answer(record, 201 if is_new else 200)


@router.get("", response_model=Page[SecretOut], summary="List secrets", responses=problems(400))
async def list_secrets(services: Served, caller: Caller, query: Annotated[PageQuery, Query()]) -> Response:
    """Your secrets by name, without their values."""
    key = decode(_LIST, query.cursor, (str,))
    async with services.runtime.uow() as uow:
        found = await uow.secrets.page(
            caller.user_id, after=None if key is None else str(key[0]), limit=query.limit + 1
        )
    records = found[: query.limit]
    page = Page[SecretOut](
        items=[_shown(record) for record in records],
        next_cursor=encode(_LIST, (records[-1].name,)) if len(found) > query.limit else None,
    )
    return Response(page.model_dump_json(), media_type="application/json")


@router.delete("/{secret}", response_model=SecretOut, summary="Delete a secret", responses=problems(404))
async def delete_secret(services: Served, caller: Caller, secret: Name) -> Response:
    """Delete a secret of yours. Jobs that run keep its value; jobs that wait for a start with it fail."""
    async with services.runtime.uow() as uow:
        record = await user_secrets.delete_secret(uow, caller, secret, services.runtime.clock.now())
    return _answer(record, 200)


def _shown(record: SecretRecord) -> SecretOut:
    return SecretOut(name=record.name, created_at=record.created_at, updated_at=record.updated_at)


def _answer(record: SecretRecord, status: int) -> Response:
    return Response(_shown(record).model_dump_json(), status_code=status, media_type="application/json")
