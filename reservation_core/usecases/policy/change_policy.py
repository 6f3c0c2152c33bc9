"""The policy: administrators change it, users see the rules that concern them; the audit log has every change."""

from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.errors import ForbiddenError, MisplacedRuleError, NotFoundError, StaleVersionError
from reservation_core.domain.event_kinds import SystemEventKind
from reservation_core.domain.gpu_use.idle_rules import IdleRule
from reservation_core.domain.policy.limits import PolicyRule, Rules, Unlimited
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.policy.prices import Money
from reservation_core.domain.similar_names import MOST_COMPARED, did_you_mean, similar
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.policy.policies import StoredRule
from reservation_core.usecases.people.users import require_admin, user_to_add

ORDER_ELSEWHERE = "set it for default or for a project; a user or a GPU type has no order of its own."

FILE = "policy file"

_ALIKE = 0.95  # gpu_type:h10 is like gpu_type:h100, and gpu_type:v100 is not


async def visible(uow: UnitOfWork, principal: Principal, *, mine: bool = False) -> list[StoredRule]:
    """The rules that apply to the caller, the least specific first; for administrators all, unless `mine`."""
    stored = await uow.policies.rules()
    if principal.is_admin and not mine:
        return stored
    projects = {None, *await uow.projects.of_user(principal.user_id)}
    return [
        rule
        for rule in stored
        if rule.rule.scope.user in (None, principal.user) and rule.rule.scope.project in projects
    ]


async def find(uow: UnitOfWork, principal: Principal, scope: Scope) -> StoredRule:
    """The rules of a scope. Raises NotFoundError, also for rules about other users."""
    for rule in await visible(uow, principal):
        if rule.rule.scope == scope:
            return rule
    if not principal.is_admin:
        raise NotFoundError(f"You see no rules for {scope}. `gpu-dev policy list` shows the rules for you.")
    raise await _unknown(uow, scope)


async def set_rules(
    uow: UnitOfWork, principal: Principal, scope: Scope, rules: Rules, expected_version: int | None, now: datetime
) -> StoredRule:
    """Replace the rules of a scope.

    Raises ForbiddenError, StaleVersionError, MisplacedRuleError, NotFoundError for its user or project.
    """
    require_admin(principal)
    if rules.is_empty:
        raise ForbiddenError("These rules are empty. Set a field, or delete the scope's rules.")
    if rules.order is not None and not scope.has_order:
        raise MisplacedRuleError(f"order: {ORDER_ELSEWHERE}")
    await _require_owner(uow, scope)
    before = await uow.policies.lock_rule(scope)
    _check_version(before, expected_version, scope)
    stored = await uow.policies.replace_rule(scope, rules, by=principal.user, from_file=False, now=now)
    await _record(uow, principal.user, scope, None if before is None else before.rule.rules, rules, now)
    return stored


async def delete(
    uow: UnitOfWork, principal: Principal, scope: Scope, expected_version: int | None, now: datetime
) -> StoredRule:
    """Delete all rules of a scope. Raises ForbiddenError, NotFoundError, StaleVersionError."""
    require_admin(principal)
    before = await uow.policies.lock_rule(scope)
    if before is None:
        raise await _unknown(uow, scope)
    _check_version(before, expected_version, scope)
    await uow.policies.delete_rules([scope])
    await _record(uow, principal.user, scope, before.rule.rules, None, now)
    return before


async def apply_file(uow: UnitOfWork, rules: Iterable[PolicyRule], digest: bytes, now: datetime) -> int | None:
    """Apply a policy file unless it is the last one; returns the number of changed scopes.

    Scopes of an earlier file that this one lacks are deleted; rules of administrators for other scopes stay. None: this
    file was the last one, and later changes stay.
    """
    if await uow.policies.lock_file() == digest:
        return None
    before = {stored.rule.scope: stored for stored in await uow.policies.rules()}
    wanted = {rule.scope: rule.rules for rule in rules if not rule.rules.is_empty}
    gone = [scope for scope, stored in before.items() if stored.from_file and scope not in wanted]
    changed = 0
    if gone:
        await uow.policies.delete_rules(gone)
        for scope in gone:
            await _record(uow, FILE, scope, before[scope].rule.rules, None, now)
            changed += 1
    for scope, new in wanted.items():
        old = before.get(scope)
        if old is not None and old.rule.rules == new and old.from_file:
            continue
        await uow.policies.replace_rule(scope, new, by=FILE, from_file=True, now=now)
        if old is None or old.rule.rules != new:
            await _record(uow, FILE, scope, None if old is None else old.rule.rules, new, now)
            changed += 1
    await uow.policies.store_file_digest(digest)
    return changed


async def forget_project(uow: UnitOfWork, actor: str, project: str, now: datetime) -> None:
    """Delete the rules of a deleted project."""
    rules = [rule for rule in await uow.policies.rules() if rule.rule.scope.project == project]
    if rules:
        await uow.policies.delete_rules([rule.rule.scope for rule in rules])
        for rule in rules:
            await _record(uow, actor, rule.rule.scope, rule.rule.rules, None, now)


async def _record(
    uow: UnitOfWork, actor: str, scope: Scope, before: Rules | None, after: Rules | None, now: datetime
) -> None:
    await uow.events.append(
        actor=actor,
        kind=SystemEventKind.POLICY_CHANGED,
        at=now,
        subject=f"policy:{scope}",
        data={"before": _described(before), "after": _described(after)},
    )


def _described(rules: Rules | None) -> dict[str, Any] | None:
    if rules is None:
        return None
    described: dict[str, Any] = {}
    for field in fields(rules):
        value = getattr(rules, field.name)
        match value:
            case None:
                continue
            case Unlimited():
                described[field.name] = value.value
            case timedelta():
                described[field.name] = value.total_seconds()
            case Money() | IdleRule():
                described[field.name] = str(value)
            case tuple():
                described[field.name] = [
                    {"within": relaxation.starts_within.total_seconds(), "lifts": sorted(relaxation.lifts)}
                    for relaxation in value
                ]
            case _:
                described[field.name] = value
    return described


def _check_version(stored: StoredRule | None, expected: int | None, scope: Scope) -> None:
    version = 0 if stored is None else stored.version
    if expected is not None and expected != version:
        raise StaleVersionError(
            f"The rules for {scope} have changed: they are at version {version}, not {expected}. "
            "Read them again, then repeat the change."
        )


async def _require_owner(uow: UnitOfWork, scope: Scope) -> None:
    """Raises NotFoundError for a scope of a user or project that is not there."""
    if scope.user is not None and await uow.identities.user(scope.user) is None:
        raise await user_to_add(uow, scope.user)
    if scope.project is not None and await uow.projects.get(scope.project) is None:
        known = await uow.projects.page(None, after=None, limit=MOST_COMPARED)
        meant = did_you_mean(scope.project, [project.name for project in known])
        raise NotFoundError(
            f"There is no project {scope.project!r}.{meant} `gpu-dev projects create {scope.project}` creates it."
        )


async def _unknown(uow: UnitOfWork, scope: Scope) -> NotFoundError:
    """The refusal of a scope without rules. Raises NotFoundError for one of a user or project that is not there."""
    await _require_owner(uow, scope)
    near = similar(str(scope), [str(stored.rule.scope) for stored in await uow.policies.rules()], _ALIKE)
    meant = "" if near is None else f" Did you mean {near}?"
    others = "" if str(scope) == "default" else " alone; those of less specific scopes hold"
    return NotFoundError(f"There are no rules for {scope}{others}.{meant} `gpu-dev policy list` shows all rules.")
