"""Call REST from within the same process: a page can do what REST can, by the same rules, and nothing else.

A call goes to the routes that requests go to, past the network and the gate; the caller is the session's user. An
answer is read once, into its contract class. A problem (RFC 9457) is raised.
"""

import hashlib
import json
import re
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Generic, Protocol, Self, TypedDict, TypeVar, Unpack
from urllib.parse import unquote, urlencode

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive

from api_service.access import token_reach
from api_service.problems import TYPE_PREFIX, of_exception
from api_service.web.finding.command_pages import pages_for, without_commands
from api_service.web.finding.site_pages import SitePage
from reservation_core.contracts.base import Problem, Slot
from reservation_core.ports.people.identities import Principal

_PAGE = 500
Query = Mapping[str, str | int | bool | Sequence[str] | None]
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
T_co = TypeVar("T_co", covariant=True)


class ListPage(Protocol[T_co]):
    """A contract class for one page of a list."""

    @property
    def items(self) -> Sequence[T_co]: ...

    @property
    def next_cursor(self) -> str | None: ...

    @classmethod
    def model_validate_json(cls, json_data: bytes) -> Self: ...


class CallParts(TypedDict, total=False):
    """The parts of a call: a body for JSON, the ETag that must still be right."""

    query: Query | None
    body: object
    match: str | None


@dataclass(frozen=True, slots=True)
class RestAnswer(Generic[T]):
    """An answer; header names are in lower case."""

    headers: Mapping[str, str]
    body: T


_PLACE = re.compile(r"^(?:path|query|header|body)(?:\.|: )")
_INVALID = f"{TYPE_PREFIX}invalid_request"
_SAID_BY_DETAIL = tuple(
    f"{TYPE_PREFIX}{code}" for code in ("no_such_job", "no_such_secret", "no_such_disk", "beyond_booked_share")
)

_NO_ADDRESS = f"{TYPE_PREFIX}no_such_route"
_NO_CURSOR = f"{TYPE_PREFIX}bad_cursor"
_FIELD = re.compile(r"^[a-z_][\w.]*(?=: )")
_LABELS = {
    "env": "Variables",
    "gpu_hours": "GPU-hours",
    "gpu_type": "GPU type",
    "gpus": "GPUs",
    "by": "Longer by",
    "image": "Container image",
    "retries": "Retries",
    "disks": "Disks",
    "secrets": "Secrets",
    "after": "After other jobs",
    "working_dir": "Working folder",
}
_LENGTH = re.compile(r"a number of seconds or an ISO 8601 duration such as P\w+")
_TYPED_LENGTH = "a time such as 90m, 4h or 7d"


class RestProblemError(Exception):
    """A call that was refused."""

    def __init__(self, problem: Problem, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        self.headers = headers or {}

    @classmethod
    def of(cls, response: Response) -> "RestProblemError":
        """The error for a response that carries a problem."""
        return cls(Problem.model_validate_json(bytes(response.body)), response.headers)

    @classmethod
    def because(cls, status: int, detail: str) -> "RestProblemError":
        """A refusal of the page itself."""
        return cls(Problem(type="about:blank", title=HTTPStatus(status).phrase, status=status, detail=detail))

    @property
    def status(self) -> int:
        return self.problem.status

    @property
    def detail(self) -> str:
        """The reason, and what to do about it, in words of pages rather than of REST."""
        if self.problem.type == _INVALID and self.problem.broken_rules:
            return "Some of what was typed can't be used. Correct it, and send it again."
        if self.problem.type == _NO_ADDRESS:
            return "There is no page at this address. Check how it is written."
        detail = self.problem.detail.replace(" Take one of `nearest_slots`.", "")  # pages list these below
        return without_commands(detail.replace(" with `on_conflict`", ""))  # a box of the form does that

    @property
    def names_no_page(self) -> bool:
        """Whether a page of a list was asked for that the list does not have, or no longer."""
        return self.problem.type == _NO_CURSOR

    @property
    def pages(self) -> Sequence[SitePage]:
        """The pages that do what the commands of the detail do."""
        return pages_for(self.problem.detail)

    @property
    def rules(self) -> list[str]:
        """Every broken rule, in words."""
        if self.problem.type in _SAID_BY_DETAIL:
            return []  # the detail says the same
        found = [without_commands(_PLACE.sub("", rule.detail)) for rule in self.problem.broken_rules or []]
        if self.problem.type != _INVALID:
            return found
        return [_LENGTH.sub(_TYPED_LENGTH, _FIELD.sub(_label, rule)) for rule in found]

    @property
    def slots(self) -> list[Slot]:
        """The nearest free slots."""
        return self.problem.nearest_slots or []


def _label(field: re.Match[str]) -> str:
    """A field of a request as a page calls it: `budget.gpu_hours` is `GPU-hours`, `workload.env.X` is `Variables`."""
    parts = [part for part in field[0].split(".") if not part.isdecimal()]
    return next((_LABELS[part] for part in parts if part in _LABELS), parts[-1].replace("_", " ").capitalize())


@dataclass(slots=True)
class _Received:
    """An answer while it arrives."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    parts: list[bytes] = field(default_factory=list)

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
        else:
            self.parts.append(message.get("body", b""))


class RestCalls:
    """Calls of one caller, as part of the browser's request `request`. `routes` is what serves REST.

    With `form_key`, the key of the form that the browser sent, what the same form posts again is done once: a second
    click while the answer is slow, or a repeated request. Every call raises RestProblemError.
    """

    form_key: str | None = None

    def __init__(self, routes: ASGIApp, request: Request, principal: Principal) -> None:
        self._routes = routes
        self._request = request
        self._principal = principal

    async def get(self, model: type[M], path: str, query: Query | None = None) -> M:
        """The answer to GET."""
        return (await self.call(model, "GET", path, query=query)).body

    async def all(
        self, model: type[ListPage[T]], path: str, query: Query | None = None, *, at_most: int = 10_000
    ) -> list[T]:
        """The first `at_most` items of a list, over all its pages."""
        items: list[T] = []
        asked = {"limit": min(_PAGE, at_most), **(query or {})}
        while True:
            page = model.model_validate_json((await self.send("GET", path, query=asked)).body)
            items += page.items
            if page.next_cursor is None or len(items) >= at_most:
                return items[:at_most]
            asked["cursor"] = page.next_cursor

    async def post(self, model: type[M], path: str, body: object = None, *, query: Query | None = None) -> M:
        """The answer to POST."""
        return (await self.call(model, "POST", path, body=body, query=query)).body

    async def call(self, model: type[M], method: str, path: str, **parts: Unpack[CallParts]) -> RestAnswer[M]:
        """Any call, with its answer as `model`."""
        answer = await self.send(method, path, **parts)
        return RestAnswer(answer.headers, model.model_validate_json(answer.body))

    async def send(self, method: str, path: str, **parts: Unpack[CallParts]) -> RestAnswer[bytes]:
        """Any call, with its answer as bytes. `path` is percent-encoded where needed."""
        if "%2f" in path.lower():
            # No id has a slash: a typed one must not become another address.
            raise RestProblemError.because(404, "Nothing has this id. Look for it in the list.")
        body = parts.get("body")
        content = b"" if body is None else json.dumps(body).encode()
        query = parts.get("query") or {}
        key = None if method != "POST" or _is_rehearsal(path, query, body) else self._key(path, content)
        headers = self._headers(len(content), key, parts.get("match"), json_comes=body is not None)
        scope = self._scope(method, path, query, headers)
        received = _Received()
        try:
            token_reach.require(self._principal, method, path)
            await self._routes(scope, _sending(content, self._request.receive), received)
        except Exception as error:
            problem = of_exception(error, Request(scope))
            if problem is None:
                raise
            raise RestProblemError.of(problem) from error
        answer = b"".join(received.parts)
        if received.status >= HTTPStatus.BAD_REQUEST:
            raise RestProblemError(Problem.model_validate_json(answer), received.headers)
        return RestAnswer(received.headers, answer)

    def _key(self, path: str, content: bytes) -> str | None:
        """The Idempotency-Key of a POST: forms may lead to several, and what was typed may have been changed."""
        if self.form_key is None:
            return None
        parts = (self.form_key.encode(), path.encode(), content)
        return hashlib.sha256(b"\x00".join(parts)).hexdigest()

    def _headers(
        self, length: int, key: str | None, match: str | None, *, json_comes: bool
    ) -> list[tuple[bytes, bytes]]:
        browsers = self._request.headers
        named = {
            # Answers with addresses have those that the browser knows.
            "host": browsers.get("host", "localhost"),
            "x-forwarded-proto": browsers.get("x-forwarded-proto"),
            "content-length": str(length),
            "content-type": "application/json" if json_comes else None,
            "idempotency-key": key,
            "if-match": match,
        }
        return [(name.encode(), value.encode("latin-1")) for name, value in named.items() if value is not None]

    def _scope(
        self, method: str, path: str, query: Query, headers: list[tuple[bytes, bytes]]
    ) -> MutableMapping[str, Any]:
        """The call as a server would pass it; the caller is authenticated already."""
        browsers = self._request.scope
        return {
            "type": "http",
            "asgi": browsers.get("asgi", {"version": "3.0"}),
            "http_version": "1.1",
            "method": method,
            "scheme": browsers["scheme"],
            "path": unquote(path),
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": _query(query).encode(),
            "headers": headers,
            "client": browsers.get("client"),
            "server": browsers.get("server"),
            "state": {},
            "app": self._request.app,
            "principal": self._principal,
            "request_id": browsers.get("request_id"),
        }


def _is_rehearsal(path: str, query: Query, body: object) -> bool:
    """Whether a POST changes nothing, so that it is judged anew each time."""
    dry_run = bool(query.get("dry_run")) or (isinstance(body, Mapping) and body.get("dry_run") is True)
    return dry_run or path in ("/v1/policy/explain", "/v1/simulations")


def _sending(content: bytes, browsers: Receive) -> Receive:
    """A body that arrives at once, and then nothing but that the browser goes."""
    messages: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else await browsers()

    return receive


def _query(given: Query) -> str:
    pairs: list[tuple[str, str]] = []
    for name, value in given.items():
        if value is None:
            continue
        if isinstance(value, bool):
            pairs.append((name, "true" if value else "false"))
        elif isinstance(value, str | int):
            pairs.append((name, str(value)))
        else:
            pairs.extend((name, choice) for choice in value)
    return urlencode(pairs)
