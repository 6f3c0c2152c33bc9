"""Lock the user of a booking, and read what the booking rules need."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.card_choice import SLACK, BookableGpu, bookable
from reservation_core.domain.bookings.nouns import Wanted
from reservation_core.domain.bookings.refusals import Booker, Judge, this_minute
from reservation_core.domain.errors import UnknownCallerError
from reservation_core.domain.policy.membership import not_in_project
from reservation_core.domain.policy.rules import NOTHING_HELD, RuleBreach
from reservation_core.ports.people.identities import Principal

AROUND = timedelta(microseconds=SLACK)


async def booker(uow: UnitOfWork, user_id: int, user: str, project: str | None) -> Booker:
    """Lock a user and the project, if any, for quota decisions; the user can't be disabled meanwhile."""
    disabled = await uow.policies.lock_holders([user_id], [] if project is None else [project])
    foreign = await foreign_project(uow, user_id, project)
    return Booker(user_id, user, project, foreign, disabled=user_id in disabled)


async def foreign_project(
    uow: UnitOfWork, user_id: int, project: str | None, who: str = "You are"
) -> RuleBreach | None:
    """What a user breaks who is not in this project; None for a member, and without a project."""
    if project is None:
        return None
    projects = await uow.projects.of_user(user_id)
    return None if project in projects else not_in_project(project, projects, who)


async def calling_booker(uow: UnitOfWork, principal: Principal, project: str | None) -> Booker:
    """Lock the caller as `booker` does. Raises UnknownCallerError for a user who was disabled since authentication."""
    who = await booker(uow, principal.user_id, principal.user, project)
    if who.disabled:
        raise UnknownCallerError
    return who


async def judge_for(
    uow: UnitOfWork,
    who: Booker,
    wanted: Wanted,
    cards: Iterable[BookableGpu],
    now: datetime,
    *,
    replaces: str | None = None,
    begun: bool = False,
) -> Judge:
    """Read what the rules need, under the locks of `booker`."""
    policy = (await uow.policies.current()).policy
    judge = Judge(who, wanted, policy, NOTHING_HELD, now, replaces, begun)
    if not policy.binds(who.user, who.project):
        return judge
    types: set[str | None] = {wanted.gpu_type, *(card.gpu_type for card in cards)}
    usage = await uow.policies.usage(who.user_id, who.project, judge.known_from(types), now)
    return replace(judge, usage=usage)


async def cards_around(
    uow: UnitOfWork, span: Span, now: datetime, *, without: tuple[str, ...] = ()
) -> list[BookableGpu]:
    """The GPUs with their calendar around a slot."""
    start = max(span.start, this_minute(now))
    return bookable(await uow.bookings.cards(start - AROUND, max(span.end, start) + AROUND, without=without), now)
