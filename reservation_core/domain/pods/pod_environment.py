"""The pods of a reservation: one per node, with the variables that tell the workload its GPUs."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from reservation_core.domain.model import AllocatedGpu, PodName, PodSecret, PodSpec, Reservation
from reservation_core.domain.sessions.job_tokens import JobAccess

JOB_ID_VARIABLE = "GPU_DEV_JOB_ID"
"""The variable that tells a workload its reservation. Users can't set it."""

_ENDING = timedelta(minutes=1)
"""How long after its end the pods of a preemptible job may last before the cluster ends them by itself."""

FIRST_MASTER_PORT = 20_000
MASTER_PORTS = 10_000


def master_port(reservation_id: str) -> int:
    """The port of a gang's rank 0: 20000 to 29999, the same for every pod and attempt of a reservation."""
    value = 2_166_136_261
    for byte in reservation_id.encode():  # FNV-1a: Python's own hash() differs from process to process
        value = (value ^ byte) * 16_777_619 % 2**32
    return FIRST_MASTER_PORT + value % MASTER_PORTS


def last_end(reservation: Reservation) -> datetime | None:
    """The latest end of a job's range: that of a preemptible one grows while nobody else needs its GPUs."""
    if reservation.range_end is None or not reservation.preemption.preemptible:
        return reservation.range_end
    if reservation.ends_at is None:
        return reservation.range_end + reservation.duration
    return max(reservation.range_end, reservation.ends_at + _ENDING)


def pod_names(reservation: Reservation) -> tuple[PodName, ...]:
    """The names of the pods of the current attempt, in the order of ranks."""
    return tuple(PodName(reservation.id, reservation.attempt, rank) for rank in range(reservation.nodes))


def pod_environment(
    reservation: Reservation,
    node: str,
    gpu_indices: Sequence[int],
    rank: int,
    node_names: Sequence[str],
    master_port: int,
    master_address: str = "127.0.0.1",
    inside: Mapping[str, str] | None = None,
) -> tuple[tuple[str, str], ...]:
    """A pod's variables: the user's, overridden by ours. `node_names` are the gang's nodes in the order of ranks.

    `inside` are those by which programs reach the server.
    """
    ours = {
        **(inside or {}),
        "CUDA_VISIBLE_DEVICES": ",".join(str(index) for index in gpu_indices),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        JOB_ID_VARIABLE: reservation.id,
        "GPU_DEV_ATTEMPT": str(reservation.attempt),
        "GPU_DEV_NODE": node,
    }
    if reservation.element is not None:
        ours |= {
            "GPU_DEV_ARRAY_INDEX": str(reservation.element.index),
            "GPU_DEV_ARRAY_SIZE": str(reservation.element.size),
        }
    if len(node_names) > 1:
        ours |= {
            "NNODES": str(len(node_names)),
            "NODE_RANK": str(rank),
            "MASTER_ADDR": master_address,
            "MASTER_PORT": str(master_port),
        }
    return tuple({**dict(reservation.workload.env), **ours}.items())


def pod_specs(
    reservation: Reservation,
    allocations: tuple[AllocatedGpu, ...],
    now: datetime,
    grace: timedelta,
    belt: timedelta,
    master_address: str = "127.0.0.1",
    access: JobAccess | None = None,
    secrets: tuple[PodSecret, ...] = (),
) -> tuple[PodSpec, ...]:
    """The pods of the current attempt, in the order of ranks; with `access` their programs may extend the job.

    `belt` is how long after the range's end the cluster ends a pod by itself. Without a range the reservation starts
    `now`.
    """
    ends_at = last_end(reservation) or max((gpu.ends_at for gpu in allocations), default=now + reservation.duration)
    by_rank = sorted(allocations, key=lambda gpu: (gpu.rank, gpu.index))
    ranks = {rank: tuple(gpus) for rank, gpus in groupby(by_rank, key=lambda gpu: gpu.rank)}
    node_names = [gpus[0].node for gpus in ranks.values()]
    indices = {rank: tuple(gpu.index for gpu in gpus if gpu.index >= 0) for rank, gpus in ranks.items()}
    port = master_port(reservation.id) if len(ranks) > 1 else 0
    inside = {} if access is None else access.variables_of(reservation)
    return tuple(
        PodSpec(
            name=PodName(reservation.id, reservation.attempt, rank),
            user=reservation.user,
            node=gpus[0].node,
            gpu_indices=indices[rank],
            gpu_uuids=tuple(gpu.uuid for gpu in gpus if gpu.index >= 0),
            workload=reservation.workload,
            env=pod_environment(
                reservation, gpus[0].node, indices[rank], rank, node_names, port, master_address, inside
            ),
            deadline=ends_at + belt,
            grace=grace,
            user_id=reservation.user_id,
            pods=len(ranks),
            starts_at=min(gpu.starts_at for gpu in gpus),
            ends_at=ends_at,
            gpu_resource=gpus[0].gpu_resource,
            secrets=secrets,
            resources=reservation.resources,
        )
        for rank, gpus in ranks.items()
    )
