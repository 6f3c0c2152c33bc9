"""The page Queue: waiting jobs, their places, reasons and estimated starts."""

from dataclasses import replace
from typing import Any

from starlette.responses import Response

from api_service.web.finding.list_order import Column, read_choice
from api_service.web.jobs.expected_starts import expected_start
from api_service.web.listing import read_list
from api_service.web.routing import WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.jobs import QueueEntry, QueuePage

_COLUMNS: tuple[Column[QueueEntry], ...] = (
    Column("place", "Place in the queue", lambda job: job.queue_position),
    Column("name", "Name", lambda job: (job.name or job.id).casefold()),
    Column("user", "User", lambda job: job.user),
    Column("gpus", "Most GPUs", lambda job: job.gpus * job.nodes, largest_first=True),
    Column("waits", "Waits longest", lambda job: job.created_at),
    Column("starts", "Starts first", expected_start),
)


async def queue_page(visit: Visit) -> Response:
    """Show the visitor's waiting jobs (administrators: all) and totals: by place; a queue of several pages by priority
    and arrival, unless `?sort=` says otherwise."""
    columns = [column for column in _COLUMNS if visit.principal.is_admin or column.name != "user"]
    choice = read_choice("/queue", visit.request.query_params.multi_items(), (), columns)
    totals = (await visit.rest.get(QueuePage, "/v1/queue", {"limit": 1})).totals
    listing = await read_list(visit, QueuePage, "/v1/queue", {}, choice, columns, _words_of)
    by_place = choice.is_plain and not (listing.before or listing.after)
    if by_place:
        listing = replace(listing, items=sorted(listing.items, key=_place))
    context: dict[str, Any] = {
        "listing": listing,
        "by_place": by_place,
        "totals": totals,
        "first": min(
            (job for job in listing.items if job.user == visit.principal.user),
            key=_place,
            default=None,
        ),
    }
    if visit.partial:
        return visit.part("_queue.html", **context)
    return visit.page("queue.html", title="Queue", live="queue", **context)


def _place(job: QueueEntry) -> tuple[bool, int]:
    return job.queue_position is None, job.queue_position or 0


def _words_of(job: QueueEntry) -> tuple[str | None, ...]:
    return job.name, job.id, job.user, job.project, job.gpu_type


ROUTES = (WebRoute("GET", "/queue", queue_page),)
