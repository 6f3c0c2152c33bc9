"""A real Volcano scheduler, where `KUBEBUILDER_ASSETS` has one (`vc-scheduler`) beside a real API server."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.kubernetes.api_client import MERGE, ApiClient, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.custom_kinds import define_kind
from tests.kubernetes.real import guarded
from tests.waiting import eventually

SCHEDULING = "scheduling.volcano.sh"
_KINDS = [
    (SCHEDULING, "v1beta1", "PodGroup", "podgroups", "Namespaced"),
    (SCHEDULING, "v1beta1", "Queue", "queues", "Cluster"),
    ("nodeinfo.volcano.sh", "v1alpha1", "Numatopology", "numatopologies", "Cluster"),
    ("topology.volcano.sh", "v1alpha1", "HyperNode", "hypernodes", "Cluster"),
]
"""What its scheduler watches, all in the shortest schema that an API server takes."""

_QUEUE = f"/apis/{SCHEDULING}/v1beta1/queues/default/status"
POD_GROUPS = f"/apis/{SCHEDULING}/v1beta1/namespaces/{{namespace}}/podgroups"
_PATIENCE_S = 60.0


def volcano_of(server: ApiServer) -> Path | None:
    """The program, None where there is none."""
    program = Path(os.environ.get("KUBEBUILDER_ASSETS", "")) / "vc-scheduler"
    return program if server.real and program.is_file() else None


@asynccontextmanager
async def started_volcano(server: ApiServer, program: Path, client: ApiClient, config: str) -> AsyncIterator[Path]:
    """It binds pods whose schedulerName is `volcano` while the block runs; gives its log.

    `config` is what its ConfigMap holds.
    """
    for kind in _KINDS:
        await define_kind(client, *kind)
    log = server.folder / "vc-scheduler.log"
    file = server.folder / "volcano" / "volcano-scheduler.conf"  # it reads it anew whenever its folder changes
    file.parent.mkdir(exist_ok=True)
    file.write_text(config)
    command = [
        str(program), f"--kubeconfig={server.kubeconfig}", f"--scheduler-conf={file}", "--leader-elect=false",
        "--scheduler-name=volcano", "--schedule-period=200ms", "--enable-metrics=false", "--cache-dumper=false",
        "--kube-api-qps=1000", "--kube-api-burst=2000", "-v=3",
    ]  # fmt: skip
    log.write_text("")
    volcano = guarded.start(command, log)

    async def works() -> bool:
        if volcano.poll() is not None:
            raise RuntimeError(f"Volcano ended. It said: {log.read_text()[-3000:]}")
        # It makes the queue; to open it is a controller's work.
        return await client.try_call("PATCH", _QUEUE, {"status": {"state": "Open"}}, content_type=MERGE)

    try:
        await eventually(works, _PATIENCE_S)
        yield log
    finally:
        await asyncio.to_thread(guarded.end, volcano)


def pod_group(name: str, members: int, **spec: object) -> JsonObject:
    """A gang of so many pods; they name it in the annotation `scheduling.k8s.io/group-name`."""
    return {
        "apiVersion": f"{SCHEDULING}/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": members, "queue": "default", **spec},
    }
