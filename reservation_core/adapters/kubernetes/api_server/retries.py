"""Requests to the API server, single or streamed, with retries.

Lost connections, lost answers, 429 and 5xx are retried, with jitter and within a bound. All requests are idempotent (by
name or by uid), so a lost answer does no harm. After the last attempt ClusterUnavailableError is raised, which says
nothing about any pod; answers that a retry can't change are ApiServerErrors.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp
import msgspec

from reservation_core.adapters.kubernetes.api_server.connections import OpenAnswer, OpenWebSocket, PooledClient
from reservation_core.adapters.kubernetes.api_server.create_pacing import CreatePacing
from reservation_core.adapters.kubernetes.api_server.credentials import ClusterAccess, Credentials
from reservation_core.adapters.kubernetes.api_server.errors import api_error
from reservation_core.adapters.kubernetes.api_server.http_pool import NotConnectedError
from reservation_core.adapters.kubernetes.api_server.plain_json import ANYTHING, OBJECT, decoded
from reservation_core.adapters.kubernetes.api_server.requests import (
    JSON,
    ApiRequest,
    ApiServerAnswer,
    Query,
    encode_body,
)
from reservation_core.ports.cluster import ClusterUnavailableError

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
ONLY_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"
"""Accept header for the metadata of an object alone; servers that lack it send the whole object."""

_ATTEMPTS = 6
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_CREDENTIALS_LAST_S = 60.0


class SilentStreamError(ClusterUnavailableError):
    """A stream was silent for too long: the network is broken, or nothing happened."""


class Transport:
    """Requests to one API server. `timeout_s` bounds an attempt.

    All attempts of a call and the wait for its turn take at most `limit_s`, and never more than 2.5 × `timeout_s`.
    Every method raises ClusterUnavailableError, and ApiServerError for answers that a retry does not change.
    """

    def __init__(self, credentials: Credentials, timeout_s: float, limit_s: float | None = None) -> None:
        self._credentials = credentials
        self._limit_s = 2.5 * timeout_s if limit_s is None else min(limit_s, 2.5 * timeout_s)
        self._timeout_s = timeout_s
        self._connection: PooledClient | None = None
        self._retired: list[PooledClient] = []
        self._renewals = 0
        self._loaded_at = 0.0
        self._loading = asyncio.Lock()
        self._turns = asyncio.Lock()
        self._waiting = 0
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        pacing: CreatePacing | None = None,
        unanswered: Callable[[], None] | None = None,
        final: Collection[int] = (),
        decoder: msgspec.json.Decoder[Any] = ANYTHING,
    ) -> dict[str, Any]:
        """Send a request and return the answered object. `pacing` decides when, and learns of push-back.

        `unanswered` is called when a sent attempt may be carried out later than the answered one; not for idempotent
        requests that http_pool.py repeated at once. A status among `final` is not retried: it raises ApiServerError.
        """
        sent = None if body is None else encode_body(body)
        request = ApiRequest(method, path, query, sent, content_type, accept, unanswered=unanswered, final=final)
        answer = await self._ask(request, pacing)
        try:
            thing = decoded(answer.body, OBJECT if accept == ONLY_METADATA else decoder)
        except (ValueError, RecursionError):
            thing = None
        if not isinstance(thing, dict):
            raise ClusterUnavailableError(
                f"{request} was answered with something that is not a JSON object. Is the address in"
                f" {self._credentials.origin} that of a Kubernetes API server?"
            )
        return thing

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Query | None = None, idle_s: float, begins_late: bool = False
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Stream the chunks of an answer.

        Raises SilentStreamError after `idle_s` seconds without a chunk. A stream that `begins_late` sends its head with
        its first chunk; others have `timeout_s` for it.
        """
        request = ApiRequest("GET", path, query, idle_s=idle_s, head_s=idle_s if begins_late else None)
        answer = cast("OpenAnswer", await self._ask(request, None))  # `_ask` returns good answers alone
        try:
            yield _Chunks(request, answer.raw)
        finally:
            await answer.let_go()

    async def open_websocket(self, path: str, query: Query, protocols: tuple[str, ...]) -> OpenWebSocket:
        """Open a WebSocket, whose user must `let_go` of it. What it starts may have started when the answer is lost.

        So only refused attempts are repeated, and none after 500, by which kubelets refuse.
        """
        request = ApiRequest("GET", path, query, final=(500,), protocols=protocols)
        return cast("OpenWebSocket", await self._ask(request, None))  # `_ask` returns good answers alone

    async def close(self) -> None:
        """Close all connections; pending requests raise ClusterUnavailableError."""
        self._closed = True
        connections = self._retired if self._connection is None else [*self._retired, self._connection]
        self._connection, self._retired = None, []
        await asyncio.gather(*(connection.close() for connection in connections))

    async def _ask(self, request: ApiRequest, pacing: CreatePacing | None) -> ApiServerAnswer:
        """The first good answer within the limit; callers must `let_go` of an OpenAnswer."""
        begun = asyncio.get_running_loop().time()
        until = None if request.head_s is not None else begun + self._limit_s
        try:
            return await self._try(request, pacing, begun, until)
        except TimeoutError as problem:
            raise _unavailable(request, f"it was not done within {self._limit_s:g} s") from problem

    async def _try(
        self, request: ApiRequest, pacing: CreatePacing | None, begun: float, until: float | None
    ) -> ApiServerAnswer:
        """Attempt a request until it is answered. Raises TimeoutError at `until`; times are the event loop's."""
        clock = asyncio.get_running_loop().time
        attempt, renewed = 0, False
        while True:
            attempt += 1
            connection = await self._ready_connection(pacing, until)
            renewals, retry_after = self._renewals, None
            try:
                answer = await self._send(connection, request, until)
            except (aiohttp.ClientError, OSError) as problem:
                failure = _describe_unanswered(problem, request)
                if request.protocols and not isinstance(problem, aiohttp.ClientConnectorError):
                    raise _unavailable(request, failure) from problem
                if isinstance(problem, TimeoutError) and until is not None and clock() >= until:
                    raise
            else:
                if answer.status < 300:
                    return answer
                if answer.status >= 500:
                    request.note_unanswered()  # a proxy may have given up on a server that carries it out
                if answer.status == 401 and not renewed:
                    renewed = True
                    async with asyncio.timeout_at(until):
                        await self._renew(renewals)
                    continue
                failure, retry_after = self._describe_failure(answer, request), answer.retry_after
            if pacing is not None:
                pacing.slow_down(clock(), retry_after)
            pause = _pause(attempt, retry_after)
            if attempt >= _ATTEMPTS or clock() + pause - begun > 1.5 * self._timeout_s or self._closed:
                raise _unavailable(request, failure)
            async with asyncio.timeout_at(until):
                await asyncio.sleep(pause)

    async def _ready_connection(self, pacing: CreatePacing | None, until: float | None) -> PooledClient:
        """Wait for our turn and return the connection to use."""
        connected = self._is_connected()
        if not self._closed and not (connected and self._is_our_turn(pacing)):
            async with asyncio.timeout_at(until):
                if pacing is not None:
                    await self._wait_for_turn(pacing)
                await self._connect()
        if self._connection is None:
            raise ClusterUnavailableError("The Kubernetes adapter was closed; open a new one.")
        return self._connection

    def _describe_failure(self, answer: ApiServerAnswer, request: ApiRequest) -> str:
        """Describe a failure that a retry may fix; raise any other."""
        error = api_error(answer.status, answer.body)
        if answer.status == 401:
            raise ClusterUnavailableError(
                f"The API server does not accept our credentials ({request}). Renew those in"
                f" {self._credentials.origin}."
            )
        if answer.status in request.final or (answer.status != 429 and answer.status < 500):
            raise error
        return f"{error.status} {error.reason}: {error.message}"

    def _is_our_turn(self, pacing: CreatePacing | None) -> bool:
        """Take a turn where that needs no wait, which would need a timeout."""
        if pacing is None:
            return True
        return self._waiting == 0 and pacing.take(asyncio.get_running_loop().time()) <= 0

    async def _wait_for_turn(self, pacing: CreatePacing) -> None:
        """Wait for a turn, first come, first served."""
        clock = asyncio.get_running_loop().time
        self._waiting += 1
        try:
            async with self._turns:
                while (wait := pacing.take(clock())) > 0:  # noqa: ASYNC110 -- only time brings the next turn
                    await asyncio.sleep(wait)
        finally:
            self._waiting -= 1

    async def _send(self, connection: PooledClient, request: ApiRequest, until: float | None) -> ApiServerAnswer:
        """Send one attempt; nothing stays open, whatever is raised."""
        end = asyncio.get_running_loop().time() + (request.head_s or self._timeout_s)
        connection.users += 1
        opened = False
        try:
            async with asyncio.timeout_at(end if until is None else min(end, until)) as limit:
                connection.waits.add(limit)
                try:
                    if request.protocols:
                        answer = await connection.open_websocket(request)
                        opened = isinstance(answer, OpenWebSocket)
                        return answer
                    if request.idle_s is None:
                        return await connection.ask(request)
                    answer = await connection.open(request, self._timeout_s)
                    opened = isinstance(answer, OpenAnswer)
                    return answer
                finally:
                    connection.waits.discard(limit)
        finally:
            if not opened:
                await connection.leave()

    def _is_connected(self) -> bool:
        age = asyncio.get_running_loop().time() - self._loaded_at
        return self._connection is not None and age <= _CREDENTIALS_LAST_S

    async def _connect(self) -> None:
        """Set the current connection; credentials older than a minute are read again."""
        if not self._is_connected():
            async with self._loading:
                if not self._is_connected():
                    await self._load(afresh=False)

    async def _renew(self, renewals: int) -> None:
        """Read rejected credentials again, once for all requests that were refused with them."""
        async with self._loading:
            if self._renewals == renewals:
                self._renewals += 1
                await self._load(afresh=True)

    async def _load(self, *, afresh: bool) -> None:
        access = await self._credentials.load(afresh=afresh)
        if self._closed:
            return  # closed while loading
        former = connection = self._connection
        if connection is None or connection.fingerprint != access.fingerprint:
            connection = self._connection_of(access)
        try:
            connection.authenticate_with(access.configuration.api_key.get("BearerToken"))
        except ValueError:
            raise ClusterUnavailableError(
                f"The token in {self._credentials.origin} is more than one line. Correct it, and try again."
            ) from None
        self._connection, self._loaded_at = connection, asyncio.get_running_loop().time()
        if former is not None and former is not connection:
            former.retired = True
            self._retired = [client for client in (*self._retired, former) if client.users]
            await former.close_if_unused()

    def _connection_of(self, access: ClusterAccess) -> PooledClient:
        try:
            return PooledClient(access)
        except (OSError, ValueError) as problem:  # a rotated certificate may precede its key
            # The exception's text is left out: it may quote a proxy's address.
            raise ClusterUnavailableError(
                f"The API server can't be asked with what {self._credentials.origin} says ({type(problem).__name__})."
                " Check the address, and that certificates and keys are whole and belong together; then try again."
            ) from None


class _Chunks:
    """The chunks of a stream's body, with typed errors."""

    def __init__(self, request: ApiRequest, response: aiohttp.ClientResponse) -> None:
        self._request = request
        self._chunks = response.content.iter_any()

    def __aiter__(self) -> "_Chunks":
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self._chunks.__anext__()
        except TimeoutError as problem:
            raise SilentStreamError(f"{self._request} sent nothing for a long time. Try again.") from problem
        except (aiohttp.ClientError, OSError) as problem:
            raise _unavailable(self._request, _describe_connection_error(problem)) from problem


def _describe_unanswered(problem: Exception, request: ApiRequest) -> str:
    """Describe an attempt without an answer, and report it as unanswered where it was sent."""
    if request.head_s is not None and isinstance(problem, TimeoutError):
        raise SilentStreamError(f"{request} sent nothing for a long time. Try again.") from problem
    if not isinstance(problem, aiohttp.ClientConnectorError | NotConnectedError):
        request.note_unanswered()
    return _describe_connection_error(problem)


def _unavailable(request: ApiRequest, why: str) -> ClusterUnavailableError:
    return ClusterUnavailableError(
        f"The API server did not do {request}: {why}. Try again; if that does not help, check the API server."
    )


def doubled_pause(first_s: float, longest_s: float, failures: int) -> float:
    """A pause in seconds: `first_s` doubled with each failure up to `longest_s`, randomly within its upper half."""
    longest = min(longest_s, first_s * 2.0 ** min(failures, 16))
    return longest * random.uniform(0.5, 1)  # noqa: S311 -- spreads load, keeps no secret


def _pause(attempt: int, retry_after: float | None) -> float:
    """Seconds before the next attempt: exponential with jitter, after `retry_after`."""
    jittered = doubled_pause(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, attempt - 1)
    return jittered if retry_after is None else retry_after + jittered


def _describe_connection_error(problem: Exception) -> str:
    """Describe a connection error without the URL, which may hold a user and password."""
    if isinstance(problem, TimeoutError):
        return "no answer in time"
    if isinstance(problem, aiohttp.ClientConnectorError | NotConnectedError):
        return f"no connection to {problem.host}:{problem.port}"
    return f"the connection broke ({type(problem).__name__})"
