"""The verdict on a request of a user, by the same checks that submitting and booking make; nothing is asked for."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta

import pydantic

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.jobs import JobSubmit
from reservation_core.contracts.policy import ExplainRequest
from reservation_core.domain.bookings.refusals import Booker, no_free_gpus
from reservation_core.domain.calendar import length_micros, to_micros
from reservation_core.domain.complaints import complaint
from reservation_core.domain.errors import BeyondBookedShareError, DomainError, NotPermittedError, UnknownJobError
from reservation_core.domain.jobs.asked_dependencies import DependencyWhen
from reservation_core.domain.jobs.dependencies import settle, still_open
from reservation_core.domain.model import Reservation
from reservation_core.domain.people.token_budgets import refused as refused_by_budget
from reservation_core.domain.plan import Need, Waiting
from reservation_core.domain.planning.dry_runs import PlanTooShortError, PlanView
from reservation_core.domain.planning.predictions.start_predictor import Prediction
from reservation_core.domain.planning.request_verdicts import (
    Outlook,
    booked_job_outlook,
    booking_outlook,
    chained_outlook,
    held_outlook,
    job_outlook,
    refused,
)
from reservation_core.domain.policy.limits import Policy
from reservation_core.domain.policy.rules import RuleBreach
from reservation_core.domain.request_terms import CPU_TYPE
from reservation_core.domain.statuses import RequestVerdict
from reservation_core.ports.ids import IdSource
from reservation_core.ports.jobs.reservations import NewReservation
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.bookings.book import wanted_by_request
from reservation_core.usecases.bookings.read_booking_rules import cards_around, foreign_project, judge_for
from reservation_core.usecases.bookings.take_lent_gpus import rule_on_with_lent
from reservation_core.usecases.jobs.dependencies import known_dependencies
from reservation_core.usecases.jobs.permit import never_permitted
from reservation_core.usecases.jobs.submit import other_than_booked, prepare
from reservation_core.usecases.policy.read_plan import JobTerms, LikelyStarts, read_booking_plan, read_plan

Pending = Callable[[], Outlook]
"""Finds an outlook from what was read, which may take long; no transaction is needed for that."""

_LAST_OF_QUEUE = 2**53
_WORKER = ThreadPoolExecutor(1, thread_name_prefix="dry_run")


async def outlook(
    uow: UnitOfWork,
    who: Principal,
    request: ExplainRequest,
    terms: JobTerms,
    likely: LikelyStarts,
    ids: IdSource,
    now: datetime,
    *,
    disabled: bool = False,
) -> Pending:
    """What becomes of a request if this user makes it. Of a series, the first date is looked at."""
    if disabled:
        return lambda: refused([RuleBreach("user_disabled", f"{who.user} is disabled: no new jobs or bookings.")])
    try:
        if request.start is not None:
            found = await _booking(uow, who, request, now)
            return lambda: found
        return await _job(uow, who, request, terms, likely, ids, now)
    except DomainError as error:
        breaches = error.breaches
        return lambda: refused(breaches)


async def decided(read: Callable[[JobTerms], Awaitable[Pending]], terms: JobTerms) -> Outlook:
    """The outlook, found beside the event loop: one at a time in this process, however many ask.

    `read` reads a part of the calendar, and all of it where that part is too short.
    """
    loop = asyncio.get_running_loop()
    pending = await read(terms)
    try:
        return await loop.run_in_executor(_WORKER, pending)
    except PlanTooShortError:
        return await loop.run_in_executor(_WORKER, await read(replace(terms, nearest=None)))


async def _booking(uow: UnitOfWork, who: Principal, request: ExplainRequest, now: datetime) -> Outlook:
    try:
        booking = request.booking
    except pydantic.ValidationError as error:
        return refused(
            RuleBreach("invalid_request", ": ".join([*map(str, found["loc"]), complaint(found)]))
            for found in error.errors()
        )
    wanted, span = wanted_by_request(booking), booking.span
    foreign = await foreign_project(uow, who.user_id, booking.project)
    cards = await cards_around(uow, span, now)
    judge = await judge_for(uow, Booker(who.user_id, who.user, booking.project, foreign), wanted, cards, now)
    chosen, broken = await rule_on_with_lent(uow, judge, cards, span, wait=booking.wait)
    if not broken:
        broken = await beyond_budget(uow, who, wanted.gpus * wanted.nodes, span.length, now)
    if broken:
        return refused(broken)
    return booking_outlook(span, no_free_gpus(wanted) if chosen is None else None, now)


async def _job(
    uow: UnitOfWork,
    who: Principal,
    request: ExplainRequest,
    terms: JobTerms,
    likely: LikelyStarts,
    ids: IdSource,
    now: datetime,
) -> Pending:
    policy = (await uow.policies.current()).policy
    submission, foreign = await _for_project(uow, who, request.job)
    try:
        after = await known_dependencies(uow, who, [dependency.asked for dependency in request.after])
    except UnknownJobError as error:
        raise UnknownJobError(error.detail) from error  # people read verdicts: no names of fields
    new = prepare(submission, who, ids=ids, longest=terms.longest, now=now, policy=policy, foreign=foreign, after=after)
    try:
        return await dry_run(uow, who, new, policy, terms, likely, now, instead_of=request.instead_of)
    except BeyondBookedShareError as error:
        raise BeyondBookedShareError(error.detail) from error


async def dry_run(
    uow: UnitOfWork,
    who: Principal,
    new: NewReservation,
    policy: Policy,
    terms: JobTerms,
    likely: LikelyStarts,
    now: datetime,
    *,
    instead_of: str | None = None,
) -> Pending:
    """What becomes of a job that is not stored. Raises what storing it would raise; nothing is written or locked.

    `instead_of`: a waiting job that counts as gone.
    """
    refusal = await uow.reservations.refusal_of(new)
    if refusal is not None:
        raise refusal
    job = _waiting(new.reservation, terms)
    held = held_outlook(new.after)
    if job.booking_id is not None and held is None:
        return await _in_booking(uow, job, new.reservation.duration, job.booking_id, terms, instead_of, now)
    gpus = 0 if job.booking_id is not None else new.reservation.gpus * job.nodes
    broken = await beyond_budget(uow, who, gpus, new.reservation.duration, now, instead_of)
    if broken:
        raise NotPermittedError(broken[0].detail, broken)
    needs = tuple(
        Need(one.job, one.when is DependencyWhen.STARTED, length_micros(terms.beside)) for one in still_open(new.after)
    )
    # A job that can never start ends at once; and where others are promised nothing, neither is this one.
    untold = job.preemptible or job.booking_id is not None or new.reservation.array is not None
    if held is not None and (untold or settle(new.after) is not None):
        return lambda: held
    view = await read_plan(uow, policy, {who.user_id: who.user}, terms, now, without=instead_of)
    predict = await likely.read(uow) if terms.estimates else None
    if held is not None:
        dependant = replace(job, needs=needs)
        if predict is not None:
            starts = await uow.reservations.predicted_starts([one.id for one in view.snapshot.waiting])
            predicted = {job_id: Prediction(start.p50, start.p90) for job_id, start in starts.items()}
            view = replace(view, predicted=predicted)
        return lambda: chained_outlook(view, dependant, new.after, held, now, predict)
    position = await _position(uow, job, view, terms.beside, now, instead_of)
    types = [
        gpu_type
        for gpu_type in view.gpu_types
        if job.gpu_type not in (None, CPU_TYPE, gpu_type)
        and not never_permitted(replace(new.reservation, gpu_type=gpu_type), policy, now)
    ]

    def decide() -> Outlook:
        return _placed(job_outlook(view, job, new.reservation.duration, types, now, predict), position)

    return decide


async def _position(
    uow: UnitOfWork, job: Waiting, view: PlanView, beside: timedelta, now: datetime, instead_of: str | None
) -> int:
    """The place in the queue of its type, in the planner's order."""
    place = (-job.priority, view.shares.get(job.owner, 0))
    position = 1
    for user, priority, jobs, ahead in await uow.planning.waiting_by_owner(
        job, view.orders, beside, now, without=instead_of
    ):
        theirs = (-priority, view.shares.get(user, 0))
        position += jobs if theirs < place else ahead if theirs == place else 0
    return position


def _placed(outlook: Outlook, position: int) -> Outlook:
    return replace(outlook, position=position) if outlook.verdict is RequestVerdict.ACCEPTED else outlook


async def _for_project(uow: UnitOfWork, who: Principal, request: JobSubmit) -> tuple[JobSubmit, RuleBreach | None]:
    """The request with its booking's project unless it names one, and what a project breaks that is none for it."""
    if request.booking_id is not None:
        project = await uow.bookings.project_of(request.booking_id, who.user_id)
        if request.project is None:
            request = request.model_copy(update={"project": project})
        return request, other_than_booked(request, project)
    return request, await foreign_project(uow, who.user_id, request.project)


def _waiting(job: Reservation, terms: JobTerms) -> Waiting:
    return Waiting(
        job.id,
        job.gpus or 1,  # without GPUs: a place on a node
        job.nodes,
        job.gpu_type if job.gpus else CPU_TYPE,
        (min(job.preemption.kept, job.duration) if job.preemption.preemptible else job.duration) + terms.beside,
        job.priority,
        _LAST_OF_QUEUE,
        owner=job.user_id,
        booking_id=job.booking_id,
        project=job.project,
        submitted_at=to_micros(job.created_at),
        preemptible=job.preemption.preemptible,
        share=None if job.resources is None else job.resources.asked,
    )


async def _in_booking(
    uow: UnitOfWork,
    job: Waiting,
    duration: timedelta,
    booking_id: str,
    terms: JobTerms,
    instead_of: str | None,
    now: datetime,
) -> Pending:
    booking = await uow.bookings.view(booking_id)
    if booking is None:
        raise LookupError(f"{booking_id} can be used and is not there")
    view = await read_booking_plan(uow, booking_id, terms, without=instead_of)
    position = 1 + sum(other.key < job.key for other in view.snapshot.waiting)

    def decide() -> Outlook:
        return _placed(booked_job_outlook(view, job, duration, booking.span, now), position)

    return decide


async def beyond_budget(
    uow: UnitOfWork, who: Principal, gpus: int, length: timedelta, now: datetime, instead_of: str | None = None
) -> list[RuleBreach]:
    """The breach of the budgets that pay for requests of this token, if they do not suffice.

    `instead_of`: the waiting job whose GPU-hours the request may use.
    """
    if who.budget_id is None:
        return []
    broken = refused_by_budget(
        await uow.budgets.view(who.budget_id, without=instead_of), gpus * length_micros(length), now
    )
    return [] if broken is None else [broken]
