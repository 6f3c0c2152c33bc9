"""HTTPS requests to identity providers, bounded in number, time and size.

No redirects, no cookies, no proxy of the environment, no retries.
"""

import json
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpcore

from reservation_core.adapters.identity.turns import SignInTurns, TurnRules
from reservation_core.ports.people.proofs import ProofUnavailableError


@dataclass(frozen=True, slots=True)
class OutsideRules:
    """Trusted authorities, bounds on the number and time of requests, and the largest answer in bytes."""

    tls: ssl.SSLContext
    turns: TurnRules
    largest: int = 256 * 1024


@dataclass(frozen=True, slots=True)
class OutsideAnswer:
    """Status and body of an identity provider's answer."""

    status: int
    body: bytes

    def json_object(self) -> dict[str, Any]:
        """The body as a JSON object; empty for anything else."""
        try:
            thing = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return thing if isinstance(thing, dict) else {}


class Outside:
    """Sends requests to identity providers. `network` opens the connections."""

    def __init__(self, rules: OutsideRules, network: httpcore.AsyncNetworkBackend | None = None) -> None:
        self._rules = rules
        self._network = network
        self._turns = SignInTurns(rules.turns)

    async def ask(
        self, method: str, host: str, target: str, headers: Sequence[tuple[str, str]], body: bytes = b""
    ) -> OutsideAnswer:
        """Request `https://{host}{target}` once. Raises ProofUnavailableError."""
        try:
            async with self._turns.turn(host):
                return await self._ask(method, host, target, headers, body)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError) as error:
            raise ProofUnavailableError(f"{host} can't be reached ({_describe(error)}).") from error
        except (httpcore.UnsupportedProtocol, UnicodeError, ValueError) as error:
            raise ProofUnavailableError(f"{host} can't be asked ({type(error).__name__}).") from error

    async def ask_url(
        self, method: str, url: str, headers: Sequence[tuple[str, str]] = (), body: bytes = b""
    ) -> OutsideAnswer:
        """Request JSON from an https URL once. Raises ProofUnavailableError."""
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        always = [("host", parts.netloc), ("accept", "application/json"), ("user-agent", "gpu-dev-server")]
        return await self.ask(method, parts.netloc, target, [*always, *headers], body)

    async def _ask(
        self, method: str, host: str, target: str, headers: Sequence[tuple[str, str]], body: bytes
    ) -> OutsideAnswer:
        url = httpcore.URL(scheme=b"https", host=_bare(host), port=_port(host), target=target.encode("ascii"))
        async with (
            httpcore.AsyncConnectionPool(
                ssl_context=self._rules.tls, network_backend=self._network, retries=0, max_connections=1
            ) as pool,
            pool.stream(method, url, headers=[*headers, ("Connection", "close")], content=body) as answer,
        ):
            read = bytearray()
            async for chunk in answer.aiter_stream():
                read += chunk
                if len(read) > self._rules.largest:
                    raise ProofUnavailableError(f"{host} answered with more than {self._rules.largest} bytes.")
            return OutsideAnswer(answer.status, bytes(read))


def _bare(host: str) -> bytes:
    return host.partition(":")[0].encode("idna")


def _port(host: str) -> int | None:
    with suppress(ValueError):
        return int(host.partition(":")[2])
    return None


def _describe(error: Exception) -> str:
    """Describe an error without any part of the request."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {cause.verify_message}"
        cause = cause.__cause__ or cause.__context__
    match error:
        case httpcore.TimeoutException():
            return "it did not answer in time"
        case httpcore.ProtocolError():
            return "it did not answer in HTTP"
        case _:
            return "no connection"
