"""Usage: how many GPU-hours were held, used, idle and wasted."""

from datetime import timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from api_service import presenting_policy
from api_service.documents import problems
from api_service.pagination import PageQuery, decode, encode
from api_service.problems import ProblemError
from api_service.services import Caller, Served
from reservation_core.contracts_bookings import Instant
from reservation_core.contracts_policy import UsageOut
from reservation_core.domain.usage import UsageBy
from reservation_core.usecases import usage

router = APIRouter(prefix="/v1/usage", tags=["usage"])

LONGEST = timedelta(days=400)
_A_WEEK = timedelta(days=7)
_LIST = "usage"
_CSV = "text/csv"
_OR_CSV: dict[int | str, dict[str, Any]] = {200: {"content": {_CSV: {"schema": {"type": "string"}}}}}


class UsageQuery(PageQuery):
    """Whose usage, of when."""

    by: Annotated[UsageBy, Field(description="One line for each of these.")] = UsageBy.USER
    start: Annotated[Instant | None, Field(alias="from", description="By default a week before `to`.")] = None
    end: Annotated[Instant | None, Field(alias="to", description="By default now.")] = None
    format: Annotated[
        Literal["json", "csv"] | None, Field(description="By default what the Accept header asks for, else JSON.")
    ] = None


@router.get(
    "",
    response_model=UsageOut,
    summary="GPU-hours held, used, idle and wasted",
    responses=_OR_CSV | problems(400),
)
async def get_usage(
    request: Request, services: Served, caller: Caller, query: Annotated[UsageQuery, Query()]
) -> Response:
    """Your own in [from, to) as far as it is past; for administrators everybody's. As CSV all lines come at once."""
    now = services.runtime.clock.now()
    end = query.end or now
    start = query.start or end - _A_WEEK
    if not timedelta(0) < end - start <= LONGEST:
        detail = f"`to` must be after `from`, by at most {LONGEST.days} days. Ask for another time."
        raise ProblemError(422, "bad_range", detail)
    after = decode(_LIST, query.cursor, (str,))
    report = await services.reads(lambda uow: usage.report(uow, caller, query.by, start, end, now))
    if query.format == "csv" or (query.format is None and _wants_csv(request)):
        return Response(presenting_policy.usage_csv(query.by, report.lines), media_type=f"{_CSV}; charset=utf-8")
    # What has no key comes last, and its place in the order is after every name.
    rest = [line for line in report.lines if after is None or line.key is None or line.key > str(after[0])]
    page = rest[: query.limit]
    last = page[-1].key if page else None
    shown = UsageOut(
        by=query.by,
        start=start,
        end=end,
        items=[presenting_policy.usage_line(line) for line in page],
        total=presenting_policy.usage_total(report),
        next_cursor=encode(_LIST, (last,)) if last is not None and len(rest) > query.limit else None,
    )
    return Response(shown.model_dump_json(), media_type="application/json")


def _wants_csv(request: Request) -> bool:
    return any(part.split(";")[0].strip().lower() == _CSV for part in request.headers.get("accept", "").split(","))
