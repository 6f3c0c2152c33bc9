"""Which waiting jobs are let into the line: of each owner as many as their quotas allow at once.

Who is held back waits beside the line, stands in nobody's way, and is promised nothing yet. A job is let in when it
could run from now on beside all that its owner holds and has booked, and beside all others of theirs that are in
already. A smaller job may be let in while a larger one of the same owner is held back. A job that asks for any type is
let in when it could run on each of the types there are.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from reservation_core.domain.limits import Policy, RuleName
from reservation_core.domain.model import Reason, ReasonCode, ReservationKind
from reservation_core.domain.plan import Waiting
from reservation_core.domain.rules import BrokenRule, Holding, RuleRequest, UsageView, check

_QUOTAS = frozenset({RuleName.MAX_GPUS, RuleName.MAX_GPU_HOURS_PER_WEEK})
_Like = tuple[int, str | None, int]
"""Jobs of one owner, type and number of GPUs: what one is too long for, a longer one is too long for as well."""


def limits_starts(policy: Policy) -> bool:
    """Whether any rule bounds what may run at once or in a week."""
    return any(getattr(each.rules, name.value) is not None for each in policy.rules for name in _QUOTAS)


def counts_hours(policy: Policy) -> bool:
    """Whether any rule bounds GPU-hours: then what was given back counts, too."""
    return any(each.rules.max_gpu_hours_per_week is not None for each in policy.rules)


def spent(user: str, project: str | None, gpu_type: str, time: timedelta, since: datetime, now: datetime) -> Holding:
    """So much GPU-time of the past as one holding within [since, now): for sums of a week it is the same."""
    span = max(now - since, timedelta(microseconds=1))
    gpus = max(1, -(-time // span))
    return Holding("", ReservationKind.JOB, user, project, gpu_type, gpus, since, since + time / gpus)


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A job that has to wait for others of its owner, and what it is told."""

    job: Waiting
    reason: Reason


class Quotas:
    """What owners hold at a moment, and whom that lets in. `types` are those of the inventory."""

    def __init__(
        self, policy: Policy, usage: UsageView, names: Mapping[int, str], types: Iterable[str], now: datetime
    ) -> None:
        self._policy = policy
        self._names = names
        self._types = tuple(sorted(types))
        self._now = now
        self._held: dict[str, list[Holding]] = {}
        self._refused: dict[_Like, tuple[timedelta, Reason]] = {}
        self._bound: dict[tuple[str, str], bool] = {}
        self._in: dict[str, Counter[tuple[str, timedelta]]] = {}
        for holding in usage.holdings:
            self._held.setdefault(holding.user, []).append(holding)

    def let_in(self, job: Waiting) -> Reason | None:
        """Let a job in, and count it; or else say why not. To be asked in the order of the line."""
        user = self._names.get(job.owner)
        if job.booking_id is not None or user is None:
            return None
        like = (job.owner, job.gpu_type, job.gpus * job.nodes)
        known = self._refused.get(like)
        if known is not None and job.length >= known[0]:
            return known[1]
        types = [
            each for each in (self._types if job.gpu_type is None else (job.gpu_type,)) if self._is_bound(user, each)
        ]
        if not types:
            return None
        broken = next((found for each in types if (found := self._broken(job, user, each))), None)
        if broken:
            reason = _told(broken)
            self._refused[like] = (job.length, reason)
            return reason
        self.count(job)
        return None

    def count(self, job: Waiting) -> None:
        """This job is in already: it counts, whether it would be let in or not."""
        user = self._names.get(job.owner)
        if job.booking_id is None and user is not None:
            gpu_type = job.gpu_type or next(iter(self._types), "")
            self._in.setdefault(user, Counter())[gpu_type, job.length] += job.gpus * job.nodes

    def _is_bound(self, user: str, gpu_type: str) -> bool:
        known = self._bound.get((user, gpu_type))
        if known is None:
            limits = self._policy.limits(user, None, gpu_type)
            quotas = (limits.max_gpus, limits.max_gpu_hours_per_week)
            known = any(limit is not None and limit.value is not None for limit in quotas)
            self._bound[user, gpu_type] = known
        return known

    def _broken(self, job: Waiting, user: str, gpu_type: str) -> list[BrokenRule]:
        request = RuleRequest(
            kind=ReservationKind.JOB,
            user=user,
            gpus=job.gpus * job.nodes,
            duration=job.length,
            gpu_type=gpu_type,
            replaces=job.id,
        )
        # Those who are in and equally long are one: there may be thousands.
        others = [
            Holding("", ReservationKind.JOB, user, None, each, gpus, self._now, self._now + length)
            for (each, length), gpus in self._in.get(user, Counter()).items()
        ]
        usage = UsageView((*self._held.get(user, ()), *others))
        return [rule for rule in check(request, self._policy, usage, self._now) if rule.code in _QUOTAS]


def _told(broken: list[BrokenRule]) -> Reason:
    return Reason(ReasonCode.QUOTA_REACHED, " ".join(rule.detail for rule in broken))
