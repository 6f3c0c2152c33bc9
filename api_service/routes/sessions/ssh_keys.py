"""SSH keys of people, and certificates for them."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from api_service.documents import answers, problems, reads
from api_service.problems import ProblemError
from api_service.requests import bodies
from api_service.requests.idempotency import Answer, once
from api_service.requests.pagination import PageQuery, decode, encode
from api_service.services import Caller, Served
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.base import Page, UserName
from reservation_core.contracts.sessions import SshCertificateIssue, SshCertificateOut, SshKeyAdd, SshKeyOut
from reservation_core.domain.sessions.public_keys import fingerprint_words
from reservation_core.ports.sessions.ssh_keys import ServerKeyUnreadableError, SshKeyRecord
from reservation_core.usecases.sessions import ssh_keys
from reservation_core.usecases.sessions.ssh_certificates import issue_certificate

router = APIRouter(prefix="/v1", tags=["sessions"])

KeyId = Annotated[str, Path(pattern="^key-[0-9a-z]{1,32}$", description="A key's id.", examples=["key-2m7f3k9q"])]


class KeysQuery(PageQuery):
    """Which keys to list."""

    user: Annotated[UserName | None, Field(description="Only this user's keys.")] = None


@router.post(
    "/keys",
    status_code=201,
    response_model=SshKeyOut,
    summary="Add an SSH key",
    responses=answers(201, "The new key.")
    | {200: {"model": SshKeyOut, "description": "The key, which you had added before."}}
    | problems(400, 409, 413, 415),
    openapi_extra=reads(SshKeyAdd),
)
async def add_key(request: Request, services: Served, caller: Caller) -> Response:
    """Add a public key with which you enter your jobs by SSH. It works until you remove it, whatever token added it.

    You can have 100 keys. Private keys, certificates, lines with options, DSA keys and RSA keys of fewer than 2048 bits
    are refused.
    """
    body = await bodies.read(request, SshKeyAdd, limit=services.settings.max_body_bytes)
    runtime = services.runtime

    async def act(uow: UnitOfWork) -> Answer:
        record, is_new = await ssh_keys.add_key(
            uow, caller, body.public_key, body.name, runtime.ids, runtime.clock.now()
        )
        return Answer(201 if is_new else 200, _shown(record).model_dump_json().encode())

    return await once(request, caller, body.model_dump_json().encode(), runtime.uow, act)


@router.get("/keys", response_model=Page[SshKeyOut], summary="List SSH keys", responses=problems(400, 404))
async def list_keys(services: Served, caller: Caller, query: Annotated[KeysQuery, Query()]) -> Response:
    """Your SSH keys by id; for administrators all keys."""
    key = decode("keys", query.cursor, (str,))
    async with services.runtime.uow() as uow:
        found = await ssh_keys.list_keys(
            uow, caller, user=query.user, after=None if key is None else str(key[0]), limit=query.limit + 1
        )
    records = found[: query.limit]
    page = Page[SshKeyOut](
        items=[_shown(record) for record in records],
        next_cursor=encode("keys", (records[-1].id,)) if len(found) > query.limit else None,
    )
    return Response(page.model_dump_json(), media_type="application/json")


@router.delete("/keys/{key_id}", response_model=SshKeyOut, summary="Remove an SSH key", responses=problems(404))
async def remove_key(services: Served, caller: Caller, key_id: KeyId) -> Response:
    """Remove a key. Connections that it opened end within seconds."""
    async with services.runtime.uow() as uow:
        record = await ssh_keys.remove_key(uow, caller, key_id, services.runtime.clock.now())
    return Response(_shown(record).model_dump_json(), media_type="application/json")


@router.post(
    "/ssh-certificates",
    status_code=201,
    response_model=SshCertificateOut,
    summary="Make an SSH certificate",
    responses=answers(201, "The certificate.") | problems(400, 403, 409, 413, 415),
    openapi_extra=reads(SshCertificateIssue),
)
async def make_certificate(request: Request, services: Served, caller: Caller) -> Response:
    """Sign a public key, so that you enter your jobs with it for an hour, and no longer than your token works.

    A certificate ends with its token, also when the token is revoked. `host_key` belongs into `known_hosts`.
    """
    body = await bodies.read(request, SshCertificateIssue, limit=services.settings.max_body_bytes)
    runtime = services.runtime

    async def act(uow: UnitOfWork) -> Answer:
        issued = await issue_certificate(uow, caller, body.public_key, runtime.clock.now())
        shown = SshCertificateOut(
            certificate=issued.certificate, valid_until=issued.valid_until, host_key=issued.host_key
        )
        return Answer(201, shown.model_dump_json().encode())

    try:
        return await once(request, caller, body.model_dump_json().encode(), runtime.uow, act)
    except ServerKeyUnreadableError as error:
        raise ProblemError(503, "server_keys_unreadable", str(error)) from error


def _shown(record: SshKeyRecord) -> SshKeyOut:
    return SshKeyOut(
        id=record.id,
        user=record.user,
        name=record.name,
        type=record.public_key.partition(" ")[0],
        fingerprint=fingerprint_words(record.fingerprint),
        public_key=record.public_key,
        created_at=record.created_at,
        last_used_at=record.last_used_at,
    )
