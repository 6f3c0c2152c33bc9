"""Resubmit a job's request, with changes."""

from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins
from msgspec.structs import asdict

from gpu_dev.errors import UsageError
from gpu_dev.wire.jobs import JobSpec


def asked_again(spec: JobSpec, given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the new request: those of `spec`, overridden by `given`.

    Variables are overridden one by one. The booking and the jobs to wait for are not repeated: they may be
    over. Raises UsageError for
    variables of another user that `given` has no value for.
    """
    workload: dict[str, Any] = asdict(spec.workload) | dict(given.get("workload", {}))
    workload["env"] = {**spec.workload.env, **given.get("workload", {}).get("env", {})}
    missing = sorted(name for name, value in workload["env"].items() if value is None)
    if missing:
        what = f"The value of {', '.join(missing)} is known to the job's owner alone."
        raise UsageError(f"{what} Give it with --env {missing[0]}=VALUE.")
    kept = ("name", "gpus", "gpu_type", "nodes", "duration", "priority", "project")
    fields: dict[str, Any] = {name: getattr(spec, name) for name in kept}
    if spec.secrets:
        fields["secrets"] = [
            {name: value for name, value in asdict(secret).items() if isinstance(value, str)} for secret in spec.secrets
        ]
    if spec.retries is not None:
        fields["retries"] = to_builtins(spec.retries)
    if spec.sync is not None:
        fields["sync"] = to_builtins(spec.sync)
    if spec.disks:
        fields["disks"] = [asdict(disk) for disk in spec.disks]
    if spec.array is not None:
        fields["array"] = to_builtins(spec.array)
    if spec.preemptible:
        fields |= {"preemptible": True, "min_runtime": spec.min_runtime}
    if spec.end_signal is not None:
        fields["end_signal"] = asdict(spec.end_signal)
    if spec.resources is not None:
        fields["resources"] = {name: value for name, value in to_builtins(spec.resources).items() if value is not None}
    fields |= given
    fields["workload"] = {name: value for name, value in workload.items() if value is not None}
    return {name: value for name, value in fields.items() if value is not None}
