"""All pages of the application: their routes, access, and error pages."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from http import HTTPStatus
from urllib.parse import urlsplit

import structlog
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from api_service.problems import MEDIA_TYPE, ProblemError, of_exception, respond
from api_service.services import Services
from api_service.web.assets import Assets
from api_service.web.calendar.shared_rows import CalendarReader
from api_service.web.finding.site_pages import section_of
from api_service.web.fleet.fleet_reading import FleetReader
from api_service.web.fleet.node_markup import NodeMarkup
from api_service.web.fleet.node_selection import NodeSelections
from api_service.web.fleet.use_reading import UseReader
from api_service.web.forms.form import Form, read_form
from api_service.web.live import LiveTopics
from api_service.web.page_list import SOCKET_ROUTES, WEB_ROUTES
from api_service.web.rendering import Templates, new_nonce
from api_service.web.rest_calls import RestCalls, RestProblemError
from api_service.web.routing import PageAccess, SocketRoute, WebRoute
from api_service.web.sessions import csrf
from api_service.web.sessions.cookies import Cookies, PageZone
from api_service.web.sessions.origins import handshake_request, require_own_origin
from api_service.web.sessions.return_address import sign_in_address
from api_service.web.visit import FORM_KEY, SignedInVisitor, Visit
from reservation_core.domain.errors import ForbiddenError
from reservation_core.domain.gpu_use.samples import sample_lasts
from reservation_core.domain.statuses import Role
from reservation_core.ports.transactions import DatabaseUnavailableError

_REST = ("/v1/", "/gpu-schedulability", "/healthz", "/readyz", "/metrics", "/openapi.json")
_BY_SCRIPTS = ("text/event-stream", MEDIA_TYPE)
"""What scripts accept that show a problem's words by themselves."""
_TITLES = {
    400: "Not understood",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Not possible here",
    409: "Not possible now",
    412: "Changed meanwhile",
    413: "Too large",
    415: "Not understood",
    422: "Not understood",
    429: "Too many requests",
    500: "Something went wrong",
    503: "Not available now",
}
"""Titles of pages where HTTP's own phrase is no plain word."""
_SAID_OF_PROBLEMS = ("retry-after", "allow")
_CURSORS = ("cursor", "after")
"""What pages of lists are called in addresses."""
_log = structlog.get_logger(__name__)


class Site:
    """All pages. `rest` serves the routes of REST in the same process."""

    def __init__(self, services: Services, rest: ASGIApp) -> None:
        self._services = services
        self._rest = rest
        self._assets = Assets()
        self._templates = Templates(self._assets)
        self._fleet = FleetReader(services.runtime.uow, services.runtime.clock, lambda: self._live.notify({"now"}))
        lasts = sample_lasts(services.settings.sample_every_s)
        self._uses = UseReader(services.runtime.uow, services.runtime.clock, lasts)
        self._live = LiveTopics(services.runtime.uow, services.wakeups, self._uses.newest_sample)
        self._calendars = CalendarReader(services.reads, services.runtime.clock)
        self._nodes = NodeMarkup(self._templates)
        self._selections = NodeSelections()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Notify open pages of changes while the block runs."""
        following = asyncio.create_task(self._live.run(self._services.runtime.loops["open_pages"]))
        try:
            yield
        finally:
            await self._fleet.close()
            await self._uses.close()
            await self._calendars.close()
            following.cancel()
            for result in await asyncio.gather(following, return_exceptions=True):
                if isinstance(result, Exception):
                    _log.error("background_task_failed", error=repr(result))

    def routes(self, listed: Sequence[WebRoute] = WEB_ROUTES) -> list[BaseRoute]:
        return [
            Route("/", _to_now, methods=["GET"], include_in_schema=False),
            Route("/static/{digest}/{name}", self._assets.serve, methods=["GET"], include_in_schema=False),
            *(
                Route(route.path, self._endpoint(route), methods=[route.method], include_in_schema=False)
                for route in listed
            ),
            *(WebSocketRoute(route.path, self._socket_endpoint(route)) for route in SOCKET_ROUTES),
        ]

    def draws(self, request: Request) -> bool:
        """Whether the request comes from a page, so that its problem is drawn as one."""
        accepts = "text/html" in request.headers.get("accept", "") or "hx-request" in request.headers
        return accepts and not request.url.path.startswith(_REST)

    async def problem_page(self, request: Request, response: Response) -> Response:
        """A problem of REST as a page, or as a part of one. A visitor who is signed in keeps the navigation."""
        visitor = None
        if response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:  # what failed might fail the look-up, too
            with suppress(ProblemError, DatabaseUnavailableError):
                visitor = await self._visitor(request)
        return _draw_problem(self._visit(request, visitor, Form({})), RestProblemError.of(response))

    def _endpoint(self, route: WebRoute) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            request.scope["route"] = route  # the label of its metrics
            visit = self._visit(request, None, Form({}))
            try:
                if route.access is not PageAccess.ANYBODY:
                    visitor = await self._visitor(request)
                    if visitor is None:
                        return self._lead_to_sign_in(request)
                    visit = replace(visit, visitor=visitor)
                    _require(route.access, visitor)
                if route.part_of is not None and not visit.partial:
                    return _lead_to_whole(visit, route.part_of)
                if route.method != "GET":
                    visit = replace(visit, form=await self._form(request, visit.visitor, route))
                    if visit.visitor is not None:
                        visit.visitor.rest.form_key = visit.form.get(FORM_KEY)
                return await route.handler(visit)
            except Exception as error:  # noqa: BLE001 - what nobody foresaw travels on
                return self._draw_error(visit, error)

        return endpoint

    def _socket_endpoint(self, route: SocketRoute) -> Callable[[WebSocket], Awaitable[None]]:
        async def endpoint(socket: WebSocket) -> None:
            socket.scope["route"] = route
            request = handshake_request(socket)
            require_own_origin(request, self._services.settings.web.public_url)
            visitor = await self._visitor(request)
            if visitor is None:
                raise ProblemError(401, "unauthenticated", "You are signed out. Sign in again.")
            socket.scope["principal"] = visitor.principal
            await route.handler(socket, self._services)

        return endpoint

    def _draw_error(self, visit: Visit, error: Exception) -> Response:
        """The page for an expected error; an unexpected one is raised again, for the gate."""
        if isinstance(error, RestProblemError):
            return _lead_to_first_page(visit) if error.names_no_page else _draw_problem(visit, error)
        problem = of_exception(error, visit.request)
        if problem is None:
            raise error
        return _draw_problem(visit, RestProblemError.of(problem))

    async def _visitor(self, request: Request) -> SignedInVisitor | None:
        secret = self._cookies(request).session(request)
        if secret is None:
            return None
        try:
            principal = await self._services.token_pace.principal(request.scope, f"Bearer {secret}", session=True)
        except ProblemError as problem:
            if problem.status == HTTPStatus.TOO_MANY_REQUESTS:
                raise
            return None  # expired or unknown: the user signs in again
        request.scope["principal"] = principal
        if principal.role is Role.SERVICE:
            return None  # a service has no session, but a cookie can hold its token
        return SignedInVisitor(principal, secret, RestCalls(self._rest, request, principal))

    async def _form(self, request: Request, visitor: SignedInVisitor | None, route: WebRoute) -> Form:
        """Raises ProblemError (403) for a form that no page of ours has sent."""
        _refuse_other_sites(request, self._services.settings.web.public_url)
        form = await read_form(request, self._services.settings.max_body_bytes)
        if visitor is not None and route.needs_fresh_page:
            given = request.headers.get(csrf.HEADER) or form.get(csrf.FIELD)
            if not csrf.is_for(visitor.secret, given):
                raise ProblemError(
                    403, "stale_page", "This page is from before you signed in. Reload it, and try again."
                )
        return form

    def _lead_to_sign_in(self, request: Request) -> Response:
        if "hx-request" in request.headers:
            # The requesting page asks its user to sign in, and stays: what they typed is on it.
            return Response(status_code=401, headers={"Cache-Control": "no-store"})
        if request.headers.get("accept") in _BY_SCRIPTS:
            return respond(401, "unauthenticated", "You are signed out. Sign in again.")
        return RedirectResponse(sign_in_address(request), 303, headers={"Cache-Control": "no-store"})

    def _visit(self, request: Request, visitor: SignedInVisitor | None, form: Form) -> Visit:
        return Visit(
            request=request,
            services=self._services,
            templates=self._templates,
            topics=self._live,
            position=self._live.position,
            fleet=self._fleet,
            uses=self._uses,
            calendars=self._calendars,
            nodes=self._nodes,
            selections=self._selections,
            cookies=self._cookies(request),
            nonce=new_nonce(),
            zoned=PageZone.of(request.cookies),
            now=self._services.runtime.clock.now(),
            visitor=visitor,
            form=form,
        )

    def _cookies(self, request: Request) -> Cookies:
        return Cookies.of(request, self._services.settings.web.public_url)


def _lead_to_first_page(visit: Visit) -> Response:
    """To the beginning of the list that the address has a page of, with the same filters."""
    url = visit.request.url.remove_query_params(_CURSORS)
    return visit.go(
        f"{url.path}?{url.query}" if url.query else url.path, "That page of the list is gone. It begins here."
    )


def _lead_to_whole(visit: Visit, page: str) -> Response:
    """Redirect from a part of a page to the page, with the same choices."""
    address = page.format(**{name: visit.path(name) for name in visit.request.path_params})
    query = visit.request.url.query
    return visit.go(f"{address}?{query}" if query else address)


def _draw_problem(visit: Visit, problem: RestProblemError) -> Response:
    if visit.request.headers.get("accept") in _BY_SCRIPTS:
        response = Response(problem.problem.model_dump_json(exclude_none=True), problem.status, media_type=MEDIA_TYPE)
    elif visit.partial:
        # Shown at the page's place for problems; the requested part stays.
        response = visit.part("_problem.html", problem.status, problem=problem)
    else:
        title = _TITLES.get(problem.status) or HTTPStatus(problem.status).phrase
        section = section_of(visit.request.url.path)
        response = visit.page("problem.html", title=title, status=problem.status, problem=problem, section=section)
    for name in _SAID_OF_PROBLEMS:
        if (value := problem.headers.get(name)) is not None:
            response.headers[name] = value
    return response


def _require(access: PageAccess, visitor: SignedInVisitor) -> None:
    if access is PageAccess.ADMIN and not visitor.principal.is_admin:
        raise ForbiddenError("Only administrators see this page. Ask one of them for what you need.")


def _refuse_other_sites(request: Request, public_url: str | None) -> None:
    """Check the browser's word on the sender of a form. Old browsers send none; the form's token protects them."""
    sent_from = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    # Behind a proxy, browsers know this server by the name of the public URL.
    ours = [request.headers.get("host", ""), *([] if public_url is None else [urlsplit(public_url).netloc])]
    # Pages that hide their origin send `null`; ours don't.
    sender = "" if origin is None else origin.partition("://")[2]
    elsewhere = origin is not None and (not sender or sender not in ours)
    if sent_from not in (None, "same-origin", "none") or (sent_from is None and elsewhere):
        raise ProblemError(
            403,
            "from_elsewhere",
            "This was sent by a page of another site. Open the page on this server, and send it there. If you did, a "
            "proxy hides the page's address: ask an administrator to set GPU_DEV_WEB__PUBLIC_URL.",
        )


async def _to_now(_request: Request) -> Response:
    return RedirectResponse("/now", 303)
