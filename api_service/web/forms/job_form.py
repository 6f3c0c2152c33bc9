"""The form of a job: its input as a request body, and a job's specification as input."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from api_service.web.forms.form import Form
from reservation_core.contracts.jobs import JobSpec
from reservation_core.domain.disks import disk_uses
from reservation_core.domain.disks.disk_uses import DiskUse
from reservation_core.domain.jobs.asked_dependencies import read_dependency
from reservation_core.domain.request_terms import (
    ArrayTerms,
    RetryCause,
    read_array,
    read_bytes,
    read_end_signal,
    written_array,
    written_bytes,
    written_end_signal,
)
from reservation_core.domain.sessions.secret_uses import read_use, written_use
from reservation_core.domain.short_durations import seconds_in, written

FIELDS = ("name", "gpus", "gpu_type", "nodes", "duration", "command", "image", "working_dir", "env", "priority",
          "retries", "requeue", "array", "preemptible", "min_runtime", "signal", "cpus", "memory", "shm", "disks",
          "no_home", "secrets", "after", "booking", "project")  # fmt: skip
FIRST = {"gpus": "1", "nodes": "1", "duration": "1h"}
"""The first values of the form."""
_NOT_FAILED = [RetryCause.NODE_LOST.value, RetryCause.PREEMPTED.value]
_NEEDS_A_SHELL = re.compile(r"[\n|&;<>()$`*?\[\]{}~#!]|^\s*\w+=")
_CPUS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?")
_ISO = re.compile(r"P[0-9TDHMSW.]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TypedJob:
    """A request body, as far as the input could be read; `wrong` says by field what could not."""

    body: dict[str, Any]
    wrong: Mapping[str, str] = field(default_factory=dict)


def typed_job(form: Form) -> TypedJob:
    """Read the form. REST decides whether the job is allowed."""
    body: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for name in ("gpus", "nodes", "priority", "retries"):
        _number(form, name, body, wrong)
    if "retries" in body:
        body["retries"] = {"max": body["retries"]} | ({"on": _NOT_FAILED} if form.get("requeue") else {})
    _array(form.get("array"), body, wrong)
    for name, wire in (("name", "name"), ("gpu_type", "gpu_type"), ("booking", "booking_id"), ("project", "project")):
        value = form.get(name)
        if value is not None:
            body[wire] = value
    if "gpus" not in body and "gpus" not in wrong:
        wrong["gpus"] = "Say how many GPUs, such as 1, or 0 for CPUs alone."
    _duration(form.get("duration"), body, wrong)
    body["workload"] = _workload(form, wrong)
    _preemption(form, body, wrong)
    _resources(form, body, wrong)
    _disks(form, body, wrong)
    _secrets(form, body, wrong)
    _after(form, body, wrong)
    return TypedJob(body, wrong)


def command_of(text: str) -> list[str]:
    """A typed command as words; shell syntax is passed to a shell."""
    if _NEEDS_A_SHELL.search(text):
        return ["sh", "-c", text]
    try:
        return shlex.split(text)
    except ValueError:  # an open quote: the shell reports it
        return ["sh", "-c", text]


def text_of(command: list[str]) -> str:
    """A command as a user would type it."""
    if len(command) == 3 and command[:2] == ["sh", "-c"] and command_of(command[2]) == command:
        return command[2]
    return shlex.join(command)


def fields_of(spec: JobSpec) -> dict[str, str]:
    """The fields for a job like the one with this specification."""
    workload = spec.workload
    found = {
        "name": spec.name,
        "gpus": spec.gpus,
        "gpu_type": spec.gpu_type,
        "nodes": spec.nodes,
        "duration": written(spec.duration),
        "command": text_of(workload.command),
        "image": workload.image,
        "working_dir": workload.working_dir,
        "env": "\n".join(f"{name}={value}" for name, value in workload.env.items()),
        "disks": "\n".join(disk_uses.written_use(DiskUse(disk.name, disk.path, disk.read_only)) for disk in spec.disks),
        "secrets": "\n".join(written_use(secret.name, secret.env, secret.path) for secret in spec.secrets),
        "priority": spec.priority or None,
        "retries": None if spec.retries is None else spec.retries.max,
        "requeue": None if spec.retries is None or RetryCause.FAILED in spec.retries.on else "yes",
        "preemptible": "yes" if spec.preemptible else None,
        "min_runtime": None if spec.min_runtime is None else written(spec.min_runtime),
        "signal": None
        if spec.end_signal is None
        else written_end_signal(spec.end_signal.signal, spec.end_signal.before),
        "array": None if spec.array is None else written_array(ArrayTerms(spec.array.size, spec.array.parallel)),
        "project": spec.project,
        **(
            {}
            if spec.resources is None
            else {
                "cpus": None if spec.resources.cpus is None else f"{spec.resources.cpus:g}",
                "memory": written_bytes(spec.resources.memory),
                "shm": written_bytes(spec.resources.shm),
            }
        ),
    }
    return {name: str(value) for name, value in found.items() if value not in (None, "")}


def _number(form: Form, name: str, body: dict[str, Any], wrong: dict[str, str]) -> None:
    value = form.get(name)
    if value is None:
        return
    digits = value.removeprefix("-")
    if digits.isascii() and digits.isdecimal() and len(digits) <= 9 and (digits == value or name == "priority"):
        body[name] = int(value)
    else:
        wrong[name] = "Write a whole number, such as 1."


def _array(value: str | None, body: dict[str, Any], wrong: dict[str, str]) -> None:
    if value is None:
        return
    try:
        terms = read_array(value)
    except ValueError as error:
        wrong["array"] = str(error)
        return
    body["array"] = {"size": terms.size} | ({} if terms.parallel is None else {"parallel": terms.parallel})


def _duration(value: str | None, body: dict[str, Any], wrong: dict[str, str]) -> None:
    seconds = None if value is None else seconds_in(value)
    if value is not None and _ISO.fullmatch(value):
        body["duration"] = value.upper()
    elif seconds:
        body["duration"] = seconds
    else:
        wrong["duration"] = "Say for how long at most, such as 4h, 90m, 1h30m or 2d."


def _preemption(form: Form, body: dict[str, Any], wrong: dict[str, str]) -> None:
    """Whether others may have its GPUs, and the signal before its end."""
    if form.get("preemptible"):
        body["preemptible"] = True
    kept = form.get("min_runtime")
    if kept is not None:
        seconds = seconds_in(kept)
        if seconds:
            body["min_runtime"] = seconds
        else:
            wrong["min_runtime"] = "Write for how long it keeps its GPUs, such as 30m."
    text = form.get("signal")
    if text is not None:
        signal = read_end_signal(text)
        if signal is None:
            wrong["signal"] = "Write a signal and seconds, such as USR1@300."
        else:
            body["end_signal"] = {"signal": signal[0].value, "before": signal[1]}


def _resources(form: Form, body: dict[str, Any], wrong: dict[str, str]) -> None:
    asked: dict[str, float | str] = {
        name: value.replace(" ", "") for name in ("memory", "shm") if (value := form.get(name)) is not None
    }
    for name, size in asked.items():
        if read_bytes(str(size)) is None:
            wrong[name] = "Write a size such as 64Gi or 500M."
    cpus = form.get("cpus")
    if cpus is not None and _CPUS.fullmatch(cpus):
        asked["cpus"] = float(cpus)
    elif cpus is not None:
        wrong["cpus"] = "Write a number of CPUs, such as 8 or 0.5."
    if asked:
        body["resources"] = asked


def _disks(form: Form, body: dict[str, Any], wrong: dict[str, str]) -> None:
    for line in (form.text("disks") or "").split("\n"):
        if not line.strip():
            continue
        use = disk_uses.read_use(line.strip())
        if use is None:
            wrong["disks"] = "Write each disk on a line of its own, as NAME or NAME:/path, with :ro to only read."
        else:
            reads = {"read_only": True} if use.read_only else {}
            body.setdefault("disks", []).append({"name": use.name, "path": use.path, **reads})
    if form.get("no_home") and "command" not in body["workload"]:  # jobs with a command have it only if they name it
        body["no_home"] = True


def _secrets(form: Form, body: dict[str, Any], wrong: dict[str, str]) -> None:
    for line in (form.text("secrets") or "").split("\n"):
        if not line.strip():
            continue
        use = read_use(line.strip())
        if use is None:
            wrong["secrets"] = "Write each secret on a line of its own, as NAME, NAME=VARIABLE or NAME=/path."
        else:
            place = {"env": use.env} if use.path is None else {"path": use.path}
            body.setdefault("secrets", []).append({"name": use.name, **place})


def _after(form: Form, body: dict[str, Any], wrong: dict[str, str]) -> None:
    for text in (form.text("after") or "").replace(",", " ").split():
        dependency = read_dependency(text)
        if dependency is None:
            wrong["after"] = "Write each job to wait for as ok:ID, any:ID, failed:ID or started:ID."
        else:
            when, job = dependency
            body.setdefault("after", []).append({"job": job, "when": when.value})


def _workload(form: Form, wrong: dict[str, str]) -> dict[str, Any]:
    workload: dict[str, Any] = {}
    command = form.text("command")
    if command is not None and command.strip():
        workload["command"] = command_of(command.strip())
    for name in ("image", "working_dir"):
        value = form.get(name)
        if value is not None:
            workload[name] = value
    env: dict[str, str] = {}
    for line in (form.text("env") or "").split("\n"):
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals:
            wrong["env"] = "Write each variable on a line of its own, as NAME=value."
        elif name.strip() in env:
            wrong["env"] = "A variable is there twice. Write each once."
        else:
            env[name.strip()] = value
    if env:
        workload["env"] = env
    return workload
