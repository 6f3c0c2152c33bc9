"""A node: its state, what has its GPUs, and how they were used."""

from datetime import timedelta
from typing import Any

from starlette.responses import Response

from api_service.problems import ProblemError
from api_service.web.fleet.node_calendar import read_node_calendar
from api_service.web.jobs.use_graph import read_node_use, use_file
from api_service.web.routing import WebRoute
from api_service.web.visit import Visit

_LENGTHS = {
    "hour": ("hour", timedelta(hours=1)),
    "day": ("day", timedelta(days=1)),
    "week": ("week", timedelta(days=7)),
    "month": ("30 days", timedelta(days=30)),
}
_USUAL = "hour"


async def node_page(visit: Visit) -> Response:
    """Show what has the GPUs of a node, and the use of each over the last `?last=`, whoever had it."""
    node, last = visit.path("node"), _chosen(visit)
    return visit.page(
        "node.html",
        title=node,
        live="use now calendar",
        node=node,
        **await _use(visit),
        calendar=await read_node_calendar(visit, node),
        lengths=[(name, words) for name, (words, _) in _LENGTHS.items()],
        last=last,
    )


async def node_now(visit: Visit) -> Response:
    """What has the GPUs of a node, for an open page."""
    node = visit.path("node")
    return visit.part("_node_now.html", node=node, calendar=await read_node_calendar(visit, node))


async def node_use(visit: Visit) -> Response:
    """The use of a node's GPUs, for an open page."""
    return visit.part("_job_use.html", **await _use(visit))


async def node_file(visit: Visit) -> Response:
    """The same as CSV."""
    node, last = visit.path("node"), _chosen(visit)
    name = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in node)
    return await use_file(visit, f"/v1/nodes/{visit.encoded(node)}", f"{name}-{last}", _LENGTHS[last][1])


async def _use(visit: Visit) -> dict[str, Any]:
    node, last = visit.path("node"), _chosen(visit)
    use = await read_node_use(visit, node, _LENGTHS[last][1])
    return {"use": use, "use_file": f"/nodes/{visit.encoded(node)}/use.csv?last={last}"}


def _chosen(visit: Visit) -> str:
    """The chosen time. Raises ProblemError (422)."""
    last = visit.query("last") or _USUAL
    if last not in _LENGTHS:
        raise ProblemError(422, "invalid_request", "Choose a time from the list of the page.")
    return last


ROUTES = (
    WebRoute("GET", "/nodes/{node}", node_page),
    WebRoute("GET", "/nodes/{node}/now", node_now, part_of="/nodes/{node}"),
    WebRoute("GET", "/nodes/{node}/use", node_use, part_of="/nodes/{node}"),
    WebRoute("GET", "/nodes/{node}/use.csv", node_file),
)
