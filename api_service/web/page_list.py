"""Every page, in the order in which addresses are tried."""

from api_service.web.routes import (
    account,
    admin_audit,
    admin_maintenance,
    admin_nodes,
    admin_overview,
    admin_queues,
    admin_tokens,
    admin_users,
    bookings,
    calendar,
    jobs,
    live_stream,
    now,
    queue,
    sign_in,
    sign_in_elsewhere,
    submit,
    usage,
)
from api_service.web.routing import WebRoute

WEB_ROUTES: tuple[WebRoute, ...] = (
    *sign_in.ROUTES,
    *sign_in_elsewhere.ROUTES,
    *live_stream.ROUTES,
    *now.ROUTES,
    *queue.ROUTES,
    *submit.ROUTES,
    *jobs.ROUTES,
    *calendar.ROUTES,
    *bookings.ROUTES,
    *usage.ROUTES,
    *account.ROUTES,
    *admin_overview.ROUTES,
    *admin_users.ROUTES,
    *admin_tokens.ROUTES,
    *admin_nodes.ROUTES,
    *admin_queues.ROUTES,
    *admin_audit.ROUTES,
    *admin_maintenance.ROUTES,
)
