"""Warn running jobs whose GPUs are idle, and release what is idle still when the warning is over.

A look reads only running jobs, and of their GPUs the samples of the rule's window.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.changes import Event, GpusIdle, IdleOver, IdleReleaseDue
from reservation_core.domain.gpu_use.idle_rules import IdleRule, gentlest
from reservation_core.domain.gpu_use.idleness import (
    IdleVerdict,
    IdleWindow,
    ReleaseDue,
    WarningDue,
    WarningOver,
    judge,
)
from reservation_core.domain.gpu_use.roll_ups import UsePoint, roll_up
from reservation_core.domain.gpu_use.spans import Resolution, spans_of
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.policy.limits import NO_POLICY, Policy
from reservation_core.ports.clock import Clock
from reservation_core.ports.gpu_use import HoldingJob
from reservation_core.usecases.carry_out import carry_out

_GPUS_AT_ONCE = 200
"""Of how many GPUs samples are read in one transaction, but for a job with more: nothing else waits long for it."""


@dataclass(frozen=True, slots=True)
class IdleReport:
    """How many jobs a look has warned and released, and whose warnings it took back."""

    warned: int = 0
    cleared: int = 0
    released: int = 0

    def __bool__(self) -> bool:
        return bool(self.warned or self.cleared or self.released)


@dataclass(frozen=True, slots=True)
class _Look:
    """A job that is to be judged by a rule; without one its warning is void."""

    job: HoldingJob
    rule: IdleRule | None
    window: IdleWindow
    now: datetime


class IdleWatch:
    """The looks at idle GPUs, and the policy as it was last read. `every` is the time between two samples."""

    def __init__(self, uow_factory: UnitOfWorkFactory, clock: Clock, every: timedelta) -> None:
        self._uow = uow_factory
        self._clock = clock
        self._every = every
        self._revision = -1
        self._policy: Policy = NO_POLICY

    async def look(self) -> IdleReport:
        """Warn, release, and take warnings back, once."""
        async with self._uow() as uow:
            await self._read_policy(uow)
            jobs = await uow.gpu_use.holding_jobs(warned=not self._policy.has_idle_rules)
        now = self._clock.now()
        kinds: list[type] = []
        for some in _in_parts([job for job in jobs if self._look_at(job, now) is not None]):
            async with self._uow() as uow:
                # The parts before took their time: rules may be others, and samples too old.
                await self._read_policy(uow)
                now = self._clock.now()
                looks = [look for job in some if (look := self._look_at(job, now)) is not None]
                verdicts = await _verdicts(uow, looks) if looks else []
            if verdicts:
                kinds += await self._carry_out(verdicts)
        return IdleReport(kinds.count(WarningDue), kinds.count(WarningOver), kinds.count(ReleaseDue))

    async def _read_policy(self, uow: UnitOfWork) -> None:
        revision = await uow.policies.revision()
        if revision != self._revision:
            found = await uow.policies.current()
            self._policy, self._revision = found.policy, found.revision

    def _look_at(self, job: HoldingJob, now: datetime) -> _Look | None:
        """What decides about a job; None for one that no rule concerns, or that has not run for a whole window."""
        rule = idle_rule(self._policy, job)
        warned = job.watched.warning is not None
        if rule is None and not warned:
            return None
        window = IdleWindow.at(now, rule or IdleRule(), self._every)
        if not warned and window.begin < job.watched.counts_from:
            return None
        return _Look(job, rule, window, now)

    async def _carry_out(self, verdicts: Sequence[tuple[HoldingJob, IdleVerdict]]) -> list[type]:
        """Change the jobs, unless something else has changed them since they were read."""
        async with self._uow() as uow:
            rows = await uow.reservations.lock([job.id for job, _ in verdicts])
            now = self._clock.now()
            done = []
            for job, verdict in verdicts:
                row = rows.get(job.id)
                if row is None or row.version != job.version:
                    continue
                change = decide(row, _event_of(verdict), now)
                if change is not None:
                    done.append((change, type(verdict)))
            await carry_out(uow, [change for change, _ in done])
        return [kind for _, kind in done]


def idle_rule(policy: Policy, job: HoldingJob) -> IdleRule | None:
    """The rule for a job, by the types of the GPUs that it holds."""
    limits = [policy.limits(job.user, job.project, gpu_type).idle for gpu_type in job.gpu_types]
    return gentlest(None if limit is None else limit.value for limit in limits)


def _in_parts(jobs: Sequence[HoldingJob]) -> Iterator[list[HoldingJob]]:
    part: list[HoldingJob] = []
    gpus = 0
    for job in jobs:
        part.append(job)
        gpus += len(job.gpu_ids)
        if gpus >= _GPUS_AT_ONCE:
            yield part
            part, gpus = [], 0
    if part:
        yield part


def _by_step(points: Sequence[UsePoint], step: timedelta) -> Sequence[UsePoint]:
    """One point for each step; most are, as they were read."""
    return points if len({point.at for point in points}) == len(points) else roll_up(points, step)


async def _verdicts(uow: UnitOfWork, looks: Sequence[_Look]) -> list[tuple[HoldingJob, IdleVerdict]]:
    """The jobs about which there is something to do; none where the clock went back, until `keep_use` has run."""
    rolled = await uow.gpu_use.rolled()
    if rolled[Resolution.MINUTES] > looks[0].now:
        return []
    quiet = await uow.gpu_use.quiet([recent for look in looks for recent in _recent(look)], looks[0].now)
    # Without a warning a GPU in use, or without samples, decides: nothing else needs to be read.
    left = [look for look in looks if look.job.watched.warning is not None or quiet.issuperset(look.job.gpu_ids)]
    fresh = await uow.gpu_use.quiet([recent for look in left for recent in _fresh(look)], looks[0].now)
    found = []
    for step in {look.window.step for look in left}:
        same = [look for look in left if look.window.step == step]
        spans = [
            (gpu_id, span)
            for look in same
            for gpu_id in look.job.gpu_ids
            for span in spans_of(look.window.reads_from(look.job.watched.warning), look.now, step, rolled)
        ]
        points = await uow.gpu_use.points(spans, step)
        for look in same:
            use = {gpu_id: _by_step(points.get(gpu_id, ()), step) for gpu_id in look.job.gpu_ids}
            verdict = judge(look.job.watched, look.rule, use, fresh, look.window, look.now)
            if verdict is not None:
                found.append((look.job, verdict))
    return found


def _recent(look: _Look) -> Iterator[tuple[int, datetime, float]]:
    if look.rule is not None:
        since = look.window.end - look.window.step
        yield from ((gpu_id, since, look.rule.below) for gpu_id in look.job.gpu_ids)


def _fresh(look: _Look) -> Iterator[tuple[int, datetime, float]]:
    warning = look.job.watched.warning
    if look.rule is not None and warning is not None and warning.release_at is not None:
        since = look.window.fresh_from(warning, look.now)
        yield from ((gpu_id, since, look.rule.below) for gpu_id in look.job.gpu_ids)


def _event_of(verdict: IdleVerdict) -> Event:
    match verdict:
        case WarningDue():
            return GpusIdle(verdict.warning)
        case WarningOver():
            return IdleOver()
        case ReleaseDue():
            return IdleReleaseDue(verdict.requeue)
        case _:
            assert_never(verdict)
