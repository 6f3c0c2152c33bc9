"""Serve apps of jobs: each request to `JOB-PORT.<apps host>`, before all other routes.

A ticket becomes a cookie of the app's host alone. Whatever else comes needs it, comes from the app's own pages or
leads there, and goes to the port in the job.
"""

import time
from collections.abc import Mapping
from itertools import count
from secrets import token_hex
from typing import Any
from urllib.parse import parse_qs

import structlog
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from api_service.access.access_log import name_user
from api_service.apps.app_pages import app_page
from api_service.apps.apps_in_use import AppsInUse
from api_service.apps.exchange_headers import APP_COOKIE, SECURE_APP_COOKIE, request_headers
from api_service.apps.hosts import ENTRANCE, AppsHost
from api_service.apps.known_passes import KnownPasses
from api_service.apps.relay import AppFailedError, Relay
from api_service.problems import ProblemError
from api_service.requests import headers
from api_service.services import Services
from api_service.sessions.handshakes import address_of
from reservation_core.domain.errors import DomainError, JobNotRunningError, NotFoundError, TooManyConnectionsError
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.sessions.app_passes import AppAddress, AppPass
from reservation_core.ports.sessions.pod_streams import PodNotReachableError, PortClosedError
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.http.tunnels import TUNNEL
from reservation_core.usecases.sessions.app_tickets import use_ticket
from reservation_core.usecases.sessions.enter import Visitor

_ROUTE = "app"
_SAFE = frozenset({"GET", "HEAD"})
_log = structlog.get_logger(__name__)


class _RefusedError(Exception):
    """The answer is this page."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


class Apps:
    """All apps of this server."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.host = AppsHost.of(services.settings)
        self._in_use = AppsInUse(services.connections)
        self._passes = KnownPasses(self._find_pass)
        self._prefix, self._numbers = token_hex(6), count(1)

    async def close(self) -> None:
        await self._in_use.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request to a host of apps."""
        began = time.perf_counter()
        scope["request_id"] = f"{self._prefix}-{next(self._numbers):x}"
        status = 0
        try:
            status = await self._serve(scope, receive, send)
        except _RefusedError as refused:
            status = refused.response.status_code
            await refused.response(scope, receive, send)
        finally:
            app = self.host.app(scope)
            path = "/" if app is None else f"/{app.job_id}-{app.port}"  # the app's own paths are its content
            self._services.access_log.note({**scope, "path": path}, _ROUTE, status, time.perf_counter() - began)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> int:
        app = self.host.app(scope)
        if app is None:
            words = "Apps of running jobs have addresses with the job's id and a port. Open one on the job's page."
            raise _RefusedError(app_page(404, "No app has this address", words))
        self._refuse_others(scope)
        try:
            if scope["path"] == ENTRANCE:
                response = await self._enter(scope, app)
                await response(scope, receive, send)
                return response.status_code
            return await self._pass_on(scope, receive, send, app)
        except (DatabaseUnavailableError, ClusterUnavailableError) as error:
            _log.warning("app_not_reached", request_id=scope["request_id"], error=str(error))
            words = "The server can't reach the job at this moment. Reload the page."
            raise _RefusedError(app_page(503, "Try again", words)) from error

    def _refuse_others(self, scope: Scope) -> None:
        """Refuse what pages of other origins ask for or show: of those, only links and typed addresses lead here."""
        sender = headers.first(scope, b"sec-fetch-site")
        opens_a_tab = (
            scope["method"] in _SAFE
            and headers.first(scope, b"sec-fetch-mode") == "navigate"
            and headers.first(scope, b"sec-fetch-dest") == "document"
        )
        comes_from_here = sender in (None, "none", "same-origin") or opens_a_tab
        given = headers.values(scope, b"origin")
        if not comes_from_here or given not in ([], [self.host.origin(scope)]):
            words = "Another site asked for this. Apps answer only their own pages."
            raise _RefusedError(app_page(403, "Not from another site", words))

    async def _enter(self, scope: Scope, app: AppAddress) -> Response:
        """Turn the ticket in the address into a cookie, and lead on to the app."""
        tickets = parse_qs(scope["query_string"].decode("latin-1")).get("ticket", [])
        secret = None
        if scope["method"] == "GET" and len(tickets) == 1:
            runtime = self._services.runtime
            async with runtime.uow() as uow:
                lasts = self._services.settings.max_duration
                secret = await use_ticket(uow, runtime.ids, tickets[0], app, lasts, runtime.clock.now())
        if secret is None:
            return self._way_in(scope, app, "This address was used before, or is older than a minute.")
        response = RedirectResponse("/", 303, headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})
        secure = self.host.is_secure(scope)
        name = SECURE_APP_COOKIE if secure else APP_COOKIE
        response.set_cookie(name, secret, path="/", secure=secure, httponly=True, samesite="lax")
        return response

    def _way_in(self, scope: Scope, app: AppAddress, why: str) -> Response:
        page = self.host.job_page(scope, app.job_id)
        words = f"{why} Open port {app.port} on the job's page, or run: gpu-dev open {app.job_id} {app.port}"
        link = None if page is None else (page, f"The page of {app.job_id}")
        return app_page(401, "Open this app from its job", words, link)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, app: AppAddress) -> int:
        secret = _cookie(scope, SECURE_APP_COOKIE if self.host.is_secure(scope) else APP_COOKIE)
        known = None if secret is None else self._passes.get(self._services.runtime.ids.digest(secret), app)
        passed = None if known is None else await known.result()
        if known is None or passed is None:
            raise _RefusedError(self._way_in(scope, app, "You have not opened this app, or may not use it any more."))
        name_user(scope, passed.user, passed.credential)
        visitor = Visitor(passed.user_id, passed.user, passed.credential, address_of(scope, self._services))
        try:
            async with self._in_use.use(visitor, app.job_id) as connection:
                known.connection = connection
                opened = await self._services.runtime.pod_streams.connect(connection.entered.pod, app.port)
                try:
                    relay = Relay(scope, receive, send, opened, connection)
                    scheme = "https" if self.host.is_secure(scope) else "http"
                    upgrades = TUNNEL in scope.get("extensions", {})
                    await self._relay(relay, request_headers(scope, visitor.address, scheme, upgrades=upgrades))
                    return relay.status
                finally:
                    await opened.close()
        except PortClosedError as error:
            words = f"{error} To try again, reload this page."
            raise _RefusedError(app_page(502, f"Nothing listens at port {app.port}", words)) from error
        except (PodNotReachableError, DomainError, ProblemError) as error:
            raise _RefusedError(self._refusal(scope, app, error)) from error

    async def _relay(self, relay: Relay, passed: list[tuple[bytes, bytes]]) -> None:
        try:
            await relay.run(passed)
        except (AppFailedError, ClusterUnavailableError) as error:
            _log.info("app_failed", request_id=relay.scope["request_id"], error=str(error))
            if not relay.began:
                words = f"{error} Look at what it prints, then reload this page."
                raise _RefusedError(app_page(502, "The app failed", words)) from error
        if not relay.began and relay.connection.over.is_set():
            raise _RefusedError(app_page(409, "The connection has ended", relay.connection.why))

    async def _find_pass(self, digest: bytes, app: AppAddress) -> AppPass | None:
        runtime = self._services.runtime
        async with runtime.uow(one_statement=True) as uow:
            return await uow.app_passes.find(digest, app, runtime.clock.now())

    def _refusal(
        self, scope: Scope, app: AppAddress, error: PodNotReachableError | DomainError | ProblemError
    ) -> Response:
        page = self.host.job_page(scope, app.job_id)
        link = None if page is None else (page, f"The page of {app.job_id}")
        match error:
            case NotFoundError():
                return app_page(404, "You can't enter this job", str(error), link)
            case JobNotRunningError() | PodNotReachableError():
                return app_page(409, "The job does not run", str(error), link)
            case TooManyConnectionsError():
                return app_page(429, "Too many connections", str(error), link)
            case ProblemError():
                return app_page(error.status, "Too many requests", error.detail, link)
            case _:
                raise error


def _cookie(scope: Mapping[str, Any], name: str) -> str | None:
    """The first cookie of a name. An app's own cookies may be anything."""
    for value in headers.values(scope, b"cookie"):
        for part in value.split(";"):
            key, _, content = part.strip().partition("=")
            if key == name:
                return content
    return None
