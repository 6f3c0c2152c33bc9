"""The policy and what counts against its quotas, in PostgreSQL."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection import direct
from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.domain.model import ReservationKind
from reservation_core.domain.policy.effects import OpenReservation
from reservation_core.domain.policy.limits import UNLIMITED, Policy, PolicyRule, Relaxation, RuleName, Rules, Scope
from reservation_core.domain.policy.quota_rulings import spent
from reservation_core.domain.policy.quota_windows import week_start
from reservation_core.domain.policy.rules import Holding, OpenBooking, UsageView
from reservation_core.domain.policy.usage import SUMMED_AFTER
from reservation_core.ports.policy.policies import CurrentPolicy, StoredRule


class Policies:
    """Rules by scope, and the reading that decisions by them need."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def revision(self) -> int:
        """The number of the last change of the rules, or of who is in which project."""
        # The planner asks again and again, and somebody waits for each of its answers.
        [row] = await direct.fetch(self._connection, "policy_revision", {})
        return int(row["revision"])

    async def current(self) -> CurrentPolicy:
        """Every rule. A change that comes between the two reads makes the revision old, never the rules."""
        revision = await self.revision()
        return CurrentPolicy(Policy(stored.rule for stored in await self.rules()), revision)

    async def rules(self) -> list[StoredRule]:
        """Every rule as it is stored, the least specific first."""
        found = [_stored(row) for row in await self._connection.execute(statement("policy_rules"))]
        return sorted(found, key=lambda stored: (stored.rule.scope.specificity, str(stored.rule.scope)))

    async def lock_rule(self, scope: Scope) -> StoredRule | None:
        """One scope's rules, kept from others until the transaction ends."""
        row = (await self._connection.execute(statement("lock_policy_rule"), _scope(scope))).one_or_none()
        return None if row is None else _stored(row)

    async def put_rule(self, scope: Scope, rules: Rules, *, by: str, from_file: bool, now: datetime) -> StoredRule:
        """Replace what a scope says."""
        found = await self._connection.execute(
            statement("put_policy_rule"),
            {**_scope(scope), **_columns(rules), "from_file": from_file, "now": now, "by": by},
        )
        return _stored(found.one())

    async def delete_rules(self, scopes: Sequence[Scope]) -> None:
        """Nothing is said of these scopes any more."""
        await self._connection.execute(
            statement("delete_policy_rules"),
            {
                "user_names": [scope.user for scope in scopes],
                "projects": [scope.project for scope in scopes],
                "gpu_types": [scope.gpu_type for scope in scopes],
            },
        )

    async def lock_file(self) -> bytes | None:
        """The digest (32 bytes) of the policy file that was applied last; others that apply one wait."""
        found = await self._connection.execute(statement("lock_policy_file"))
        digest: bytes | None = found.scalar_one()
        return digest

    async def keep_file(self, digest: bytes) -> None:
        """Note which file was applied."""
        await self._connection.execute(statement("keep_policy_file"), {"digest": digest})

    async def lock_holders(self, user_ids: Sequence[int], projects: Sequence[str]) -> frozenset[int]:
        """Keep everybody else from deciding about quotas of these users and projects until the transaction ends.

        Users first, then projects, each in order: nobody waits in a circle. Nobody disables these users meanwhile;
        answers who of them is disabled already.
        """
        locked = await self._connection.execute(statement("lock_quota_users"), {"ids": sorted(set(user_ids))})
        disabled = frozenset(row.id for row in locked if row.disabled)
        if projects:
            await self._connection.execute(statement("lock_quota_projects"), {"names": sorted(set(projects))})
        return disabled

    async def usage(self, user_id: int, project: str | None, known_from: datetime, now: datetime) -> UsageView:
        """What a user and a project hold, have booked or have held, as far as it ends after `known_from`.

        What their jobs gave back a while ago is in one holding for each week and type: somewhere in that week, before
        `now`. Bookings are told each by itself.
        """
        who = {"user_id": user_id, "project": project}
        held = await self._connection.execute(
            statement("quota_holdings"), {**who, "known_from": known_from, "now": now}
        )
        bookings = await self._connection.execute(statement("quota_open_bookings"), who)
        return UsageView(
            tuple(_holding(row) if row.gpu_us is None else _summed(row, now) for row in held),
            tuple(OpenBooking(row.id, row.user_name, row.project, row.gpu_type, row.ends_at) for row in bookings),
        )

    async def names(self, user_ids: Sequence[int]) -> dict[int, str]:
        """The names of users."""
        found = await self._connection.execute(statement("names_of_users"), {"ids": list(user_ids)})
        return {row.id: row.name for row in found}

    async def drop_slots(self, becauses: Mapping[str, str], now: datetime) -> None:
        """Take back what these waiting jobs were promised, with a record that says why, once for each job."""
        await self._connection.execute(
            statement("drop_slots_over_quota"),
            {"ids": list(becauses), "becauses": list(becauses.values()), "now": now},
        )

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
        asked = {"now": now, "promised": promised}
        if user_ids is None:
            found = await self._connection.execute(statement("quota_open_of_all"), asked)
        else:
            of_these = {**asked, **_of_these(user_ids, projects)}
            found = await self._connection.execute(statement("quota_open_of_these"), of_these)
        return tuple(_holding(row) for row in found)

    async def open_reservations(self) -> list[OpenReservation]:
        """Jobs and bookings that are not over, by id, but for jobs within bookings."""
        found = await self._connection.execute(statement("open_reservations"))
        return [
            OpenReservation(
                row.id,
                ReservationKind(row.kind),
                row.user_name,
                row.project,
                row.gpus,
                row.gpu_type,
                row.starts_at,
                row.duration,
                row.priority,
            )
            for row in found
        ]

    async def held_now(self) -> dict[str, dict[str, int]]:
        """How many cards each user holds now by the database's clock, by type; not what waits or comes later."""
        held: dict[str, dict[str, int]] = {}
        for row in await self._connection.execute(statement("quota_held_now")):
            held.setdefault(row.user_name, {})[row.gpu_type] = row.gpus
        return held

    async def spent_by_all(
        self, since: datetime, now: datetime, user_ids: Sequence[int] | None = None, projects: Sequence[str] = ()
    ) -> tuple[Holding, ...]:
        """What everybody, or these, have given back since a week's beginning, as if it had been held evenly since then.

        Raises ValueError when `since` is no beginning of a week.
        """
        if since != week_start(since):
            raise ValueError(f"{since} is no beginning of a week")
        week = {"since": since, "now": now}
        if user_ids is None:
            found = await self._connection.execute(statement("quota_spent_of_all"), week)
        else:
            of_these = {**week, **_of_these(user_ids, projects)}
            found = await self._connection.execute(statement("quota_spent_of_these"), of_these)
        return tuple(
            spent(row.user_name, row.project, row.gpu_type, timedelta(microseconds=row.gpu_us), since, now)
            for row in found
        )


def _of_these(user_ids: Sequence[int], projects: Sequence[str]) -> dict[str, Any]:
    return {"user_ids": list(user_ids), "projects": list(projects)}


def _scope(scope: Scope) -> dict[str, str | None]:
    return {"user_name": scope.user, "project": scope.project, "gpu_type": scope.gpu_type}


def _columns(rules: Rules) -> dict[str, Any]:
    values = {name.value: getattr(rules, name.value) for name in RuleName}
    relaxed = rules.relaxed_if_starts_within
    return {
        **{name: None if value is UNLIMITED else value for name, value in values.items()},
        "lifted": sorted(name for name, value in values.items() if value is UNLIMITED),
        "booking_required": rules.booking_required,
        "relaxed": None
        if relaxed is None
        else json.dumps(
            [
                {"starts_within_s": relaxation.starts_within.total_seconds(), "lifts": sorted(relaxation.lifts)}
                for relaxation in relaxed
            ]
        ),
    }


def _stored(row: Row[Any]) -> StoredRule:
    values: dict[str, Any] = {
        name.value: UNLIMITED if name.value in row.lifted else getattr(row, name.value) for name in RuleName
    }
    relaxed = (
        None
        if row.relaxed is None
        else tuple(
            Relaxation(
                timedelta(seconds=relaxation["starts_within_s"]),
                frozenset(RuleName(name) for name in relaxation["lifts"]),
            )
            for relaxation in row.relaxed
        )
    )
    rules = Rules(**values, relaxed_if_starts_within=relaxed, booking_required=row.booking_required)
    scope = Scope(row.user_name, row.project, row.gpu_type)
    return StoredRule(PolicyRule(scope, rules), row.from_file, row.version, row.changed_at, row.changed_by)


def _holding(row: Row[Any]) -> Holding:
    return Holding(
        row.id,
        ReservationKind(row.kind),
        row.user_name,
        row.project,
        row.gpu_type,
        row.gpus,
        row.starts_at,
        row.ends_at,
        row.planned,
        row.made_at,
    )


def _summed(row: Row[Any], now: datetime) -> Holding:
    """Anywhere in its week, and before whatever is asked about: only what had ended by then is summed."""
    until = min(row.ends_at, now - SUMMED_AFTER)
    return spent(row.user_name, row.project, row.gpu_type, timedelta(microseconds=row.gpu_us), row.starts_at, until)
