"""Requests from typed options: the contract's checks are made here already, and become usage errors."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from gpu_dev.errors import UsageError
from gpu_dev.inputs.durations import parse_duration
from gpu_dev.inputs.plain_requests import plain_request
from gpu_dev.wire.jobs import JobSubmit
from reservation_core.domain.disks.disk_uses import read_use as read_disk
from reservation_core.domain.jobs.asked_dependencies import read_dependency
from reservation_core.domain.jobs.variables import fault_of_variable
from reservation_core.domain.request_terms import (
    REQUEUES,
    RetryCause,
    SignalName,
    read_array,
    read_bytes,
    read_end_signal,
)
from reservation_core.domain.sessions.secret_uses import is_secret_name, read_use
from reservation_core.domain.short_durations import LONGEST_DURATION, plain_iso8601

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

B = TypeVar("B", bound="BaseModel")
S = TypeVar("S", bound=Struct)
_VARIABLE_AND_MORE = re.compile(r"([A-Za-z_]\w*)[^\w]", re.ASCII)
_TYPE = re.compile(r"constrained-|function-(?:after|before)\[|literal\[")
_FIELD = re.compile(r"`([\w.]+)`")
_OPTIONS = {
    "from": "--from",
    "to": "--to",
    "step": "--step",
    "on_conflict": "--skip-conflicts",
    "limit": "--limit",
    "attempt": "--attempt",
    "user": "--user",
    "start": "--start",
    "end": "--end",
    "duration": "--for",
    "gpu_type": "--type",
    "gpus": "--gpus",
    "nodes": "--nodes",
    "name": "--name",
    "priority": "--priority",
    "booking_id": "--booking",
    "project": "--project",
    "inactivity": "--inactivity",
    "secrets": "--secret",
    "disks": "--disk",
    "size": "--size",
    "after": "--after",
    "retries": "--retries",
    "array": "--array",
    "preemptible": "--preemptible",
    "min_runtime": "--min-runtime",
    "end_signal": "--signal",
    "title": "--title",
    "node": "--node",
    "recurrence": "--rrule",
    "time_zone": "--time-zone",
    "wait": "--wait",
    "auto_accept": "--auto-accept",
    "reason": "--reason",
    "gpu_hours": "--gpu-hours",
    "until": "--until",
    "budget.until": "--until",
    "resources": "--cpus, --memory, --shm",
    "resources.cpus": "--cpus",
    "resources.memory": "--memory",
    "resources.shm": "--shm",
    "workload.image": "--image",
    "workload.env": "--env",
    "workload.working_dir": "--working-dir",
    "workload.command": "the command",
}


def make_request(model: type[S], fields: Mapping[str, Any], **said_by: str) -> S:
    """A request from its fields; what is not plainly right its contract checks. Raises UsageError, as `checked`."""
    if (plain := plain_request(model, fields)) is not None:
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


def read_submit(path: str) -> JobSubmit:
    """A whole request as JSON from a file, or from stdin for `-`. Raises UsageError."""
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.") from error
    if (plain := _plain_submit(content)) is not None:
        return plain
    from pydantic import ValidationError

    from gpu_dev.server.checked_answers import contract_of

    try:
        read = contract_of(JobSubmit).model_validate_json(content)
    except ValidationError as error:
        raise UsageError(f"{'stdin' if path == '-' else path} is no job: {_complaints(error, {})}") from error
    return msgspec.convert(read.model_dump(exclude_unset=True), JobSubmit)


def _plain_submit(content: bytes) -> JobSubmit | None:
    """A request whose JSON is plainly right."""
    try:
        fields = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    for name in fields.keys() & {"duration", "inactivity"}:
        if (length := _length(fields[name])) is None:
            return None
        fields[name] = length
    return plain_request(JobSubmit, fields)


def _length(value: Any) -> timedelta | None:
    """Seconds or ISO 8601 in their usual forms."""
    if isinstance(value, str):
        return plain_iso8601(value)
    is_usual = type(value) is int and 0 < value <= LONGEST_DURATION.total_seconds()
    return timedelta(seconds=value) if is_usual else None


def read_env(pairs: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Variables from `NAME=value`, or `NAME` for the value in `environ` (so that it isn't on the command line).

    Raises UsageError.
    """
    read = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals and (marked := _VARIABLE_AND_MORE.match(name)) is not None:
            raise UsageError(f"--env {marked[1]}…: write --env {marked[1]}=VALUE, with an equals sign.")
        if not equals and name not in environ:
            raise UsageError(f"--env {name}: there is no such variable here. Set it, or write --env {name}=VALUE.")
        read[name] = value if equals else environ[name]
    return read


def read_secret_uses(texts: Sequence[str]) -> list[dict[str, str | None]]:
    """Secrets from `NAME` (the variable of that name), `NAME=VARIABLE` or `NAME=/path`. Raises UsageError."""
    uses = []
    for text in texts:
        name, use = text.partition("=")[0], read_use(text)
        if not is_secret_name(name):
            raise UsageError(f"--secret {text}: {name!r} can't be a secret's name. `gpu-dev secret list` shows yours.")
        if use is None or (text == name and fault_of_variable(name) is not None):
            raise UsageError(f"--secret {name}: name its variable or file: {name}=VARIABLE or {name}=/path.")
        uses.append({"name": name, **({"env": use.env} if use.path is None else {"path": use.path})})
    return uses


def read_disks(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Disks from `NAME`, `NAME:/path`, or one of these with `:ro` after it. Raises UsageError."""
    uses = [read_disk(text) for text in texts]
    for text, use in zip(texts, uses, strict=True):
        if use is None:
            raise UsageError(
                f"--disk {text}: write NAME or NAME:/path, and :ro after it to only read."
                " `gpu-dev disk list` shows your disks."
            )
    return [{"name": use.name, "path": use.path, "read_only": use.read_only} for use in uses if use is not None]


def read_dependencies(texts: Sequence[str]) -> list[dict[str, str]]:
    """Jobs to wait for from `ok:ID`, `any:ID`, `failed:ID`, `started:ID`, or `ID` for success. Raises UsageError."""
    read = []
    for text in texts:
        dependency = read_dependency(text)
        if dependency is None:
            raise UsageError(
                f"{text!r} names no job to wait for. Write --after ok:ID, any:ID, failed:ID or started:ID."
            )
        when, job = dependency
        read.append({"job": job, "when": when.value})
    return read


def read_working_dir(text: str | None) -> str | None:
    """An absolute path; a relative one starts at the current folder."""
    return None if text is None else os.path.normpath(Path.cwd() / text)


def _complaints(error: "ValidationError", options: Mapping[str, str] = _OPTIONS) -> str:
    """The problems, option by option, without the values."""
    from reservation_core.domain.complaints import complaint

    found = [(_path(one["loc"]), one) for one in error.errors(include_input=False, include_url=False)]
    said, wrong = [], {path for path, one in found if one["type"] != "literal_error"}
    for path, one in found:
        if one["type"] == "literal_error" and path in wrong:
            continue  # a number that is out of bounds is no word, either
        closest = max((field for field in options if f"{path}.".startswith(f"{field}.")), key=len, default=None)
        option = path if closest is None else options[closest]
        text = complaint(one)
        field, _, rest = text.partition(": ")
        if not option and field in options:  # a fault of several fields begins with the field that is wrong
            option, text = options[field], rest
        said.append(
            f"{option} {text}".strip() if text.startswith(("must ", "is ")) else f"{option}: {text}" if option else text
        )
    return named_options("; ".join(dict.fromkeys(said)).removesuffix(".") + ".")


def named_options(text: str) -> str:
    """A sentence in which fields of REST are called as their options are: `start` is --start."""
    return _FIELD.sub(lambda found: _OPTIONS.get(found[1], found[0]), text)


def named_fault(detail: str) -> str:
    """The fault of a field, `gpus: must be …`, with the name of its option."""
    field, _, fault = detail.partition(": ")
    option = _OPTIONS.get(field)
    return named_options(
        detail if option is None else f"{option} {fault}" if fault.startswith("must ") else f"{option}: {fault}"
    )


def _path(parts: Sequence[int | str]) -> str:
    """The names of a field, without the validator's for its types."""
    return ".".join(part for part in map(str, parts) if not _TYPE.match(part))


def workload_fields(
    command: list[str] | None, env: list[str] | None, image: str | None, working_dir: str | None
) -> dict[str, Any] | None:
    """What a booking runs, as its field has it; None without a command. Raises UsageError."""
    if not command:
        if env or image or working_dir:
            raise UsageError(
                "--env (-e), --image and --working-dir need a command after `--`. The end of a slot is --end."
            )
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
    secrets: list[str] | None = None,
    after: list[str] | None = None,
    retries: int | None = None,
    *,
    requeue: bool = False,
    array: str | None = None,
    cpus: float | None = None,
    memory: str | None = None,
    shm: str | None = None,
    disks: list[str] | None = None,
    no_home: bool = False,
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
        "secrets": read_secret_uses(secrets) if secrets else None,
        "disks": read_disks(disks) if disks else None,
        "no_home": no_home or None,
        "after": read_dependencies(after) if after else None,
        "retries": _retries(retries, requeue=requeue),
        "array": None if array is None else array_fields(array),
        "resources": _resources(cpus, memory, shm),
        "workload": {key: value for key, value in workload.items() if value is not None},
    }
    return {key: value for key, value in fields.items() if value is not None}


def end_fields(*, preemptible: bool, min_runtime: str | None, end_signal: str | None) -> dict[str, Any]:
    """The fields of a request that say how the job gives its GPUs back. Raises UsageError."""
    fields: dict[str, Any] = {"preemptible": True} if preemptible else {}
    if min_runtime is not None:
        fields["min_runtime"] = parse_duration(min_runtime)
    if end_signal is not None:
        read = read_end_signal(end_signal)
        if read is None:
            raise UsageError(
                f"--signal {end_signal}: write a signal and seconds, such as USR1@300. The signals are "
                f"{', '.join(SignalName)}."
            )
        fields["end_signal"] = {"signal": read[0].value, "before": timedelta(seconds=read[1])}
    return fields


def _resources(cpus: float | None, memory: str | None, shm: str | None) -> dict[str, Any] | None:
    sizes = {name: read_bytes(text) or text for name, text in (("memory", memory), ("shm", shm)) if text is not None}
    return ({} if cpus is None else {"cpus": cpus}) | sizes or None


def _retries(most: int | None, *, requeue: bool) -> dict[str, Any] | None:
    """`--retries N` after any end that can be retried; `--requeue` only where the command itself did not fail."""
    if requeue:
        return {"max": most or REQUEUES, "on": [RetryCause.NODE_LOST.value, RetryCause.PREEMPTED.value]}
    return None if most is None else {"max": most}


def array_fields(text: str) -> dict[str, int]:
    """The field `array` for `--array 0-99%8`. Raises UsageError."""
    try:
        terms = read_array(text)
    except ValueError as error:
        raise UsageError(f"--array={text}: {error}") from error
    return {"size": terms.size} | ({} if terms.parallel is None else {"parallel": terms.parallel})
