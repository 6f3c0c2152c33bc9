"""Maintenance windows, planned after a preview."""

from typing import Any

from starlette.responses import Response

from api_service.web.rest_calls import RestProblemError
from api_service.web.routing import PageAccess, WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.base import Page
from reservation_core.contracts.maintenance import MaintenanceOut
from reservation_core.contracts.nodes import NodeOut


async def windows_page(visit: Visit) -> Response:
    """Show the windows, and the form for another."""
    return await _page(visit)


async def preview(visit: Visit) -> Response:
    """Show the users that a window would affect; nothing has changed yet."""
    try:
        found = await visit.rest.post(MaintenanceOut, "/v1/maintenance", {**_typed(visit), "dry_run": True})
    except RestProblemError as problem:
        return await _page(visit, problem=problem)
    return await _page(visit, preview=found)


async def plan(visit: Visit) -> Response:
    """Plan a window."""
    try:
        made = await visit.rest.post(MaintenanceOut, "/v1/maintenance", _typed(visit), key=visit.form.get("key"))
    except RestProblemError as problem:
        return await _page(visit, problem=problem)
    affected = len(made.affected)
    consequence = (
        "1 job or booking is affected; its owner is told."
        if affected == 1
        else (f"{affected} jobs and bookings are affected; their owners are told.")
    )
    return visit.go("/admin/maintenance", f"Planned. {consequence}")


async def end(visit: Visit) -> Response:
    """Cancel a window, or end it early."""
    await visit.rest.send("DELETE", f"/v1/maintenance/{visit.path('window')}")
    return visit.go("/admin/maintenance", "The window is over. Its cards can be had at once.")


def _typed(visit: Visit) -> dict[str, Any]:
    form = visit.form
    body: dict[str, Any] = {
        "nodes": [name for part in (form.get("nodes") or "").split(",") if (name := part.strip())],
        "reason": form.get("reason") or "",
    }
    body["duration"] = form.duration("duration") or ""
    if (start := form.get("start")) is not None:
        body["start"] = visit.instant(start)
    return body


async def _page(
    visit: Visit, *, preview: MaintenanceOut | None = None, problem: RestProblemError | None = None
) -> Response:
    windows = await visit.rest.get(Page[MaintenanceOut], "/v1/maintenance", {"limit": 50})
    nodes = await visit.rest.all(Page[NodeOut], "/v1/nodes")
    return visit.page(
        "admin/maintenance.html",
        title="Maintenance",
        status=200 if problem is None else problem.status,
        windows=windows.items,
        node_names=[node.name for node in nodes],
        typed=visit.form.shown(),
        preview=preview,
        problem=problem,
    )


ROUTES = (
    WebRoute("GET", "/admin/maintenance", windows_page, PageAccess.ADMIN),
    WebRoute("POST", "/admin/maintenance/preview", preview, PageAccess.ADMIN),
    WebRoute("POST", "/admin/maintenance", plan, PageAccess.ADMIN),
    WebRoute("POST", "/admin/maintenance/{window}/end", end, PageAccess.ADMIN),
)
