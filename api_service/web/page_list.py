"""Every page, in the order in which addresses are matched."""

from api_service.web.routes import (
    account,
    bookings,
    calendar,
    job_logs,
    jobs,
    live_stream,
    now,
    queue,
    search,
    selected_jobs,
    sign_in,
    sign_in_elsewhere,
    submit,
    why_waiting,
)
from api_service.web.routes.admin import audit, maintenance, nodes, overview, policy, projects, queues, tokens, users
from api_service.web.routes.disks import disk_copies, own_disks
from api_service.web.routes.reports import node_use, simulate, usage
from api_service.web.routes.sessions import apps, own_secrets, sharing, ssh_keys, terminal
from api_service.web.routing import SocketRoute, WebRoute

WEB_ROUTES: tuple[WebRoute, ...] = (
    *sign_in.ROUTES,
    *sign_in_elsewhere.ROUTES,
    *live_stream.ROUTES,
    *now.ROUTES,
    *node_use.ROUTES,
    *queue.ROUTES,
    *submit.ROUTES,
    *selected_jobs.ROUTES,
    *jobs.ROUTES,
    *job_logs.ROUTES,
    *why_waiting.ROUTES,
    *terminal.ROUTES,
    *apps.ROUTES,
    *sharing.ROUTES,
    *calendar.ROUTES,
    *bookings.ROUTES,
    *usage.ROUTES,
    *simulate.ROUTES,
    *account.ROUTES,
    *ssh_keys.ROUTES,
    *own_secrets.ROUTES,
    *own_disks.ROUTES,
    *disk_copies.ROUTES,
    *search.ROUTES,
    *overview.ROUTES,
    *users.ROUTES,
    *tokens.ROUTES,
    *projects.ROUTES,
    *policy.ROUTES,
    *nodes.ROUTES,
    *queues.ROUTES,
    *audit.ROUTES,
    *maintenance.ROUTES,
)

SOCKET_ROUTES: tuple[SocketRoute, ...] = terminal.SOCKETS
