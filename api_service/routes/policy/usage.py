"""Usage: how many GPU-hours were held, used, idle and wasted."""

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from api_service.documents import problems
from api_service.presenting import policy
from api_service.problems import ProblemError
from api_service.requests.csv_answers import FORMAT_HELP, OR_CSV, AnswerFormat, csv_answer, wants_csv
from api_service.requests.pagination import PageQuery, decode, encode
from api_service.routes.bookings.availability import QueryDuration
from api_service.services import Caller, Served, Services
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.base import Instant
from reservation_core.contracts.policy import UsageOut, UsageSeriesOut
from reservation_core.domain.policy.nouns import UsageBy
from reservation_core.domain.policy.usage import UsageReport, UsageSeries, UsedGpus, steps_of
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.policy import usage

router = APIRouter(prefix="/v1/usage", tags=["usage"])

LONGEST = timedelta(days=400)
MOST_STEPS = 400
_MOST_FIGURES = 40_000
"""The most figures on a page: lines times steps."""
_A_WEEK = timedelta(days=7)
_LIST = "usage"


class UsageQuery(PageQuery):
    """The user and the period of a usage report."""

    by: Annotated[UsageBy, Field(description="Sum by this: one line for each.")] = UsageBy.USER
    start: Annotated[Instant | None, Field(alias="from", description="By default a week before `to`.")] = None
    end: Annotated[Instant | None, Field(alias="to", description="By default now.")] = None
    step: Annotated[
        QueryDuration | None,
        Field(description=f"Figures over time, in steps of this length; at most {MOST_STEPS} steps."),
    ] = None
    format: Annotated[AnswerFormat | None, Field(description=FORMAT_HELP)] = None


@router.get(
    "",
    response_model=UsageOut | UsageSeriesOut,
    summary="GPU-hours held, used, idle and wasted",
    responses=OR_CSV | problems(400),
)
async def get_usage(
    request: Request, services: Served, caller: Caller, query: Annotated[UsageQuery, Query()]
) -> Response:
    """Your usage in [from, to) as far as it is past; for administrators all users'. CSV has all lines at once."""
    now = services.runtime.clock.now()
    end = query.end or now
    start = query.start or end - _A_WEEK
    if not timedelta(0) < end - start <= LONGEST:
        detail = f"The time must end after it begins, at most {LONGEST.days} days later. Ask for another time."
        raise ProblemError(422, "bad_range", detail)
    after = decode(_LIST, query.cursor, (str,))
    if query.step is not None:
        return await _series(services, caller, query, query.step, start, end, None if after is None else str(after[0]))

    async def read(uow: UnitOfWork) -> tuple[UsageReport, dict[str | None, UsedGpus]]:
        report = await usage.report(uow, caller, query.by, start, end, now)
        return report, await usage.used_gpus(uow, caller, query.by, start, end, now)

    report, used = await services.reads(read)
    if wants_csv(request, query.format):
        return csv_answer(policy.usage_csv(query.by, report.lines, used))
    # A line without a key comes last, after every name.
    rest = [line for line in report.lines if after is None or line.key is None or line.key > str(after[0])]
    page = rest[: query.limit]
    last = page[-1].key if page else None
    shown = UsageOut(
        by=query.by,
        start=start,
        end=end,
        items=[policy.usage_line(line, used) for line in page],
        total=policy.usage_total(report, used),
        next_cursor=encode(_LIST, (last,)) if last is not None and len(rest) > query.limit else None,
    )
    return Response(shown.model_dump_json(), media_type="application/json")


async def _series(
    services: Services,
    caller: Principal,
    query: UsageQuery,
    step: timedelta,
    start: datetime,
    end: datetime,
    after: str | None,
) -> Response:
    if query.format == "csv":
        raise ProblemError(422, "bad_format", "Steps are available as JSON only. Leave out `format` or `step`.")
    if end - start > MOST_STEPS * step:
        raise ProblemError(422, "bad_range", f"That would be more than {MOST_STEPS} steps. Give a longer `step`.")
    now = services.runtime.clock.now()

    async def read(uow: UnitOfWork) -> tuple[UsageSeries, dict[tuple[str | None, int], UsedGpus]]:
        found = await usage.series(uow, caller, query.by, start, end, step, now)
        return found, await usage.used_by_step(uow, caller, query.by, start, end, step)

    found, used = await services.reads(read)
    rest = [line for line in found.lines if after is None or line[0] is None or line[0] > after]
    page = rest[: min(query.limit, _MOST_FIGURES // len(steps_of(start, end, step)))]
    last = page[-1][0] if page else None
    shown = UsageSeriesOut(
        by=query.by,
        start=start,
        end=end,
        step=step,
        items=[policy.usage_steps(key, times, used) for key, times in page],
        next_cursor=encode(_LIST, (last,)) if last is not None and len(rest) > len(page) else None,
    )
    return Response(shown.model_dump_json(), media_type="application/json")
