"""The page Queue: waiting jobs, their places, reasons and estimated starts."""

from typing import Any

from starlette.responses import Response

from api_service.web.routing import WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.jobs import QueuePage

_A_PAGE = 100


async def queue_page(visit: Visit) -> Response:
    """Show the visitor's waiting jobs (administrators: all), and totals. `cursor` is REST's."""
    cursor = visit.query("cursor") or None
    found = await visit.rest.get(QueuePage, "/v1/queue", {"cursor": cursor, "limit": _A_PAGE})
    context: dict[str, Any] = {
        "waiting": found.items,
        "totals": found.totals,
        "next_cursor": found.next_cursor,
        "cursor": cursor,
        "first": next((job for job in found.items if job.user == visit.principal.user), None),
    }
    if visit.partial:
        return visit.part("_queue.html", **context)
    return visit.page("queue.html", title="Queue", live="queue", **context)


ROUTES = (WebRoute("GET", "/queue", queue_page),)
