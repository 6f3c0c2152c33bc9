"""From Slurm's options to a request for GPUs: pure, with all that stands against it and all that is passed over."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from gpu_dev.slurm.reading.amounts import read_amounts
from gpu_dev.slurm.reading.options import Treatment
from gpu_dev.slurm.reading.time_limits import FORMS, read_time_limit
from gpu_dev.slurm.reading.words import Given, Remark
from reservation_core.domain.request_terms import LONGEST_SIGNAL_LEAD, read_array, read_end_signal
from reservation_core.domain.short_durations import LONGEST_DURATION

PRIORITIES = range(-100, 101)
_BARE_NICE = 100
_FLAGS = frozenset({"parsable", "test-only", "wait", "quiet", "pty", "requeue"})
_SETS = {"no-requeue": "requeue", "nice": "priority"}
"""What an option sets, where another option has its name."""
_COUNT = re.compile(r"\d{1,6}", re.ASCII)
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)
_TYPE = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_PARTS = re.compile(r"""((?:[^,'"]|'[^']*'|"[^"]*")+)(?:,|$)""")
_JOB = re.compile(r"job-[A-Za-z0-9]{1,32}")
_CONDITIONS = {"afterok": "ok", "afterany": "any", "afternotok": "failed", "after": "started"}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, in the terms of `gpu-dev`, and how the command ends."""

    gpus: int = 0
    gpu_type: str | None = None
    nodes: int = 1
    duration: timedelta = timedelta()
    name: str | None = None
    working_dir: str | None = None
    env: tuple[str, ...] = ()
    project: str | None = None
    booking: str | None = None
    priority: int | None = None
    after: tuple[str, ...] = ()
    requeue: bool = False
    array: str | None = None
    signal: str | None = None
    cpus: int | None = None
    memory: str | None = None
    wrap: str | None = None
    parsable: bool = False
    test_only: bool = False
    wait: bool = False
    quiet: bool = False
    pty: bool = False


@dataclass(slots=True)
class Reading:
    """A request as far as it could be read; nothing is submitted where there are refusals."""

    asked: Asked = field(default_factory=Asked)
    refusals: list[Remark] = field(default_factory=list)
    warnings: list[Remark] = field(default_factory=list)

    def refuse(self, given: Given, text: str) -> None:
        """Note why an option can't be honoured, and what to do next."""
        self.refusals.append(Remark(given.line, given.text, text))

    def refuse_all(self, about: str, text: str) -> None:
        """Note what is missing."""
        self.refusals.append(Remark(None, about, text))


def read_request(given: Sequence[Given], environ: Mapping[str, str]) -> Reading:
    """Read a request from options; of several that set the same the last one counts.

    `environ` has the values of variables that are only named.
    """
    reading = Reading()
    winners = {_SETS.get(one.option.name, one.option.name): one for one in given}
    for one in winners.values():
        match one.option.treatment:
            case Treatment.REFUSED:
                reading.refuse(one, one.option.here)
            case Treatment.PASSED_OVER:
                reading.warnings.append(Remark(one.line, one.text, f"It is passed over. {one.option.here}"))
            case Treatment.HONOURED:
                _read_option(one, environ, reading)
    _read_nodes(winners, reading)
    is_read = _read_gpus(winners, reading)
    cpus, memory, refusals = read_amounts(winners, reading.asked.gpus if is_read else None)
    reading.asked = replace(reading.asked, cpus=cpus, memory=memory)
    reading.refusals += refusals
    if "time" not in winners:
        reading.refuse_all("--time", f"Each job has a time limit here. {FORMS}")
    return reading


def _read_option(given: Given, environ: Mapping[str, str], reading: Reading) -> None:
    if (read := _READERS.get(given.option.name)) is not None:
        reading.asked = replace(reading.asked, **read(given, reading))
    elif given.option.name == "export":
        reading.asked = replace(reading.asked, env=_read_variables(given, environ, reading))
    elif given.option.name in _FLAGS:
        flag: dict[str, Any] = {given.option.name.replace("-", "_"): True}
        reading.asked = replace(reading.asked, **flag)


def _read_time(given: Given, reading: Reading) -> dict[str, Any]:
    limit = read_time_limit(given.value or "")
    if limit is None:
        reading.refuse(given, f"This is no time limit. {FORMS}")
    elif not timedelta() < limit <= LONGEST_DURATION:
        reading.refuse(given, f"A time limit is at least a minute and at most {LONGEST_DURATION.days} days. {FORMS}")
    return {"duration": limit}


def _read_priority(given: Given, reading: Reading) -> dict[str, Any]:
    value = given.value or ""
    number = int(value) if _COUNT.fullmatch(value.removeprefix("-")) else None
    if number not in PRIORITIES:
        reading.refuse(given, f"A priority is a number from {PRIORITIES[0]} to {PRIORITIES[-1]}.")
    return {"priority": number}


def _read_nice(given: Given, reading: Reading) -> dict[str, Any]:
    value = str(_BARE_NICE) if given.value is None else given.value
    number = int(value) if _COUNT.fullmatch(value.removeprefix("-")) else None
    if number is None or -number not in PRIORITIES:
        reading.refuse(given, f"It is a number up to {_BARE_NICE}, which puts the job behind all others.")
        return {}
    return {"priority": -number}


def _read_begin(given: Given, reading: Reading) -> dict[str, Any]:
    if given.value != "now":
        example = 'gpu-dev book create --gpus 2 --start "tomorrow 9am" --for 4h -- bash train.sh'
        reading.refuse(given, f"Jobs start as soon as they can. Book the time instead, with the command: {example}")
    return {}


def _read_dependency(given: Given, reading: Reading) -> dict[str, Any]:
    after, started = [], False
    for part in (given.value or "").split(","):
        kind, *ids = part.split(":")
        if kind not in _CONDITIONS or not ids or not all(map(_JOB.fullmatch, ids)):
            kinds = ", ".join(_CONDITIONS)
            reading.refuse(given, f"Write it as afterok:job-7f3k9q2m, with commas between several ({kinds}).")
            return {}
        started |= kind == "after"
        after += [f"{_CONDITIONS[kind]}:{job_id}" for job_id in ids]
    if started:
        text = "`after` waits for a start. If the other job is cancelled before, this one is, too. Slurm starts it."
        reading.warnings.append(Remark(given.line, given.text, text))
    return {"after": tuple(after)}


def _read_array(given: Given, reading: Reading) -> dict[str, Any]:
    try:
        read_array(given.value or "")
    except ValueError as error:
        reading.refuse(given, str(error))
    return {"array": given.value}


def _read_signal(given: Given, reading: Reading) -> dict[str, Any]:
    text = (given.value or "").removeprefix("B:")
    if (read := read_end_signal(text)) is None or read[1] > LONGEST_SIGNAL_LEAD.total_seconds():
        reading.refuse(given, "Write a signal and seconds, at most 3600, as in --signal=USR1@300.")
        return {}
    return {"signal": f"{read[0].value}@{read[1]}"}


def _text(name: str) -> Callable[[Given, Reading], dict[str, Any]]:
    def read(given: Given, reading: Reading) -> dict[str, Any]:
        if not given.value:
            reading.refuse(given, "It is empty.")
        return {name: given.value}

    return read


_READERS: Mapping[str, Callable[[Given, Reading], dict[str, Any]]] = {
    "time": _read_time,
    "priority": _read_priority,
    "nice": _read_nice,
    "begin": _read_begin,
    "dependency": _read_dependency,
    "array": _read_array,
    "signal": _read_signal,
    "job-name": _text("name"),
    "chdir": _text("working_dir"),
    "account": _text("project"),
    "reservation": _text("booking"),
    "wrap": _text("wrap"),
}


def _read_variables(given: Given, environ: Mapping[str, str], reading: Reading) -> tuple[str, ...]:
    value = given.value or ""
    if value == "NONE":
        return ()
    parts = _PARTS.findall(value)
    names = [part.partition("=")[0] for part in parts]
    if "ALL" in names or "NIL" in names:
        reading.refuse(
            given, "Your shell's environment is not taken along. Name variables, as in --export=NAME,OTHER=value."
        )
    elif ",".join(parts) != value.removesuffix(",") or not all(map(_VARIABLE.fullmatch, names)):
        reading.refuse(given, "It lists variables, as in --export=NAME,OTHER=value.")
    variables = []
    for part, name in zip(parts, names, strict=True):
        if "=" in part:
            variables.append(re.sub(r"""'([^']*)'|"([^"]*)\"""", r"\1\2", part))
        elif name in environ:
            variables.append(f"{name}={environ[name]}")
        else:
            reading.warnings.append(Remark(given.line, name, "It is not set here, so the job does not get it."))
    return tuple(variables)


def _read_nodes(winners: Mapping[str, Given], reading: Reading) -> None:
    nodes = 1
    if (given := winners.get("nodes")) is not None:
        form = _RANGE.fullmatch(given.value or "")
        if form is None or int(form[1]) == 0 or (form[2] is not None and int(form[2]) != int(form[1])):
            reading.refuse(given, "Name one number of nodes.")
        else:
            nodes = int(form[1])
    reading.asked = replace(reading.asked, nodes=nodes)
    for name, most in (("ntasks", nodes), ("ntasks-per-node", 1)):
        if (given := winners.get(name)) is not None and given.value != str(most):
            reading.refuse(
                given,
                f"One process starts on each node ({nodes} here). Start more in the script, as with torchrun, and "
                f"write {given.option.flag}={most}.",
            )


def _read_gpus(winners: Mapping[str, Given], reading: Reading) -> bool:
    """Read the number of GPUs; whether it was understood, where one was given."""
    nodes, read, before = reading.asked.nodes, {}, len(reading.refusals)
    for name in ("gpus", "gpus-per-node", "gpus-per-task", "gres"):
        if (given := winners.get(name)) is not None and (gpus := _read_count(given, reading)) is not None:
            gpu_type, count = gpus
            if name == "gpus" and count % nodes:
                reading.refuse(given, f"The GPUs are divided among {nodes} nodes. Name a multiple of {nodes}.")
            read[given.text] = gpu_type, count // nodes if name == "gpus" else count
    counts = {count for _, count in read.values()}
    types = {gpu_type for gpu_type, _ in read.values() if gpu_type is not None}
    if len(counts) > 1 or len(types) > 1:
        reading.refuse_all(", ".join(read), "These options do not agree. Keep one of them.")
    elif counts:
        reading.asked = replace(reading.asked, gpus=counts.pop(), gpu_type=types.pop() if types else None)
    elif len(reading.refusals) == before:
        reading.warnings.append(Remark(None, "--gpus", "The job has no GPU. Ask for GPUs, as in --gpus=1."))
    return len(reading.refusals) == before


def _read_count(given: Given, reading: Reading) -> tuple[str | None, int] | None:
    """A type and a number of GPUs: `2`, `h100:2`, with `gpu:` before it in `--gres`."""
    of_resources = given.option.name == "gres"
    parts = (given.value or "").split(":")
    if of_resources:
        if parts[0] != "gpu":
            reading.refuse(given, "Only GPUs can be asked for, as in --gres=gpu:2.")
            return None
        parts = parts[1:] or ["1"]
        parts = parts if _COUNT.fullmatch(parts[-1]) else [*parts, "1"]
    *kind, count = parts
    gpu_type = kind[0].lower() if len(kind) == 1 else None
    if len(kind) > 1 or not _COUNT.fullmatch(count) or (gpu_type is not None and not _TYPE.fullmatch(gpu_type)):
        reading.refuse(given, f"Name one type at most and a number, as in {given.option.flag}="
                              f"{'gpu:' if of_resources else ''}h100:2.")  # fmt: skip
        return None
    return (gpu_type, int(count)) if int(count) else (None, 0)
