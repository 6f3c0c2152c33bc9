"""Repeated POSTs: the same Idempotency-Key with the same request gets the same answer, and nothing is done twice.

Only the answers of committed requests are kept (a day): a refused request changed nothing and is judged again.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from api_service.problems import ProblemError
from api_service.requests import headers
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.errors import IdempotencyConflictError
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.repeat_lost_transactions import repeat_lost

REPLAYED = "Idempotency-Replayed"
_KEY = re.compile(r"[ -~]{1,255}")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. `kept` is the stored body for repeated requests; None: `body`."""

    status: int
    body: bytes
    kept: bytes | None = None
    etag: str | None = None
    location: str | None = None

    def response(self) -> Response:
        named = {"ETag": self.etag, "Location": self.location}
        headers = {name: value for name, value in named.items() if value is not None}
        return Response(self.body, status_code=self.status, media_type="application/json", headers=headers)


def key_of(request: Request) -> str | None:
    """The request's Idempotency-Key. Raises ProblemError (400) for one that is not 1 to 255 printable characters."""
    keys = headers.values(request.scope, b"idempotency-key")
    if not keys:
        return None
    if len(keys) > 1 or not _KEY.fullmatch(keys[0]):
        detail = "Idempotency-Key must be one word of 1 to 255 printable ASCII characters, such as a UUID."
        raise ProblemError(400, "bad_idempotency_key", detail)
    return keys[0]


def request_hash(route: str, canonical: bytes) -> bytes:
    """Identify a request by its route and its content, whatever its white space."""
    return hashlib.sha256(route.encode() + b"\x00" + canonical).digest()


def conflict() -> IdempotencyConflictError:
    """The key was used with another request."""
    return IdempotencyConflictError("This Idempotency-Key was used before with another request. Use a new key.")


def replay(status: int, body: bytes) -> Response:
    """The first answer, marked as repeated."""
    return Response(body, status_code=status, media_type="application/json", headers={REPLAYED: "true"})


async def once(
    request: Request,
    caller: Principal,
    canonical: bytes,
    uow_factory: UnitOfWorkFactory,
    act: Callable[[UnitOfWork], Awaitable[Answer]],
) -> Response:
    """Do `act` in one transaction, or return the answer that its Idempotency-Key already has.

    `canonical` is the request's content beyond its path. Raises IdempotencyConflictError, and whatever `act` raises.
    """
    return await repeat_lost(lambda: _once(request, caller, canonical, uow_factory, act))


async def _once(
    request: Request,
    caller: Principal,
    canonical: bytes,
    uow_factory: UnitOfWorkFactory,
    act: Callable[[UnitOfWork], Awaitable[Answer]],
) -> Response:
    key = key_of(request)
    if key is None:
        async with uow_factory() as uow:
            answer = await act(uow)
        return answer.response()
    now = request.app.state.services.runtime.clock.now()
    hashed = request_hash(f"{request.method} {request.scope['path']}", canonical)
    async with uow_factory() as uow:
        stored = await uow.idempotency.claim(caller.user_id, key, hashed, now)
        if stored is not None:
            if stored.request_hash != hashed:
                raise conflict()
            return replay(stored.status, stored.body)
        answer = await act(uow)
        await uow.idempotency.store(caller.user_id, key, answer.status, answer.kept or answer.body)
    return answer.response()
