"""Quarantine GPUs whose errors repeat, and report slow GPUs. A look reads errors, and the slices of an hour."""

from dataclasses import dataclass, field
from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.calendar import step_begin
from reservation_core.domain.changes import SYSTEM
from reservation_core.domain.event_kinds import NodeEventKind
from reservation_core.domain.gpu_use.gpu_errors import QuarantineRule, quarantine_reason
from reservation_core.domain.gpu_use.gpu_speeds import SLICE, SLICES, SpeedVerdict, judge_speeds
from reservation_core.ports.clock import Clock
from reservation_core.ports.wakeups import Channel


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The GPUs, as `node/index`, that a look has quarantined, found slow, and found fast again."""

    quarantined: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    fast: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.quarantined or self.slow or self.fast)


class HealthWatch:
    """The looks at the health of GPUs. Without a rule no GPU is quarantined.

    `slow`: whether slow GPUs are reported.
    """

    def __init__(
        self, uow_factory: UnitOfWorkFactory, clock: Clock, rule: QuarantineRule | None, *, slow: bool = True
    ) -> None:
        self._uow = uow_factory
        self._clock = clock
        self._rule = rule
        self._slow = slow
        self._judged_until: datetime | None = None

    async def look(self) -> HealthReport:
        """Quarantine and report, once."""
        report = HealthReport()
        if self._rule is not None:
            report.quarantined.extend(await self._quarantine(self._rule))
        # The samples of a slice may come a little after its end.
        until = step_begin(self._clock.now() - SLICE / 5, SLICE)
        if self._slow and until != self._judged_until:
            await self._judge_speeds(until, report)
            self._judged_until = until
        return report

    async def _quarantine(self, rule: QuarantineRule) -> list[str]:
        now = self._clock.now()
        async with self._uow() as uow:
            errors = await uow.gpu_health.errors(now - rule.window)
            done = []
            for gpu_id, of_gpu in errors.items():
                why = quarantine_reason(of_gpu, rule, now)
                place = None if why is None else await quarantine_for(uow, gpu_id, SYSTEM, why, now)
                if place is not None:
                    done.append(place)
        return done

    async def _judge_speeds(self, until: datetime, report: HealthReport) -> None:
        async with self._uow() as uow:
            verdicts = judge_speeds(await uow.gpu_health.speeds(until - SLICES * SLICE, until))
            slow = await uow.gpu_health.slow()
            for verdict in verdicts:
                if (verdict.why is None) == (verdict.gpu_id in slow):
                    await self._note(uow, verdict, report)

    async def _note(self, uow: UnitOfWork, verdict: SpeedVerdict, report: HealthReport) -> None:
        now = self._clock.now()
        if verdict.why is None:
            place = await uow.gpu_health.note_not_slow(verdict.gpu_id)
            kind, where, data = NodeEventKind.GPU_SLOW_OVER, report.fast, None
        else:
            place = await uow.gpu_health.note_slow(verdict.gpu_id, verdict.why, now)
            kind, where, data = NodeEventKind.GPU_SLOW, report.slow, {"why": verdict.why}
        if place is not None:
            await uow.events.append(actor=SYSTEM, kind=kind, at=now, subject=place, data=data)
            uow.wake(Channel.EVENTS)
            where.append(place)


async def quarantine_for(uow: UnitOfWork, gpu_id: int, by: str, why: str, now: datetime) -> str | None:
    """Quarantine a GPU, record why, with the job that has it too, and return its place; None where it is out of use."""
    quarantined = await uow.gpu_health.quarantine(gpu_id, by, why, now)
    if quarantined is None:
        return None
    place = str(quarantined)
    data = {"why": why} | ({} if quarantined.job is None else {"job": quarantined.job})
    await uow.events.append(actor=by, kind=NodeEventKind.GPU_QUARANTINED, at=now, subject=place, data=data)
    if quarantined.job is not None:
        await uow.gpu_health.note_job(quarantined.job, place, why, by, now)
    uow.wake(Channel.GPU_JOBS)
    uow.wake(Channel.EVENTS)
    uow.wake(Channel.NOTIFICATIONS)
    return place
