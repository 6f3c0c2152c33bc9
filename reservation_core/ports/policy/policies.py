"""The policy as it is stored, projects, and what counts against quotas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reservation_core.domain.policy.effects import OpenReservation
from reservation_core.domain.policy.limits import Policy, PolicyRule, Rules, Scope
from reservation_core.domain.policy.rules import Holding, UsageView


@dataclass(frozen=True, slots=True)
class StoredRule:
    """One scope's rules, as they are stored. `from_file`: the policy file made it, and may change or drop it."""

    rule: PolicyRule
    from_file: bool
    version: int
    changed_at: datetime
    changed_by: str


@dataclass(frozen=True, slots=True)
class CurrentPolicy:
    """Every rule, and the number of the last change."""

    policy: Policy
    revision: int


@dataclass(frozen=True, slots=True)
class Project:
    """People who hold GPUs for a common purpose; members by name."""

    name: str
    title: str | None
    created_at: datetime
    members: tuple[str, ...]


class Policies(Protocol):
    """Rules by scope, and the reading that decisions by them need."""

    async def revision(self) -> int:
        """The number of the last change of the rules, or of who is in which project."""
        ...

    async def current(self) -> CurrentPolicy:
        """Every rule."""
        ...

    async def rules(self) -> list[StoredRule]:
        """Every rule as it is stored, the least specific first."""
        ...

    async def lock_rule(self, scope: Scope) -> StoredRule | None:
        """One scope's rules, kept from others until the transaction ends."""
        ...

    async def put_rule(self, scope: Scope, rules: Rules, *, by: str, from_file: bool, now: datetime) -> StoredRule:
        """Replace what a scope says."""
        ...

    async def delete_rules(self, scopes: Sequence[Scope]) -> None:
        """Nothing is said of these scopes any more."""
        ...

    async def lock_file(self) -> bytes | None:
        """The digest (32 bytes) of the policy file that was applied last; others that apply one wait."""
        ...

    async def keep_file(self, digest: bytes) -> None:
        """Note which file was applied."""
        ...

    async def lock_holders(self, user_ids: Sequence[int], projects: Sequence[str]) -> frozenset[int]:
        """Keep everybody else from deciding about quotas of these users and projects until the transaction ends.

        Nobody disables these users meanwhile, either; answers who of them is disabled already.
        """
        ...

    async def usage(self, user_id: int, project: str | None, known_from: datetime, now: datetime) -> UsageView:
        """What a user and a project hold, have booked or have held, as far as it ends after `known_from`.

        What their jobs gave back a while ago is in one holding for each week and type: somewhere in that week, before
        `now`. Bookings are told each by itself.
        """
        ...

    async def names(self, user_ids: Sequence[int]) -> dict[int, str]:
        """The names of users."""
        ...

    async def drop_slots(self, becauses: Mapping[str, str], now: datetime) -> None:
        """Take back what these waiting jobs were promised, with a record that says why, once for each job."""
        ...

    async def held_by_all(
        self,
        now: datetime,
        user_ids: Sequence[int] | None = None,
        projects: Sequence[str] = (),
        *,
        promised: bool = False,
    ) -> tuple[Holding, ...]:
        """What everybody, or these users and whoever for these projects, hold and have booked from now on.

        With `promised` also the slots of their jobs that wait.
        """
        ...

    async def open_reservations(self) -> list[OpenReservation]:
        """Jobs and bookings that are not over, by id, but for jobs within bookings."""
        ...

    async def held_now(self) -> Mapping[str, Mapping[str, int]]:
        """How many cards each user holds now by the database's clock, by type; not what waits or comes later."""
        ...

    async def spent_by_all(
        self, since: datetime, now: datetime, user_ids: Sequence[int] | None = None, projects: Sequence[str] = ()
    ) -> tuple[Holding, ...]:
        """What everybody, or these, have given back since a week's beginning, as if it had been held evenly since then.

        Raises ValueError when `since` is no beginning of a week.
        """
        ...


class Projects(Protocol):
    """Projects and their members."""

    async def create(self, name: str, title: str | None, now: datetime) -> Project:
        """Raises NameTakenError."""
        ...

    async def get(self, name: str) -> Project | None:
        """By name."""
        ...

    async def page(self, user_id: int | None, *, after: str | None, limit: int) -> list[Project]:
        """By name, those that a user is in (None: all)."""
        ...

    async def delete(self, name: str) -> bool:
        """What was held for it stays on record. False when there is none."""
        ...

    async def add_member(self, name: str, user_id: int) -> bool:
        """False when they are a member already."""
        ...

    async def remove_member(self, name: str, user_id: int) -> bool:
        """False when they were none."""
        ...

    async def fellows(self, user_id: int) -> dict[int, str]:
        """Who is in a project with a user: names by id."""
        ...

    async def of_user(self, user_id: int) -> list[str]:
        """The names of the projects that a user is in, in order."""
        ...
