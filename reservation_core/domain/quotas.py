"""Which waiting jobs are let into the line: of each owner and project as many as their quotas allow at once.

Who is held back waits beside the line, stands in nobody's way, and is promised nothing yet. A job is let in when it
could run from now on beside all that its owner holds and has booked, and beside all others of theirs that are in
already; for a project, beside what its members hold and wait with for it, too. A smaller job may be let in while a
larger one of the same owner is held back. A job that asks for any type is let in when it could run on each of the types
there are.
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
_Like = tuple[int, str | None, str | None, int]
"""Owner, project, type, number of GPUs: what one such job is too long for, a longer one is too long for as well."""
_In = Counter[tuple[str, str | None, str, timedelta]]
"""The GPUs of those who are in, by user, project, type and length: there may be thousands that are alike."""


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
        self._held_for: dict[str, list[Holding]] = {}
        self._refused: dict[_Like, tuple[timedelta, Reason]] = {}
        self._bound: dict[tuple[str, str | None, str], bool] = {}
        self._in: dict[str, _In] = {}
        self._in_for: dict[str, _In] = {}
        for holding in usage.holdings:
            self._held.setdefault(holding.user, []).append(holding)
            if holding.project is not None:
                self._held_for.setdefault(holding.project, []).append(holding)

    def let_in(self, job: Waiting) -> Reason | None:
        """Let a job in, and count it; or else say why not. To be asked in the order of the line."""
        user = self._names.get(job.owner)
        if job.booking_id is not None or user is None:
            return None
        like = (job.owner, job.project, job.gpu_type, job.gpus * job.nodes)
        known = self._refused.get(like)
        if known is not None and job.length >= known[0]:
            return known[1]
        asked = self._types if job.gpu_type is None else (job.gpu_type,)
        types = [each for each in asked if self._is_bound(user, job.project, each)]
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
            alike = (user, job.project, job.gpu_type or next(iter(self._types), ""), job.length)
            self._in.setdefault(user, Counter())[alike] += job.gpus * job.nodes
            if job.project is not None:
                self._in_for.setdefault(job.project, Counter())[alike] += job.gpus * job.nodes

    def _is_bound(self, user: str, project: str | None, gpu_type: str) -> bool:
        known = self._bound.get((user, project, gpu_type))
        if known is None:
            limits = self._policy.limits(user, project, gpu_type)
            known = any(name in _QUOTAS and limit.value is not None for name, limit in limits)
            self._bound[user, project, gpu_type] = known
        return known

    def _beside(self, user: str, project: str | None) -> UsageView:
        """All that counts against a job's quotas: the user's own, and what other members of its project have for it."""
        held = [*self._held.get(user, ())]
        those_in = Counter(self._in.get(user, Counter()))
        if project is not None:
            held += [each for each in self._held_for.get(project, ()) if each.user != user]
            those_in |= self._in_for.get(project, Counter())
        others = [
            Holding("", ReservationKind.JOB, owner, whose, gpu_type, gpus, self._now, self._now + length)
            for (owner, whose, gpu_type, length), gpus in those_in.items()
        ]
        return UsageView((*held, *others))

    def _broken(self, job: Waiting, user: str, gpu_type: str) -> list[BrokenRule]:
        request = RuleRequest(
            kind=ReservationKind.JOB,
            user=user,
            gpus=job.gpus * job.nodes,
            duration=job.length,
            gpu_type=gpu_type,
            project=job.project,
            replaces=job.id,
        )
        found = check(request, self._policy, self._beside(user, job.project), self._now)
        return [rule for rule in found if rule.code in _QUOTAS]


def _told(broken: list[BrokenRule]) -> Reason:
    return Reason(ReasonCode.QUOTA_REACHED, " ".join(rule.detail for rule in broken))
