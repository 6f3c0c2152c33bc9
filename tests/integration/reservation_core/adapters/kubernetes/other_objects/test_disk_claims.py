"""Disks as claims of an API server, and the pods that have them."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from reservation_core.adapters.kubernetes.other_objects.disk_claims import ClaimRules, DiskClaims
from reservation_core.domain.disks.disk_uses import DiskUse
from reservation_core.ports.disks.disks import DiskRefusedError
from tests.integration.cluster_behaviour import SpecMaker
from tests.kubernetes.api_client import MERGE, ApiClient
from tests.kubernetes.api_server import ApiServer

GIB = 2**30
DISK = "disk-0a1b2c3d"


@pytest.fixture
async def client(api_server: ApiServer) -> AsyncIterator[ApiClient]:
    async with api_server.client() as client:
        yield client


@pytest.fixture
def claims(transport: Transport, namespace: str) -> DiskClaims:
    return DiskClaims(transport, ClaimRules(namespace, "shared", "ReadWriteMany"))


async def claim(client: ApiClient, namespace: str) -> dict[str, Any]:
    return dict(await client.call("GET", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{DISK}"))


async def test_a_disk_is_one_claim_however_often_it_is_made(
    claims: DiskClaims, client: ApiClient, namespace: str
) -> None:
    await claims.make(DISK, 3 * GIB)
    await claims.make(DISK, 3 * GIB)
    made = await claim(client, namespace)
    assert made["spec"]["accessModes"] == ["ReadWriteMany"]
    assert made["spec"]["storageClassName"] == "shared"
    assert made["spec"]["resources"]["requests"]["storage"] in ("3Gi", str(3 * GIB))
    assert await claims.used_bytes(DISK) is None


async def test_a_removed_disk_is_gone_with_its_last_pod_and_may_be_removed_again(
    claims: DiskClaims, client: ApiClient, namespace: str
) -> None:
    await claims.remove(DISK)
    await claims.make(DISK, GIB)
    await claims.remove(DISK)
    await claims.remove(DISK)
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    # A real server keeps it until its controllers have seen that no pod has it.
    left = (await client.call("GET", path))["items"]
    assert all("deletionTimestamp" in one["metadata"] for one in left)


async def test_a_disk_that_has_a_volume_becomes_larger_where_its_class_allows_that(
    claims: DiskClaims, client: ApiClient, namespace: str, api_server: ApiServer
) -> None:
    if api_server.real:
        classes = "/apis/storage.k8s.io/v1/storageclasses"
        shared = {"metadata": {"name": "shared"}, "provisioner": "test.example/none", "allowVolumeExpansion": True}
        await client.try_call("POST", classes, shared)
    await claims.make(DISK, GIB)
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{DISK}"
    await client.call("PATCH", path, {"spec": {"volumeName": "pv-1"}}, content_type=MERGE)
    bound = {"phase": "Bound", "capacity": {"storage": str(GIB)}}
    await client.call("PATCH", f"{path}/status", {"status": bound}, content_type=MERGE)
    await claims.make(DISK, 2 * GIB)
    assert (await claim(client, namespace))["spec"]["resources"]["requests"]["storage"] in ("2Gi", str(2 * GIB))


async def test_what_the_cluster_refuses_is_said_in_its_words(
    claims: DiskClaims, client: ApiClient, namespace: str, api_server: ApiServer
) -> None:
    if not api_server.real:
        pytest.skip("the emulator has no quotas")
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"requests.storage": "1Gi"}}}
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    await client.call("POST", path, quota)
    # A controller counts what is used, and no test runs it.
    used = {"status": {"hard": {"requests.storage": "1Gi"}, "used": {"requests.storage": "0"}}}
    await client.call("PATCH", f"{path}/small/status", used, content_type=MERGE)
    with pytest.raises(DiskRefusedError, match=r"exceeded quota.*storage class shared"):
        await claims.make(DISK, 2 * GIB)


async def test_a_pod_has_its_disks_at_their_paths(
    claims: DiskClaims, transport: Transport, rules: ClusterRules, runtime_class: None, client: ApiClient,
    namespace: str, make_spec: SpecMaker,
) -> None:  # fmt: skip
    for name in (DISK, "disk-b"):
        await claims.make(name, GIB)
    uses = (DiskUse("data", "/disks/data", disk_id=DISK), DiskUse("in", "/in", read_only=True, disk_id="disk-b"))
    spec = make_spec("true")
    spec = replace(spec, workload=replace(spec.workload, disks=uses))
    await KubernetesCluster(transport, rules, SystemClock()).create_pod(spec)
    pod = (await client.call("GET", f"/api/v1/namespaces/{namespace}/pods/{spec.name}"))["spec"]
    named = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["volumes"]
        if "persistentVolumeClaim" in volume
    }
    mounts = {
        mount["mountPath"]: (named[mount["name"]], mount.get("readOnly", False))
        for mount in pod["containers"][0]["volumeMounts"]
        if mount["name"] in named
    }
    assert mounts == {"/disks/data": (DISK, False), "/in": ("disk-b", True)}
    assert {"name": "GPU_DEV_DISK_FOLDER"} in [
        {"name": variable["name"]} for variable in pod["containers"][0]["env"] if not variable.get("value")
    ]
