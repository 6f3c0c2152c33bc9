"""The palette's answer, the same as a page, and the page of keys."""

from dataclasses import asdict
from typing import Any

from starlette.responses import Response

from api_service.web.finding.results import groups_of
from api_service.web.finding.site_pages import pages_named, pages_of
from api_service.web.rendering import json_data
from api_service.web.rest_calls import RestProblemError
from api_service.web.routing import WebRoute
from api_service.web.visit import Visit
from api_service.web.words import clock
from reservation_core.contracts.base import SearchResult

_PAGES_AMONG_OTHERS = 5
_LONGEST = 100


async def search_page(visit: Visit) -> Response:
    """Show what matches `?q=`, and all pages without it; to scripts as JSON."""
    text, admin = visit.query("q")[:_LONGEST], visit.principal.is_admin
    pages = pages_named(text, admin=admin)
    found = SearchResult(items=[])
    problem = None
    if text:
        pages = pages[:_PAGES_AMONG_OTHERS]
        try:
            found = await visit.rest.get(SearchResult, "/v1/search", {"q": text})
        except RestProblemError as refused:
            if refused.status not in (400, 422) or visit.partial:
                raise
            problem = refused
    groups = groups_of(pages, found.items, lambda when: clock(when, visit.zone, visit.now), visit.principal.user)
    if visit.partial:
        return json_data(visit.request, [asdict(group) for group in groups])
    return visit.page(
        "search.html",
        title="Find",
        status=200 if problem is None else problem.status,
        text=text,
        groups=groups,
        problem=problem,
    )


async def shortcuts_page(visit: Visit) -> Response:
    """Show the keys."""
    context: dict[str, Any] = {"pages": [page for page in pages_of(admin=visit.principal.is_admin) if page.key]}
    if visit.partial:
        return visit.part("_shortcuts.html", **context)
    return visit.page("shortcuts.html", title="Keyboard shortcuts", **context)


ROUTES = (
    WebRoute("GET", "/search", search_page),
    WebRoute("GET", "/shortcuts", shortcuts_page),
)
