"""The policy as data: which limits apply to a user, a project and a type of GPU, and which scope sets each.

A policy is a set of rules, one per scope: a user, a project or everybody, on one type of GPU or on all. For every
field the most specific scope that sets it wins: user and type, user, project and type, project, type, everybody. An
unset field is no limit; `UNLIMITED` removes the limit of a less specific scope. A project's quota is shared by its
members: a user's own rule applies beside it and does not remove it.

A limit counts by the scope that sets it: with a type it counts GPUs of this type, else all GPUs; with a project it
counts what all members hold for the project, else what the user holds.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import timedelta
from enum import Enum
from typing import Any, Generic, TypeVar

from reservation_core.domain.gpu_use.idle_rules import IdleRule
from reservation_core.domain.policy.nouns import QUOTAS, QueueOrder, RuleName, Scope
from reservation_core.domain.policy.prices import Money

V = TypeVar("V")


class Unlimited(Enum):
    """The value of a field that removes the limit of less specific scopes."""

    UNLIMITED = "unlimited"


UNLIMITED = Unlimited.UNLIMITED


@dataclass(frozen=True, slots=True)
class Relaxation:
    """An exception: the fields in `lifts` don't apply to bookings that start within `starts_within` of now."""

    starts_within: timedelta
    lifts: frozenset[RuleName]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The fields of one scope; None: not set. GPU-hours are per week from Monday 00:00 UTC.

    `priority` is the highest that a job may have. `no_show_grace` is how long a booking may stay unused (UNLIMITED: for
    ever), `inactivity` how long a session may stay without a connection. `cooldown` is the time between a user's
    bookings of one type. `cost_per_gpu_hour` and `order` limit nothing; `order` is a rule of everybody or a project
    alone. `idle` says when the GPUs of a job are idle, and what follows. Without `booking_required`, GPUs of clusters
    that ask (see `usecases.pods.schedulability`) may be used without a booking.
    """

    max_gpus: int | Unlimited | None = None
    max_gpu_hours_per_week: float | Unlimited | None = None
    max_duration: timedelta | Unlimited | None = None
    max_advance: timedelta | Unlimited | None = None
    min_notice: timedelta | Unlimited | None = None
    max_open_bookings: int | Unlimited | None = None
    cooldown: timedelta | Unlimited | None = None
    priority: int | Unlimited | None = None
    no_show_grace: timedelta | Unlimited | None = None
    inactivity: timedelta | Unlimited | None = None
    cost_per_gpu_hour: Money | None = None
    order: QueueOrder | None = None
    idle: IdleRule | Unlimited | None = None
    relaxed_if_starts_within: tuple[Relaxation, ...] | None = None
    booking_required: bool | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no field is set."""
        return all(getattr(self, field.name) is None for field in fields(self))


@dataclass(frozen=True, slots=True)
class Limit(Generic[V]):
    """A field as it applies to a request, and the scope that sets it. `value` None is unlimited."""

    value: V | None
    scope: Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All fields as they apply to a request; None where no scope sets them.

    `of_project`: the project's quotas, where those above are the user's own. Both apply.
    """

    max_gpus: Limit[int] | None = None
    max_gpu_hours_per_week: Limit[float] | None = None
    max_duration: Limit[timedelta] | None = None
    max_advance: Limit[timedelta] | None = None
    min_notice: Limit[timedelta] | None = None
    max_open_bookings: Limit[int] | None = None
    cooldown: Limit[timedelta] | None = None
    priority: Limit[int] | None = None
    no_show_grace: Limit[timedelta] | None = None
    inactivity: Limit[timedelta] | None = None
    cost_per_gpu_hour: Limit[Money] | None = None
    order: Limit[QueueOrder] | None = None
    idle: Limit[IdleRule] | None = None
    relaxed_if_starts_within: Limit[tuple[Relaxation, ...]] | None = None
    booking_required: Limit[bool] | None = None
    of_project: tuple[tuple[RuleName, Limit[Any]], ...] = ()

    def __iter__(self) -> Iterator[tuple[RuleName, Limit[Any]]]:
        for name in RuleName:
            limit = getattr(self, name.value)
            if limit is not None:
                yield name, limit
            yield from (named_limit for named_limit in self.of_project if named_limit[0] is name)


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One rule of the policy."""

    scope: Scope
    rules: Rules


class Policy:
    """All rules, at most one per scope. Raises ValueError when two have the same scope.

    `gpu_types` are the types that rules name.
    """

    __slots__ = ("_by_scope", "gpu_types", "rules")

    def __init__(self, rules: Iterable[PolicyRule] = ()) -> None:
        self.rules = tuple(sorted(rules, key=lambda rule: (rule.scope.specificity, str(rule.scope))))
        self._by_scope = {rule.scope: rule.rules for rule in self.rules}
        if len(self._by_scope) != len(self.rules):
            raise ValueError("two rules have the same scope")
        self.gpu_types = frozenset(rule.scope.gpu_type for rule in self.rules if rule.scope.gpu_type is not None)

    @property
    def is_empty(self) -> bool:
        """Whether there are no rules."""
        return not self.rules

    def limits(self, user: str, project: str | None, gpu_type: str | None) -> Limits:
        """The limits that apply to a request of this user, for this project and type."""
        chosen: dict[str, Limit[Any]] = {}
        of_project: dict[RuleName, Limit[Any]] = {}
        for scope in _scopes(user, project, gpu_type):
            rules = self._by_scope.get(scope)
            if rules is None:
                continue
            for field in fields(rules):
                value = getattr(rules, field.name)
                if value is not None and field.name not in chosen:
                    chosen[field.name] = Limit(None if value is UNLIMITED else value, scope)
            if scope.project is not None:
                of_project |= _quotas(scope, rules, but=of_project)
        # Without a rule of the user's own, the project's is the most specific and already among those chosen.
        beside = tuple((name, limit) for name, limit in of_project.items() if chosen[name.value].scope.user is not None)
        return Limits(**chosen, of_project=beside) if chosen else NO_LIMITS

    @property
    def has_idle_rules(self) -> bool:
        """Whether any scope says when GPUs are idle."""
        return any(isinstance(rule.rules.idle, IdleRule) for rule in self.rules)

    @property
    def has_prices(self) -> bool:
        """Whether GPU-hours cost anybody anything."""
        return any(rule.rules.cost_per_gpu_hour is not None for rule in self.rules)

    def price(self, user: str, project: str | None, gpu_type: str | None) -> Money | None:
        """The price of a GPU-hour for this user, for this project and type."""
        rules = (self._by_scope.get(scope) for scope in _scopes(user, project, gpu_type))
        prices = (rule.cost_per_gpu_hour for rule in rules if rule is not None and rule.cost_per_gpu_hour is not None)
        price = next(prices, UNLIMITED)
        return None if price is UNLIMITED else price

    def binds(self, user: str, project: str | None) -> bool:
        """Whether any rule could apply to this user's requests for this project, of any type."""
        return any(rule.scope.user in (None, user) and rule.scope.project in (None, project) for rule in self.rules)


NO_POLICY = Policy()
NO_LIMITS = Limits()


def _quotas(scope: Scope, rules: Rules, *, but: Container[RuleName]) -> dict[RuleName, Limit[Any]]:
    """The quotas that a rule sets, except those that are known."""
    quotas = {name: getattr(rules, name.value) for name in QUOTAS if name not in but}
    return {
        name: Limit(None if value is UNLIMITED else value, scope) for name, value in quotas.items() if value is not None
    }


def _scopes(user: str, project: str | None, gpu_type: str | None) -> Iterator[Scope]:
    """Every scope that covers a request, the most specific first."""
    owners = [{"user": user}, *([] if project is None else [{"project": project}]), {}]
    for owner in owners:
        if gpu_type is not None:
            yield Scope(**owner, gpu_type=gpu_type)
        yield Scope(**owner)
