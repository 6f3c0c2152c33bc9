"""Pods to build, as the ledger would ask for them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from reservation_core.adapters.kubernetes.pods.built_pods import PodRules
from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuAttach, GpuPin
from reservation_core.domain.model import PodName, PodSpec, PodWorkload
from reservation_core.domain.sync.job_sync import JobSync

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
RULES = PodRules(namespace="gpu-dev", extension_room=timedelta(hours=1))
WORKLOAD = PodWorkload(
    command=("python", "train.py", "--name=$(hostname)"),
    image="registry.example.org/team/train:1.2",
    env=(("LEARNING_RATE", "3e-4"),),
    working_dir="/work",
)
SINGLE = PodSpec(
    name=PodName("job-7f3k9q", 1, 0),
    user="ada",
    node="node2",
    gpu_indices=(1, 3),
    gpu_uuids=("GPU-11111111-aaaa", "GPU-33333333-cccc"),
    workload=WORKLOAD,
    env=(
        ("LEARNING_RATE", "3e-4"),
        ("CUDA_VISIBLE_DEVICES", "1,3"),
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        ("GPU_DEV_JOB_ID", "job-7f3k9q"),
        ("GPU_DEV_NODE", "node2"),
    ),
    deadline=NOW + timedelta(hours=2),
    grace=timedelta(seconds=10),
    user_id=7,
    starts_at=NOW,
    ends_at=NOW + timedelta(hours=2),
)
GANG = replace(
    SINGLE,
    name=PodName("job-7f3k9q", 2, 1),
    pods=2,
    env=(
        *SINGLE.env,
        ("NNODES", "2"),
        ("NODE_RANK", "1"),
        ("MASTER_ADDR", "job-7f3k9q-2-0.job-7f3k9q-2"),
        ("MASTER_PORT", "21234"),
    ),
)
FILES_RULES = replace(RULES, files_image="registry.test/reservation-processor:1")
WITH_FILES = replace(
    SINGLE,
    workload=replace(WORKLOAD, working_dir=None, sync=JobSync("0" * 64, ("out",))),
    env=(*SINGLE.env, ("GPU_DEV_JOB_TOKEN", "gpudev-job.secret"), ("GPU_DEV_JOB_SERVER", "http://api:8000")),
)
CASES = {
    f"{attach.value}-{pin.value}-{'gang' if spec is GANG else 'single'}": (spec, replace(RULES, attach=attach, pin=pin))
    for attach in GpuAttach
    for pin in GpuPin
    for spec in (SINGLE, GANG)
}
"""Every way to get GPUs, every way to a node, alone and in a gang; by the names of the golden files."""


def container_of(pod: dict[str, Any]) -> dict[str, Any]:
    """The one container."""
    (container,) = pod["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def env_of(pod: dict[str, Any]) -> dict[str, str]:
    """The variables as the API is told them; none twice."""
    listed = container_of(pod)["env"]
    env = {variable["name"]: variable["value"] for variable in listed}
    assert len(env) == len(listed)
    return env
