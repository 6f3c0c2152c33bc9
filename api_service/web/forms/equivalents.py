"""The same request for the terminal, as `gpu-dev` and as `curl`."""

import json
import shlex
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from reservation_core.domain.disks.disk_uses import DiskUse, usual_path
from reservation_core.domain.disks.disk_uses import written_use as written_disk
from reservation_core.domain.jobs.asked_dependencies import DependencyWhen, written_dependency
from reservation_core.domain.request_terms import ArrayTerms, written_array
from reservation_core.domain.sessions.secret_uses import written_use
from reservation_core.domain.short_durations import written

_CREDENTIAL = '"Authorization: Bearer $GPU_DEV_TOKEN"'


def job_by_cli(body: Mapping[str, Any]) -> str:
    """`gpu-dev run …`, or `gpu-dev submit …` for an array or a job without a command."""
    workload = body.get("workload") or {}
    command = list(workload.get("command") or [])
    array = body.get("array")
    words = ["gpu-dev", "run" if command and array is None else "submit"]
    for option, value in (
        ("--name", body.get("name")),
        ("--gpus", body.get("gpus")),
        ("--type", body.get("gpu_type")),
        ("--nodes", body.get("nodes") if body.get("nodes") != 1 else None),
        ("--for", _duration(body.get("duration"))),
        ("--booking", body.get("booking_id")),
        ("--project", body.get("project")),
        ("--priority", body.get("priority") or None),
        ("--array", None if array is None else written_array(ArrayTerms(array["size"], array.get("parallel")))),
        ("--retries", (body.get("retries") or {}).get("max")),
        ("--cpus", _number((body.get("resources") or {}).get("cpus"))),
        ("--memory", (body.get("resources") or {}).get("memory")),
        ("--shm", (body.get("resources") or {}).get("shm")),
        ("--image", workload.get("image")),
        ("--working-dir", workload.get("working_dir")),
    ):
        if value is not None:
            words += [option, str(value)]
    if body.get("preemptible"):
        words.append("--preemptible")
    if (kept := _duration(body.get("min_runtime"))) is not None:
        words += ["--min-runtime", kept]
    if (signal := body.get("end_signal")) is not None:
        words += ["--signal", f"{signal['signal']}@{signal['before']}"]
    if "failed" not in (body.get("retries") or {}).get("on", ["failed"]):
        words.append("--requeue")
    for name, value in (workload.get("env") or {}).items():
        words += ["--env", f"{name}={value}"]
    for disk in body.get("disks") or []:
        use = DiskUse(disk["name"], disk.get("path") or usual_path(disk["name"]), bool(disk.get("read_only")))
        words += ["--disk", written_disk(use)]
    if body.get("no_home"):
        words.append("--no-home")
    for secret in body.get("secrets") or []:
        words += ["--secret", written_use(secret["name"], secret.get("env"), secret.get("path"))]
    for needed in body.get("after") or []:
        words += ["--after", written_dependency(needed["job"], DependencyWhen(needed["when"]))]
    return shlex.join([*words, "--", *command] if command else words)


def by_curl(base: str, path: str, body: Mapping[str, Any]) -> str:
    """A POST of JSON to the server at `base`; the token comes from the environment."""
    content = json.dumps(body, ensure_ascii=False)
    return (
        f"curl -sS {shlex.quote(base + path)} -H {_CREDENTIAL} \\\n"
        f"  -H 'Content-Type: application/json' \\\n  -d {shlex.quote(content)}"
    )


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.7g}"


def _duration(value: object) -> str | None:
    if isinstance(value, int):
        return written(timedelta(seconds=value))
    return None if value is None else str(value)
