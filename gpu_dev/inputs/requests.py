"""Requests from typed options: the contract's checks are made here already, and become usage errors."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from gpu_dev.errors import UsageError
from gpu_dev.inputs.durations import parse_duration
from reservation_core.contracts.base import Wire
from reservation_core.contracts.jobs import JobSubmit
from reservation_core.domain.complaints import complaint

W = TypeVar("W", bound=Wire)
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


def checked(model: type[W], fields: Mapping[str, Any], **said_by: str) -> W:
    """A request from its fields. Raises UsageError that names each option that is wrong.

    `said_by` are names of arguments for fields that no option sets.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise UsageError(_complaints(error, _OPTIONS | said_by)) from error


def read_submit(path: str) -> JobSubmit:
    """A whole request as JSON from a file, or from stdin for `-`. Raises UsageError."""
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.") from error
    try:
        return JobSubmit.model_validate_json(content)
    except ValidationError as error:
        raise UsageError(f"{'stdin' if path == '-' else path} is no job: {_complaints(error)}") from error


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


def _complaints(error: ValidationError, options: Mapping[str, str] = _OPTIONS) -> str:
    """The problems, option by option, without the values."""
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
    """What was given on the command line, as the request's fields; what was not given is left to the server."""
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
