"""The outermost layer of every request: an id, a verified caller, a measured time, and an answer whatever happens.

Everything under /v1 needs a credential, asked for here and not route by route, so that no route can forget it. Plain
ASGI: a middleware class of the framework's would cost as much again as the whole request.
"""

import re
import time
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from secrets import token_hex
from typing import Protocol
from urllib.parse import parse_qsl

import structlog
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api_service.access import token_reach
from api_service.problems import ProblemError, of_exception, respond
from api_service.requests import headers
from api_service.requests.query_names import CHANGING, refuse_unknown_names
from api_service.services import Services
from reservation_core.domain.errors import ForbiddenError
from reservation_core.domain.statuses import Role
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.transactions import DatabaseUnavailableError

PROTECTED = "/v1/"
FEED = "/v1/bookings.ics"
"""Calendar programs can't send our headers: this address carries a credential of its own, which the route checks."""
LOGIN = "/v1/login"
"""A sign-in has no token yet: its body is the credential, which the route checks."""
_WITHOUT_TOKEN = frozenset({FEED, LOGIN})
REPEATABLE = frozenset({"command", "kind", "status"})
SELECTION = "/jobs/cancel"
"""The page whose address repeats `job` for each selected job."""
FOR_SERVICES = frozenset({"/v1/schedulability", "/v1/schedulability/admissions"})
"""The paths that services may call; all others are for people."""
_REFUSED = frozenset({401, 403})
"""Statuses that the gate answers before any route is found."""
_MAX_PARAMETERS = 50
_MAX_WORDS = 1100
"""The parameters of a command to run, which has one for each word."""
_BEGINNINGS = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})
_SWITCHING = 101
_FAILED = 1011
"""The close code of a WebSocket that failed in the server."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MOST_OF_A_NAME = 100
"""So much of what a path names as a job is logged."""
_log = structlog.get_logger(__name__)


class Pages(Protocol):
    """Shows problems to people."""

    def draws(self, request: Request) -> bool:
        """Whether a problem of this request is shown as a page."""
        ...

    async def problem_page(self, request: Request, response: Response) -> Response:
        """The page of a problem."""
        ...


@cache
def _installed_version() -> bytes | None:
    """The server's version; None where its source runs without being installed."""
    try:
        return version("gpu-dev-server").encode()
    except PackageNotFoundError:
        return None


class Gate:
    """Wraps the whole application. `pages` shows the problems of pages."""

    def __init__(self, app: ASGIApp, services: Services, pages: Pages | None = None) -> None:
        self._app = app
        self._services = services
        self._pages = pages
        # Ids of requests: a prefix that is unique to the process, and a cheap number.
        self._prefix = token_hex(6)
        self._numbers = count(1)
        self._version = _installed_version()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; anything but HTTP and WebSockets goes on untouched."""
        if scope["type"] == "websocket":
            scope["method"] = "GET"
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        accepted_after = None
        given = headers.first(scope, b"x-request-id")
        request_id = given if given and _REQUEST_ID.fullmatch(given) else f"{self._prefix}-{next(self._numbers):x}"
        scope["request_id"] = request_id
        status = 0

        async def send_marked(message: Message) -> None:
            nonlocal status, accepted_after
            if message["type"] == "websocket.close" and not status:
                raise HTTPException(404)  # the router found no route
            if message["type"] in _BEGINNINGS:
                status = message.get("status", _SWITCHING)
                if status == _SWITCHING:
                    accepted_after = time.perf_counter() - began
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
                if "principal" in scope and self._version is not None:  # not for strangers
                    message["headers"].append((b"gpu-dev-version", self._version))
            await send(message)

        try:
            await self._admit(scope)
            await self._app(scope, receive, send_marked)
        except Exception as error:  # noqa: BLE001 - nothing is above the gate: every error is logged and answered here
            if status:
                # The answer has begun: only an incomplete one tells the client that it is wrong.
                _log.warning(
                    "answer_broken_off", **_about(scope, request_id), error=type(error).__name__, exc_info=error
                )
                if status == _SWITCHING:
                    await send({"type": "websocket.close", "code": _FAILED})
            else:
                response = await self._answer(error, Request({**scope, "type": "http"}, receive), request_id)
                await response(scope, receive, send_marked)
        finally:
            self._note(scope, request_id, status, time.perf_counter() - began, accepted_after)

    async def _admit(self, scope: Scope) -> None:
        """Find the caller. Raises ProblemError and ForbiddenError for requests that no route has to see."""
        if scope["path"].startswith(PROTECTED) and scope["path"] not in _WITHOUT_TOKEN:
            principal = await self._caller_of(scope)
            scope["principal"] = principal
            _refuse_services_elsewhere(principal, scope["path"])
            token_reach.require(principal, scope["method"], scope["path"])
        if scope["query_string"] and scope["path"] != SELECTION:
            most = _MAX_WORDS if scope["type"] == "websocket" else _MAX_PARAMETERS
            _refuse_repeated_parameters(scope["query_string"], most)
            route = _route_asked_for(scope) if scope["method"] in CHANGING else None
            if isinstance(route, APIRoute):
                refuse_unknown_names(scope["query_string"], route)

    async def _caller_of(self, scope: Scope) -> Principal:
        header = _authorization(scope)
        if header is not None and self._services.job_tokens.are_meant(header):
            return await self._services.job_tokens.principal(scope, header)
        return await self._services.token_pace.principal(scope, header)

    async def _answer(self, error: Exception, request: Request, request_id: str) -> Response:
        response = of_exception(error, request)
        if response is None:
            match error:
                case DatabaseUnavailableError():
                    code, what = "database_unavailable", "The database"
                case ClusterUnavailableError():
                    code, what = "cluster_unavailable", "The cluster"
                case _:
                    code, what = "", ""
            if code:
                again = " (with its Idempotency-Key)" if request.method == "POST" else ""
                detail = f"{what} is not available at this moment. Send the request again{again}."
                response = respond(503, code, detail, request_id=request_id, headers={"Retry-After": "2"})
                _log.warning(code, **_about(request.scope, request_id), error=str(error))
            else:
                self._services.metrics.http.count_unforeseen_error()
                _log.error("unforeseen_error", **_about(request.scope, request_id), exc_info=error)
                detail = (
                    "Something went wrong in the server. Send the request again; if it fails again, tell an "
                    f"administrator the request id {request_id}."
                )
                response = respond(500, "internal_error", detail, request_id=request_id)
        if self._pages is not None and self._pages.draws(request):
            response = await self._pages.problem_page(request, response)
        return response

    def _note(
        self, scope: Scope, request_id: str, status: int, seconds: float, accepted_after: float | None = None
    ) -> None:
        route = scope.get("route") or (_route_asked_for(scope) if status in _REFUSED else None)
        template = getattr(route, "path", None) or "unmatched"
        method = scope["method"] if route is not None else "other"
        # Of a WebSocket the handshake's time is measured; the access log has how long it was open.
        self._services.metrics.http.count_request(method, template, status, accepted_after or seconds)
        self._services.access_log.note(scope, template, status, seconds)
        if 100 <= status < 400:
            return
        log = _log.error if status >= 500 else _log.info
        log(
            "request",
            request_id=request_id,
            method=scope["method"],
            route=template,
            status=status,
            ms=round(seconds * 1000, 1),
        )


class ExpressGate(Gate):
    """Serves routes without parameters and dependencies, past the framework's layers.

    These layers cost more than the work of a call whose time counts in microseconds.
    """

    def __init__(self, services: Services, routes: Sequence[APIRoute]) -> None:
        super().__init__(self._serve, services)
        self._routes = {(method, route.path): route for route in routes for method in route.methods or ()}

    def takes(self, scope: Scope) -> bool:
        """Whether this is a request for one of its routes."""
        return scope["type"] == "http" and (scope["method"], scope["path"]) in self._routes

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes[scope["method"], scope["path"]]
        scope["route"] = route
        response = await route.endpoint(Request(scope, receive))
        await response(scope, receive, send)


def _route_asked_for(scope: Scope) -> Route | None:
    """Find a route by method and pattern alone: a router's whole way would double the cost of a refused request."""
    method, path = scope["method"], scope["path"]
    for route in scope["app"].router.routes:
        if isinstance(route, Route) and method in (route.methods or ()) and route.path_regex.match(path):
            return route
    return None


def _about(scope: Scope, request_id: str) -> dict[str, str]:
    """The fields of a log line about a request: its id, and the job that its path names."""
    job = scope.get("path_params", {}).get("job_id")
    return {"request_id": request_id} if job is None else {"request_id": request_id, "job": str(job)[:_MOST_OF_A_NAME]}


def _refuse_services_elsewhere(principal: Principal, path: str) -> None:
    if principal.role is Role.SERVICE and path not in FOR_SERVICES:
        raise ForbiddenError(
            "This is a service's token: it may only call POST /v1/schedulability and report pods there."
        )


def _refuse_repeated_parameters(query: bytes, most: int) -> None:
    """Refuse a name given twice: this server would take the last value, and a proxy perhaps the first."""
    try:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=most)
    except ValueError as error:
        detail = f"Give at most {most} parameters in the address."
        raise ProblemError(422, "too_many_parameters", detail) from error
    names = [name for name, _ in pairs if name not in REPEATABLE]
    if len(set(names)) != len(names):
        detail = f"Give each parameter in the address once; only {', '.join(sorted(REPEATABLE))} may be repeated."
        raise ProblemError(422, "repeated_parameter", detail)


def _authorization(scope: Scope) -> str | None:
    values = headers.values(scope, b"authorization")
    if len(values) > 1:
        raise ProblemError(
            401,
            "unauthenticated",
            "Send one Authorization header, not several.",
            headers={"WWW-Authenticate": 'Bearer realm="gpu-dev", error="invalid_request"'},
        )
    return values[0] if values else None
