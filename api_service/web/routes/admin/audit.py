"""The audit log: who did what, when, and why."""

from urllib.parse import urlencode

from starlette.responses import Response

from api_service.web.rest_calls import Query, RestProblemError
from api_service.web.routing import PageAccess, WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.audit_log import EventOut
from reservation_core.contracts.base import Page

_FILTERS = ("kind", "actor", "subject", "from", "to")
_PAGE = 100


async def record_page(visit: Visit) -> Response:
    """Show the events that match the filters, newest first."""
    asked = {name: visit.query(name) for name in _FILTERS}
    found = Page[EventOut](items=[], next_cursor=None)
    problem = None
    try:
        query = {
            name: visit.instant(value) if value and name in ("from", "to") else value for name, value in asked.items()
        }
        given: Query = {name: value for name, value in query.items() if value}
        given = {**given, "limit": _PAGE, "cursor": visit.query("cursor") or None}
        found = await visit.rest.get(Page[EventOut], "/v1/events", given)
    except RestProblemError as refused:
        if refused.status not in (400, 404, 422):
            raise
        problem = refused
    return visit.page(
        "admin/audit.html",
        title="Audit log",
        status=200 if problem is None else problem.status,
        events=found.items,
        next_cursor=found.next_cursor,
        asked=asked,
        asked_query="".join(f"{urlencode({name: value})}&" for name, value in asked.items() if value),
        problem=problem,
    )


ROUTES = (WebRoute("GET", "/admin/audit", record_page, PageAccess.ADMIN),)
