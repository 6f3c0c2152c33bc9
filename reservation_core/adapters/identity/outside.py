"""HTTPS requests to those who vouch for people: few at once, short, small, and never further than where they were sent.

No redirects, no cookies, no proxy of the environment, no retries.
"""

import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import httpcore

from reservation_core.adapters.identity.turns import SignInTurns, TurnRules
from reservation_core.ports.people.proofs import ProofUnavailableError


@dataclass(frozen=True, slots=True)
class OutsideRules:
    """Trusted authorities, the number of requests and their time limit (connecting included), and how large an answer
    may be.
    """

    tls: ssl.SSLContext
    turns: TurnRules
    largest: int = 256 * 1024


@dataclass(frozen=True, slots=True)
class OutsideAnswer:
    """What was answered."""

    status: int
    body: bytes


class Outside:
    """The way to those who vouch. `network` is how connections are made."""

    def __init__(self, rules: OutsideRules, network: httpcore.AsyncNetworkBackend | None = None) -> None:
        self._rules = rules
        self._network = network
        self._turns = SignInTurns(rules.turns)

    async def ask(
        self, method: str, host: str, target: str, headers: Sequence[tuple[str, str]], body: bytes = b""
    ) -> OutsideAnswer:
        """Ask `https://{host}{target}` once. Raises ProofUnavailableError."""
        try:
            async with self._turns.turn(host):
                return await self._ask(method, host, target, headers, body)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError) as error:
            raise ProofUnavailableError(f"{host} can't be reached ({_said(error)}).") from error
        except (httpcore.UnsupportedProtocol, UnicodeError, ValueError) as error:
            raise ProofUnavailableError(f"{host} can't be asked ({type(error).__name__}).") from error

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


def _said(error: Exception) -> str:
    """Why, in words that hold nothing of what was sent."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {cause.verify_message}"
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__
