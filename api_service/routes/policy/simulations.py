"""Simulations: how long jobs would have waited under another order, other rules, or with more nodes."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from api_service.documents import problems, reads
from api_service.following import disconnected
from api_service.presenting.simulations import simulation
from api_service.problems import ProblemError
from api_service.requests import bodies
from api_service.services import Caller, Served, Services
from reservation_core.contracts.simulations import SimulationCreate, SimulationOut
from reservation_core.domain.simulation.comparison import Comparison, Question
from reservation_core.runtime.simulation.simulator import SimulationLimitError, SimulatorBusyError
from reservation_core.usecases.planning.simulate import Usual, prepare

router = APIRouter(prefix="/v1/simulations", tags=["simulations"])

MAX_BODY_BYTES = 8 * 2**20
"""A trace of 20,000 jobs with long names fits in it."""
_RETRY_S = 20
T = TypeVar("T")


@router.post(
    "",
    response_model=SimulationOut,
    summary="How long jobs would have waited, today and changed",
    responses=problems(400, 413, 415),
    openapi_extra=reads(SimulationCreate),
)
async def simulate(request: Request, services: Served, caller: Caller) -> Response:
    """Let the jobs of the past, or of a trace, run through the planner twice in virtual time: as things are today, and
    with what you change. Bookings of that time have their GPUs. Administrators simulate everybody's jobs, others their
    own. Nothing is stored. The answer takes up to the server's limit (50 s by default), and ends early when the
    connection does."""
    raw = await bodies.read_raw(request, limit=MAX_BODY_BYTES)
    asked = await asyncio.to_thread(bodies.parse, raw, SimulationCreate)
    settings = services.settings
    slack = timedelta(seconds=settings.promise_slack_s)
    usual = Usual(settings.fair_share_half_life, slack, settings.start_allowance)
    now = services.runtime.clock.now()
    try:
        with services.simulator.place():
            prepared = await services.reads(lambda uow: prepare(uow, caller, asked, usual, now))
            found = await _unless_gone(request, _compare(services, prepared.question))
    except SimulatorBusyError as error:
        detail = "Another simulation runs on this server. Try again when it is over, in a minute or two."
        raise ProblemError(503, "simulator_busy", detail, headers={"Retry-After": str(_RETRY_S)}) from error
    left_out = list(prepared.left_out)
    if found.never:
        left_out.insert(0, f"Jobs left out because no node or quota is large enough for them: {found.never:,}.")
    if found.today is None or found.changed is None:
        raise ProblemError(422, "nothing_to_simulate", " ".join(["No job is left to simulate.", *left_out]))
    if found.today.refused or found.changed.refused:
        refused = f"{found.today.refused:,} as today, {found.changed.refused:,} changed"
        left_out.insert(0, f"Bookings left out because too few GPUs are free when they are made: {refused}.")
    shown = simulation(asked, prepared.question, found.today, found.changed, left_out)
    return Response(shown.model_dump_json(), media_type="application/json")


async def _compare(services: Services, question: Question) -> Comparison:
    try:
        return await services.simulator.compare(question)
    except SimulationLimitError as error:
        detail = (
            f"The simulation of {len(question.jobs):,} jobs took more than {services.simulator.limit_s:g} s, or too "
            "much memory. Simulate fewer days or fewer jobs."
        )
        raise ProblemError(422, "simulation_too_large", detail) from error


async def _unless_gone(request: Request, work: Awaitable[T]) -> T:
    """The result of some work, which is cancelled when the client goes."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(disconnected(request.receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ProblemError(400, "client_gone", "The connection ended before the simulation did. Send it again.")
        return task.result()
    finally:
        gone.cancel()
        task.cancel()
        await asyncio.gather(gone, task, return_exceptions=True)
