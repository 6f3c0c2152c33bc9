"""The application: routes, the gate before them, and what runs beside them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api_service.apps.apps import Apps
from api_service.gate import ExpressGate, Gate
from api_service.problems import of_exception
from api_service.routes import dead_letters, gpu_use, operations, search
from api_service.routes.bookings import availability, bookings, calendar_feed, waitlist
from api_service.routes.history import audit_chain, events
from api_service.routes.jobs import disk_snapshots, disks, elements, job_events, job_files, job_logs, job_specs, jobs
from api_service.routes.nodes import inventory, maintenance, nodes
from api_service.routes.people import login, notifications, tokens, user_secrets, users
from api_service.routes.pods import schedulability, unknown_pods
from api_service.routes.policy import policy, projects, simulations, usage
from api_service.routes.sessions import app_tickets, connections, ports, programs, shares, ssh, ssh_keys, terminals
from api_service.services import Services
from api_service.web.site import Site
from reservation_core.runtime.reading.reading import Reads
from reservation_core.runtime.reading.sign_in import SignInSetup
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime

# Routes are tried in order: the most frequent come first.
_ROUTERS = (
    jobs.router,
    job_events.router,
    job_logs.router,
    job_specs.router,
    elements.router,
    programs.router,
    ports.router,
    connections.router,
    terminals.router,
    app_tickets.router,
    shares.router,
    gpu_use.router,
    inventory.router,
    nodes.router,
    # Before the routes that take a booking's id, which these paths are not.
    availability.router,
    calendar_feed.router,
    bookings.router,
    waitlist.router,
    maintenance.router,
    tokens.router,
    ssh_keys.router,
    user_secrets.router,
    disks.router,
    disk_snapshots.router,
    job_files.router,
    ssh.router,
    login.router,
    users.router,
    notifications.router,
    policy.router,
    projects.router,
    usage.router,
    simulations.router,
    search.router,
    schedulability.router,
    dead_letters.router,
    events.router,
    audit_chain.router,
    unknown_pods.router,
    operations.router,
)


class GatedApplication(FastAPI):
    """FastAPI's application; requests whose time counts in microseconds pass its layers by the express gate."""

    express: ExpressGate
    apps: Apps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.apps.host.takes(scope):
            await self.apps(scope, receive, send)
        elif self.express.takes(scope):
            scope["app"] = self
            await self.express(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(
    runtime: Runtime, settings: ApiSettings, signing_in: SignInSetup | None = None, reads: Reads | None = None
) -> FastAPI:
    """The ASGI application on a runtime that stays open as long as the application runs.

    Background work begins and ends with the application's lifespan. `app.state.services.wakeups.stop()` ends open
    streams: a server must call it before it waits for connections to close. `signing_in` overrides the settings;
    without `reads`, everything is read from the primary. Raises SettingsError.
    """
    services = Services.of(runtime, settings, signing_in, reads)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as running:
            await running.enter_async_context(services.running())
            if site is not None:
                await running.enter_async_context(site.running())
            running.push_async_callback(app.apps.close)
            yield

    app = GatedApplication(
        title="GPU Dev Server",
        version="1",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        exception_handlers={HTTPException: _problem, RequestValidationError: _problem},
    )
    for router in _ROUTERS:
        # Not include_router: the routes are complete as they are, and a flat list is matched faster.
        app.router.routes.extend(router.routes)
    site = Site(services, AsyncExitStackMiddleware(app.router)) if settings.web.enabled else None
    app.state.pages = site.routes() if site is not None else []
    app.router.routes.extend(app.state.pages)
    app.state.services = services
    app.state.site = site
    app.state.operations = [route for route in app.router.routes if isinstance(route, APIRoute)]
    express = [route for route in app.state.operations if route.endpoint is jobs.submit_job]
    app.add_middleware(Gate, services=services, pages=site)
    app.express = ExpressGate(services, express)
    app.apps = Apps(services)
    return app


async def _problem(request: Request, error: Exception) -> Response:
    response = of_exception(error, request)
    if response is None:
        raise error
    site: Site | None = request.app.state.site
    return await site.problem_page(request, response) if site is not None and site.draws(request) else response
