"""The use of GPUs over time: of a job, and of a node."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from api_service.access.sight import Sight, sight_of
from api_service.documents import problems
from api_service.presenting import gpu_use
from api_service.problems import ProblemError
from api_service.requests.csv_answers import FORMAT_HELP, OR_CSV, AnswerFormat, csv_answer, wants_csv
from api_service.requests.pagination import PageQuery, decode, encode
from api_service.routes.bookings.availability import QueryDuration
from api_service.routes.jobs.jobs import JobId
from api_service.routes.nodes.nodes import NodeName
from api_service.services import Caller, Served
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.base import Instant, Page
from reservation_core.contracts.nodes import GpuNowOut, UseOut
from reservation_core.domain.gpu_use.job_use import sum_up_use
from reservation_core.domain.gpu_use.roll_ups import UsePoint
from reservation_core.domain.gpu_use.samples import sample_lasts
from reservation_core.domain.gpu_use.spans import MOST_POINTS, finest_step, points_in, step_fault, usual_step
from reservation_core.ports.gpu_use import GpuUseNow, HeldGpu
from reservation_core.usecases.gpu_use.read_use import earliest_use, gpus_of_job, gpus_of_node, held_within, read_points

router = APIRouter(prefix="/v1", tags=["inventory"])

_LIST = "gpus-use"
_AN_HOUR = timedelta(hours=1)


class UseQuery(BaseModel):
    """The time and the steps of a graph."""

    model_config = ConfigDict(extra="forbid")

    start: Annotated[
        Instant | None, Field(alias="from", description="By default the job's start; of a node an hour before `to`.")
    ] = None
    end: Annotated[Instant | None, Field(alias="to", description="By default now, or the job's end.")] = None
    step: Annotated[
        QueryDuration | None,
        Field(
            description="The length of steps: 10 s or more, from a minute on whole minutes, from an hour on whole "
            f"hours. All GPUs together have at most {MOST_POINTS} points. A time of which there are only longer steps "
            "has these. By default about 400 steps."
        ),
    ] = None
    format: Annotated[AnswerFormat | None, Field(description=FORMAT_HELP)] = None


@router.get(
    "/jobs/{job_id}/metrics",
    response_model=UseOut,
    summary="Use of a job's GPUs",
    responses=OR_CSV | problems(404),
)
async def get_job_use(
    request: Request, services: Served, caller: Caller, job_id: JobId, query: Annotated[UseQuery, Query()]
) -> Response:
    """Utilisation, memory, power, temperature and errors of the GPUs that the job has or had, while it had them."""
    now = services.runtime.clock.now()

    async def read(uow: UnitOfWork) -> UseOut:
        gpus, held = await gpus_of_job(uow, caller, job_id)
        start = min((gpu.start for gpu in held if gpu.start), default=now - _AN_HOUR)
        end = min(now, max((gpu.until or now for gpu in held), default=now))
        asked = await _points(uow, held, query, query.start or start, (start, end), now)
        points = [(gpu.memory_bytes, of_gpu) for gpu, of_gpu in asked.found]
        every = timedelta(seconds=services.settings.sample_every_s)
        summary = sum_up_use(gpus, points, held_within(held, asked.start, asked.end), every)
        return gpu_use.use(asked.found, asked.start, asked.end, asked.step, summary)

    return _answer(await services.reads(read), wants_csv(request, query.format))


@router.get(
    "/nodes/{node}/metrics", response_model=UseOut, summary="Use of a node's GPUs", responses=OR_CSV | problems(404)
)
async def get_node_use(
    request: Request, services: Served, _caller: Caller, node: NodeName, query: Annotated[UseQuery, Query()]
) -> Response:
    """The same for all GPUs of a node, whoever had them."""
    now = services.runtime.clock.now()

    async def read(uow: UnitOfWork) -> UseOut:
        held = await gpus_of_node(uow, node)
        start = query.start or (query.end or now) - _AN_HOUR
        known = (await earliest_use(uow, held, start, now), now)
        asked = await _points(uow, held, query, start, known, now)
        return gpu_use.use(asked.found, asked.start, asked.end, asked.step)

    return _answer(await services.reads(read), wants_csv(request, query.format))


@router.get("/gpus/use", response_model=Page[GpuNowOut], summary="Use of all GPUs now", responses=problems(400))
async def list_use(services: Served, caller: Caller, query: Annotated[PageQuery, Query()]) -> Response:
    """Every GPU by node and index, with its holder (null where you may not see it) and its newest sample."""
    key = decode(_LIST, query.cursor, (str, int))
    after = None if key is None else (str(key[0]), int(key[1]))
    now, lasts = services.runtime.clock.now(), sample_lasts(services.settings.sample_every_s)

    async def read(uow: UnitOfWork) -> tuple[list[GpuUseNow], Sight]:
        found = await uow.gpu_use.of_now(after, query.limit + 1, now, lasts)
        return found, await sight_of(uow, caller, services.settings.holders)

    found, sight = await services.reads(read)
    shown = found[: query.limit]
    page = Page[GpuNowOut](
        items=[gpu_use.use_now(gpu, sight) for gpu in shown],
        next_cursor=encode(_LIST, (shown[-1].node, shown[-1].index)) if len(found) > query.limit else None,
    )
    return Response(page.model_dump_json(), media_type="application/json")


class _Asked(NamedTuple):
    found: Sequence[tuple[HeldGpu, Sequence[UsePoint]]]
    start: datetime
    end: datetime
    step: timedelta


async def _points(
    uow: UnitOfWork,
    held: Sequence[HeldGpu],
    query: UseQuery,
    start: datetime,
    known: tuple[datetime, datetime],
    now: datetime,
) -> _Asked:
    """Read the part of the asked time that lies in `known`; without points where there is none."""
    asked = query.step
    if query.start and query.end and (query.end < start or (query.end == start and asked is not None)):
        raise ProblemError(422, "bad_range", "The time must end after it begins. Ask for another time.")
    end = min(query.end or known[1], now)
    start = min(max(start, known[0]), end)
    gpus = len({gpu.gpu_id for gpu in held})
    finest = finest_step(start, now)
    if asked is not None and (fault := step_fault(asked)):
        raise ProblemError(422, "bad_step", f"`step` {fault}")
    step = usual_step(start, end, gpus, finest) if asked is None else max(asked, finest)
    if gpus * points_in(start, end, step) > max(gpus, MOST_POINTS):
        raise ProblemError(
            422,
            "bad_step",
            f"`step` would give more than {MOST_POINTS} points. Ask for longer steps, or for a shorter time.",
        )
    return _Asked(await read_points(uow, held, start, end, step), start, end, step)


def _answer(found: UseOut, as_csv: bool) -> Response:
    if as_csv:
        return csv_answer(gpu_use.use_csv(found))
    return Response(found.model_dump_json(), media_type="application/json")
