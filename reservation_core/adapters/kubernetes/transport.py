"""Requests to the API server: one at a time or as a stream, each tried again while that can help.

Retried, with jitter and within a bound: no connection, no answer, 429 and 5xx. Everything asked here is idempotent (by
name or by uid), so an answer that was lost does no harm. What remains is ClusterUnavailableError, which says nothing
about any pod; what asking again can't change is an ApiError.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp

from reservation_core.adapters.kubernetes.api_errors import api_error
from reservation_core.adapters.kubernetes.connections import Connection
from reservation_core.adapters.kubernetes.credentials import Credentials
from reservation_core.adapters.kubernetes.pacing import CreatePacing
from reservation_core.ports.cluster import ClusterUnavailableError

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
ONLY_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"
"""What to accept of an object of which nothing but the metadata is looked at; not every server knows how to."""

_JSON = "application/json"

_ATTEMPTS = 6
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_CREDENTIALS_LAST_S = 60.0
_USER_AGENT = "gpu-dev-server"

Query = Mapping[str, str | int | bool | None]


class SilentStreamError(ClusterUnavailableError):
    """A stream brought nothing for longer than was allowed. The network may be broken, or there was nothing to say."""


@dataclass(slots=True)
class _Answer:
    """An answer's head, and its body unless it is a stream. Has to be let go of."""

    connection: Connection
    raw: aiohttp.ClientResponse
    body: bytes

    @property
    def status(self) -> int:
        return self.raw.status

    @property
    def retry_after(self) -> float | None:
        """The pause that the server asks for, in seconds."""
        text = self.raw.headers.get("Retry-After", "")
        return float(text) if text.isdecimal() and len(text) < 7 else None

    async def let_go(self) -> None:
        # What was read to its end has no connection any more. Any other is cut: a farewell would be waited for.
        if self.raw.connection is not None and self.raw.connection.transport is not None:
            self.raw.connection.transport.abort()
        self.raw.close()
        await self.connection.leave()


@dataclass(frozen=True, slots=True)
class _Request:
    """What is sent, whatever the attempt. `idle_s` is set for a stream, `head_s` for one that begins late."""

    method: str
    path: str
    query: Query | None
    body: Mapping[str, Any] | None = None
    content_type: str = _JSON
    accept: str = _JSON
    idle_s: float | None = None
    head_s: float | None = None
    unanswered: Callable[[], None] | None = None
    final: Collection[int] = ()

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def was_not_answered(self) -> None:
        if self.unanswered is not None:
            self.unanswered()


class Transport:
    """The way to one API server. `timeout_s` bounds an attempt.

    All attempts of a call, with the wait for its turn, take `limit_s` at most, and never more than 2.5 attempts' time.

    Every method raises ClusterUnavailableError, and ApiError for what asking again does not change.
    """

    def __init__(self, credentials: Credentials, timeout_s: float, limit_s: float | None = None) -> None:
        self._credentials = credentials
        self._limit_s = 2.5 * timeout_s if limit_s is None else min(limit_s, 2.5 * timeout_s)
        self._timeout_s = timeout_s
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._connection: Connection | None = None
        self._renewals = 0
        self._loaded_at = 0.0
        self._loading = asyncio.Lock()
        self._turns = asyncio.Lock()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        pacing: CreatePacing | None = None,
        unanswered: Callable[[], None] | None = None,
        final: Collection[int] = (),
    ) -> dict[str, Any]:
        """Ask, and give back the object that is answered. `pacing` says when, and hears what was pushed back.

        `unanswered` is called when an attempt was sent and may be carried out later than the one that was answered.
        Answers with a status among `final` are not asked for again: they raise ApiError.
        """
        request = _Request(method, path, query, body, content_type, accept, unanswered=unanswered, final=final)
        answer = await self._ask(request, pacing)
        await answer.let_go()
        try:
            said = json.loads(answer.body)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise ClusterUnavailableError(
                f"{request} was answered with something that is not a JSON object. Is the address in"
                f" {self._credentials.origin} that of a Kubernetes API server?"
            )
        return said

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Query | None = None, idle_s: float, begins_late: bool = False
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Chunks of a long answer as they come.

        Raises SilentStreamError after `idle_s` seconds without any. An answer has to begin as soon as any other, unless
        it `begins_late`, with its first chunk.
        """
        request = _Request("GET", path, query, idle_s=idle_s, head_s=idle_s if begins_late else None)
        answer = await self._ask(request, None)
        try:
            yield _Chunks(request, answer.raw)
        finally:
            await answer.let_go()

    async def close(self) -> None:
        """Close all connections; whoever still waits for an answer gets ClusterUnavailableError."""
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _ask(self, request: _Request, pacing: CreatePacing | None) -> _Answer:
        """The first good answer within the limit. Let go of it."""
        limit_s = None if request.head_s is not None else self._limit_s
        try:
            async with asyncio.timeout(limit_s):
                return await self._try(request, pacing)
        except TimeoutError as problem:
            raise _unavailable(request, f"it was not done within {limit_s:g} s") from problem

    async def _try(self, request: _Request, pacing: CreatePacing | None) -> _Answer:
        """One attempt after the other."""
        clock = asyncio.get_running_loop().time
        begun, attempt, renewed = clock(), 0, False
        while True:
            attempt += 1
            if pacing is not None:
                await self._turn(pacing)
            connection, renewals = await self._connect(), self._renewals
            retry_after = None
            try:
                answer = await self._send(connection, request)
            except (aiohttp.ClientError, OSError, TimeoutError) as problem:
                if request.head_s is not None and isinstance(problem, TimeoutError):
                    raise SilentStreamError(f"{request} brought nothing for a long time. Ask again.") from problem
                failure = _words(problem)
                if not isinstance(problem, aiohttp.ClientConnectorError):
                    request.was_not_answered()
            else:
                if answer.status < 300:
                    return answer
                if answer.status >= 500:
                    request.was_not_answered()  # what stands between us and the server may speak for it, and too early
                await answer.let_go()
                if answer.status == 401 and not renewed:
                    renewed = True
                    await self._renew(renewals)
                    continue
                failure, retry_after = self._failure(answer, request), answer.retry_after
            if pacing is not None:
                pacing.pushed_back(clock(), retry_after)
            pause = _pause(attempt, retry_after)
            if attempt >= _ATTEMPTS or clock() + pause - begun > 1.5 * self._timeout_s or self._closed:
                raise _unavailable(request, failure)
            await asyncio.sleep(pause)

    def _failure(self, answer: _Answer, request: _Request) -> str:
        """What went wrong, where trying again may help; else raises."""
        error = api_error(answer.status, answer.body)
        if answer.status == 401:
            raise ClusterUnavailableError(
                f"The API server does not accept our credentials ({request}). Renew those in"
                f" {self._credentials.origin}."
            )
        if answer.status in request.final or (answer.status != 429 and answer.status < 500):
            raise error
        return f"{error.status} {error.reason}: {error.message}"

    async def _turn(self, pacing: CreatePacing) -> None:
        """Wait for a turn, in the order in which turns were asked for."""
        clock = asyncio.get_running_loop().time
        async with self._turns:
            while (wait := pacing.take(clock())) > 0:  # noqa: ASYNC110 -- only time brings the next turn
                await asyncio.sleep(wait)

    async def _send(self, connection: Connection, request: _Request) -> _Answer:
        """One attempt. Whatever is raised, nothing is left open."""
        # Uncompressed: packing a list costs both sides more time than sending it within a data centre.
        headers = {"Accept": f"{request.accept}, */*", "Accept-Encoding": "identity", "User-Agent": _USER_AGENT}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if connection.token is not None:
            headers["authorization"] = connection.token
        stream = request.idle_s is not None
        timeout = (
            aiohttp.ClientTimeout(total=None, sock_connect=self._timeout_s, sock_read=request.idle_s)
            if stream
            else self._timeout
        )
        connection.users += 1
        response: aiohttp.ClientResponse | None = None
        try:
            url = connection.host + request.path + _encoded(request.query)
            async with asyncio.timeout(request.head_s or self._timeout_s) as limit:
                connection.waits.add(limit)
                try:
                    sent = await connection.client.call_api(
                        request.method, url, header_params=headers, body=request.body, _request_timeout=timeout
                    )
                finally:
                    connection.waits.discard(limit)
            response = sent.response
            body = b"" if stream and response.status < 300 else await response.read()
        except BaseException:
            if response is not None:
                response.close()
            await connection.leave()
            raise
        return _Answer(connection, response, body)

    async def _connect(self) -> Connection:
        """The connection to use now; credentials are looked at again every minute."""
        clock = asyncio.get_running_loop().time
        if self._connection is None or clock() - self._loaded_at > _CREDENTIALS_LAST_S:
            async with self._loading:
                if self._connection is None or clock() - self._loaded_at > _CREDENTIALS_LAST_S:
                    await self._load(afresh=False)
        if self._connection is None:
            raise ClusterUnavailableError("The Kubernetes adapter was closed; open a new one.")
        return self._connection

    async def _renew(self, renewals: int) -> None:
        """The server did not accept who we are: read that again, once for all who were refused."""
        async with self._loading:
            if self._renewals == renewals:
                self._renewals += 1
                await self._load(afresh=True)

    async def _load(self, *, afresh: bool) -> None:
        if self._closed:
            return
        access = await self._credentials.load(afresh=afresh)
        self._loaded_at = asyncio.get_running_loop().time()
        former = connection = self._connection
        if connection is None or connection.fingerprint != access.fingerprint:
            self._connection = connection = Connection(access)
        connection.token = access.configuration.api_key.get("BearerToken")
        if former is not None and former is not connection:
            former.retired = True
            await former.close_if_unused()


class _Chunks:
    """The body of a stream, as it comes."""

    def __init__(self, request: _Request, response: aiohttp.ClientResponse) -> None:
        self._request = request
        self._chunks = response.content.iter_any()

    def __aiter__(self) -> "_Chunks":
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self._chunks.__anext__()
        except TimeoutError as problem:
            raise SilentStreamError(f"{self._request} brought nothing for a long time. Ask again.") from problem
        except (aiohttp.ClientError, OSError) as problem:
            raise _unavailable(self._request, _words(problem)) from problem


def _unavailable(request: _Request, why: str) -> ClusterUnavailableError:
    return ClusterUnavailableError(
        f"The API server did not do {request}: {why}. Nothing is concluded from that; try again, and look at the"
        " API server if it lasts."
    )


def _pause(attempt: int, retry_after: float | None) -> float:
    """Seconds before the next attempt: doubling, at random within its half, never less than was asked for."""
    longest: float = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (attempt - 1))
    jittered = longest * random.uniform(0.5, 1)  # noqa: S311 -- spreads load, keeps no secret
    return jittered if retry_after is None else retry_after + jittered


def _encoded(query: Query | None) -> str:
    said = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in (query or {}).items()
        if value is not None
    }
    return f"?{urlencode(said)}" if said else ""


def _words(problem: Exception) -> str:
    """What went wrong on the way, without what could hold an address's user and password."""
    if isinstance(problem, TimeoutError):
        return "no answer in time"
    if isinstance(problem, aiohttp.ClientConnectorError):
        return f"no connection to {problem.host}:{problem.port}"
    return f"the connection broke ({type(problem).__name__})"
