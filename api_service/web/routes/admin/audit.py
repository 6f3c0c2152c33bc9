"""The audit log: who did what, when, and why."""

from dataclasses import replace

from starlette.responses import Response

from api_service.web.finding.list_order import Column, Listing, read_choice
from api_service.web.rest_calls import Query, RestProblemError
from api_service.web.routing import PageAccess, WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.audit_log import EventOut
from reservation_core.contracts.base import Page
from reservation_core.domain.event_kinds import all_kinds, unknown_kind_words
from reservation_core.domain.history.event_words import kind_named, kind_words

_FILTERS = ("kind", "actor", "subject", "from", "to")
_PAGE = 100
_OLDEST = "oldest"
_COLUMNS: tuple[Column[EventOut], ...] = (Column(_OLDEST, "Oldest first", lambda event: event.at),)


async def record_page(visit: Visit) -> Response:
    """Show the events that match the filters, newest first unless `?sort=oldest`."""
    choice = read_choice("/admin/audit", visit.request.query_params.multi_items(), _FILTERS, _COLUMNS)
    choice = replace(choice, sort=_OLDEST if choice.sort == _OLDEST else "")
    asked = {name: visit.query(name) for name in _FILTERS}
    asked["kind"] = kind_named(asked["kind"] or "")
    found = Page[EventOut](items=[], next_cursor=None)
    problem = None
    try:
        query = {
            name: visit.instant(value) if value and name in ("from", "to") else value for name, value in asked.items()
        }
        given: Query = {name: value for name, value in query.items() if value}
        order = "oldest" if choice.sort else None
        given = {**given, "order": order, "limit": _PAGE, "cursor": choice.cursor or None}
        found = await visit.rest.get(Page[EventOut], "/v1/events", given)
    except RestProblemError as refused:
        if refused.names_no_page or refused.status not in (400, 404, 422):
            raise
        problem = refused
    after = None if found.next_cursor is None else replace(choice, cursor=found.next_cursor).address
    return visit.page(
        "admin/audit.html",
        title="Audit log",
        status=200 if problem is None else problem.status,
        listing=Listing(found.items, choice, _COLUMNS, after, before=choice.at(1) if choice.cursor else None),
        other_way=replace(choice, sort="" if choice.sort else _OLDEST, cursor="").address,
        asked=asked,
        kinds=(kinds := all_kinds()),
        kind_words=kind_words,
        unknown="" if not asked["kind"] or asked["kind"] in kinds else unknown_kind_words(asked["kind"]),
        problem=problem,
    )


ROUTES = (WebRoute("GET", "/admin/audit", record_page, PageAccess.ADMIN),)
