"""The requested view of the calendar, as in the page's address."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from urllib.parse import urlencode

from api_service.problems import ProblemError
from api_service.web.calendar.timeline_rows import By
from api_service.web.calendar.timeline_window import EARLIEST, LATEST, TimelineScale
from api_service.web.finding.address_words import chosen_word

_MOST_PAGES = 10_000
_LONGEST = 253


@dataclass(frozen=True, slots=True)
class TimelineQuery:
    """The requested view. `by` None: chosen by size; `page` counts from 1; `as_table`: never the timeline."""

    view: TimelineScale
    by: By | None
    day: date
    gpu_type: str | None
    node: str | None
    page: int
    as_table: bool

    def address(self, path: str = "/calendar", **changes: object) -> str:
        """The address of this view with changes. A change of rows begins at their first page."""
        if changes and "page" not in changes:
            changes["page"] = 1
        other = replace(self, **changes)  # type: ignore[arg-type]
        fields = {
            "view": other.view,
            "by": other.by,
            "from": other.day.isoformat(),
            "type": other.gpu_type,
            "node": other.node,
            "page": other.page if other.page > 1 else None,
            "as": "table" if other.as_table else None,
        }
        return f"{path}?{urlencode({name: value for name, value in fields.items() if value is not None})}"


def read_query(parameter: Callable[[str], str], today: date) -> TimelineQuery:
    """Read the address. Raises ProblemError (422) for invalid parameters."""
    day, page = parameter("from"), parameter("page")
    for name in ("type", "node"):
        if len(parameter(name)) > _LONGEST:
            raise ProblemError(422, "invalid_request", f"No {name} has so long a name. Choose one from the list.")
    if page and not (page.isascii() and page.isdecimal() and len(page) < 6 and 1 <= int(page) <= _MOST_PAGES):
        raise ProblemError(
            422, "invalid_request", f"There is no such page. Write `page=` with a number from 1 to {_MOST_PAGES}."
        )
    return TimelineQuery(
        view=chosen_word(TimelineScale, parameter("view"), "view", "The calendar") or TimelineScale.WEEK,
        by=chosen_word(By, parameter("by"), "by", "The calendar"),
        day=_day(day) if day else today,
        gpu_type=parameter("type") or None,
        node=parameter("node") or None,
        page=int(page or 1),
        as_table=parameter("as") == "table",
    )


def _day(value: str) -> date:
    try:
        # Links from elsewhere have a time of that day.
        found = date.fromisoformat(value[:10])
    except ValueError:
        detail = "There is no such day. Write the day in the address as in `from=2030-01-31`."
        raise ProblemError(422, "invalid_request", detail) from None
    return min(max(found, EARLIEST), LATEST)
