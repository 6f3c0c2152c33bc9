"""Preview the effects of a policy change."""

import asyncio
from dataclasses import dataclass
from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.policy.effects import AffectedByPolicy, OpenReservation, affected_by
from reservation_core.domain.policy.limits import Policy, Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.policy.quota_windows import week_start
from reservation_core.domain.policy.rules import Holding
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.policy.policies import StoredRule
from reservation_core.usecases.policy.change_policy import set_rules
from reservation_core.usecases.rehearse import rehearse


@dataclass(frozen=True, slots=True)
class PolicyPreview:
    """The changed rule, and the jobs and bookings that would break it."""

    stored: StoredRule
    affected: tuple[AffectedByPolicy, ...]


@dataclass(frozen=True, slots=True)
class _Read:
    stored: StoredRule
    before: Policy
    after: Policy
    opened: list[OpenReservation]
    holdings: tuple[Holding, ...]


async def preview(
    uow_factory: UnitOfWorkFactory,
    principal: Principal,
    scope: Scope,
    rules: Rules,
    expected_version: int | None,
    now: datetime,
) -> PolicyPreview:
    """The effects of `change_policy.set_rules`, without the change. Raises what that raises."""

    async def act(uow: UnitOfWork) -> _Read:
        before = (await uow.policies.current()).policy
        stored = await set_rules(uow, principal, scope, rules, expected_version, now)
        after = (await uow.policies.current()).policy
        held = await uow.policies.held_by_all(now)
        spent = await uow.policies.spent_by_all(week_start(now), now)
        return _Read(stored, before, after, await uow.policies.open_reservations(), (*held, *spent))

    read = await rehearse(uow_factory, act)
    # In a thread, as it takes long with thousands of bookings.
    affected = await asyncio.to_thread(affected_by, read.before, read.after, read.opened, read.holdings, now)
    return PolicyPreview(read.stored, tuple(affected))
