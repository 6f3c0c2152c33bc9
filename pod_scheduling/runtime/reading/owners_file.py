"""The owners file: whose pods are whose, as administrators say it. YAML, or TOML where its name ends so.

    users:                       # whole names of requesters
      system:serviceaccount:ci:runner: ann
    prefixes: ["oidc:"]          # taken off before a name is a user's
    namespaces:                  # for whom controllers make pods there
      vision-lab: ann

It is read again when it changes. A new one that can't be used changes nothing: the one before is gone by.
"""

import asyncio
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import structlog
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pod_scheduling.domain.enforcement.pod_owners import OwnerRules
from reservation_core.runtime.settings.error import SettingsError

_LARGEST = 2**20
_log = structlog.get_logger(__name__)

_User = Annotated[str, Field(strict=True, pattern=r"^[!-~]{1,254}$")]
_Requester = Annotated[str, Field(strict=True, min_length=1, max_length=1024)]
_Namespace = Annotated[str, Field(strict=True, pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]


class _Owners(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    users: Annotated[dict[_Requester, _User], Field(max_length=10_000)] = {}
    prefixes: Annotated[tuple[_Requester, ...], Field(max_length=100)] = ()
    namespaces: Annotated[dict[_Namespace, _User], Field(max_length=10_000)] = {}


class BadOwnersError(ValueError):
    """The file can't be used; the text says what is wrong."""


class OwnersFile:
    """The rules of the moment. `told` is called at each change with whether the file, as it is, is in use."""

    def __init__(self, path: Path, told: Callable[[bool], None]) -> None:
        self._path = path
        self._told = told
        self._seen: bytes | str | None = None
        self._rules = OwnerRules()

    def load(self) -> None:
        """Read the file at the start. Raises SettingsError."""
        try:
            content = self._content()
            self._rules = read_owners(content, toml=self._path.suffix == ".toml")
        except BadOwnersError as problem:
            raise SettingsError(f"GPU_DEV_WEBHOOK__OWNERS_FILE: {self._path}: {problem}") from problem
        self._seen = content
        self._told(True)

    def rules(self) -> OwnerRules:
        """Rules that give pods their owners."""
        return self._rules

    async def watch(self, every_s: float) -> None:
        """Check the file for changes repeatedly."""
        while True:
            await asyncio.sleep(every_s)
            self.reload()

    def reload(self) -> None:
        """Take over a changed file."""
        seen: bytes | str | None = None
        try:
            seen = content = self._content()
            if content == self._seen:
                return
            self._rules = read_owners(content, toml=self._path.suffix == ".toml")
        except BadOwnersError as problem:
            seen = str(problem) if seen is None else seen
            if seen != self._seen:  # said once for each thing that is wrong
                self._seen = seen
                self._told(False)
                _log.warning("owners_file_unusable", file=str(self._path), problem=str(problem), using="the one before")
            return
        self._seen = content
        self._told(True)
        _log.info("owners_file_taken", file=str(self._path))

    def _content(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                content = file.read(_LARGEST + 1)
        except OSError as error:
            raise BadOwnersError(f"can't be read: {error.strerror}") from error
        if len(content) > _LARGEST:
            raise BadOwnersError(f"has more than {_LARGEST} bytes")
        return content


def read_owners(content: bytes, *, toml: bool) -> OwnerRules:
    """The rules that a file's content says. Raises BadOwnersError."""
    try:
        text = content.decode("utf-8")
        found: Any = tomllib.loads(text) if toml else yaml.load(text, _NoDoubles)  # noqa: S506 - a SafeLoader
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, yaml.YAMLError, RecursionError) as error:
        raise BadOwnersError(f"not {'TOML' if toml else 'YAML'}: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise BadOwnersError("must hold users, prefixes or namespaces; an empty file would let nobody's pods by")
    try:
        owners = _Owners.model_validate(found)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise BadOwnersError(f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}") from error
    return OwnerRules(owners.users, owners.prefixes, owners.namespaces)


class _NoDoubles(yaml.SafeLoader):
    """A key that stands twice is an error, not a choice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping, if each key stands once."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value} stands twice", key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)
