"""One request and its answer over HTTP: authorisation, retries after broken connections, typed errors.

Every call may be repeated: GET and DELETE by their nature, POST by the Idempotency-Key that is made once for the call
and sent with every attempt. So a connection that breaks after the server acted never makes it act twice.
"""

import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from gpu_dev.errors import (
    ApiError,
    ClientError,
    NotLoggedInError,
    OlderServerError,
    UnexpectedAnswerError,
    UnreachableError,
    UsageError,
)
from gpu_dev.server.connection import ADMIN_TOKEN, NO_SOURCE, TOKEN_VARIABLE, Connection, is_loopback
from gpu_dev.server.transport import (
    USUAL_SILENCE_S,
    BadAddressError,
    Body,
    Incoming,
    TlsError,
    Transport,
    TransportError,
    transport_to,
)
from gpu_dev.wire.base import Problem

if TYPE_CHECKING:
    import httpx

Request: TypeAlias = msgspec.Struct | Mapping[str, Any]
S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")

BRIEF_S = (0.2, 0.5)
"""Pauses between attempts while the server has never answered: it probably does not run."""
PATIENT_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0)
"""Pauses between attempts once the server has answered: it is probably restarting."""
_LATER = frozenset({
    HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT
})  # fmt: skip
_HEADERS = {"User-Agent": "gpu-dev", "Accept": "application/json, application/problem+json"}
_LONGEST_WAIT_S = 60
_SHOWN_CHARACTERS = 200
_SHOWN_FIELDS = 5
_NO_SUCH_ROUTE = "urn:gpu-dev:problem:no_such_route"


class Answer(NamedTuple):
    """A whole answer; header names are in lower case."""

    status: int
    phrase: str
    headers: Mapping[str, str]
    content: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")


class Exchange:
    """The HTTP side of the client; safe to use from several threads."""

    def __init__(
        self,
        connection: Connection,
        *,
        transport: "httpx.BaseTransport | None" = None,
        sleep: Callable[[float], None] = time.sleep,
        renew: Callable[[], str] | None = None,
    ) -> None:
        self.server = connection.server
        self.sleep = sleep
        self._token = connection.token
        self._source = connection.source
        self._renew = renew
        self._renewing = threading.Lock()
        self._transport = _transport(connection.server, transport)
        self._answered = False

    def close(self) -> None:
        self._transport.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Request | None = None,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        anonymous: bool = False,
        silence_s: float = USUAL_SILENCE_S,
    ) -> Answer:
        """Send until there is an answer, and return a 2xx. `anonymous` requests carry no token.

        The answer may take `silence_s` seconds. `raw` is a body that is no JSON; its type is one of the headers.

        Raises ApiError for the server's refusals, UnreachableError when tries run out, NotLoggedInError without token,
        UsageError for a header that HTTP can't carry.
        """
        content = raw if body is None else msgspec.json.encode(body)
        sent = dict(headers or {})
        if body is not None:
            sent["Content-Type"] = "application/json"
        tried = 0
        renewed = anonymous
        while True:
            asked_to_wait = 0.0
            token = None if anonymous else self._needed_token()
            if token is not None:
                sent["Authorization"] = f"Bearer {token}"
            try:
                response = self._answer(method, target(path, params), sent, content, silence_s)
            except TlsError as error:
                raise self.unreachable(error) from error
            except TransportError as error:
                failure: ClientError = self.unreachable(error)
            else:
                self._answered = True
                if response.is_success:
                    return response
                if response.status == HTTPStatus.UNAUTHORIZED and not renewed and self._renewed(token):
                    renewed = True
                    continue
                failure = self._refusal(response)
                if response.status not in _LATER:
                    raise failure
                if response.status == HTTPStatus.TOO_MANY_REQUESTS:
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
    ) -> Iterator[Body]:
        """Open one streaming GET; a silence longer than `silence_s` seconds is a SilenceError.

        Raises ApiError when the server refuses, TransportError when the connection breaks.
        """
        for first in (True, False):
            token = self._needed_token()
            sent = {**(headers or {}), "Authorization": f"Bearer {token}"}
            incoming = self._open("GET", target(path, params), sent, None, silence_s)
            try:
                self._answered = True
                if incoming.status // 100 == 2:
                    yield incoming.body
                    return
                refusal = _whole(incoming)
            finally:
                incoming.body.close()
            if not (first and refusal.status == HTTPStatus.UNAUTHORIZED and self._renewed(token)):
                raise self._refusal(refusal)

    async def with_token(self, call: Callable[[str], Awaitable[T]]) -> T:
        """Await `call` of the token, and of a new token where the server refuses the first."""
        token = self._needed_token()
        try:
            return await call(token)
        except ApiError as error:
            if error.problem.status != HTTPStatus.UNAUTHORIZED or not self._renewed(token):
                raise
        return await call(self._needed_token())

    def unreachable(self, error: Exception) -> UnreachableError:
        """The error for a server that does not answer."""
        if isinstance(error, TlsError):
            other = "" if error.other_scheme is None else f" {error.other_scheme}://{self.server.partition('://')[2]}"
            return UnreachableError(f"{self.server} {error}{other}.")
        asking = f"{self.server} does not answer ({error}). Is it running, and is the address right?"
        if not is_loopback(self.server):
            return UnreachableError(f"{asking} Ask its administrator.")
        if self._source == NO_SOURCE or self._source.endswith(ADMIN_TOKEN):
            return UnreachableError(asking, next_command="gpu-dev up")
        # `up` of a user with a login would start another server, in another folder.
        return UnreachableError(f"{asking} Ask the administrator of this machine to start it.")

    def _refusal(self, answer: Answer) -> ClientError:
        """The error for an answer that isn't a success; it names the source of a refused token."""
        error = problem_error(answer)
        if isinstance(error, ApiError) and error.problem.type == _NO_SUCH_ROUTE:
            if urlsplit(self.server).path:
                return UnexpectedAnswerError(f"{self.server} has a path that the server does not know. Leave it out.")
            return OlderServerError("it does not know this request", version_of(answer))
        if isinstance(error, ApiError) and answer.status == HTTPStatus.UNAUTHORIZED and self._source != NO_SOURCE:
            detail = f"{error.problem.detail} The refused token is from {self._source}."
            error.problem = msgspec.structs.replace(error.problem, detail=detail)
            if self._source == TOKEN_VARIABLE:
                error.next_command = f"unset {TOKEN_VARIABLE}; {error.next_command}"
        return error

    def _answer(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes | None, silence_s: float
    ) -> Answer:
        incoming = self._open(method, target, headers, content, silence_s)
        try:
            return _whole(incoming)
        finally:
            incoming.body.close()

    def _open(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes | None, silence_s: float | None
    ) -> Incoming:
        """Send once. Raises TransportError, UsageError for a header that HTTP can't carry, UnreachableError."""
        for name, value in headers.items():
            if not (value.isascii() and value.isprintable()):
                raise UsageError(f"The header {name} can't be sent: it takes only printable ASCII characters.")
        try:
            return self._transport.send(method, target, {**_HEADERS, **headers}, content, silence_s)
        except BadAddressError as error:
            raise UnreachableError(f"No request can be sent to the address {self.server}: {error}.") from error

    def _needed_token(self) -> str:
        if self._token is None:
            raise NotLoggedInError(f"There is no token for {self.server}.", next_command=f"gpu-dev login {self.server}")
        return self._token

    def _renewed(self, refused: str | None) -> bool:
        """Whether there is another token than the refused one. A new one is got once for all threads that need it."""
        if self._renew is None:
            return False
        with self._renewing:
            if self._token == refused:
                self._token = self._renew()
        return self._token != refused


def read_answer(model: type[S], content: bytes | str, *, server_version: str | None = None) -> S:
    """Read an answer. Fields that this client doesn't know are ignored.

    Raises OlderServerError when fields are missing, UnexpectedAnswerError when it isn't what the contract says.
    """
    try:
        return msgspec.json.decode(content, type=model)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        from gpu_dev.server.checked_answers import read_checked

        return read_checked(model, content, server_version)


def version_of(response: Answer) -> str | None:
    """The server's version, where it says it."""
    return response.headers.get("gpu-dev-version")


def named_fields(fields: Iterable[str]) -> str:
    """The first names of fields, in order."""
    return ", ".join(sorted(fields)[:_SHOWN_FIELDS])


def problem_error(response: Answer) -> ClientError:
    """The error for an answer that isn't a success, with or without problem details."""
    if "problem+json" in response.headers.get("content-type", ""):
        try:
            problem = read_answer(Problem, response.content)
            # This client sends no fields but those of its own contracts.
            unknown = [rule.detail for rule in problem.broken_rules or () if rule.code == "extra_forbidden"]
            if unknown:
                fields = named_fields(detail.partition(":")[0] for detail in unknown)
                return OlderServerError(f"it does not know {fields}", version_of(response))
            return ApiError(problem)
        except UnexpectedAnswerError:
            # A problem in an unknown shape is still a refusal: its status and text are shown.
            pass
    title = response.phrase or "Refused"
    if "html" in response.headers.get("content-type", ""):
        detail = "it is a page, so a proxy or another program answers at this address. Is the address right?"
    else:
        detail = " ".join(response.text.split())[:_SHOWN_CHARACTERS] or "no explanation was given"
    return ApiError(
        Problem(
            type="about:blank",
            title=title,
            status=response.status,
            detail=f"The server answered {response.status} {title}: {detail}",
        )
    )


def _asked_to_wait(response: Answer) -> float:
    """The seconds of a `Retry-After`, up to the longest wait."""
    said = response.headers.get("retry-after", "")
    return float(min(int(said), _LONGEST_WAIT_S)) if said.isascii() and said.isdecimal() and len(said) < 9 else 0.0


def _transport(server: str, given: "httpx.BaseTransport | None") -> Transport:
    if given is None:
        return transport_to(server)
    from gpu_dev.server.httpx_transport import HttpxTransport

    return HttpxTransport(server, given)


def target(path: str, params: Mapping[str, Any] | None) -> str:
    """Path and query; a list is a parameter that is repeated."""
    query = urlencode(params or {}, doseq=True)
    return f"{path}?{query}" if query else path


def _whole(incoming: Incoming) -> Answer:
    return Answer(incoming.status, incoming.phrase, incoming.headers, incoming.body.read())
