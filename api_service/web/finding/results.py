"""What a search found, as links."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, urlencode

from api_service.web.finding.site_pages import SitePage
from reservation_core.contracts.base import SearchHit
from reservation_core.domain.similar_names import FoundKind
from reservation_core.domain.status_words import booking_status

_TITLES = {FoundKind.JOB: "Jobs", FoundKind.BOOKING: "Bookings", FoundKind.NODE: "Nodes", FoundKind.USER: "People"}


@dataclass(frozen=True, slots=True)
class FoundLink:
    """A link with words on what it leads to."""

    name: str
    detail: str
    href: str


@dataclass(frozen=True, slots=True)
class FoundGroup:
    title: str
    links: Sequence[FoundLink]


def groups_of(
    pages: Sequence[SitePage], hits: Iterable[SearchHit], clock: Callable[[datetime], str], user: str
) -> list[FoundGroup]:
    """Pages first, then what was found, by kind. The owner is named where that is not `user`."""
    groups = [FoundGroup("Pages", [FoundLink(page.name, _keys(page), page.address) for page in pages])]
    found = list(hits)
    for kind, title in _TITLES.items():
        links = [
            FoundLink(hit.name or hit.id, _detail(hit, clock, user), _address(hit)) for hit in found if hit.kind == kind
        ]
        groups.append(FoundGroup(title, links))
    return [group for group in groups if group.links]


def _keys(page: SitePage) -> str:
    return f"g {page.key}" if page.key else ""


def _detail(hit: SearchHit, clock: Callable[[datetime], str], user: str) -> str:
    parts = (
        hit.id if hit.name is not None else None,
        _status(hit, user),
        None if hit.start is None else clock(hit.start),
        hit.user if hit.user != user else None,
    )
    return " · ".join(part for part in parts if part)


def _status(hit: SearchHit, user: str) -> str | None:
    """The status as lists write it."""
    if hit.kind is not FoundKind.BOOKING or hit.status is None:
        return hit.status
    return booking_status(hit.status, mine=hit.user in (None, user))


def _address(hit: SearchHit) -> str:
    match hit.kind:
        case FoundKind.JOB:
            return f"/jobs/{quote(hit.id)}"
        case FoundKind.BOOKING:
            return f"/bookings/{quote(hit.id)}"
        case FoundKind.NODE:
            return f"/now?{urlencode({'node': hit.id})}"
        case FoundKind.USER:
            return f"/admin/users?{urlencode({'q': hit.id})}"
