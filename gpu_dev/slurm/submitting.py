"""A request of `sbatch` or `srun` as the client sends it, and a rehearsal of one."""

from collections.abc import Sequence

from gpu_dev.client import GpuDevClient
from gpu_dev.display.output import Format
from gpu_dev.display.verdicts import show_start
from gpu_dev.inputs.machine_zone import local_now
from gpu_dev.inputs.requests import end_fields, job_fields, make_request
from gpu_dev.session import booking_id_of, whole_id
from gpu_dev.slurm.reading.requests import Asked
from gpu_dev.slurm.reading.time_limits import write_time
from gpu_dev.terminal import put
from gpu_dev.wire.jobs import JobSubmit, SoonerRequest
from reservation_core.domain.request_terms import RequestChange

_OPTIONS = {
    "duration": "--time",
    "gpu_type": "--gpus",
    "name": "--job-name",
    "booking_id": "--reservation",
    "project": "--account",
    "after": "--dependency",
    "retries": "--requeue",
    "array": "--array",
    "resources.cpus": "--cpus-per-task",
    "resources.memory": "--mem",
    "end_signal": "--signal",
    "workload.env": "--export",
    "workload.working_dir": "--chdir",
    "workload.command": "the script",
}


def make_submit(client: GpuDevClient, asked: Asked, command: Sequence[str]) -> JobSubmit:
    """The request. Raises UsageError."""
    fields = job_fields(
        list(command),
        asked.gpu_type,
        asked.nodes,
        asked.name,
        list(asked.env),
        None,
        asked.working_dir or ".",
        asked.priority,
        None if asked.booking is None else booking_id_of(client, asked.booking),
        asked.project,
        after=list(asked.after),
        requeue=asked.requeue,
        array=asked.array,
        cpus=asked.cpus,
        memory=asked.memory,
    )
    fields |= end_fields(preemptible=False, min_runtime=None, end_signal=asked.signal)
    if asked.after:
        fields["after"] = [one | {"job": whole_id(client, one["job"])} for one in fields["after"]]
    return make_request(JobSubmit, {**fields, "gpus": asked.gpus, "duration": asked.duration}, **_OPTIONS)


def rehearse(client: GpuDevClient, request: JobSubmit) -> None:
    """Say when a job would start. A refusal is an error, as of submitting it."""
    put(show_start(request, client.would_submit(request), Format.TABLE, local_now(), _changed))


def _changed(_request: JobSubmit, sooner: SoonerRequest) -> str:
    """The change, as options of Slurm."""
    if sooner.change is RequestChange.SHORTER:
        return f"--time={write_time(sooner.duration)}"
    gpus = f"{sooner.gpu_type}:{sooner.gpus}" if sooner.change is RequestChange.TYPE else str(sooner.gpus)
    return f"--nodes={sooner.nodes} --gpus-per-node={gpus}" if sooner.nodes > 1 else f"--gpus={gpus}"
