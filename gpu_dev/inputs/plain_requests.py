"""Requests that are plainly right, made without their contracts: loading those costs as much as all else."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from gpu_dev.wire import CHECKED_HERE
from gpu_dev.wire.jobs import Workload
from reservation_core.domain.disks.disk_uses import DiskUse, usual_path
from reservation_core.domain.disks.disk_uses import fault_of_uses as fault_of_disks
from reservation_core.domain.jobs.asked_dependencies import fault_of_dependencies
from reservation_core.domain.jobs.variables import fault_of_variable
from reservation_core.domain.request_terms import LONGEST_SIGNAL_LEAD, MILLI, fault_of_cpu_job, fault_of_preemption
from reservation_core.domain.sessions.secret_uses import SecretUse, fault_of_path
from reservation_core.domain.sessions.secret_uses import fault_of_uses as fault_of_secrets
from reservation_core.domain.short_durations import LONGEST_DURATION

S = TypeVar("S", bound=Struct)
Said = Mapping[str, Any]
_MINUTE = timedelta(minutes=1)
_USUAL_YEARS = range(1971, 2200)
_NULLABLE = {"BookingChange": frozenset({"node", "title"})}
"""Fields whose null says something."""


def plain_request(model: type[S], fields: Mapping[str, Any]) -> S | None:
    """A request that its contract would accept; None where only the contract can tell."""
    name = model.__name__
    if name not in CHECKED_HERE:
        return None
    try:
        made = msgspec.convert(fields, model)
    except msgspec.ValidationError:
        return None
    said = {field: getattr(made, field) for field in fields}
    nullable = _NULLABLE.get(name, frozenset())
    is_plain = all(_is_plain(value) or (value is None and field in nullable) for field, value in said.items())
    return made if is_plain and _FITTING.get(name, _always)(said) else None


def _is_plain(value: Any) -> bool:
    match value:
        case Workload():
            return _is_workload(value)
        case Struct():
            return all(_is_plain(getattr(value, field)) for field in value.__struct_fields__)
        case str():
            return value.isprintable() and not value.isspace()
        case list():
            return all(map(_is_plain, value))
        case datetime():
            is_usual = value.tzinfo is not None and value.year in _USUAL_YEARS
            return is_usual and not (value.second or value.microsecond)
        case timedelta():
            return timedelta(0) < value <= LONGEST_DURATION and not value.microseconds
        case _:
            return value is not None


def _is_workload(workload: Workload) -> bool:
    command, variables = workload.command or [], workload.env or {}
    return (
        command[:1] != [""]  # its first word names a program
        and not any(map(fault_of_variable, variables))
        and all("".join(text.split()).isprintable() for text in (*command, *variables.values()))
        and _is_plain(workload.image)
        and _is_plain(workload.working_dir)
    )


def _always(_said: Said) -> bool:
    return True


def _is_job(said: Said) -> bool:
    idle: timedelta = said.get("inactivity", _MINUTE)
    return idle >= _MINUTE and not any(_faults_of_job(said))


def _faults_of_job(said: Said) -> Iterator[object]:
    """Faults of the fields of a job taken together. A false value is no fault."""
    duration, booking = said["duration"], said.get("booking_id")
    yield from _faults_of_size(said)
    yield fault_of_preemption(said.get("preemptible", False), said.get("min_runtime"), duration, booking)
    yield fault_of_dependencies([dependency.job for dependency in said.get("after", ())])
    yield "array" in said and (not said["workload"].command or booking)
    if (signal := said.get("end_signal")) is not None:
        lead = signal.before or timedelta(minutes=1)
        yield lead > min(duration, LONGEST_SIGNAL_LEAD)
    yield from _faults_of_uses(said)


def _faults_of_size(said: Said) -> Iterator[object]:
    """Faults of the GPUs, CPUs and memory of a job."""
    nodes, booking, preemptible = said.get("nodes", 1), said.get("booking_id"), said.get("preemptible", False)
    yield fault_of_cpu_job(said["gpus"], nodes, said.get("gpu_type"), booking, preemptible=preemptible)
    if (asked := said.get("resources")) is not None:
        yield not (asked.cpus or asked.memory or asked.shm)
        yield asked.cpus and round(asked.cpus * MILLI) / MILLI != asked.cpus
        yield asked.shm and asked.memory and asked.shm > asked.memory


def _faults_of_uses(said: Said) -> Iterator[object]:
    """Faults of the disks and secrets of a job."""
    secrets = [SecretUse(secret.name, secret.env or None, secret.path or None) for secret in said.get("secrets", ())]
    for secret in secrets:
        yield (secret.env is None) == (secret.path is None)
        yield secret.env and fault_of_variable(secret.env)
        yield secret.path and fault_of_path(secret.path)
    yield fault_of_secrets(secrets, said["workload"].env or {})
    files = [secret.path for secret in secrets if secret.path]
    disks = [
        DiskUse(disk.name, disk.path or usual_path(disk.name), disk.read_only is True) for disk in said.get("disks", ())
    ]
    yield fault_of_disks(disks, files)
    yield "array" in said and not all(disk.read_only for disk in disks)


def _is_explained(said: Said) -> bool:
    if any(_faults_of_size(said)):
        return False
    if "start" in said:
        return said["gpus"] != 0 and "instead_of" not in said and _is_slot(said)
    return "duration" in said and not said.keys() & {"end", "time_zone", "wait", "auto_accept", "recurrence"}


def _is_slot(said: Said) -> bool:
    """Whether the fields of a booking go together."""
    waits, repeats = said.get("wait", False), "recurrence" in said
    if ("end" in said) == ("duration" in said) or ("node" in said and said.get("nodes", 1) > 1):
        return False
    if (waits and repeats) or (said.get("auto_accept", False) and not waits):
        return False
    from reservation_core.domain.bookings.asked_slots import slot_faults

    times = said["start"], said.get("end"), said.get("duration"), said.get("time_zone")
    return not slot_faults(*times) and (not repeats or _is_series(said["recurrence"], times))


def _is_series(asked: Any, times: tuple[str, str | None, timedelta | None, str | None]) -> bool:
    from reservation_core.domain.bookings.recurrences import RecurrenceError, asked_dates

    try:
        return bool(asked_dates(asked if isinstance(asked, str) else asked.rrule, *times))
    except RecurrenceError:
        return False


def _is_change(said: Said) -> bool:
    """Whether the fields are a change of a booking."""
    if not said.keys() - {"time_zone"} or {"end", "duration"} <= said.keys():
        return False
    from reservation_core.domain.bookings.asked_slots import time_faults

    return not time_faults(said.get("time_zone"), said.get("duration"), start=said.get("start"), end=said.get("end"))


def _is_target(said: Said) -> bool:
    from reservation_core.domain.network.notice_addresses import address_fault

    return address_fault(said["channel"], said["address"]) is None


def _is_window(said: Said) -> bool:
    """Whether the fields of a maintenance window go together."""
    if len(said.keys() & {"node", "nodes", "gpus"}) != 1 or ("end" in said) == ("duration" in said):
        return False
    from reservation_core.domain.bookings.windows import window_faults

    return not window_faults(said.get("start"), said.get("end"), said.get("duration"))


_FITTING: dict[str, Callable[[Said], bool]] = {
    "JobSubmit": _is_job,
    "ExplainRequest": _is_explained,
    "BookingCreate": _is_slot,
    "BookingChange": _is_change,
    "NoticeTargetCreate": _is_target,
    "MaintenanceCreate": _is_window,
}
"""By the names of requests: whether fields that are right one by one are right together."""
