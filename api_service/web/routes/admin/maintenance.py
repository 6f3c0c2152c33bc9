"""Maintenance windows, planned after a preview."""

from typing import Any

from starlette.responses import Response

from api_service.web.confirmation import ask
from api_service.web.rest_calls import RestProblemError
from api_service.web.routing import PageAccess, WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.base import Page
from reservation_core.contracts.maintenance import MaintenanceOut
from reservation_core.contracts.nodes import NodeOut
from reservation_core.domain.bookings.windows import WindowStatus, fate_words
from reservation_core.domain.policy.rule_words import counted
from reservation_core.domain.time_words import rfc3339


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
        made = await visit.rest.post(MaintenanceOut, "/v1/maintenance", _typed(visit))
    except RestProblemError as problem:
        return await _page(visit, problem=problem)
    affected = len(made.affected)
    consequence = "1 job or booking is affected." if affected == 1 else f"{affected} jobs and bookings are affected."
    if affected:
        consequence += " Owners who have a notification address are notified."
    return visit.go("/admin/maintenance", f"Planned. {consequence}")


async def confirm_end(visit: Visit) -> Response:
    """Explain what ending a window would do."""
    window = await visit.rest.get(MaintenanceOut, f"/v1/maintenance/{visit.path('window')}")
    if window.finished_at is not None:
        raise RestProblemError.because(404, "This maintenance window is over already.")
    nodes = ", ".join(sorted({place.node for place in window.gpus}))
    when = f"{rfc3339(window.start)} to {rfc3339(window.end)}"
    is_planned = window.status is WindowStatus.CONFIRMED
    gpus = counted(len(window.gpus), "GPU")
    return ask(
        visit,
        "Cancel the maintenance window?" if is_planned else "End the maintenance window?",
        (
            f"The window on {nodes}, {when} ({window.reason}), is {'cancelled' if is_planned else 'over at once'}.",
            f"Jobs and bookings can then have its {gpus}, even if someone still works on the machine.",
        ),
        words="Cancel the window" if is_planned else "End it",
        back="/admin/maintenance",
    )


async def end(visit: Visit) -> Response:
    """Cancel a window, or end it early."""
    await visit.rest.send("DELETE", f"/v1/maintenance/{visit.path('window')}")
    return visit.go("/admin/maintenance", "The window is over. Its GPUs are available again.")


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
        fate_words=fate_words,
        problem=problem,
    )


ROUTES = (
    WebRoute("GET", "/admin/maintenance", windows_page, PageAccess.ADMIN),
    WebRoute("POST", "/admin/maintenance/preview", preview, PageAccess.ADMIN),
    WebRoute("POST", "/admin/maintenance", plan, PageAccess.ADMIN),
    WebRoute("GET", "/admin/maintenance/{window}/end", confirm_end, PageAccess.ADMIN),
    WebRoute("POST", "/admin/maintenance/{window}/end", end, PageAccess.ADMIN),
)
