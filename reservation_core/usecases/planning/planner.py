"""The planner's cycle: read what changed, decide a batch from memory, commit it in one fenced transaction.

The picture in memory begins as a snapshot of the database, to which changes are applied. Whenever the database
disagrees (a guard fails, a constraint refuses), it is dropped and read anew; a periodic reload repairs whatever a lost
message could have left wrong.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

import pydantic

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.contracts.queue_messages import JobMessage
from reservation_core.domain.cards.placement_policies import DEFAULT_POLICY, PlacementPolicy
from reservation_core.domain.errors import CalendarConflictError
from reservation_core.domain.plan import PlannedSlot, Start, Waiting, by_reservation
from reservation_core.domain.planning.calendar_planning import CalendarPicture
from reservation_core.domain.planning.slot_decisions import USED, lacks_slots
from reservation_core.ports.clock import Clock
from reservation_core.ports.queues import QueuedMessage, QueueName
from reservation_core.ports.transactions import TransactionLostError
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.planning.quota_gate import QuotaGate
from reservation_core.usecases.planning.start_predictions import StartPredictions

_FORGOTTEN_AT_ONCE = 20_000
_FORGETS = 3
_SLOTS_FIRST = 10
"""While slots are being given, jobs without one get no estimate for so many times `estimate_every`."""
_FULL_READS = 10
"""After so many full batches of messages in a row, reading everything anew is quicker than reading on."""


@dataclass(frozen=True, slots=True)
class PlannerRules:
    """How the planner works: sizes of what it reads and writes at once, and its timing.

    A job's range is `start_allowance` longer than the job.

    The first `promises` of the queue get slots, and promised starts that are `slack` later. Every `estimate_every` at
    most `slot_batches` times `slot_batch` jobs are looked at for that, and starts go on between the batches. A batch
    takes no longer than `slot_time`, but for a single step: meanwhile nothing else happens in this process. `policy`
    says on which nodes jobs start.
    """

    start_allowance: timedelta
    window: int
    batch: int
    messages: int
    estimates: int
    estimate_every: timedelta
    reload_every: timedelta
    max_reads: int
    promises: int = 10_000
    slack: timedelta = timedelta(0)
    slot_batch: int = 100
    slot_batches: int = 60
    slot_time: timedelta = timedelta(milliseconds=2)
    policy: PlacementPolicy = DEFAULT_POLICY


@dataclass(frozen=True, slots=True)
class CycleOutcome:
    """The result of one cycle. `more`: another cycle is worth running at once."""

    started: int = 0
    messages: int = 0
    conflict: bool = False
    more: bool = False


class Estimates(Enum):
    """What the database says to waiting jobs, compared with the picture."""

    CURRENT = "current"
    STALE = "stale"
    NONE = "none"
    """It says nothing: no job waited when they were written. They are stale as soon as one waits."""


@dataclass(slots=True)
class Cadence:
    """When the planner last did what it does from time to time, and what is left to do in this turn.

    `batches_left` are the batches of slots that may follow in this turn while there are slots to come; None when no job
    is known to lack a slot that it could be given.
    """

    rules: PlannerRules
    loaded_at: datetime | None = None
    full_reads: int = 0
    estimated_at: datetime | None = None
    put_off_since: datetime | None = None
    slots_at: datetime | None = None
    batches_left: int | None = None

    def is_reload_due(self, now: datetime) -> bool:
        """Whether everything is to be read anew: now and then, and when messages come faster than they are read."""
        due = self.loaded_at is None or now - self.loaded_at >= self.rules.reload_every
        return due or self.full_reads > _FULL_READS

    def begin_slots(self, now: datetime) -> bool:
        """Begin a turn of giving slots if it is time."""
        if self.slots_at is not None and now - self.slots_at < self.rules.estimate_every:
            return False
        self.slots_at = now
        self.batches_left = self.rules.slot_batches
        return True

    def take_batch(self) -> bool:
        """Begin a batch of slots; false when none is left in this turn."""
        if not self.batches_left:
            return False
        self.batches_left -= 1
        return True

    def rest_from_slots(self) -> None:
        """Give no more slots in this turn."""
        if self.batches_left:
            self.batches_left = 0

    def are_estimates_due(self, now: datetime) -> bool:
        """Whether it is time for estimates."""
        return self.estimated_at is None or now - self.estimated_at >= self.rules.estimate_every

    def puts_off_estimates(self, picture: CalendarPicture, now: datetime) -> bool:
        """Whether the jobs that need an estimate are just being given slots.

        Then their estimates are known in a moment; to compute them without slots takes long where many wait.
        """
        if self.batches_left is None or not lacks_slots(picture.common, self.rules.estimates):
            self.put_off_since = None
            return False
        self.put_off_since = self.put_off_since or now
        return now - self.put_off_since < _SLOTS_FIRST * self.rules.estimate_every


@dataclass(slots=True)
class _Inbox:
    """One batch of messages, sorted by what they ask for."""

    handled: list[int]
    ids: list[str]
    inventory: bool
    broken: list[tuple[QueuedMessage, str]]


class Planner:
    """Plans for one epoch; a new epoch needs a new planner. `predictions`, if set, are added to estimates."""

    def __init__(self, uow_factory: UnitOfWorkFactory, clock: Clock, epoch: int, rules: PlannerRules) -> None:
        self._uow = uow_factory
        self._clock = clock
        self._epoch = epoch
        self._rules = rules
        self._picture: CalendarPicture | None = None
        self._cadence = Cadence(rules)
        self._estimates = Estimates.STALE
        self._low_water = max(1, rules.window // 2)
        self._quota = QuotaGate(uow_factory, rules.estimate_every)
        self._shares: Mapping[int, int] = {}
        self.predictions: StartPredictions | None = None

    def set_shares(self, ranks: Mapping[int, int]) -> None:
        """Order equal priorities by these ranks of their owners, smallest first (see `fair_share.ranks`)."""
        if ranks != self._shares:
            self._shares = ranks
            self._note_change()
            if self._picture is not None:
                self._picture.set_shares(ranks)

    def read_anew(self) -> None:
        """Drop the picture after a failure. The next cycle reads all of it from the database."""
        self._picture = None
        self._estimates = Estimates.STALE
        self._cadence.rest_from_slots()

    def _note_change(self) -> None:
        """Note that waiting jobs may have another place or start than they were told."""
        if self._estimates is Estimates.CURRENT:
            self._estimates = Estimates.STALE

    async def cycle(self) -> CycleOutcome:
        """Read, decide, commit. Raises LostLeadershipError when another planner has taken over."""
        now = self._clock.now()
        async with self._uow(one_statement=True) as uow:
            news = await uow.planning.news(self._rules.messages, self._rules.start_allowance)
            messages, inbox = news.messages, _sort(news.messages)
            self._cadence.full_reads = self._cadence.full_reads + 1 if len(messages) == self._rules.messages else 0
            picture = None if self._cadence.is_reload_due(now) else self._picture
            if picture is not None:
                if inbox.inventory:
                    picture.set_nodes(await uow.planning.nodes())
                await self._apply_changed(uow, picture, inbox.ids, waiting=news.waiting)
        picture = await self._reload(now) if picture is None else await self._refilled(picture)
        quotas_changed = await self._quota.update(picture.common, now)
        picture.cpu_jobs.set_orders(picture.common.queue.orders)
        starts = picture.plan_starts(self._clock.now(), self._rules.batch)
        if quotas_changed or messages or starts:
            self._note_change()
        committed = await self._commit(picture, starts, inbox)
        if committed is None:
            return CycleOutcome(messages=len(messages), conflict=True, more=True)
        more = (
            len(messages) == self._rules.messages
            or len(starts) == self._rules.batch
            # The database holds more of the queue, and the part in memory is short.
            or bool(picture.needs_refill(self._low_water))
        )
        return CycleOutcome(committed, len(messages), more=more)

    async def give_slots(self) -> bool:
        """Give waiting jobs slots, or earlier ones, a batch at a time; true when another batch is worth doing at once.

        Raises LostLeadershipError when another planner has taken over.
        """
        now = self._clock.now()
        picture = self._picture
        if picture is None:
            return False
        if self._cadence.begin_slots(now):
            await self._record_late_starts(picture, now)
        if not self._cadence.take_batch():
            return False
        begun = self._clock.now()
        plan = picture.plan_slots(
            now,
            self._rules.promises,
            self._rules.slot_batch,
            lambda: abs(self._clock.now() - begun) >= self._rules.slot_time * USED,
        )
        if plan.slots:
            self._note_change()
            await self._commit_slots(picture, plan.slots, now)
        if not plan.more:
            self._cadence.batches_left = None
        return bool(self._cadence.batches_left)

    async def _record_late_starts(self, picture: CalendarPicture, now: datetime) -> None:
        late = picture.late_starts(now)
        if late:
            async with self._uow(one_statement=True) as uow:
                await uow.planning.record_late_starts(late, now)
                uow.wake(Channel.EVENTS)

    async def _commit_slots(self, picture: CalendarPicture, slots: list[PlannedSlot], now: datetime) -> None:
        """Write slots; where the ledger refuses (a booking was made meanwhile), the picture is to be read anew."""
        try:
            async with self._uow(one_statement=all(slot.asker is None for slot in slots)) as uow:
                allowed = await self._quota.permitted_slots(uow, slots, self._clock.now())
                written = await uow.planning.commit_slots(self._epoch, allowed, now, slots)
        except (CalendarConflictError, TransactionLostError):
            self.read_anew()
            return
        except BaseException:
            # The commit's outcome is unknown here; the database knows.
            self._picture = None
            raise
        for slot in slots:
            if slot.id not in written:
                picture.forget_slot(slot.id)
        if await self._read_refused(picture, [slot.id for slot in slots if slot.follows and slot.id not in written]):
            # Read the present state first.
            self._cadence.rest_from_slots()

    async def publish_estimates(self) -> None:
        """Write the estimates of waiting jobs, if the plan may have changed and they were not written just now."""
        now = self._clock.now()
        picture = self._picture
        if picture is None or not self._cadence.are_estimates_due(now):
            return
        if self.predictions is not None and self.predictions.are_old(now):
            self._note_change()
        written = (Estimates.CURRENT,) if picture.has_waiting else (Estimates.CURRENT, Estimates.NONE)
        if self._estimates in written or self._cadence.puts_off_estimates(picture, now):
            return
        self._cadence.estimated_at = now
        await self._quota.update(picture.common, now)  # what was refused a moment ago is due to a newer booking
        estimates = picture.estimate_waits(now, self._rules.estimates)
        if self._rules.estimates and picture.has_waiting and self.predictions is not None:
            estimates = await self.predictions.add(picture, estimates, now, self._epoch)
        self._estimates = Estimates.CURRENT if picture.has_waiting else Estimates.NONE
        async with self._uow() as uow:
            await uow.planning.publish_estimates(self._epoch, estimates, now)

    async def _refilled(self, picture: CalendarPicture) -> CalendarPicture:
        """Return the picture, with more of the queue where it has little left."""
        for gpu_type, after in picture.needs_refill(self._low_water):
            async with self._uow() as uow:
                jobs = await uow.planning.more_waiting(gpu_type, after, self._rules.window, self._rules.start_allowance)
            picture.refill(gpu_type, jobs, complete=len(jobs) < self._rules.window)
        return picture

    async def _reload(self, now: datetime) -> CalendarPicture:
        # The message of a freed GPU stands in the queue behind all that was submitted before: after an outage, behind
        # a million messages that say nothing which is not in the database. Some are forgotten at each reload: no reload
        # waits for the last, and while there are many, reloads follow each other soon.
        for _ in range(_FORGETS):
            async with self._uow(one_statement=True) as uow:
                forgotten = await uow.planning.forget_messages(self._epoch, _FORGOTTEN_AT_ONCE)
            if forgotten < _FORGOTTEN_AT_ONCE:
                break
        self._cadence.full_reads = 0
        async with self._uow() as uow:
            snapshot = await uow.planning.snapshot(self._rules.window, self._rules.start_allowance)
        picture = self._picture = CalendarPicture(snapshot, self._rules.policy, self._rules.slack)
        picture.set_shares(self._shares)
        self._quota.begin()
        self._cadence.loaded_at = now
        self._note_change()
        return picture

    async def _read_refused(self, picture: CalendarPicture, behind: Sequence[str] = ()) -> bool:
        """Read again the jobs that quotas refused, and those `behind` these and others; true when there were any."""
        refused = [*{*self._quota.take_refused(), *behind}]
        if refused:
            async with self._uow(one_statement=True) as uow:
                await self._apply_changed(uow, picture, refused, refused)
        return bool(refused)

    async def _apply_changed(
        self,
        uow: UnitOfWork,
        picture: CalendarPicture,
        ids: list[str],
        slotted: Sequence[str] = (),
        waiting: Sequence[Waiting] | None = None,
    ) -> None:
        """Read these jobs again, unless the `waiting` of them were just read.

        `slotted` of them may have slots that the picture does not know.
        """
        if not ids:
            return
        waiting, commitments = await uow.planning.changed(
            ids, self._rules.start_allowance, [*picture.slotted(ids), *slotted], waiting
        )
        in_queue = {job.id: job for job in waiting}
        rows = by_reservation(commitments)
        for reservation_id in ids:
            picture.set_reservation(reservation_id, in_queue.get(reservation_id), rows.get(reservation_id, ()))

    async def _commit(self, picture: CalendarPicture, starts: list[Start], inbox: _Inbox) -> int | None:
        """Write the plan and forget its messages; None when the ledger refused and the picture is to be read anew."""
        if not (starts or inbox.handled or inbox.broken):
            return 0
        try:
            async with self._uow(one_statement=all(start.asker is None for start in starts)) as uow:
                allowed = await self._quota.permitted_starts(uow, starts, self._clock.now())
                outcome = await uow.planning.commit(self._epoch, allowed, self._clock.now(), inbox.handled)
                if outcome.started:
                    uow.wake(Channel.POD_OPERATIONS)
                    uow.wake(Channel.EVENTS)
        except (CalendarConflictError, TransactionLostError):
            self._picture = None
            return None
        except BaseException:
            # The commit's outcome is unknown here; the database knows.
            self._picture = None
            raise
        for start in starts:
            if start.id not in outcome.started:
                picture.set_reservation(start.id, None, ())
        await self._read_refused(picture)
        if inbox.broken:
            await self._postpone_broken(inbox.broken)
        return len(outcome.started)

    async def _postpone_broken(self, broken: list[tuple[QueuedMessage, str]]) -> None:
        """Postpone messages that can't be read, and after enough tries move them to the dead letters."""
        async with self._uow() as uow:
            for message, error in broken:
                if message.read_count >= self._rules.max_reads:
                    await uow.queue.bury(QueueName.GPU_JOBS, message, error)
                else:
                    await uow.queue.put_off(QueueName.GPU_JOBS, message.id, timedelta(seconds=message.read_count))


def _sort(messages: list[QueuedMessage]) -> _Inbox:
    inbox = _Inbox([], [], inventory=False, broken=[])
    ids: dict[str, None] = {}
    for message in messages:
        try:
            body = JobMessage.model_validate(message.body)
        except pydantic.ValidationError as error:
            inbox.broken.append((message, f"not a JobMessage: {error}"))
            continue
        if body.kind == "inventory":
            inbox.inventory = True
        elif body.id is None:
            inbox.broken.append((message, f"a message of kind {body.kind} must name an id"))
            continue
        else:
            ids[body.id] = None
        inbox.handled.append(message.id)
    inbox.ids = list(ids)
    return inbox
