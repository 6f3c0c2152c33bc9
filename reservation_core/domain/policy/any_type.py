"""The rules for requests that name no type of GPU.

A booking is on one type, and may be on any that its rules allow. A job gets the first type that it fits, and is then
held to the quotas of that type. Its duration and priority are checked only once, before that, so they must be allowed
on every type.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import MAXYEAR, UTC, datetime

from reservation_core.domain.policy.limits import Policy
from reservation_core.domain.policy.nouns import RuleName
from reservation_core.domain.policy.rules import (
    RuleBreach,
    RuleRequest,
    UsageView,
    check,
    never_possible,
    possible_from,
)
from reservation_core.domain.statuses import ReservationKind

_ASKED_ONCE = frozenset({RuleName.MAX_DURATION.value, RuleName.PRIORITY.value})
_ORDER = {name.value: number for number, name in enumerate(RuleName)}
_NEVER = datetime(MAXYEAR, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TypeVerdict:
    """The rules' verdict on a request, on the type with the fewest broken rules (None: none is known)."""

    gpu_type: str | None
    broken: tuple[RuleBreach, ...]
    possible_from: datetime | None


def never_on_any(request: RuleRequest, policy: Policy, now: datetime) -> list[RuleBreach]:
    """The rules that a job breaks regardless of what is held, on any type that it could take."""
    if request.gpu_type is not None:
        return never_possible(request, policy, now)
    verdicts = _verdicts(request, policy, now)
    quotas = min(([rule for rule in verdict if rule.code not in _ASKED_ONCE] for _, verdict in verdicts), key=len)
    return _in_order([*quotas, *_asked_once(verdicts)])


def judged(
    request: RuleRequest, policy: Policy, usage: UsageView, now: datetime, types: Collection[str]
) -> TypeVerdict:
    """Check a request against the rules; one without a type may take any of the existing `types`."""
    if request.gpu_type is not None or not types:
        broken = check(request, policy, usage, now)
        return TypeVerdict(request.gpu_type, tuple(broken), possible_from(request, policy, usage, now))
    everywhere = _asked_once(_verdicts(request, policy, now)) if request.kind is ReservationKind.JOB else []
    known = {rule.code for rule in everywhere}
    verdicts = []
    for gpu_type in sorted(types):
        typed = replace(request, gpu_type=gpu_type)
        broken = [rule for rule in check(typed, policy, usage, now) if rule.code not in known]
        earliest = None if everywhere else possible_from(typed, policy, usage, now)
        verdicts.append(TypeVerdict(gpu_type, tuple(_in_order([*broken, *everywhere])), earliest))
    named = policy.gpu_types  # of several as good, one that only the rules for all types limit: those are what is said
    return min(verdicts, key=lambda one: (len(one.broken), one.possible_from or _NEVER, one.gpu_type in named))


def _verdicts(request: RuleRequest, policy: Policy, now: datetime) -> list[tuple[str | None, list[RuleBreach]]]:
    """What a job would never be allowed, on a type that no rule names (None) and on each of the others."""
    types = (None, *sorted(policy.gpu_types))
    return [(gpu_type, never_possible(replace(request, gpu_type=gpu_type), policy, now)) for gpu_type in types]


def _asked_once(verdicts: Iterable[tuple[str | None, list[RuleBreach]]]) -> list[RuleBreach]:
    breaches: dict[str, RuleBreach] = {}
    for gpu_type, broken in verdicts:
        for rule in broken:
            if rule.code in _ASKED_ONCE and rule.code not in breaches:
                advice = "" if gpu_type is None else " A job for any type may get one of these: name another type."
                breaches[rule.code] = replace(rule, detail=rule.detail + advice)
    return list(breaches.values())


def _in_order(broken: Iterable[RuleBreach]) -> list[RuleBreach]:
    return sorted(broken, key=lambda rule: _ORDER[rule.code])
