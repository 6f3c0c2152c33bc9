"""The schedulability service over HTTP: one question, one answer, bounded in time and size; redirects lead nowhere."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from pod_scheduling.adapters.schedulability.answers import QuestionShape, can_be_asked, read_answer, written_question
from pod_scheduling.domain.enforcement.booking_rulings import Standing
from pod_scheduling.domain.enforcement.remembered_standings import StandingQuestion
from pod_scheduling.ports.standings import QuestionRefusedError, SourceSilentError

_TOKEN = re.compile(r"[!-~]{1,512}")
_LARGEST_ANSWER = 64 * 1024
_REFUSED = frozenset({400, 404, 409, 413, 415, 422})
"""Answers that say nothing about other questions."""
_CONNECTIONS = 32
_IDLE_S = 4
"""Less than servers leave connections open: they would close them just as a question comes."""


@dataclass(frozen=True, slots=True)
class Service:
    """Where it is, and how it is asked.

    `token` gives the token of the moment; it is never part of an error. `limit_s`: for a question in all.
    """

    url: str
    shape: QuestionShape
    token: Callable[[], str | None]
    tls: ssl.SSLContext
    limit_s: float = 2.0


@asynccontextmanager
async def open_schedulability(service: Service) -> AsyncIterator["SchedulabilityClient"]:
    """Open a client that keeps its connections."""
    limits = httpx.Limits(
        max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS, keepalive_expiry=_IDLE_S
    )
    async with httpx.AsyncClient(
        verify=service.tls, follow_redirects=False, trust_env=False, timeout=service.limit_s, limits=limits
    ) as http:
        yield SchedulabilityClient(http, service)


class SchedulabilityClient:
    """See pod_scheduling.ports.standings.StandingSource."""

    def __init__(self, http: httpx.AsyncClient, service: Service) -> None:
        self._http = http
        self._service = service

    async def ask(self, question: StandingQuestion) -> Standing:
        """Ask once. Raises SourceSilentError and QuestionRefusedError."""
        service = self._service
        if not can_be_asked(question, service.shape):
            told = question.user if len(question.user) <= 254 and question.user.isprintable() else "this requester"
            reason = f"{told} can't be the name of a user who books; an administrator can map it to one."
            return Standing(schedulable=False, reason=reason)
        token = service.token()
        if token is not None and _TOKEN.fullmatch(token) is None:
            raise SourceSilentError("the token can't be one: it must be printable ASCII without blanks")
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        body = written_question(question, service.shape, token)
        try:
            async with asyncio.timeout(service.limit_s):
                answer = await self._answer(headers, body)
        except TimeoutError:
            raise SourceSilentError(f"it did not answer within {service.limit_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ssl.SSLError, OSError) as problem:
            raise SourceSilentError(f"it can't be reached: {type(problem).__name__}") from None
        return read_answer(answer, question, service.shape)

    async def _answer(self, headers: dict[str, str], body: bytes) -> bytes:
        try:
            return await self._once(headers, body)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            # A connection that was kept had been closed over there; a question asked twice does no harm.
            return await self._once(headers, body)

    async def _once(self, headers: dict[str, str], body: bytes) -> bytes:
        async with self._http.stream("POST", self._service.url, headers=headers, content=body) as answer:
            if answer.status_code in _REFUSED:
                raise QuestionRefusedError(f"it refused the question with status {answer.status_code}")
            if answer.status_code in (401, 403):
                raise SourceSilentError(f"it refused the token with status {answer.status_code}")
            if answer.status_code != 200:
                detail = ", a redirect, which is not followed" if answer.is_redirect else ""
                raise SourceSilentError(f"it answered with status {answer.status_code}{detail}")
            if answer.headers.get("content-encoding", "identity").lower() != "identity":
                raise SourceSilentError("its answer is compressed")
            found = bytearray()
            async for chunk in answer.aiter_raw():
                found += chunk
                if len(found) > _LARGEST_ANSWER:
                    raise SourceSilentError(f"its answer has more than {_LARGEST_ANSWER} bytes")
            return bytes(found)
