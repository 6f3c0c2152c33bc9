"""The policy and the usage that counts against its quotas, in PostgreSQL."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row

from reservation_core.adapters.postgres.connection import direct
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.gpu_use.idle_rules import IdleRule, IdleThen
from reservation_core.domain.policy.effects import OpenReservation
from reservation_core.domain.policy.limits import UNLIMITED, Policy, PolicyRule, Relaxation, Rules
from reservation_core.domain.policy.nouns import QueueOrder, RuleName, Scope
from reservation_core.domain.policy.prices import Money
from reservation_core.domain.policy.quota_rulings import spent
from reservation_core.domain.policy.quota_windows import week_start
from reservation_core.domain.policy.rules import Holding, OpenBooking, UsageView
from reservation_core.domain.policy.usage import SUMMED_AFTER
from reservation_core.domain.statuses import ReservationKind
from reservation_core.ports.policy.policies import CurrentPolicy, StoredRule


class Policies(StatementRunner):
    """Rules by scope, and the reads that decisions about them need."""

    async def revision(self) -> int:
        """The number of the last change of rules or project members."""
        # Read directly: the planner reads it in every cycle.
        [row] = await direct.fetch(self._connection, "policy_revision", {})
        return int(row["revision"])

    async def current(self) -> CurrentPolicy:
        """Every rule. After a change between the two reads, the revision is stale, but never the rules."""
        revision = await self.revision()
        return CurrentPolicy(Policy(stored.rule for stored in await self.rules()), revision)

    async def rules(self) -> list[StoredRule]:
        """Every stored rule, the least specific first."""
        rules = [_stored(row) for row in await self._run("policy_rules")]
        return sorted(rules, key=lambda stored: (stored.rule.scope.specificity, str(stored.rule.scope)))

    async def lock_rule(self, scope: Scope) -> StoredRule | None:
        """Lock one scope's rules until the transaction ends, and read them."""
        return await self._first(_stored, "lock_policy_rule", **_scope(scope))

    async def replace_rule(self, scope: Scope, rules: Rules, *, by: str, from_file: bool, now: datetime) -> StoredRule:
        """Replace the rules of a scope."""
        result = await self._run(
            "put_policy_rule", **_scope(scope), **_columns(rules), from_file=from_file, now=now, by=by
        )
        return _stored(result.one())

    async def delete_rules(self, scopes: Sequence[Scope]) -> None:
        await self._run(
            "delete_policy_rules",
            user_names=[scope.user for scope in scopes],
            projects=[scope.project for scope in scopes],
            gpu_types=[scope.gpu_type for scope in scopes],
        )

    async def lock_file(self) -> bytes | None:
        """Lock the digest (32 bytes) of the last applied policy file until the transaction ends, and read it."""
        digest: bytes | None = (await self._run("lock_policy_file")).scalar_one()
        return digest

    async def store_file_digest(self, digest: bytes) -> None:
        """Store the digest of the applied policy file."""
        await self._run("keep_policy_file", digest=digest)

    async def lock_holders(self, user_ids: Sequence[int], projects: Sequence[str]) -> frozenset[int]:
        """Lock users and projects for quota decisions until the transaction ends; returns the disabled users.

        Users first, then projects, each in order, to avoid deadlocks. The locks also keep users from being disabled.
        """
        locked = await self._run("lock_quota_users", ids=sorted(set(user_ids)))
        disabled = frozenset(row.id for row in locked if row.disabled)
        if projects:
            await self._run("lock_quota_projects", names=sorted(set(projects)))
        return disabled

    async def usage(self, user_id: int, project: str | None, known_from: datetime, now: datetime) -> UsageView:
        """Present, booked and past holdings of a user and a project that end after `known_from`, and open bookings.

        Old holdings of jobs are summed up to one per week and type, somewhere in that week and before `now`.
        """
        holders = {"user_id": user_id, "project": project}
        # Read at once: thousands of rows one by one take three times as long.
        held = (await self._run("quota_holdings", **holders, known_from=known_from, now=now)).all()
        bookings = (await self._run("quota_open_bookings", **holders)).all()
        return UsageView(
            tuple(_holding(row) if row.gpu_us is None else _summed(row, now) for row in held),
            tuple(OpenBooking(row.id, row.user_name, row.project, row.gpu_type, row.ends_at) for row in bookings),
        )

    async def names(self, user_ids: Sequence[int]) -> dict[int, str]:
        return {row.id: row.name for row in await self._run("names_of_users", ids=list(user_ids))}

    async def drop_slots(self, becauses: Mapping[str, str], now: datetime) -> None:
        """Drop the slots of these waiting jobs, with an event that says why, once per job."""
        await self._run("drop_slots_over_quota", ids=list(becauses), becauses=list(becauses.values()), now=now)

    async def held_by_all(
        self,
        now: datetime,
        user_ids: Sequence[int] | None = None,
        projects: Sequence[str] = (),
        *,
        promised: bool = False,
    ) -> tuple[Holding, ...]:
        """Present and future holdings of all users, or of these users and projects.

        `promised` includes the slots of waiting jobs.
        """
        values: dict[str, Any] = {"now": now, "promised": promised}
        if user_ids is None:
            rows = await self._run("quota_open_of_all", **values)
        else:
            values |= {"user_ids": list(user_ids), "projects": list(projects)}
            rows = await self._run("quota_open_of_these", **values)
        return tuple(_holding(row) for row in rows)

    async def open_reservations(self) -> list[OpenReservation]:
        """Open jobs and bookings by id, without jobs within bookings."""
        rows = await self._run("open_reservations")
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
            for row in rows
        ]

    async def held_now(self) -> dict[str, dict[str, int]]:
        """The GPUs that users hold now by the database's clock, by user and type."""
        held: dict[str, dict[str, int]] = {}
        for row in await self._run("quota_held_now"):
            held.setdefault(row.user_name, {})[row.gpu_type] = row.gpus
        return held

    async def spent_by_all(
        self, since: datetime, now: datetime, user_ids: Sequence[int] | None = None, projects: Sequence[str] = ()
    ) -> tuple[Holding, ...]:
        """Past holdings since the start of a week, of all or of these, as if held evenly since then.

        Raises ValueError when `since` is not the start of a week.
        """
        if since != week_start(since):
            raise ValueError(f"{since} is no beginning of a week")
        values: dict[str, Any] = {"since": since, "now": now}
        if user_ids is None:
            rows = await self._run("quota_spent_of_all", **values)
        else:
            values |= {"user_ids": list(user_ids), "projects": list(projects)}
            rows = await self._run("quota_spent_of_these", **values)
        return tuple(
            spent(row.user_name, row.project, row.gpu_type, timedelta(microseconds=row.gpu_us), since, now)
            for row in rows
        )


def _scope(scope: Scope) -> dict[str, str | None]:
    return {"user_name": scope.user, "project": scope.project, "gpu_type": scope.gpu_type}


def _columns(rules: Rules) -> dict[str, Any]:
    values = {name.value: getattr(rules, name.value) for name in RuleName}
    relaxed = rules.relaxed_if_starts_within
    idle = rules.idle if isinstance(rules.idle, IdleRule) else None
    return {
        **{name: None if value is UNLIMITED else value for name, value in values.items() if name != RuleName.IDLE},
        "cost_per_gpu_hour": None if rules.cost_per_gpu_hour is None else str(rules.cost_per_gpu_hour),
        "lifted": sorted(name for name, value in values.items() if value is UNLIMITED),
        "idle_below": None if idle is None else idle.below,
        "idle_window": None if idle is None else idle.window,
        "idle_grace": None if idle is None else idle.grace,
        "idle_then": None if idle is None else idle.then.value,
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
        name.value: UNLIMITED if name.value in row.lifted else getattr(row, name.value)
        for name in RuleName
        if name is not RuleName.IDLE
    }
    values["idle"] = UNLIMITED if RuleName.IDLE in row.lifted else _idle(row)
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
    price = row.cost_per_gpu_hour
    values["cost_per_gpu_hour"] = None if price is None else Money.parse(price)
    values["order"] = None if row.order is None else QueueOrder(row.order)
    rules = Rules(**values, relaxed_if_starts_within=relaxed, booking_required=row.booking_required)
    scope = Scope(row.user_name, row.project, row.gpu_type)
    return StoredRule(PolicyRule(scope, rules), row.from_file, row.version, row.changed_at, row.changed_by)


def _idle(row: Row[Any]) -> IdleRule | None:
    if row.idle_then is None:
        return None
    return IdleRule(row.idle_below, row.idle_window, row.idle_grace, IdleThen(row.idle_then))


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
    """A weekly sum as a holding in its week, before the times in question: sums are made of old holdings only."""
    until = min(row.ends_at, now - SUMMED_AFTER)
    return spent(row.user_name, row.project, row.gpu_type, timedelta(microseconds=row.gpu_us), row.starts_at, until)
