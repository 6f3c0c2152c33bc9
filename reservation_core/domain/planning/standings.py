"""The order of jobs of equal priority and share: small ones first, and what waits long goes before what came later.

A promised start is none of this: it holds whatever comes. The order says who starts, or is moved to an earlier time,
first when something comes free.
"""

from dataclasses import dataclass
from datetime import timedelta

from reservation_core.domain.calendar import length_micros
from reservation_core.domain.plan import Waiting
from reservation_core.domain.policy.limits import Policy
from reservation_core.domain.policy.nouns import QueueOrder

SECOND = 1_000_000
AGEING = length_micros(timedelta(days=2))
LONGEST = length_micros(timedelta(days=60))

ALIKE = 8 * length_micros(timedelta(hours=1))
"""What each job of a project in the order of arrival counts as asking for: 8 GPU-hours."""


@dataclass(frozen=True, slots=True)
class Orders:
    """Whether jobs are ordered by area: those of everybody, and the projects of which the opposite is true."""

    by_area: bool
    others: frozenset[str] = frozenset()

    def is_by_area(self, project: str | None) -> bool:
        """Whether the jobs of a project (None: of none) are ordered by area."""
        return self.by_area != (project in self.others)


BY_AREA = Orders(by_area=True)
BY_ARRIVAL = Orders(by_area=False)


def orders_of(policy: Policy) -> Orders:
    """The orders that a policy sets; without a rule, jobs are ordered by area."""
    set_by = {rule.scope.project: rule.rules.order for rule in policy.rules if rule.rules.order is not None}
    usual = set_by.get(None, QueueOrder.AREA)
    others = frozenset(name for name, order in set_by.items() if name is not None and order is not usual)
    return Orders(usual is QueueOrder.AREA, others)


def standing(job: Waiting, orders: Orders, now: int) -> int:
    """A job's place among equals; smaller goes first. `now` is in microseconds, as `job.submitted_at` is.

    It is the area that the job asks for, in GPU-microseconds, and counts for less the longer it waits: for a quarter
    after `AGEING`, for a ninth after twice that. So a job that asks for k * k times as much as one that comes now goes
    before it after (k - 1) * AGEING; and a job that has waited for `LONGEST` goes before all that have not.
    """
    waited = max(0, now - job.submitted_at)
    if waited >= LONGEST:
        return -waited
    area = job.all_gpus * length_micros(job.length) if orders.is_by_area(job.project) else ALIKE
    return int(area / (1 + waited / AGEING) ** 2)
