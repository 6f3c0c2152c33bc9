"""Policy files, as the server takes them at its start: rules by scope in TOML."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpu_dev.errors import UsageError
from gpu_dev.inputs.requests import checked
from gpu_dev.wire.policy import RulesIn


def read_policy(path: str) -> dict[str, RulesIn]:
    """The rules of a file by scope, such as `user:ann,gpu_type:h100`. Raises UsageError."""
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text in UTF-8.") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}.") from error
    return {scope: _rules(fields, f"{path}: {scope}") for scope, fields in _scopes(content, path)}


def _rules(fields: Mapping[str, Any], where: str) -> RulesIn:
    from gpu_dev.server.checked_answers import contract_of

    try:
        checked(contract_of(RulesIn), fields, **{name: name for name in fields})
    except UsageError as error:
        raise UsageError(f"{where}: {error.detail}") from error
    return msgspec.convert(fields, RulesIn, strict=False)  # seconds may be numbers, as in the contract


def _scopes(content: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key, value in content.items():
        match key:
            case "default":
                yield key, _table(value, key, path)
            case "gpu_type":
                for name, fields in _table(value, key, path).items():
                    yield f"{key}:{name}", _table(fields, f"{key}.{name}", path)
            case "user" | "project":
                for name, fields in _table(value, key, path).items():
                    where = f"{key}.{name}"
                    own = dict(_table(fields, where, path))
                    types = _table(own.pop("gpu_type", {}), f"{where}.gpu_type", path)
                    if own:
                        yield f"{key}:{name}", own
                    for gpu_type, typed in types.items():
                        yield f"{key}:{name},gpu_type:{gpu_type}", _table(typed, f"{where}.gpu_type.{gpu_type}", path)
            case _:
                raise UsageError(f"{path}: {key} is unknown; there are default, user, project and gpu_type.")


def _table(value: Any, where: str, path: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{path}: {where} must be a table, such as [{where}].")
    return value
