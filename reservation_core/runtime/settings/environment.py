"""Read settings from the environment. A variable that nothing reads is said, as a mistyped one would have no effect."""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

import pydantic
import pydantic_settings

from reservation_core.runtime.settings.components import CommonSettings
from reservation_core.runtime.settings.error import SettingsError

S = TypeVar("S", bound=CommonSettings)

PREFIX = "GPU_DEV_"
ELSEWHERE = frozenset(
    {
        # The command line, and where secrets are.
        "SERVER", "TOKEN", "SECRETS_DIR",
        # A job, when a server is started within one.
        "ARRAY_INDEX", "ARRAY_SIZE", "ATTEMPT", "DISK_FOLDER", "JOB_ID", "JOB_TOKEN", "NODE", "POD", "SECRET_FILES",
        "SYNC_FOLDER",
        # Settings of the packages above this one.
        "WEBHOOK", "ADMISSION", "SCHEDULER",
    }
)  # fmt: skip
"""Variables (without the prefix and their section's part) that no settings class of this package reads."""
_SHORTEST = 6
"""Letters of a name for which a name that is one slip away is that one, mistyped."""
# Kubernetes gives pods the addresses of their namespace's services; tests have variables of their own.
_OF_OTHERS = re.compile(
    r"TESTS_.*|TEST_(DATABASE_URL|REGISTRY)|(.*_)?SERVICE_(HOST|PORT(_.*)?)|(.*_)?PORT_\d+_(TCP|UDP|SCTP)(_.*)?"
)
_SERVICE_ADDRESS = re.compile(r"(.*_)?PORT=(tcp|udp|sctp)://.*", re.DOTALL)


def read_settings(settings_type: type[S], environ: Mapping[str, str] = os.environ) -> S:
    """The settings of a program. Raises SettingsError, with a line for each variable that can't be used."""
    try:
        settings = settings_type()
    except pydantic.ValidationError as error:
        raise SettingsError("\n".join(_problems(error))) from error
    except pydantic_settings.SettingsError as error:
        # An unreadable source of settings, such as a file as GPU_DEV_SECRETS_DIR.
        raise SettingsError(f"{error}. Correct the environment and start again.") from error
    names = known_names()
    mistyped = [
        f"{variable}: There is no such setting. Did you mean {PREFIX}{meant}? Correct its name, or remove it."
        for variable in unknown_variables(environ)
        if (meant := _meant(_name(variable), names)) is not None
    ]
    if mistyped:
        raise SettingsError("\n".join(mistyped))
    return settings


def unknown_variables(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The variables with our prefix that no program reads."""
    names = known_names()
    return sorted(
        variable
        for variable, value in environ.items()
        if variable.upper().startswith(PREFIX)
        and _name(variable) not in names
        and not _is_of_others(variable.upper().removeprefix(PREFIX), value)
    )


def known_names() -> Collection[str]:
    """The names of all programs' settings, without the prefix and without what follows a section's name."""
    own = {field.upper() for kind in _all_kinds(CommonSettings) for field in kind.model_fields}
    return own | ELSEWHERE


def _all_kinds(kind: type[CommonSettings]) -> Iterator[type[CommonSettings]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _all_kinds(narrower)


def _is_of_others(name: str, value: str) -> bool:
    return bool(_OF_OTHERS.fullmatch(name) or _SERVICE_ADDRESS.fullmatch(f"{name}={value}"))


def _meant(name: str, names: Collection[str]) -> str | None:
    """The setting that `name` is but for one slip of typing. A plural is a word of its own."""
    near = (known for known in names if len(known) >= _SHORTEST and name.count("_") == known.count("_"))
    return min(
        (known for known in near if f"{known}S" != name and f"{name}S" != known and _slip(name, known)), default=None
    )


def _slip(one: str, other: str) -> bool:
    """Whether the names differ by a letter too many, too few or wrong, or by two that changed places."""
    while one and one[:1] == other[:1]:
        one, other = one[1:], other[1:]
    swapped = one[:2] == other[1::-1] and one[2:] == other[2:]
    return swapped or one[1:] in (other, other[1:]) or one == other[1:]


def _name(variable: str) -> str:
    return variable.upper().removeprefix(PREFIX).partition("__")[0]


def _problems(error: pydantic.ValidationError) -> Iterator[str]:
    for problem in error.errors(include_url=False, include_input=False):
        variable = PREFIX + "__".join(str(part) for part in problem["loc"]).upper()
        unknown = problem["type"] == "extra_forbidden"
        text = "There is no such setting; correct its name, or remove it." if unknown else problem["msg"]
        yield f"{variable}: {text}"
