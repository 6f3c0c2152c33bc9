"""The policy file: rules by scope in TOML, applied at the start when its content has changed.

    [default]
    max_gpus = 8

    [gpu_type.h100]
    max_gpus = 4

    [user."ann@lab.org"]
    max_duration = "unlimited"

    [user."ann@lab.org".gpu_type.h100]
    max_gpus = 6

`[project.NAME]` is like `[user.NAME]`. The fields are those of `PUT /v1/policy/SCOPE` (contracts_policy.RulesIn).
"""

import hashlib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pydantic
import structlog
from pydantic import TypeAdapter

from reservation_core.contracts.base import GpuTypeName, ProjectName, UserName
from reservation_core.contracts.policy import RulesIn
from reservation_core.domain.complaints import complaint
from reservation_core.domain.policy.limits import PolicyRule
from reservation_core.domain.policy.nouns import Scope
from reservation_core.runtime.settings.error import SettingsError
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.policy.change_policy import ORDER_ELSEWHERE, apply_file

_LARGEST = 2**20
_KINDS: Mapping[str, TypeAdapter[str]] = {
    "user": TypeAdapter(UserName),
    "project": TypeAdapter(ProjectName),
    "gpu_type": TypeAdapter(GpuTypeName),
}
_log = structlog.get_logger(__name__)


async def take_over(runtime: Runtime, path: Path | None) -> None:
    """Apply the policy file, if any, unless it was the last applied one.

    Raises SettingsError, which names the faulty key.
    """
    if path is None:
        return
    raw, rules = read_policy_file(path)
    async with runtime.uow() as uow:
        changed = await apply_file(uow, rules, hashlib.sha256(raw).digest(), runtime.clock.now())
    if changed is not None:
        _log.info("applied the policy file", file=str(path), scopes_changed=changed)


def read_policy_file(path: Path) -> tuple[bytes, list[PolicyRule]]:
    """The content of a file, and its rules. Raises SettingsError, which names the faulty key."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SettingsError(
            f"GPU_DEV_POLICY_FILE: {path} can't be read: {error.strerror}. Correct the path."
        ) from error
    if len(raw) > _LARGEST:
        raise SettingsError(f"GPU_DEV_POLICY_FILE: {path} is larger than {_LARGEST} bytes.")
    return raw, parse(raw, str(path))


def parse(raw: bytes, source: str) -> list[PolicyRule]:
    """Parse a file's content. Raises SettingsError; `source` names the file in its text."""
    try:
        content = tomllib.loads(raw.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{source}: not TOML: {error}.") from error
    try:
        return list(_rules(content))
    except _NoPolicyError as error:
        raise SettingsError(f"{source}: {error}") from error


class _NoPolicyError(Exception):
    """An invalid policy; the text names the key."""


def _rules(content: Mapping[str, Any]) -> Iterator[PolicyRule]:
    for key, value in content.items():
        match key:
            case "default":
                yield _rule(Scope(), _table(value, key), key)
            case "gpu_type":
                yield from _typed(Scope(), _table(value, key), key)
            case "user" | "project":
                for name, table in _table(value, key).items():
                    scope = Scope(**{key: _name(key, name)})
                    fields = dict(_table(table, f"{key}.{name}"))
                    types = fields.pop("gpu_type", {})
                    where = f"{key}.{name}"
                    if fields:
                        yield _rule(scope, fields, where)
                    yield from _typed(scope, _table(types, f"{where}.gpu_type"), f"{where}.gpu_type")
            case _:
                raise _NoPolicyError(f"{key}: unknown; there are default, user, project and gpu_type.")


def _typed(owner: Scope, types: Mapping[str, Any], where: str) -> Iterator[PolicyRule]:
    for name, fields in types.items():
        scope = Scope(owner.user, owner.project, _name("gpu_type", name))
        yield _rule(scope, _table(fields, f"{where}.{name}"), f"{where}.{name}")


def _rule(scope: Scope, fields: Mapping[str, Any], where: str) -> PolicyRule:
    try:
        rules = RulesIn.model_validate(fields).rules()
    except pydantic.ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        key = ".".join([where, *(str(part) for part in problem["loc"][:1])])
        if problem["type"] == "extra_forbidden":
            known = ", ".join(RulesIn.model_fields)
            raise _NoPolicyError(f"{key}: unknown; the fields are {known}.") from error
        raise _NoPolicyError(f"{key}: {complaint(problem)}.") from error
    if rules.order is not None and not scope.has_order:
        raise _NoPolicyError(f"{where}.order: {ORDER_ELSEWHERE}")
    return PolicyRule(scope, rules)


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _NoPolicyError(f"{where}: must be a table, such as [{where}].")
    return value


def _name(kind: str, name: str) -> str:
    try:
        return _KINDS[kind].validate_python(name)
    except pydantic.ValidationError as error:
        raise _NoPolicyError(f"{kind}.{name}: no {kind} can have this name.") from error
