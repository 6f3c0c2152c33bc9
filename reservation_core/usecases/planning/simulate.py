"""Gather what a simulation is made of: jobs of a trace or of the past, bookings, the present nodes, and the policy."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.simulations import MOST_BOOKINGS, MOST_JOBS, SimulationCreate
from reservation_core.domain.calendar import to_micros
from reservation_core.domain.errors import NoSuchTypeError, NothingToSimulateError
from reservation_core.domain.model import GpuCondition, Node
from reservation_core.domain.plan import Waiting
from reservation_core.domain.planning.standings import BY_AREA, BY_ARRIVAL, Orders, orders_of
from reservation_core.domain.policy.limits import Policy, PolicyRule
from reservation_core.domain.policy.nouns import QueueOrder
from reservation_core.domain.simulation.comparison import (
    Question,
    Terms,
    more_nodes,
    quotas_of,
    types_of,
    without_links,
)
from reservation_core.domain.simulation.replay import TraceJob
from reservation_core.domain.simulation.trace_bookings import TraceBooking
from reservation_core.domain.simulation.trace_rows import TraceRow
from reservation_core.domain.simulation.traces import cluster, jobs_of
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.planning.measurements import PastJob

_ASKED = 2
"""How many times its running time a job of a trace asked for, where the trace does not say."""


@dataclass(frozen=True, slots=True)
class Usual:
    """What holds today: the half-life of fair shares (None: without), the slack of promises, the start allowance."""

    half_life: timedelta | None
    slack: timedelta
    start_allowance: timedelta


@dataclass(frozen=True, slots=True)
class Prepared:
    """A question for the simulator, and what it leaves out, in words."""

    question: Question
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Jobs:
    jobs: tuple[TraceJob, ...]
    users: dict[int, str]
    left_out: tuple[str, ...]
    bookings: tuple[TraceBooking, ...] = ()


async def prepare(
    uow: UnitOfWork, principal: Principal, asked: SimulationCreate, usual: Usual, now: datetime
) -> Prepared:
    """Gather a simulation. Raises NothingToSimulateError without jobs, NoSuchTypeError for nodes to add."""
    nodes, out_of_use = await _nodes(uow, asked)
    policy = (await uow.policies.current()).policy
    today = Terms(nodes, orders_of(policy), slack=usual.slack)
    if asked.trace is not None:
        found = _of_trace([job.row() for job in asked.trace], nodes, one_type=asked.cluster is not None)
    else:
        found = await _of_history(uow, principal, asked.history or timedelta(0), usual, now)
        today = replace(today, rules=quotas_of(policy.rules), half_life=usual.half_life)
    if not found.jobs:
        raise NothingToSimulateError(" ".join(["No job is left to simulate.", *found.left_out]))
    question = Question(found.jobs, found.users, today, _changed(today, asked, asked.rules()), found.bookings)
    return Prepared(question, (*found.left_out, *out_of_use, _START))


async def _nodes(uow: UnitOfWork, asked: SimulationCreate) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    """The nodes of today, and what is said of those that take no jobs now."""
    if asked.cluster is not None:
        return tuple(cluster(asked.cluster.gpus, asked.cluster.node_size)), ()
    nodes = without_links(await uow.planning.nodes())
    idle = sum(not node.available or gpu.condition is not GpuCondition.USABLE for node in nodes for gpu in node.gpus)
    said = f"Left out: {_counted(idle, 'GPU')} on which no job can start now." if idle else ""
    if not any(node.gpus for node in nodes):
        raise NothingToSimulateError("No node has a GPU. Describe a cluster for a trace, or add nodes first.")
    return nodes, (said,) if said else ()


def _changed(today: Terms, asked: SimulationCreate, given: Sequence[PolicyRule] | None) -> Terms:
    try:
        nodes = more_nodes(today.nodes, asked.nodes_added)
    except KeyError as error:
        known = ", ".join(sorted(types_of(today.nodes)))
        raise NoSuchTypeError(f"Say of which type the added nodes are: {known}.") from error
    half_life = today.half_life if asked.fair_share_half_life is None else asked.fair_share_half_life or None
    rules = today.rules if given is None else quotas_of(given)
    orders = _orders(asked.order, today.orders if given is None else orders_of(Policy(given)))
    return replace(today, nodes=nodes, orders=orders, rules=rules, half_life=half_life)


def _orders(asked: QueueOrder | None, usual: Orders) -> Orders:
    match asked:
        case None:
            return usual
        case QueueOrder.AREA:
            return BY_AREA
        case QueueOrder.ARRIVAL:
            return BY_ARRIVAL
        case _:
            assert_never(asked)


def _of_trace(rows: Sequence[TraceRow], nodes: Iterable[Node], *, one_type: bool) -> _Jobs:
    """The jobs of a trace; on nodes of one type it does not count which type they asked for."""
    left_out: list[str] = []
    if one_type and any(row.gpu_type for row in rows):
        left_out.append("All GPUs of the simulated cluster are of one type; the types in the trace do not count.")
        rows = [replace(row, gpu_type=None) for row in rows]
    if any(row.asked is None for row in rows):
        left_out.append(f"Jobs whose time limit the trace does not say are taken to ask for {_ASKED} times their run.")
    rows = sorted(rows, key=lambda row: row.submitted_at)
    size = max(len(node.gpus) for node in nodes)
    jobs = jobs_of(rows, size, lambda row: _ASKED * row.ran)
    users = {job.job.owner: row.user for row, job in zip(rows, jobs, strict=True)}
    return _Jobs(tuple(jobs), users, tuple(left_out))


async def _of_history(uow: UnitOfWork, principal: Principal, length: timedelta, usual: Usual, now: datetime) -> _Jobs:
    """The jobs and bookings that a caller may see; other users' only for administrators."""
    own = None if principal.is_admin else principal.user_id
    past = await uow.measurements.past_jobs(own, now - length, MOST_JOBS + 1)
    left_out: list[str] = []
    if own is not None:
        left_out.append("Only your own jobs are simulated, as if nobody else used the GPUs.")
    if len(past) > MOST_JOBS:
        left_out.append(f"Only the newest {MOST_JOBS:,} jobs are simulated, since {past[-2].created_at:%Y-%m-%d}.")
    past = past[:MOST_JOBS]
    booked = [job for job in past if job.in_booking]
    unended = [job for job in past if not job.in_booking and not (job.started_at and job.finished_at)]
    if booked:
        left_out.append(f"Left out: {_counted(len(booked), 'job')} within bookings.")
    if unended:
        left_out.append(f"Left out: {_counted(len(unended), 'job')} without a start or an end.")
    bookings = await _bookings_of_history(uow, own, now - length, left_out)
    jobs = [job for one in reversed(past) if (job := _past_job(one, usual.start_allowance)) is not None]
    jobs.sort(key=lambda job: job.submitted_at)
    owners = sorted({job.job.owner for job in jobs} | {booking.owner for booking in bookings})
    users = {principal.user_id: principal.user} if own is not None else await uow.policies.names(owners)
    return _Jobs(tuple(jobs), users, tuple(left_out), bookings)


async def _bookings_of_history(
    uow: UnitOfWork, own: int | None, since: datetime, left_out: list[str]
) -> tuple[TraceBooking, ...]:
    past = await uow.measurements.past_bookings(own, since, MOST_BOOKINGS + 1)
    if len(past) > MOST_BOOKINGS:
        left_out.append(f"Only the {MOST_BOOKINGS:,} bookings that begin last are simulated.")
    kept = sorted(past, key=lambda booking: booking.span.start)[-MOST_BOOKINGS:]
    bookings = [
        TraceBooking(one.id, one.wanted, one.span, one.made_at, one.until, one.user_id, one.project) for one in kept
    ]
    return tuple(sorted(bookings, key=lambda booking: booking.submitted_at))


def _past_job(past: PastJob, allowance: timedelta) -> TraceJob | None:
    """None for a job that did not run, or ran within a booking."""
    if past.in_booking or past.started_at is None or past.finished_at is None:
        return None
    job = Waiting(
        f"job-{past.seq}",
        past.gpus,
        past.nodes,
        past.gpu_type,
        past.duration + allowance,
        past.priority,
        past.seq,
        owner=past.user_id,
        project=past.project,
        submitted_at=to_micros(past.created_at),
    )
    return TraceJob(job, past.created_at, max(past.finished_at - past.started_at, timedelta(0)), past.terms)


_START = (
    "The simulation starts with all GPUs free and no GPU-hours used; "
    "jobs keep their submission time, however long they wait."
)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
