"""Disks as claims of an API server, and the pods that have them."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server.errors import ApiServerError, ApiServerForbidsError
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from reservation_core.adapters.kubernetes.other_objects.disk_claims import ClaimRules, DiskClaims
from reservation_core.domain.disks.disk_uses import DiskUse
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.disks.disks import DiskCopy, DiskDelayedError, DiskRefusedError
from tests.integration.cluster_behaviour import SpecMaker
from tests.kubernetes.api_client import MERGE, ApiClient
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.custom_kinds import define_kind, remove_kind

GIB = 2**30
DISK = "disk-0a1b2c3d"
CLONE = "disk-c10ne"
SNAPSHOT = "snap-1a2b3c4d"
GROUP = "snapshot.storage.k8s.io"


@pytest.fixture
async def client(api_server: ApiServer) -> AsyncIterator[ApiClient]:
    async with api_server.client() as client:
        yield client


@pytest.fixture
def claims(transport: Transport, namespace: str) -> DiskClaims:
    return DiskClaims(transport, ClaimRules(namespace, "shared", "ReadWriteMany", "snaps"))


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
    assert await claims.measure(DISK, GIB) is None


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


async def let_claims_grow(client: ApiClient, api_server: ApiServer) -> None:
    """Have the class that claims name: a real server asks it."""
    if api_server.real:
        classes = "/apis/storage.k8s.io/v1/storageclasses"
        shared = {"metadata": {"name": "shared"}, "provisioner": "test.example/none", "allowVolumeExpansion": True}
        await client.try_call("POST", classes, shared)


async def bind(client: ApiClient, namespace: str, disk: str) -> None:
    """Give a claim a volume of its first size."""
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{disk}"
    await client.call("PATCH", path, {"spec": {"volumeName": "pv-1"}}, content_type=MERGE)
    bound = {"phase": "Bound", "capacity": {"storage": str(GIB)}}
    await client.call("PATCH", f"{path}/status", {"status": bound}, content_type=MERGE)


async def test_a_disk_that_has_a_volume_becomes_larger_where_its_class_allows_that(
    claims: DiskClaims, client: ApiClient, namespace: str, api_server: ApiServer
) -> None:
    await let_claims_grow(client, api_server)
    await claims.make(DISK, GIB)
    await bind(client, namespace, DISK)
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


@pytest.fixture
async def snapshots(client: ApiClient) -> AsyncIterator[None]:
    """The kind that an administrator installs."""
    await define_kind(client, GROUP, "v1", "VolumeSnapshot", "volumesnapshots", "Namespaced")
    yield
    await remove_kind(client, GROUP, "volumesnapshots")


def taken() -> DiskCopy:
    return DiskCopy(DISK, GIB, "the snapshot monday", is_still=False, into_snapshot_id=SNAPSHOT)


async def test_a_snapshot_is_ready_once_the_cluster_says_so(
    claims: DiskClaims, client: ApiClient, namespace: str, snapshots: None
) -> None:
    await claims.make(DISK, GIB)
    assert [await claims.copy(taken()) for _ in range(2)] == [None, None]
    path = f"/apis/{GROUP}/v1/namespaces/{namespace}/volumesnapshots/{SNAPSHOT}"
    made = await client.call("GET", path)
    assert made["spec"] == {"volumeSnapshotClassName": "snaps", "source": {"persistentVolumeClaimName": DISK}}
    fault = {"status": {"readyToUse": False, "error": {"message": "the array is offline"}}}
    await client.call("PATCH", f"{path}/status", fault, content_type=MERGE)
    with pytest.raises(DiskDelayedError, match="the array is offline"):
        await claims.copy(taken())
    await client.call("PATCH", f"{path}/status", {"status": {"readyToUse": True}}, content_type=MERGE)
    assert await claims.copy(taken()) == GIB
    for _ in range(2):
        await claims.remove_snapshot(SNAPSHOT)
    assert not await client.try_call("GET", path)


async def test_a_cluster_without_snapshots_says_what_it_lacks(claims: DiskClaims) -> None:
    await claims.make(DISK, GIB)
    with pytest.raises(DiskRefusedError, match=r"has to install the VolumeSnapshots of snapshot\.storage\.k8s\.io/v1"):
        await claims.copy(taken())
    await claims.remove_snapshot(SNAPSHOT)  # there is nothing, and it may go


@pytest.mark.parametrize(
    ("snapshot", "source"),
    [
        (None, {"kind": "PersistentVolumeClaim", "name": DISK}),
        (SNAPSHOT, {"apiGroup": GROUP, "kind": "VolumeSnapshot", "name": SNAPSHOT}),
    ],
)
async def test_a_clone_names_its_source_and_is_made_once_it_has_a_volume(
    claims: DiskClaims, client: ApiClient, namespace: str, snapshot: str | None, source: dict[str, str]
) -> None:
    copy = DiskCopy(DISK, 2 * GIB, "the disk new", is_still=False, snapshot_id=snapshot, clone_id=CLONE)
    assert [await claims.copy(copy) for _ in range(2)] == [None, None]
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{CLONE}"
    made = (await client.call("GET", path))["spec"]
    named = {key: value for key, value in made["dataSource"].items() if value is not None}  # API servers add "apiGroup"
    assert (named, made["storageClassName"]) == (source, "shared")
    assert made["resources"]["requests"]["storage"] in ("2Gi", str(2 * GIB))
    await client.call("PATCH", path, {"spec": {"volumeName": "pv-1"}}, content_type=MERGE)
    await client.call("PATCH", f"{path}/status", {"status": {"phase": "Bound"}}, content_type=MERGE)
    assert await claims.copy(copy) == 2 * GIB


async def test_a_claim_that_was_made_empty_is_no_clone(claims: DiskClaims) -> None:
    await claims.make(CLONE, GIB)
    with pytest.raises(DiskRefusedError, match="has made it empty"):
        await claims.copy(DiskCopy(DISK, GIB, "the disk new", is_still=False, clone_id=CLONE))


async def test_a_claim_that_was_made_empty_is_kept_if_it_was_deleted_with_a_volume(
    claims: DiskClaims, client: ApiClient, namespace: str
) -> None:
    """What a job wrote to it is there until its time is over, as on other disks."""
    await claims.make(CLONE, GIB)
    copy = DiskCopy(DISK, GIB, "the disk new", is_still=False, clone_id=CLONE, deleted_at=datetime.now(UTC))
    assert await claims.copy(copy) is None  # no job had it
    await bind(client, namespace, CLONE)
    assert await claims.copy(copy) == GIB
    with pytest.raises(DiskRefusedError, match="has made it empty"):
        await claims.copy(replace(copy, deleted_at=None))


async def test_a_clone_that_became_larger_before_it_had_its_volume_has_the_size_it_was_made_with(
    claims: DiskClaims, client: ApiClient, namespace: str, api_server: ApiServer
) -> None:
    await let_claims_grow(client, api_server)
    copy = DiskCopy(DISK, GIB, "the disk new", is_still=False, clone_id=CLONE)
    assert await claims.copy(copy) is None
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{CLONE}"
    await bind(client, namespace, CLONE)
    assert await claims.copy(replace(copy, size_bytes=2 * GIB)) == GIB
    await claims.make(CLONE, 2 * GIB)
    made = await client.call("GET", path)
    assert made["spec"]["resources"]["requests"]["storage"] in ("2Gi", str(2 * GIB))


async def test_a_clone_says_why_its_volume_is_not_made(claims: DiskClaims, client: ApiClient, namespace: str) -> None:
    copy = DiskCopy(DISK, GIB, "the disk new", is_still=False, clone_id=CLONE)
    assert await claims.copy(copy) is None
    kind = "PersistentVolumeClaim"
    said = (
        (CLONE, 5, "failed to provision volume: the array can't clone"),
        (CLONE, 4, "an older one, whose name comes later"),
        ("disk-0ther", 6, "of another one"),
    )
    for name, hour, note in said:
        about = {"apiVersion": "v1", "kind": kind, "namespace": namespace, "name": name}
        event = {
            "metadata": {"name": f"{name}.{9 - hour}"}, "reason": "ProvisioningFailed", "type": "Warning", "note": note,
            "action": "Provision", "regarding": about, "eventTime": f"2026-11-28T0{hour}:00:00.000000Z",
            "reportingController": "test.example/none", "reportingInstance": "one",
        }  # fmt: skip
        await client.call("POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", event)
    with pytest.raises(DiskDelayedError, match=r"its volume yet: failed .* the array can't clone\. Delete this"):
        await claims.copy(copy)


async def test_a_clone_whose_volume_is_lost_is_refused(claims: DiskClaims, client: ApiClient, namespace: str) -> None:
    copy = DiskCopy(DISK, GIB, "the disk new", is_still=False, clone_id=CLONE)
    await claims.copy(copy)
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{CLONE}/status"
    await client.call("PATCH", path, {"status": {"phase": "Lost"}}, content_type=MERGE)
    with pytest.raises(DiskRefusedError, match=r"has lost its volume\. Delete this disk"):
        await claims.copy(copy)


class Refusing:
    """A server that refuses some requests: by their verbs, with what it says."""

    def __init__(self, transport: Transport, refusals: dict[str, ApiServerError]) -> None:
        self._transport = transport
        self._refusals = refusals

    async def request(self, verb: str, path: str, **more: Any) -> Mapping[str, Any]:
        """Refuse, or pass the request on."""
        if (refusal := self._refusals.get(verb)) is not None:
            raise refusal
        return await self._transport.request(verb, path, **more)


def refusing(transport: Transport, namespace: str, **refusals: ApiServerError) -> DiskClaims:
    rules = ClaimRules(namespace, "shared", "ReadWriteMany", "snaps")
    return DiskClaims(cast("Transport", Refusing(transport, refusals)), rules)


async def test_a_clone_that_has_used_up_a_quota_is_not_refused_by_it(
    claims: DiskClaims, transport: Transport, namespace: str
) -> None:
    copy = DiskCopy(DISK, GIB, "the disk new", is_still=False, clone_id=CLONE)
    words = f'persistentvolumeclaims "{CLONE}" is forbidden: exceeded quota: all'
    refused = refusing(transport, namespace, POST=ApiServerForbidsError(403, "Forbidden", words))
    with pytest.raises(DiskRefusedError, match="exceeded quota"):
        await refused.copy(copy)
    assert not await claims.copy(copy)
    assert not await refused.copy(copy)


async def test_a_disk_that_is_there_becomes_larger_though_no_more_disks_may_be_made(
    claims: DiskClaims, transport: Transport, client: ApiClient, namespace: str, api_server: ApiServer
) -> None:
    await let_claims_grow(client, api_server)
    await claims.make(DISK, GIB)
    await bind(client, namespace, DISK)
    words = f'persistentvolumeclaims "{DISK}" is forbidden: exceeded quota: persistentvolumeclaims=1'
    await refusing(transport, namespace, POST=ApiServerForbidsError(403, "Forbidden", words)).make(DISK, 2 * GIB)
    assert (await claim(client, namespace))["spec"]["resources"]["requests"]["storage"] in ("2Gi", str(2 * GIB))


async def test_a_claim_that_we_may_not_get_is_no_matter_of_its_size(transport: Transport, namespace: str) -> None:
    words = f'persistentvolumeclaims "{CLONE}" is forbidden: User "system:serviceaccount:gpu-dev:s" cannot get resource'
    claims = refusing(transport, namespace, GET=ApiServerForbidsError(403, "Forbidden", words))
    with pytest.raises(ClusterUnavailableError, match="a role with the verb get on persistentvolumeclaims"):
        await claims.copy(DiskCopy(DISK, GIB, "the disk new", is_still=False, clone_id=CLONE))
