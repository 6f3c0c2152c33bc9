"""GPU-hours held and used, by user, project or type, over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from starlette.responses import Response

from api_service.problems import ProblemError
from api_service.web.finding.address_words import chosen_word, no_such_choice
from api_service.web.finding.list_order import Column, arrange, read_choice
from api_service.web.plots import column_plot, shares
from api_service.web.routing import WebRoute
from api_service.web.visit import Visit
from reservation_core.contracts.policy import UsageLineOut, UsageOut, UsageSeriesLineOut, UsageSeriesOut
from reservation_core.domain.history.shown_usage import shown_usage
from reservation_core.domain.policy.nouns import UsageBy

_SPANS = {"day": 1, "week": 7, "month": 30, "quarter": 91, "year": 365}
_NAMES = {"day": "24 hours", "week": "7 days", "month": "30 days", "quarter": "3 months", "year": "A year"}
_BY = {UsageBy.USER: "person", UsageBy.PROJECT: "project", UsageBy.GPU_TYPE: "GPU type"}
_HOURLY_UP_TO = timedelta(days=2)
_DAILY_UP_TO = timedelta(days=100)
_MOST_LINES = 500


@dataclass(frozen=True, slots=True)
class UsageChoice:
    by: UsageBy
    span: str
    start: datetime
    end: datetime

    @property
    def step(self) -> timedelta:
        """The length of a column."""
        length = self.end - self.start
        if length <= _HOURLY_UP_TO:
            return timedelta(hours=1)
        return timedelta(days=1) if length <= _DAILY_UP_TO else timedelta(days=7)


_COLUMNS: tuple[Column[UsageLineOut], ...] = (
    Column("name", "Name", lambda line: line.key),
    Column("held", "Held", lambda line: line.held_gpu_hours, largest_first=True),
    Column("used", "Used", lambda line: line.used_gpu_hours, largest_first=True),
    Column("idle", "Idle", lambda line: line.idle_gpu_hours, largest_first=True),
    Column("wasted", "Wasted", lambda line: line.wasted_gpu_hours, largest_first=True),
)


async def usage_page(visit: Visit) -> Response:
    """Show the visitor's usage; to administrators everybody's."""
    asked = _read_choice(visit)
    query = {"by": asked.by.value, "from": asked.start.isoformat(), "to": asked.end.isoformat()}
    totals = await visit.rest.get(UsageOut, "/v1/usage", {**query, "limit": _MOST_LINES})
    series = await visit.rest.all(UsageSeriesOut, "/v1/usage", {**query, "step": _iso(asked.step)}, at_most=_MOST_LINES)
    choice = read_choice("/usage", visit.request.query_params.multi_items(), ("by", "span", "from", "to"), _COLUMNS)
    most_held = sorted(totals.items, key=lambda line: -line.held_gpu_hours)
    listing = arrange(most_held, choice, _COLUMNS, lambda line: (line.key or f"no {_BY[asked.by]}",))
    of_one = any(choice.text and line.key == choice.text for line in most_held)
    if choice.text:
        names = {choice.text} if of_one else {line.key for line in listing.items}
        series = [line for line in series if line.key in names]
    held, used = _summed([line.held_gpu_hours for line in series]), _summed([line.used_gpu_hours for line in series])
    busy = _busy(series)
    *lines_shown, total_shown = shown_usage(totals.items, totals.total)
    shown = {line.key: figures for line, figures in zip(totals.items, lines_shown, strict=True)}
    most = max((line.held_gpu_hours for line in most_held), default=0.0)
    return visit.page(
        "usage.html",
        title="Usage",
        asked=asked,
        by_words=_BY[asked.by],
        by_all=[(grouping.value, words) for grouping, words in _BY.items()],
        spans=list(_NAMES.items()),
        plot=column_plot(held, used, busy, _labels(visit, asked, len(held))),
        step_words={3600: "an hour", 86_400: "a day", 604_800: "a week"}[int(asked.step.total_seconds())],
        any_busy=any(hours is not None for hours in busy),
        listing=listing,
        any_lines=bool(most_held),
        of_one=of_one,
        lines=list(
            zip(
                listing.items,
                shares([line.held_gpu_hours for line in listing.items], most),
                shares([line.used_gpu_hours for line in listing.items], most),
                [shown[line.key] for line in listing.items],
                strict=True,
            )
        ),
        total=totals.total,
        total_shown=total_shown,
        last_day=f"{asked.end - timedelta(days=1):%Y-%m-%d}",
        more=totals.next_cursor is not None,
    )


async def usage_file(visit: Visit) -> Response:
    """The same as CSV."""
    asked = _read_choice(visit)
    query = {"by": asked.by.value, "from": asked.start.isoformat(), "to": asked.end.isoformat(), "format": "csv"}
    answer = await visit.rest.send("GET", "/v1/usage", query=query)
    name = f"usage-{asked.start:%Y%m%d}-{asked.end:%Y%m%d}-by-{asked.by.value}.csv"
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(answer.body, media_type="text/csv", headers=headers)


def begin(span: str, now: datetime, zone: ZoneInfo) -> datetime:
    """The start of a span that ends now: a whole hour or day of the viewer's, so that columns are whole, too."""
    if span == "day":
        return now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=23)
    today = now.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    return today - timedelta(days=_SPANS[span] - 1)


def _read_choice(visit: Visit) -> UsageChoice:
    """The requested usage. Raises ProblemError (422)."""
    by = chosen_word(UsageBy, visit.query("by"), "by", "Usage") or UsageBy.USER
    span = visit.query("span") or ("dates" if visit.query("from") or visit.query("to") else "week")
    if span not in _SPANS and span != "dates":
        raise no_such_choice("Usage", "span", [*_SPANS, "dates"])
    if span != "dates":
        return UsageChoice(by, span, begin(span, visit.now, visit.zone), visit.now)
    try:
        today = f"{visit.now.astimezone(visit.zone):%Y-%m-%d}"
        first, last = (datetime.fromisoformat(day) for day in (visit.query("from"), visit.query("to") or today))
        # Days are in the viewer's zone; the last one is included.
        start, end = first.replace(tzinfo=visit.zone), (last + timedelta(days=1)).replace(tzinfo=visit.zone)
    except (ValueError, OverflowError) as error:
        raise ProblemError(422, "invalid_request", "Give the first and the last day, like 2030-01-31.") from error
    return UsageChoice(by, span, start, end)


def _labels(visit: Visit, asked: UsageChoice, count: int) -> list[str]:
    places = [(asked.start + asked.step * number).astimezone(visit.zone) for number in range(count)]
    if asked.step < timedelta(days=1):
        return [f"{place:%H:%M}" for place in places]
    return [f"{place.day} {place:%b}" for place in places]


def _summed(lines: Sequence[Sequence[float]]) -> list[float]:
    return [sum(values) for values in zip(*lines, strict=True)]


def _busy(lines: Sequence[UsageSeriesLineOut]) -> list[float | None]:
    """For how many GPU-hours GPUs were busy in each step; None where no line has samples."""
    of_lines = [
        [None if part is None else part * used for part, used in zip(line.utilised, line.used_gpu_hours, strict=True)]
        for line in lines
    ]
    steps = zip(*of_lines, strict=True)
    return [None if not (known := [value for value in step if value is not None]) else sum(known) for step in steps]


def _iso(step: timedelta) -> str:
    return f"PT{int(step.total_seconds()) // 3600}H"


ROUTES = (
    WebRoute("GET", "/usage", usage_page),
    WebRoute("GET", "/usage.csv", usage_file),
)
