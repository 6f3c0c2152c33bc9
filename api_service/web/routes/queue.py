"""The page Queue: who waits for GPUs, at which place, why, and until when."""

from typing import Any

from starlette.responses import Response

from api_service.web.routing import WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.jobs import QueuePage

_A_PAGE = 100


async def queue_page(visit: Visit) -> Response:
    """One's own jobs in line (administrators': everybody's), and how many wait in all. `cursor` as REST has it."""
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
