"""The verdict on a request of a user, by the same checks that submitting and booking make; nothing is asked for."""

from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pydantic

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.contracts.jobs import JobSubmit
from reservation_core.contracts.policy import ExplainRequest
from reservation_core.domain.bookings.nouns import FARTHEST_START
from reservation_core.domain.bookings.refusals import Booker, no_free_gpus, rule_on
from reservation_core.domain.calendar import Range, length_micros, to_micros
from reservation_core.domain.complaints import complaint
from reservation_core.domain.errors import DomainError
from reservation_core.domain.model import Reservation
from reservation_core.domain.people.token_budgets import refused as refused_by_budget
from reservation_core.domain.plan import Waiting
from reservation_core.domain.planning.request_verdicts import (
    Outlook,
    booked_job_outlook,
    booking_outlook,
    job_outlook,
    refused,
)
from reservation_core.domain.policy.quota_book import QuotaBook
from reservation_core.domain.policy.quota_windows import week_start
from reservation_core.domain.policy.rules import RuleBreach
from reservation_core.ports.ids import IdSource
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.bookings.book import cards_around, wanted_by_request
from reservation_core.usecases.bookings.read_booking_rules import judge_for
from reservation_core.usecases.jobs.submit import prepare

_CALENDAR = 2 * FARTHEST_START
"""How far ahead the calendar is read."""


@dataclass(frozen=True, slots=True)
class JobTerms:
    """The operators' terms of jobs: how long one may ask for at most, and how much longer each has its GPUs."""

    longest: timedelta
    beside: timedelta


async def outlook(
    uow: UnitOfWork,
    who: Principal,
    request: ExplainRequest,
    terms: JobTerms,
    ids: IdSource,
    now: datetime,
    *,
    disabled: bool = False,
) -> Outlook:
    """What becomes of a request if this user makes it. Of a series, the first date is looked at."""
    if disabled:
        return refused([RuleBreach("user_disabled", f"{who.user} is disabled: no new jobs or bookings.")])
    try:
        if request.start is not None:
            return await _booking(uow, who, request, now)
        return await _job(uow, who, request, terms, ids, now)
    except DomainError as error:
        return refused(error.breaches)


async def _booking(uow: UnitOfWork, who: Principal, request: ExplainRequest, now: datetime) -> Outlook:
    try:
        booking = request.booking
    except pydantic.ValidationError as error:
        return refused(
            RuleBreach("invalid_request", ": ".join([*map(str, found["loc"]), complaint(found)]))
            for found in error.errors()
        )
    wanted, span = wanted_by_request(booking), booking.span
    foreign = booking.project is not None and booking.project not in await uow.projects.of_user(who.user_id)
    cards = await cards_around(uow, span, now)
    judge = await judge_for(uow, Booker(who.user_id, who.user, booking.project, foreign), wanted, cards, now)
    chosen, broken = rule_on(judge, cards, span, wait=booking.wait)
    if not broken:
        broken = await beyond_budget(uow, who, wanted.gpus * wanted.nodes, span.length, now)
    if broken:
        return refused(broken)
    return booking_outlook(span, no_free_gpus(wanted) if chosen is None else None, now)


async def _job(
    uow: UnitOfWork, who: Principal, request: ExplainRequest, terms: JobTerms, ids: IdSource, now: datetime
) -> Outlook:
    policy = (await uow.policies.current()).policy
    submission, foreign = await _for_project(uow, who, request.job)
    new = prepare(submission, who, ids=ids, longest=terms.longest, now=now, policy=policy, foreign=foreign)
    refusal = await uow.reservations.refusal_of(new)
    if refusal is not None:
        raise refusal
    job = _waiting(new.reservation, terms)
    if job.booking_id is not None:
        return await _in_booking(uow, job, job.booking_id, request.instead_of, now)
    broken = await beyond_budget(uow, who, job.all_gpus, new.reservation.duration, now, request.instead_of)
    if broken:
        return refused(broken)
    usage = await uow.policies.usage(who.user_id, job.project, week_start(now), now)
    quotas = QuotaBook(policy, {who.user_id: who.user})
    quotas.note_held(held for held in usage.holdings if held.reservation_id != request.instead_of)
    replaced = () if request.instead_of is None else (request.instead_of,)
    return job_outlook(job, await uow.bookings.cards(now, now + _CALENDAR, without=replaced), quotas, now)


async def _for_project(uow: UnitOfWork, who: Principal, request: JobSubmit) -> tuple[JobSubmit, bool]:
    """The request with its booking's project unless it names one, and whether the project is none for this job."""
    if request.booking_id is not None:
        project = await uow.bookings.project_of(request.booking_id, who.user_id)
        if request.project is None:
            request = request.model_copy(update={"project": project})
        return request, request.project != project
    return request, request.project is not None and request.project not in await uow.projects.of_user(who.user_id)


def _waiting(job: Reservation, terms: JobTerms) -> Waiting:
    return Waiting(
        job.id,
        job.gpus,
        job.nodes,
        job.gpu_type,
        job.duration + terms.beside,
        job.priority,
        job.seq,
        owner=job.user_id,
        booking_id=job.booking_id,
        project=job.project,
    )


async def _in_booking(uow: UnitOfWork, job: Waiting, booking_id: str, instead_of: str | None, now: datetime) -> Outlook:
    booking = await uow.bookings.view(booking_id)
    if booking is None:
        raise LookupError(f"{booking_id} can be used and is not there")
    within = [other for other in await uow.bookings.jobs_within([booking_id]) if other != instead_of]
    _, rows = await uow.planning.changed([booking_id, *within], timedelta(0), within)
    taken = defaultdict[int, list[Range]](list)
    for row in rows:
        taken[row.gpu_id] += [] if row.booking_id is None else [(to_micros(row.start), to_micros(row.end))]
    gpus = [replace(gpu, rows=taken[gpu.gpu_id]) for gpu in await uow.bookings.cards(now, now) if gpu.gpu_id in taken]
    return booked_job_outlook(job, gpus, booking.span, now)


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
