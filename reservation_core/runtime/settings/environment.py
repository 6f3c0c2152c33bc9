"""Read settings from the environment. A variable that nothing reads is said, as a mistyped one would have no effect."""

import difflib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeVar

import pydantic
import pydantic_settings

from reservation_core.domain.complaints import complaint
from reservation_core.runtime.settings.components import CommonSettings
from reservation_core.runtime.settings.error import SettingsError

S = TypeVar("S", bound=CommonSettings)

PREFIX = "GPU_DEV_"
_SECTIONS_ELSEWHERE = frozenset({"WEBHOOK", "ADMISSION", "SCHEDULER"})
"""Settings of the packages above this one."""
ELSEWHERE = _SECTIONS_ELSEWHERE | frozenset(
    {
        # The command line, and where secrets are.
        "SERVER", "TOKEN", "SECRETS_DIR",
        # A job, when a server is started within one.
        "ARRAY_INDEX", "ARRAY_SIZE", "ATTEMPT", "DISK_FOLDER", "JOB_ID", "JOB_TOKEN", "NODE", "POD", "SECRET_FILES",
        "SYNC_FOLDER",
    }
)  # fmt: skip
"""Variables (without the prefix and their section's part) that no settings class of this package reads."""
_SHORTEST = 6
"""Letters of a name for which a name that is one slip away is that one, mistyped."""
# Kubernetes gives pods the addresses of their namespace's services; tests have variables of their own.
_OF_OTHERS = re.compile(
    r"TESTS_.*|TEST_(DATABASE_URL|REGISTRY)|(.*_)?SERVICE_(HOST|PORT(_.*)?)|(.*_)?PORT_\d+_(TCP|UDP|SCTP)(_.*)?"
)
_UNREAD = re.compile(r'error parsing value for field "(\w+)"')
_SERVICE_ADDRESS = re.compile(r"(.*_)?PORT=(tcp|udp|sctp)://.*", re.DOTALL)


def read_settings(settings_type: type[S], environ: Mapping[str, str] = os.environ) -> S:
    """The settings of a program. Raises SettingsError, with a line for each variable that can't be used."""
    mistyped = [
        f"{variable}: {_no_such(meant)}"
        for variable in unknown_variables(environ)
        if (meant := _meant(variable)) is not None
    ]
    try:
        settings = settings_type()
    except pydantic.ValidationError as error:
        raise SettingsError("\n".join([*mistyped, *_problems(settings_type, error)])) from error
    except pydantic_settings.SettingsError as error:
        # A value that is no JSON, or an unreadable source of settings, such as a file as GPU_DEV_SECRETS_DIR.
        unread = _UNREAD.search(str(error))
        fault = str(error) if unread is None else f'{PREFIX}{unread[1].upper()}: all of it must be JSON, as in ["a"]'
        raise SettingsError("\n".join([*mistyped, f"{fault}. Correct the environment and start again."])) from error
    if mistyped:
        raise SettingsError("\n".join(mistyped))
    return settings


def unknown_variables(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The variables with our prefix that no program reads."""
    names, sections = known_names(), _sections()
    return sorted(
        variable
        for variable, value in environ.items()
        if variable.upper().startswith(PREFIX)
        and _name(variable) not in (sections if "__" in variable else names)
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


def _sections() -> Collection[str]:
    """The settings that have parts, which follow their names and two underscores."""
    fields = {name: field for kind in _all_kinds(CommonSettings) for name, field in kind.model_fields.items()}
    return _SECTIONS_ELSEWHERE | {
        name.upper()
        for name, field in fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, pydantic.BaseModel)
    }


def _meant(variable: str) -> str | None:
    """The variable that was meant, but for one slip of typing. A short name, or a plural, is a word of its own, unless
    a section's part follows it."""
    name, separator, rest = variable.upper().removeprefix(PREFIX).partition("__")
    if separator:
        near = set(_sections())
    else:
        near = {one for one in known_names() if len(one) >= _SHORTEST and f"{one}S" != name and f"{name}S" != one}
    meant = min((one for one in near if name.count("_") == one.count("_") and _slip(name, one)), default=None)
    return None if meant is None else f"{PREFIX}{meant}{separator}{rest}"


def _slip(one: str, other: str) -> bool:
    """Whether the names differ by a letter too many, too few or wrong, or by two that changed places."""
    while one and one[:1] == other[:1]:
        one, other = one[1:], other[1:]
    swapped = one[:2] == other[1::-1] and one[2:] == other[2:]
    return swapped or one[1:] in (other, other[1:]) or one == other[1:]


def _name(variable: str) -> str:
    return variable.upper().removeprefix(PREFIX).partition("__")[0]


def _problems(settings_type: type[CommonSettings], error: pydantic.ValidationError) -> Iterator[str]:
    for problem in error.errors(include_url=False, include_input=False):
        # A number is the place in a list, which is one variable.
        *sections, name = parts = [part.upper() for part in problem["loc"] if isinstance(part, str)] or [""]
        text = complaint(problem)
        text = f"It {text}." if text.startswith(("must ", "is ")) else text
        if problem["type"] == "extra_forbidden":
            known = _names_in(settings_type, sections)
            near = difflib.get_close_matches(name, known, n=1)
            text = _no_such("__".join((PREFIX + sections[0], *sections[1:], *near)) if near and sections else None)
        yield f"{PREFIX}{'__'.join(parts)}: {text}"


def _names_in(settings_type: type[pydantic.BaseModel], sections: Sequence[str]) -> list[str]:
    """The names in a section of the settings."""
    model = settings_type
    for section in sections:
        field = model.model_fields.get(section.lower())
        narrower = None if field is None else field.annotation
        if not (isinstance(narrower, type) and issubclass(narrower, pydantic.BaseModel)):
            return []
        model = narrower
    return [name.upper() for name in model.model_fields]


def _no_such(meant: str | None) -> str:
    if meant is None:
        return "There is no such setting; correct its name, or remove it."
    return f"There is no such setting. Did you mean {meant}? Correct its name, or remove it."
