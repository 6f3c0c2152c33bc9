"""Holding waiting jobs back while quotas of owners and projects don't allow them; the last word is said as they start.

The picture is a second old at most. What is decided from it is decided again, from the database and under a lock on
owners and projects, in the transaction in which jobs start: bookings are made under the same locks. Where no rule
bounds what runs, all of this is one look at a number once a second.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from reservation_core.domain.limits import NO_POLICY, Policy
from reservation_core.domain.plan import Start, WaitEstimate, Waiting
from reservation_core.domain.quota_windows import week_start
from reservation_core.domain.quotas import HeldBack, Quotas, counts_hours, limits_starts
from reservation_core.domain.rules import Holding, UsageView
from reservation_core.domain.whole import CalendarPicture
from reservation_core.ports.transactions import UnitOfWork, UnitOfWorkFactory
from reservation_core.ports.wakeups import Channel

_SPENT_EVERY = 60
"""What was given back is read again after so many looks at what is held."""


class QuotaGate:
    """Keeps a planner's line to those whom quotas let in. One for each picture: a new picture needs a new `begin`."""

    def __init__(self, uow_factory: UnitOfWorkFactory, every: timedelta) -> None:
        self._uow = uow_factory
        self._every = every
        self._read_at: datetime | None = None
        self._revision = -1
        self._policy: Policy = NO_POLICY
        self._names: dict[int, str] = {}
        self._quotas: Quotas | None = None
        self._spent: tuple[Holding, ...] = ()
        self._spent_at: datetime | None = None
        self._in: dict[str, Waiting] = {}
        self._out: dict[str, HeldBack] = {}

    @property
    def binds(self) -> bool:
        """Whether any rule bounds what may run."""
        return self._quotas is not None

    def begin(self) -> None:
        """The picture is a new one: everybody who waits is in it."""
        self._in.clear()
        self._out.clear()
        self._read_at = None

    def forget(self, ids: Iterable[str]) -> None:
        """These have changed: the picture knows them as they are now."""
        for each in ids:
            self._in.pop(each, None)
            self._out.pop(each, None)

    async def sift(self, state: CalendarPicture, now: datetime) -> bool:
        """Take out of the line whom quotas don't allow, and put in again whom they do by now; true when any were."""
        anew = self._read_at is None or now - self._read_at >= self._every
        if anew:
            self._read_at = now
            await self._read(state, now)
        if self._quotas is None:
            return self._let_all_in(state)
        line = state.in_line
        if anew:
            self._count_those_in(state, self._quotas)
        new = [job for job_id, job in line.items() if job_id not in self._in]
        await self._learn_names(job.owner for job in new)
        # Those who were held back are looked at again when something may have changed.
        asking = {job.id: job for job in new} | ({each.job.id: each.job for each in self._out.values()} if anew else {})
        before = self._out.keys() | set()
        for job in sorted(asking.values(), key=lambda each: each.key):
            self._decide(job, state, self._quotas)
        return self._out.keys() != before

    async def permitted(
        self, uow: UnitOfWork, state: CalendarPicture, starts: Sequence[Start], now: datetime
    ) -> list[Start]:
        """Those of these starts that quotas allow, by the database; owners and projects stay locked until its end.

        Slots of the others are taken back.
        """
        jobs = {start.id: self._in[start.id] for start in starts if start.id in self._in}
        held_to_quotas = [job for job in jobs.values() if job.booking_id is None]
        if not held_to_quotas:
            return list(starts)
        owners = sorted({job.owner for job in held_to_quotas})
        projects = sorted({job.project for job in held_to_quotas if job.project is not None})
        await uow.policies.lock_holders(owners, projects)
        policy = (await uow.policies.current()).policy
        holdings = await uow.policies.held_by_all(now, owners, projects)
        if counts_hours(policy):
            holdings += await uow.policies.spent_by_all(week_start(now), now, owners, projects)
        quotas = Quotas(policy, UsageView(holdings), self._names, state.types, now)
        allowed: list[Start] = []
        refused: dict[str, str] = {}
        for start in starts:
            job = jobs.get(start.id)
            reason = None if job is None else quotas.let_in(_as_it_starts(job, start, state))
            if job is None or reason is None:
                allowed.append(start)
            else:
                refused[start.id] = reason.detail
                self._in.pop(start.id)
                self._out[start.id] = HeldBack(job, reason)
        if refused:
            await uow.policies.drop_slots(refused, now)
            uow.wake(Channel.EVENTS)
        return allowed

    def estimates(self, state: CalendarPicture, limit: int) -> list[WaitEstimate]:
        """What those who are held back are told, the first of each line first: their place, and why they wait."""
        if not self._out:
            return []
        line = sorted([*state.in_line.values(), *(each.job for each in self._out.values())], key=lambda each: each.key)
        places: dict[str | None, int] = {}
        told: list[WaitEstimate] = []
        for job in line:
            places[job.gpu_type] = places.get(job.gpu_type, 0) + 1
            held_back = self._out.get(job.id)
            if held_back is not None and len(told) < limit:
                told.append(WaitEstimate(job.id, places[job.gpu_type], held_back.reason, None))
        return told

    async def _read(self, state: CalendarPicture, now: datetime) -> None:
        async with self._uow(one_statement=True) as uow:
            revision = await uow.policies.revision()
            if revision != self._revision:
                found = await uow.policies.current()
                self._policy, self._revision = found.policy, found.revision
            if not limits_starts(self._policy):
                self._quotas = None
                return
            holdings = await uow.policies.held_by_all(now) + await self._spent_by_all(uow, now)
        await self._learn_names(job.owner for job in state.in_line.values())
        self._quotas = Quotas(self._policy, UsageView(holdings), self._names, state.types, now)

    async def _spent_by_all(self, uow: UnitOfWork, now: datetime) -> tuple[Holding, ...]:
        """A week's history is long, and changes little in a minute: who starts is counted to the second anyway."""
        if not counts_hours(self._policy):
            return ()
        if self._spent_at is None or now - self._spent_at >= _SPENT_EVERY * self._every:
            self._spent_at = now
            self._spent = await uow.policies.spent_by_all(week_start(now), now)
        return self._spent

    async def _learn_names(self, owners: Iterable[int]) -> None:
        unknown = sorted(set(owners) - self._names.keys())
        if unknown:
            async with self._uow(one_statement=True) as uow:
                self._names |= await uow.policies.names(unknown)

    def _count_those_in(self, state: CalendarPicture, quotas: Quotas) -> None:
        """Those who are in stay in, and so does who was promised a start already."""
        line = state.in_line
        promised = set(state.slotted(line))
        self._in = {job_id: job for job_id, job in line.items() if job_id in self._in or job_id in promised}
        for job in self._in.values():
            quotas.count(job)

    def _decide(self, job: Waiting, state: CalendarPicture, quotas: Quotas) -> None:
        was_out = self._out.pop(job.id, None) is not None
        reason = quotas.let_in(job)
        if reason is None:
            self._in[job.id] = job
            if was_out:
                state.set_reservation(job.id, job, ())
        else:
            self._out[job.id] = HeldBack(job, reason)
            state.set_reservation(job.id, None, ())

    def _let_all_in(self, state: CalendarPicture) -> bool:
        were_out = bool(self._out)
        for each in self._out.values():
            state.set_reservation(each.job.id, each.job, ())
        self._out.clear()
        self._in.clear()
        return were_out


def _as_it_starts(job: Waiting, start: Start, state: CalendarPicture) -> Waiting:
    """With the type it is given, and for as long."""
    gpu_type = state.type_of(start.gpus[0].gpu_id)
    return replace(job, gpu_type=gpu_type or job.gpu_type, length=start.end - start.start)
