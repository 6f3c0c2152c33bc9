"""The elements of an array on its page: a part of them, by status."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from api_service.web.visit import Visit
from reservation_core.contracts.base import Page
from reservation_core.contracts.jobs import Job
from reservation_core.domain.statuses import JobStatus

_SHOWN = 100
_STATUSES = frozenset(status.value for status in JobStatus)


@dataclass(frozen=True, slots=True)
class ShownElements:
    """Elements of a status, or of all; `address` is that of the part, `first` and `next` those of pages with others."""

    items: Sequence[Job]
    status: str
    address: str
    first: str | None
    next: str | None


async def read_elements(visit: Visit, array: Job) -> ShownElements | None:
    """Read the elements that the page's address names; None for a job that is not an array."""
    if array.array is None:
        return None
    status = visit.query("elements") if visit.query("elements") in _STATUSES else ""
    asked = {"elements": status, "after": visit.query("after")}
    given = {name: value for name, value in asked.items() if value}
    query = {"limit": str(_SHOWN), "status": status, "cursor": visit.query("after")}
    wanted = {name: value for name, value in query.items() if value}
    page = await visit.rest.get(Page[Job], f"/v1/jobs/{array.id}/elements", wanted)
    address = f"/jobs/{array.id}/elements" + (f"?{urlencode(given)}" if given else "")
    beginning = {"elements": status} if status else {}
    first = f"/jobs/{array.id}" + (f"?{urlencode(beginning)}" if status else "") if asked["after"] else None
    following = None
    if page.next_cursor is not None:
        following = f"/jobs/{array.id}?{urlencode({**given, 'after': page.next_cursor})}"
    return ShownElements(page.items, status, address, first, following)
