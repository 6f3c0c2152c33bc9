"""What the quotas say about starts and slots, one after the other.

A slot was given beside all that counted at that time, and counts itself from then on. Later requests must fit beside
it, or are excepted by a rule or bound by none: they take nothing from the slot. So amounts that were added, moved or
extended after a slot was given don't count when the slot is used; nor does returned time, whose beginning is unknown.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from reservation_core.domain.calendar import length_micros, to_micros
from reservation_core.domain.model import Reason
from reservation_core.domain.plan import Asker, PlannedSlot, Start
from reservation_core.domain.policy.limits import Policy
from reservation_core.domain.policy.nouns import RuleName
from reservation_core.domain.policy.quota_book import QuotaBook
from reservation_core.domain.policy.quota_meters import Amount
from reservation_core.domain.policy.rules import Holding
from reservation_core.domain.statuses import ReservationKind

_QUOTAS = (RuleName.MAX_GPUS, RuleName.MAX_GPU_HOURS_PER_WEEK)


def limits_starts(policy: Policy) -> bool:
    """Whether any rule limits GPUs at once or GPU-hours per week."""
    return any(getattr(rule.rules, name.value) is not None for rule in policy.rules for name in _QUOTAS)


def counts_hours(policy: Policy) -> bool:
    """Whether any rule limits GPU-hours, so that returned time counts, too."""
    return any(rule.rules.max_gpu_hours_per_week is not None for rule in policy.rules)


def spent(user: str, project: str | None, gpu_type: str, time: timedelta, since: datetime, now: datetime) -> Holding:
    """Past GPU-time as one holding within [since, now), which gives the same sum of the week."""
    span = max(now - since, timedelta(microseconds=1))
    gpus = max(1, -(-time // span))
    return Holding("", ReservationKind.JOB, user, project, gpu_type, gpus, since, since + time / gpus)


class QuotaRuling:
    """The quotas' decisions on starts and slots in order; what was allowed counts for the next."""

    def __init__(self, policy: Policy, names: Mapping[int, str], holdings: Sequence[Holding]) -> None:
        self._policy = policy
        self._names = names
        self._holdings = holdings
        self._slots = {holding.reservation_id: holding for holding in holdings if holding.planned}
        self._book = self._book_of(holdings)

    def in_slot(self, start: Start) -> bool:
        """Whether a job starts in its slot."""
        slot = self._slots.get(start.id)
        return slot is not None and slot.start <= start.start

    def refuses_start(self, start: Start) -> Reason | None:
        """The quotas that refuse a start; None if it is allowed."""
        if start.asker is None:
            return None
        asked = (start.asker, len(start.gpus), length_micros(start.end - start.start), to_micros(start.start), start.id)
        reason = self._book.why_not(*asked)
        if reason is not None and self.in_slot(start):
            given = self._slots[start.id].made_at
            earlier = [holding for holding in self._holdings if _is_before(holding.made_at, given)]
            reason = self._book_of(earlier).why_not(*asked)
        if reason is None:
            self._count(start, start.asker)
        return reason

    def refuses_slot(self, slot: PlannedSlot) -> Reason | None:
        """The quotas that refuse a slot; None if it is allowed."""
        if slot.asker is None:
            return None
        length = length_micros(slot.end - slot.start)
        reason = self._book.why_not(slot.asker, len(slot.gpus), length, to_micros(slot.start), slot.id)
        if reason is None:
            self._count(slot, slot.asker)
        return reason

    def _book_of(self, holdings: Iterable[Holding]) -> QuotaBook:
        book = QuotaBook(self._policy, self._names)
        book.note_held(holdings)
        return book

    def _count(self, placed: Start | PlannedSlot, asker: Asker) -> None:
        amount = Amount(len(placed.gpus), to_micros(placed.start), to_micros(placed.end))
        self._book.claim(placed.id, asker, amount)


def _is_before(made_at: datetime | None, given: datetime | None) -> bool:
    return made_at is not None and given is not None and made_at < given
