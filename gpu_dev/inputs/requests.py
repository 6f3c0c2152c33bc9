"""Requests from typed options: the contract's checks are made here already, and become usage errors."""

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from gpu_dev.errors import UsageError
from gpu_dev.inputs.durations import parse_duration
from gpu_dev.wire import CHECKED_HERE
from gpu_dev.wire.bookings import BookingChange
from gpu_dev.wire.jobs import JobSubmit
from reservation_core.domain.jobs.variables import fault_of_variable
from reservation_core.domain.short_durations import LONGEST_DURATION

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

B = TypeVar("B", bound="BaseModel")
S = TypeVar("S", bound=Struct)
_PLAIN = frozenset({
    "name", "role", "gpus", "gpu_type", "nodes", "duration", "priority", "project", "booking_id", "workload",
    "start", "end", "time_zone", "title", "wait", "instead_of", "recurrence",
})  # fmt: skip
_PLAIN_CHANGES = frozenset({"title", "start", "end", "duration", "time_zone", "node"})
"""The same of a booking's change, with `_is_change`."""
_OPTIONS = {
    "duration": "--for",
    "gpu_type": "--type",
    "gpus": "--gpus",
    "nodes": "--nodes",
    "name": "--name",
    "priority": "--priority",
    "booking_id": "--booking",
    "project": "--project",
    "inactivity": "--inactivity",
    "workload.image": "--image",
    "workload.env": "--env",
    "workload.working_dir": "--working-dir",
    "workload.command": "the command",
}


def make_request(model: type[S], fields: Mapping[str, Any], **said_by: str) -> S:
    """A request from its fields; what is not plainly right its contract checks. Raises UsageError, as `checked`."""
    if (plain := _plain(model, fields)) is not None:
        return plain
    from gpu_dev.server.checked_answers import contract_of

    return msgspec.convert(checked(contract_of(model), fields, **said_by).model_dump(exclude_unset=True), model)


def checked(model: type[B], fields: Mapping[str, Any], **said_by: str) -> B:
    """A contract's request from its fields. Raises UsageError that names each option that is wrong.

    `said_by` are names of arguments for fields that no option sets.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise UsageError(_complaints(error, _OPTIONS | said_by)) from error


def _plain(model: type[S], fields: Mapping[str, Any]) -> S | None:
    """A request that its contract would accept; None where only the contract can tell."""
    known, consistent = (_PLAIN_CHANGES, _is_change) if model is BookingChange else (_PLAIN, _go_together)
    if model.__name__ not in CHECKED_HERE or not fields.keys() <= known.intersection(model.__struct_fields__):
        return None
    try:
        made = msgspec.convert(fields, model)
    except msgspec.ValidationError:
        return None
    said = {name: getattr(made, name) for name in fields}
    return made if all(map(_is_plain, said.values())) and consistent(said) else None


def _go_together(said: Mapping[str, Any]) -> bool:
    """Whether the fields of a job or of a slot are consistent."""
    if "start" not in said:
        slot_only = said.keys() & {"end", "time_zone", "wait", "recurrence"}
        return ("duration" in said or "gpus" not in said) and not slot_only
    if ("end" in said) == ("duration" in said) or "instead_of" in said:
        return False
    from reservation_core.domain.bookings.asked_slots import slot_faults

    times = said["start"], said.get("end"), said.get("duration"), said.get("time_zone")
    return not slot_faults(*times) and ("recurrence" not in said or _is_series(said, times))


def _is_series(said: Mapping[str, Any], times: tuple[str, str | None, timedelta | None, str | None]) -> bool:
    from reservation_core.domain.bookings.recurrences import RecurrenceError, asked_dates

    asked = said["recurrence"]
    try:
        return "wait" not in said and bool(asked_dates(asked if isinstance(asked, str) else asked.rrule, *times))
    except RecurrenceError:
        return False


def _is_change(said: Mapping[str, Any]) -> bool:
    """Whether the fields are a change of a booking."""
    if not said.keys() - {"time_zone"} or {"end", "duration"} <= said.keys():
        return False
    from reservation_core.domain.bookings.asked_slots import time_faults

    return not time_faults(said.get("time_zone"), said.get("duration"), start=said.get("start"), end=said.get("end"))


def _is_plain(value: Any) -> bool:
    match value:
        case Struct():
            return all(_is_plain(getattr(value, field)) for field in value.__struct_fields__)
        case str():
            return value.isprintable()
        case list():  # a command, whose first word names a program
            return all(map(_is_plain, value)) and value[:1] != [""]
        case dict():  # variables
            return all(fault_of_variable(name) is None and _is_plain(text) for name, text in value.items())
        case timedelta():
            return timedelta(0) < value <= LONGEST_DURATION and not value.microseconds
        case _:
            return value is not None


def read_submit(path: str) -> JobSubmit:
    """A whole request as JSON from a file, or from stdin for `-`. Raises UsageError."""
    from pydantic import ValidationError

    from gpu_dev.server.checked_answers import contract_of

    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.") from error
    try:
        read = contract_of(JobSubmit).model_validate_json(content)
    except ValidationError as error:
        raise UsageError(f"{'stdin' if path == '-' else path} is no job: {_complaints(error)}") from error
    return msgspec.convert(read.model_dump(exclude_unset=True), JobSubmit)


def read_env(pairs: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Variables from `NAME=value`, or `NAME` for the value in `environ` (so that it isn't on the command line).

    Raises UsageError.
    """
    read = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals and name not in environ:
            raise UsageError(f"--env {name}: there is no such variable here. Set it, or write --env {name}=VALUE.")
        read[name] = value if equals else environ[name]
    return read


def read_working_dir(text: str | None) -> str | None:
    """An absolute path; a relative one starts at the current folder."""
    return None if text is None else os.path.normpath(Path.cwd() / text)


def _complaints(error: "ValidationError", options: Mapping[str, str] = _OPTIONS) -> str:
    """The problems, option by option, without the values."""
    from reservation_core.domain.complaints import complaint

    said = []
    for one in error.errors(include_input=False, include_url=False):
        path = ".".join(map(str, one["loc"]))
        option = next((flag for field, flag in options.items() if path == field or path.startswith(f"{field}.")), path)
        text = complaint(one)
        said.append(
            f"{option} {text}" if text.startswith(("must ", "is ")) else f"{option}: {text}" if option else text
        )
    return "; ".join(dict.fromkeys(said)) + "."


def workload_fields(
    command: list[str] | None, env: list[str] | None, image: str | None, working_dir: str | None
) -> dict[str, Any] | None:
    """What a booking runs, as its field has it; None without a command. Raises UsageError."""
    if not command:
        if env or image or working_dir:
            raise UsageError("--env, --image and --working-dir need a command after `--`.")
        return None
    fields = {
        "command": command,
        "env": read_env(env, os.environ) if env else None,
        "image": image,
        "working_dir": read_working_dir(working_dir),
    }
    return {name: value for name, value in fields.items() if value}


def job_fields(
    command: list[str] | None,
    gpu_type: str | None,
    nodes: int | None,
    name: str | None,
    env: list[str] | None,
    image: str | None,
    working_dir: str | None,
    priority: int | None,
    booking: str | None,
    project: str | None,
    inactivity: str | None = None,
) -> dict[str, Any]:
    """The fields of a request that the command line sets; the server has defaults for all others."""
    workload = {
        "command": command or None,
        "env": read_env(env, os.environ) if env else None,
        "image": image,
        "working_dir": read_working_dir(working_dir),
    }
    fields = {
        "gpu_type": None if gpu_type is None else gpu_type.lower(),
        "nodes": nodes,
        "name": name,
        "priority": priority,
        "booking_id": booking,
        "project": project,
        "inactivity": None if inactivity is None else parse_duration(inactivity),
        "workload": {key: value for key, value in workload.items() if value is not None},
    }
    return {key: value for key, value in fields.items() if value is not None}
