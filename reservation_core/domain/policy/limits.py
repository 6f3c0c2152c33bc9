"""Policy as data: which limits hold for a user, in a project, on a type of GPU, and where each comes from.

A policy is a set of rules, each for one scope: a user or a project or everybody, on one type of GPU or on all. For
every field the most specific scope that says something wins: user and type, user, project and type, project, type,
everybody. A field that nobody sets is no limit; `UNLIMITED` lifts what a less specific scope would say. A quota of a
project is its members' together: what a user's own rule says holds beside it, and does not lift it.

What a limit counts follows from the scope that sets it: one that names a type counts GPUs of this type, others all
GPUs; one that names a project counts what all its members hold for the project, others what the user holds.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import timedelta
from enum import Enum, StrEnum
from typing import Any, Generic, TypeVar

V = TypeVar("V")


class Unlimited(Enum):
    """The value of a field that lifts what a less specific scope says."""

    UNLIMITED = "unlimited"


UNLIMITED = Unlimited.UNLIMITED


class RuleName(StrEnum):
    """The fields of a rule. Stable: policy files, the API and `broken_rules` name them."""

    MAX_GPUS = "max_gpus"
    MAX_GPU_HOURS_PER_WEEK = "max_gpu_hours_per_week"
    MAX_DURATION = "max_duration"
    MAX_ADVANCE = "max_advance"
    MIN_NOTICE = "min_notice"
    MAX_OPEN_BOOKINGS = "max_open_bookings"
    COOLDOWN = "cooldown"
    PRIORITY = "priority"
    NO_SHOW_GRACE = "no_show_grace"


LIFTABLE = frozenset(
    {
        RuleName.MAX_GPUS,
        RuleName.MAX_GPU_HOURS_PER_WEEK,
        RuleName.MAX_DURATION,
        RuleName.MIN_NOTICE,
        RuleName.MAX_OPEN_BOOKINGS,
        RuleName.COOLDOWN,
    }
)
"""What an exception for bookings that start soon may lift."""

QUOTAS = (RuleName.MAX_GPUS, RuleName.MAX_GPU_HOURS_PER_WEEK, RuleName.MAX_OPEN_BOOKINGS)
"""The fields that count what is held already: of a project, by all its members."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a rule: `user` or `project` (never both) or everybody; one `gpu_type` or all."""

    user: str | None = None
    project: str | None = None
    gpu_type: str | None = None

    def __post_init__(self) -> None:
        if self.user is not None and self.project is not None:
            raise ValueError("a scope names a user or a project, not both")

    def __str__(self) -> str:
        parts = [
            f"{word}:{value}"
            for word, value in (("user", self.user), ("project", self.project), ("gpu_type", self.gpu_type))
            if value is not None
        ]
        return ",".join(parts) or "default"

    @classmethod
    def parse(cls, text: str) -> "Scope":
        """Read `str(scope)` back: `default`, or `user:`, `project:` and `gpu_type:` with a name, joined by commas.

        Raises ValueError for what is none; names are not looked at.
        """
        if text == "default":
            return cls()
        parts: dict[str, str] = {}
        for part in text.split(","):
            word, _, name = part.partition(":")
            if word not in ("user", "project", "gpu_type") or word in parts or not name:
                raise ValueError("write `default`, or like `user:ann`, `project:lab,gpu_type:h100`, `gpu_type:h100`")
            parts[word] = name
        return cls(**parts)

    @property
    def specificity(self) -> tuple[bool, bool, bool]:
        """Greater is more specific."""
        return (self.user is not None, self.project is not None, self.gpu_type is not None)

    def covers(self, user: str, project: str | None, gpu_type: str | None) -> bool:
        """Whether a request of this user, for this project and type, falls under it."""
        return (
            self.user in (None, user)
            and (self.project is None or self.project == project)
            and (self.gpu_type is None or self.gpu_type == gpu_type)
        )


EVERYBODY = Scope()


@dataclass(frozen=True, slots=True)
class Relaxation:
    """An exception for bookings that start within `starts_within` of now: the fields in `lifts` don't bind them."""

    starts_within: timedelta
    lifts: frozenset[RuleName]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What one scope says. None: nothing. GPU-hours are per week from Monday 00:00 UTC.

    `priority` is the highest that a job may have. `no_show_grace` is how long a booking waits to be used; UNLIMITED is
    for ever. `cooldown` lies between the end of one's booking of a type and the start of the next of that type.
    `booking_required` false: GPUs of clusters that ask (see `usecases.pods.schedulability`) may be used without a
    booking.
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
    relaxed_if_starts_within: tuple[Relaxation, ...] | None = None
    booking_required: bool | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing at all."""
        return all(getattr(self, field.name) is None for field in fields(self))


@dataclass(frozen=True, slots=True)
class Limit(Generic[V]):
    """A field as it holds for a request, and the scope that says so. `value` None is without limit."""

    value: V | None
    scope: Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All fields as they hold for a request; None where no scope says anything.

    `of_project`: the project's quotas, where those above are the user's own. Both hold.
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
    """One row of the policy."""

    scope: Scope
    rules: Rules


class Policy:
    """Every rule there is; at most one a scope. Raises ValueError when two have the same scope.

    `gpu_types` are those that rules name.
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
        """Whether there is no rule at all."""
        return not self.rules

    def limits(self, user: str, project: str | None, gpu_type: str | None) -> Limits:
        """What holds for a request of this user, for this project and type, field by field."""
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
        # Where the user has no rule of their own, the project's is the most specific and among those that were chosen.
        beside = tuple((name, limit) for name, limit in of_project.items() if chosen[name.value].scope.user is not None)
        return Limits(**chosen, of_project=beside) if chosen else _NO_LIMITS

    def binds(self, user: str, project: str | None) -> bool:
        """Whether any rule could bind this user's requests for this project, of whatever type."""
        return any(rule.scope.user in (None, user) and rule.scope.project in (None, project) for rule in self.rules)


NO_POLICY = Policy()
_NO_LIMITS = Limits()


def _quotas(scope: Scope, rules: Rules, *, but: Container[RuleName]) -> dict[RuleName, Limit[Any]]:
    """What a rule says about quotas, without those that are known."""
    said = {name: getattr(rules, name.value) for name in QUOTAS if name not in but}
    return {
        name: Limit(None if value is UNLIMITED else value, scope) for name, value in said.items() if value is not None
    }


def _scopes(user: str, project: str | None, gpu_type: str | None) -> Iterator[Scope]:
    """Every scope that covers a request, the most specific first."""
    owners = [{"user": user}, *([] if project is None else [{"project": project}]), {}]
    for owner in owners:
        if gpu_type is not None:
            yield Scope(**owner, gpu_type=gpu_type)
        yield Scope(**owner)
