"""Sum up each project's last week, and notify its members: once a week, whoever leads."""

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.changes import SYSTEM
from reservation_core.domain.event_kinds import PeopleEventKind
from reservation_core.domain.gpu_use.spans import Resolution, spans_of
from reservation_core.domain.policy.nouns import UsageBy
from reservation_core.domain.policy.usage import NOT_SAMPLED
from reservation_core.domain.policy.usage_digest import WEEK, digest_of, week_to_sum_up
from reservation_core.ports.wakeups import Channel


async def send_digests(uow_factory: UnitOfWorkFactory) -> int:
    """Record the digests of the newest week that is over, unless that was done; returns how many projects have one.

    The claim of a week and its digests are one transaction: a process that is killed leaves neither.
    """
    async with uow_factory() as uow:
        now = await uow.now()
        week = week_to_sum_up(now)
        if not await uow.usage.claim_digest(week, now):
            return 0
        end = week + WEEK
        report = await uow.usage.report(UsageBy.PROJECT, week, end, None, now)
        spans = spans_of(week, end, Resolution.HOURS.step, await uow.gpu_use.rolled())
        used = await uow.gpu_use.used(UsageBy.PROJECT, None, spans)
        lines = [line for line in report.lines if line.key is not None]
        for line in lines:
            await uow.events.append(
                actor=SYSTEM,
                kind=PeopleEventKind.PROJECT_DIGEST,
                at=now,
                subject=f"project:{line.key}",
                data=digest_of(line.time, used.get(line.key, NOT_SAMPLED), week),
            )
        if lines:
            uow.wake(Channel.EVENTS)
            uow.wake(Channel.NOTIFICATIONS)
    return len(lines)
