"""Quotas where jobs start and get their slots: the planner's picture of them, and the last word as things are written.

The picture is a second old at most. A decision made from it is made again, from the database and under a lock on owners
and projects, in the transaction in which jobs start or get their slots: bookings are made under the same locks. Where
no rule bounds what runs, all of this is one look at a number once a second.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.plan import Asker, PlannedSlot, Start
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.standings import orders_of
from reservation_core.domain.policy.limits import NO_POLICY, Policy
from reservation_core.domain.policy.quota_book import QuotaBook
from reservation_core.domain.policy.quota_rulings import QuotaRuling, counts_hours, limits_starts
from reservation_core.domain.policy.quota_windows import week_start
from reservation_core.domain.policy.rules import Holding
from reservation_core.ports.wakeups import Channel

_SPENT_EVERY = 60
"""What was given back is read again after so many looks at what is held."""


class QuotaGate:
    """Keeps the quotas in a planner's picture up to date, and has the last word. A new picture needs a new `begin`.

    The order of jobs by project, which is part of the policy, goes into the picture with them.
    """

    def __init__(self, uow_factory: UnitOfWorkFactory, every: timedelta) -> None:
        self._uow = uow_factory
        self._every = every
        self._read_at: datetime | None = None
        self._revision = -1
        self._policy: Policy = NO_POLICY
        self._names: dict[int, str] = {}
        self._binds = False
        self._in_picture: int | None = None
        self._spent: tuple[Holding, ...] = ()
        self._spent_at: datetime | None = None
        self._refused: set[str] = set()

    @property
    def binds(self) -> bool:
        """Whether any rule bounds what may run."""
        return self._binds

    def begin(self) -> None:
        """Note that the picture is a new one, and knows of no quotas."""
        self._read_at = None
        self._in_picture = None
        self._refused.clear()

    def take_refused(self) -> list[str]:
        """Jobs whose starts and slots were refused since the last call: the picture does not know that."""
        refused = sorted(self._refused)
        self._refused.clear()
        return refused

    async def update(self, picture: Picture, now: datetime) -> bool:
        """Bring the picture's quotas up to date; true when that may change the estimates of waiting jobs."""
        changed = False
        if self._read_at is None or now - self._read_at >= self._every:
            self._read_at = now
            changed = await self._read(picture, now)
        if self._binds:
            await self._learn_names(picture.queue.owners)
        return changed

    async def permitted_starts(self, uow: UnitOfWork, starts: Sequence[Start], now: datetime) -> list[Start]:
        """Those of these starts that quotas allow, by the database; owners and projects stay locked until its end.

        A job that was promised this time and may not have it is notified, and loses the slot; others keep theirs.
        """
        ruling = await self._ruling(uow, [start.asker for start in starts], now)
        if ruling is None:
            return list(starts)
        allowed: list[Start] = []
        missed: dict[str, str] = {}
        for start in starts:
            reason = ruling.refuses_start(start)
            if reason is None:
                allowed.append(start)
                continue
            self._refuse(start.id)
            if ruling.in_slot(start):
                missed[start.id] = reason.detail
        if missed:
            await uow.policies.drop_slots(missed, now)
            uow.wake(Channel.EVENTS)
        return allowed

    async def permitted_slots(self, uow: UnitOfWork, slots: Sequence[PlannedSlot], now: datetime) -> list[PlannedSlot]:
        """Those of these slots that quotas allow at their time, by the database; see `permitted_starts`."""
        ruling = await self._ruling(uow, [slot.asker for slot in slots], now)
        if ruling is None:
            return list(slots)
        allowed: list[PlannedSlot] = []
        for slot in slots:
            if ruling.refuses_slot(slot) is None:
                allowed.append(slot)
            else:
                self._refuse(slot.id)
        return allowed

    def _refuse(self, job_id: str) -> None:
        """Look again before anything else is decided: what the picture knows of quotas is old."""
        self._refused.add(job_id)
        self._read_at = None
        self._spent_at = None

    async def _ruling(self, uow: UnitOfWork, askers: Iterable[Asker | None], now: datetime) -> QuotaRuling | None:
        """The ruling on all these from the database; None when no quota bounds any of them."""
        bound = [asker for asker in askers if asker is not None]
        if not bound:
            return None
        owners = sorted({asker.owner for asker in bound})
        projects = sorted({asker.project for asker in bound if asker.project is not None})
        await uow.policies.lock_holders(owners, projects)
        policy = (await uow.policies.current()).policy
        holdings = await uow.policies.held_by_all(now, owners, projects, promised=True)
        if counts_hours(policy):
            holdings += await uow.policies.spent_by_all(week_start(now), now, owners, projects)
        return QuotaRuling(policy, self._names, holdings)

    async def _read(self, picture: Picture, now: datetime) -> bool:
        async with self._uow(one_statement=True) as uow:
            revision = await uow.policies.revision()
            if revision != self._revision:
                found = await uow.policies.current()
                self._policy, self._revision = found.policy, found.revision
            self._binds = limits_starts(self._policy)
            if not self._binds:
                holdings: tuple[Holding, ...] = ()
            else:
                holdings = await uow.policies.held_by_all(now) + await self._spent_by_all(uow, now)
        anew = self._in_picture != self._revision
        if anew:
            if self._binds:
                await self._learn_names(picture.queue.owners)
            picture.set_quotas(QuotaBook(self._policy, self._names) if self._binds else QuotaBook(NO_POLICY, {}))
            picture.set_orders(orders_of(self._policy))
            self._in_picture = self._revision
        return picture.note_held(holdings) or anew

    async def _spent_by_all(self, uow: UnitOfWork, now: datetime) -> tuple[Holding, ...]:
        """The GPU-time given back, read from time to time: a week's history is long and changes little."""
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
