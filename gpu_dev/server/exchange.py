"""One request and its answer over HTTP: authorisation, retries after broken connections, typed errors.

Every call may be repeated: GET and DELETE by their nature, POST by the Idempotency-Key that is made once for the call
and sent with every attempt. So a connection that breaks after the server acted never makes it act twice.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from socket import IPPROTO_TCP, SO_KEEPALIVE, SOL_SOCKET
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx
from pydantic import BaseModel, ValidationError

from gpu_dev.errors import ApiError, ClientError, NotLoggedInError, UnexpectedAnswerError, UnreachableError
from gpu_dev.server.connection import Connection, is_loopback
from reservation_core.contracts.base import Problem
from reservation_core.domain.network.environment_proxies import proxy_for

M = TypeVar("M", bound=BaseModel)

BRIEF_S = (0.2, 0.5)
"""Pauses between attempts while the server has never answered: it probably does not run."""
PATIENT_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0)
"""Pauses between attempts once the server has answered: it is probably restarting."""
TIMEOUT = httpx.Timeout(30.0, connect=5.0)
# Streams may be silent for long: keep-alive probes of the connection tell a dead peer from a quiet one.
_LINUX_KEEPALIVE = {4: 30, 5: 10, 6: 3}  # TCP_KEEPIDLE, TCP_KEEPINTVL (seconds), TCP_KEEPCNT
_LATER = frozenset({
    HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT
})  # fmt: skip
_LONGEST_WAIT_S = 60
_PORTS = {"http": 80, "https": 443}
_SHOWN_CHARACTERS = 200


class Exchange:
    """The HTTP side of the client; safe to use from several threads."""

    def __init__(
        self,
        connection: Connection,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        renew: Callable[[], str] | None = None,
    ) -> None:
        self.server = connection.server
        self.sleep = sleep
        self._token = connection.token
        self._renew = renew
        self._renewing = threading.Lock()
        headers = {"User-Agent": "gpu-dev", "Accept": "application/json, application/problem+json"}
        self._http = httpx.Client(
            base_url=connection.server,
            headers=headers,
            timeout=TIMEOUT,
            transport=transport or _transport(connection.server),
            trust_env=False,
        )
        self._answered = False

    def close(self) -> None:
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: BaseModel | None = None,
        headers: Mapping[str, str] | None = None,
        anonymous: bool = False,
    ) -> httpx.Response:
        """Send until there is an answer, and return a 2xx. `anonymous` requests carry no token.

        Raises ApiError for the server's refusals, UnreachableError when tries run out, NotLoggedInError without token.
        """
        content = None if body is None else body.model_dump_json(exclude_unset=True).encode()
        sent = dict(headers or {})
        if content is not None:
            sent["Content-Type"] = "application/json"
        tried = 0
        renewed = anonymous
        while True:
            asked_to_wait = 0.0
            token = None if anonymous else self._needed_token()
            if token is not None:
                sent["Authorization"] = f"Bearer {token}"
            try:
                response = self._http.request(method, path, params=params, content=content, headers=sent)
            except httpx.TransportError as error:
                failure: ClientError = self.unreachable(error)
            except httpx.InvalidURL as error:
                raise UnreachableError(f"{self.server} is not an address that can be asked: {error}.") from error
            else:
                self._answered = True
                if response.is_success:
                    return response
                if response.status_code == HTTPStatus.UNAUTHORIZED and not renewed and self._renewed(token):
                    renewed = True
                    continue
                failure = problem_error(response)
                if response.status_code not in _LATER:
                    raise failure
                if response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
                    asked_to_wait = _asked_to_wait(response)
            pauses = PATIENT_S if self._answered else BRIEF_S
            if tried == len(pauses):
                raise failure
            self.sleep(max(pauses[tried], asked_to_wait))
            tried += 1

    @contextmanager
    def stream(
        self,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        silence_s: float | None = None,
    ) -> Iterator[httpx.Response]:
        """Open one streaming GET; a silence longer than `silence_s` seconds is a read timeout.

        Raises ApiError when the server refuses, httpx.TransportError when the connection breaks.
        """
        timeout = httpx.Timeout(30.0, connect=5.0, read=silence_s)
        for first in (True, False):
            token = self._needed_token()
            sent = {**(headers or {}), "Authorization": f"Bearer {token}"}
            with self._http.stream("GET", path, params=params, headers=sent, timeout=timeout) as response:
                self._answered = True
                if response.is_success:
                    yield response
                    return
                response.read()
                failure = problem_error(response)
                unauthorized = response.status_code == HTTPStatus.UNAUTHORIZED
            if not (first and unauthorized and self._renewed(token)):
                raise failure

    def unreachable(self, error: Exception) -> UnreachableError:
        """The error for a server that does not answer."""
        return UnreachableError(
            f"{self.server} does not answer ({_in_words(error)}). Is it running, and is the address right?",
            next_command="gpu-dev up" if is_loopback(self.server) else f"curl {self.server}/readyz",
        )

    def _needed_token(self) -> str:
        if self._token is None:
            raise NotLoggedInError(f"There is no token for {self.server}.", next_command="gpu-dev login")
        return self._token

    def _renewed(self, refused: str | None) -> bool:
        """Whether there is another token than the refused one. A new one is got once for all threads that need it."""
        if self._renew is None:
            return False
        with self._renewing:
            if self._token == refused:
                self._token = self._renew()
        return self._token != refused


def read_answer(model: type[M], content: bytes | str) -> M:
    """Read an answer. Fields that this client doesn't know are ignored.

    Raises UnexpectedAnswerError when it isn't what the contract says.
    """
    try:
        return model.model_validate_json(content, extra="ignore")
    except ValidationError as error:
        where = ", ".join(sorted({".".join(map(str, e["loc"])) or "everything" for e in error.errors()})[:5])
        raise UnexpectedAnswerError(
            f"The answer is not a {model.__name__} as this client knows it (see: {where}). "
            "Is this address a GPU Dev Server, and of the same version as this client?"
        ) from error


def problem_error(response: httpx.Response) -> ApiError:
    """The error for an answer that isn't a success, with or without problem details. The answer has been read."""
    if "problem+json" in response.headers.get("content-type", ""):
        try:
            return ApiError(read_answer(Problem, response.content))
        except UnexpectedAnswerError:
            # A problem in an unknown shape is still a refusal: its status and text are shown.
            pass
    detail = " ".join(response.text.split())[:_SHOWN_CHARACTERS] or "no explanation was given"
    title = response.reason_phrase or "Refused"
    return ApiError(
        Problem(
            type="about:blank",
            title=title,
            status=response.status_code,
            detail=f"The server answered {response.status_code} {title}: {detail}",
        )
    )


def _asked_to_wait(response: httpx.Response) -> float:
    """The seconds of a `Retry-After`, up to the longest wait."""
    said = response.headers.get("retry-after", "")
    return float(min(int(said), _LONGEST_WAIT_S)) if said.isascii() and said.isdecimal() and len(said) < 9 else 0.0


def _transport(server: str) -> httpx.HTTPTransport:
    """A transport that uses the environment's proxies, but never for a server on this machine."""
    url = urlsplit(server)
    host = url.hostname or ""
    proxy = (
        None if is_loopback(server) else proxy_for(url.scheme, host, url.port or _PORTS.get(url.scheme), getproxies())
    )
    options = [(SOL_SOCKET, SO_KEEPALIVE, 1), *((IPPROTO_TCP, name, value) for name, value in _LINUX_KEEPALIVE.items())]
    # Reading the certificates of authorities costs as much as all else of a call.
    verify: SSLContext | bool = SSLContext(PROTOCOL_TLS_CLIENT) if url.scheme == "http" and proxy is None else True
    return httpx.HTTPTransport(proxy=proxy, socket_options=options, verify=verify)


def _in_words(error: Exception) -> str:
    match error:
        case httpx.ConnectTimeout() | httpx.ReadTimeout() | httpx.WriteTimeout() | httpx.PoolTimeout():
            return "no answer in time"
        case httpx.ConnectError():
            return "no connection"
        case _:
            return "the connection broke"
