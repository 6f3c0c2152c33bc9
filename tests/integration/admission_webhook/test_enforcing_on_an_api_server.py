"""Bookings enforced by a real kube-apiserver, which asks the webhook, which asks a real control plane."""

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from reservation_core.runtime.wiring import Runtime
from tests.clusters.webhook_registration import ENFORCED_LABEL, registered
from tests.integration.admission_webhook.control_plane import NOBODY_CAN_SAY, PATIENCE_S, ControlPlane, control_plane
from tests.integration.api_service.bookings.calendars import add_nodes
from tests.kubernetes.api_client import MERGE, STRATEGIC, ApiAnswerError, ApiClient, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.node.kubelet import Kubelet
from tests.kubernetes.nodes import NodeSpec
from tests.programs.webhook_process import new_pair, webhook_process, write_pair
from tests.waiting import eventually

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture(autouse=True)
def _only_a_real_server_asks(api_server: ApiServer) -> None:
    if not api_server.real:
        pytest.skip("the emulator calls no webhooks; set KUBEBUILDER_ASSETS")


@pytest.fixture
async def control(runtime: Runtime) -> AsyncIterator[ControlPlane]:
    async with control_plane(runtime) as control:
        yield control


@pytest.fixture
async def admin(
    api_server: ApiServer, namespace: str, control: ControlPlane, tmp_path: Path
) -> AsyncIterator[ApiClient]:
    """The cluster's administrator; the test's namespace is enforced, and is `cyd`'s."""
    pair = new_pair()
    write_pair(pair, tmp_path)
    users = {
        f"system:serviceaccount:{namespace}:{name}": user for name, user in (("ann", "ann@lab.org"), ("bob", "bob"))
    }
    (tmp_path / "owners.yaml").write_text(json.dumps({"users": users, "namespaces": {namespace: "cyd"}}))
    given = {
        "ENFORCE_BOOKINGS": "true",
        "API_URL": f"{control.url}/v1/schedulability",
        "API_TOKEN": control.tokens["gate"],
        "OWNERS_FILE": str(tmp_path / "owners.yaml"),
    }
    settings = {f"GPU_DEV_WEBHOOK__{name}": value for name, value in given.items()}
    with webhook_process(tmp_path, **settings) as webhook:
        async with (
            registered(api_server, namespace, namespace, webhook.url, [pair], enforced=True),
            api_server.client() as client,
        ):
            label = {"metadata": {"labels": {ENFORCED_LABEL: "true"}}}
            await client.call("PATCH", f"/api/v1/namespaces/{namespace}", label, content_type=MERGE)
            await _may_make_pods(client, namespace)
            yield client


async def _may_make_pods(client: ApiClient, namespace: str) -> None:
    """All service accounts of a namespace may make pods in it."""
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rules = [{"apiGroups": [""], "resources": ["pods", "pods/ephemeralcontainers"], "verbs": ["*"]}]
    await client.call("POST", f"{path}/roles", {"metadata": {"name": "pods"}, "rules": rules})
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": f"system:serviceaccounts:{namespace}"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "pods"}
    await client.call("POST", f"{path}/rolebindings", {"metadata": {"name": "p"}, "subjects": [group], "roleRef": role})


def pod(name: str, gpus: int = 1, **annotations: str) -> JsonObject:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {
        "metadata": {"name": name, "annotations": {"gpu-dev/owner": "root", **annotations}},
        "spec": {
            "containers": [{"name": "main", "image": "busybox", "resources": {"limits": limits}}],
            "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        },
    }


def variables_of(container: JsonObject) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container["env"]}


async def call(client: ApiClient, method: str, path: str, body: JsonObject, **more: Any) -> JsonObject:
    """A request, again while nobody can say."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await client.call(method, path, body, **more)
        except ApiAnswerError as problem:
            if NOBODY_CAN_SAY not in str(problem) or time.monotonic() > deadline:
                raise


async def refusal(client: ApiClient, method: str, path: str, body: JsonObject, **more: Any) -> str:
    with pytest.raises(ApiAnswerError) as refused:
        await call(client, method, path, body, **more)
    assert refused.value.code == 403, refused.value
    return str(refused.value)


async def _is_asked(client: ApiClient, pods: str) -> None:
    """Wait until the label and the roles are known to the server; the client's user has booked nothing."""

    async def enforced() -> bool:
        try:
            await client.call("POST", pods, pod("probe"), dryRun="All")
        except ApiAnswerError as problem:
            return "has no booking" in str(problem)
        return False

    await eventually(enforced)


async def test_booked_unbooked_and_a_controllers_pod(
    api_server: ApiServer, admin: ApiClient, namespace: str, control: ControlPlane
) -> None:
    booking = await control.book("ann@lab.org", gpus=2, gpu_type="h100")
    theirs = await control.book("cyd", gpus=1, gpu_type="h100")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    tokens = {name: await api_server.token_of(namespace, name) for name in ("ann", "bob", "controller")}
    async with (
        api_server.client(tokens["ann"]) as ann,
        api_server.client(tokens["bob"]) as bob,
        api_server.client(tokens["controller"]) as controller,
    ):
        await _is_asked(bob, pods)
        dry = await call(ann, "POST", pods, pod("notebook", 2), dryRun="All")
        kept = await call(ann, "POST", pods, pod("notebook", 2))
        expected = {
            "gpu-dev/owner": "ann@lab.org",
            "gpu-dev/booking": booking["id"],
            "gpu-dev/terminate-at": booking["end"].replace(".000Z", "Z"),
        }
        assert kept["metadata"]["annotations"] == dry["metadata"]["annotations"] == expected
        assert "gpu-dev book" in await refusal(bob, "POST", pods, pod("b"))
        assert "has booked 2 h100 now; 3 are asked for" in await refusal(ann, "POST", pods, pod("c", 3))
        made = await call(controller, "POST", pods, pod("d"))
        assert made["metadata"]["annotations"]["gpu-dev/owner"] == "cyd"
        assert made["metadata"]["annotations"]["gpu-dev/booking"] == theirs["id"]
        # What was written stays; a debugging container sees nothing that is not counted.
        for value in (None, "2099-01-01T00:00:00Z"):
            change = {"metadata": {"annotations": {"gpu-dev/terminate-at": value}}}
            assert "can't be changed" in await refusal(ann, "PATCH", f"{pods}/notebook", change, content_type=MERGE)
        variable = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
        debug = {"spec": {"ephemeralContainers": [{"name": "x", "image": "busybox", "env": [variable]}]}}
        path = f"{pods}/notebook/ephemeralcontainers"
        assert "sets NVIDIA_VISIBLE_DEVICES" in await refusal(ann, "PATCH", path, debug, content_type=STRATEGIC)
        # A mapped pod is counted by its map, after the other path has read it.
        mapped = pod("check-0", 0, **{"gpu-scheduling-map": "0=node1:2,3"})
        mapped["spec"]["schedulerName"] = "gpu-scheduler"
        made = await call(ann, "POST", pods, mapped)
        both = made["metadata"]["annotations"]
        assert (both["gpu-dev/map-devices"], both["gpu-dev/booking"]) == ("2,3", booking["id"])
        given = {"NVIDIA_VISIBLE_DEVICES": "2,3", "CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        assert variables_of(made["spec"]["containers"][0]) == given
        debug = {"spec": {"ephemeralContainers": [{"name": "x", "image": "busybox"}]}}
        path = f"{pods}/check-0/ephemeralcontainers"
        made = await call(ann, "PATCH", path, debug, content_type=STRATEGIC)
        assert variables_of(made["spec"]["ephemeralContainers"][0]) == given
        terms = kept["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
        assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node1"]}]}]


@pytest.fixture
def nodes() -> tuple[NodeSpec, ...]:
    return (NodeSpec("node1"), NodeSpec("node3"), NodeSpec("node4"))


def affine(*terms: JsonObject) -> JsonObject:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def running(name: str, **spec: Any) -> JsonObject:
    body = pod(name)
    body["spec"] |= {"restartPolicy": "Never", **spec}
    body["spec"]["containers"][0]["command"] = ["sleep", "600"]
    return body


async def test_pods_run_on_the_booked_nodes_and_nowhere_else(
    api_server: ApiServer,
    admin: ApiClient,
    namespace: str,
    control: ControlPlane,
    runtime: Runtime,
    kubelet: Kubelet,
    scheduler: None,
) -> None:
    """The other nodes are as free, and each pod on the booked one makes them freer than it."""
    await add_nodes(runtime, node1=("h100", 4), node3=("h100", 4), node4=("h100", 4))
    booking = await control.book("ann@lab.org", gpus=4, gpu_type="h100", node="node3")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    here = {"key": "gpu-dev/node", "operator": "In", "values": ["true"]}
    is_node3 = {"key": "metadata.name", "operator": "In", "values": ["node3"]}
    is_node4 = {"key": "metadata.name", "operator": "In", "values": ["node4"]}
    not_node4 = {**is_node4, "operator": "NotIn"}
    tokens = {name: await api_server.token_of(namespace, name) for name in ("ann", "bob")}
    async with api_server.client(tokens["ann"]) as ann, api_server.client(tokens["bob"]) as bob:
        await _is_asked(bob, pods)
        for number, (asked, kept) in enumerate(
            (
                ({}, [{"matchFields": [is_node3]}]),
                (affine({"matchExpressions": [here]}), [{"matchExpressions": [here], "matchFields": [is_node3]}]),
                (affine({"matchFields": [not_node4]}), [{"matchFields": [not_node4, is_node3]}]),
                (affine({"matchFields": [is_node4]}, {"matchFields": [is_node3]}), [{"matchFields": [is_node3]}]),
            )
        ):
            name = f"p{number}"
            made = await call(ann, "POST", pods, running(name, **asked))
            assert made["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == kept
            assert made["metadata"]["annotations"]["gpu-dev/booking"] == booking["id"]

            async def bound(name: str = name) -> str | None:
                return (await admin.call("GET", f"{pods}/{name}"))["spec"].get("nodeName")

            assert await eventually(bound, PATIENCE_S) == "node3"
        selecting = {"nodeSelector": {"kubernetes.io/hostname": "node4"}}
        for wrong in ({"nodeName": "node4"}, selecting, affine({"matchFields": [is_node4]})):
            assert f"booking {booking['id']} has room on node3" in await refusal(
                ann, "POST", pods, running("wrong", **wrong)
            )
        # A map that means another node: its scheduler looks at the pod's affinity and does not bind it.
        mapped = pod("check-0", 0, **{"gpu-scheduling-map": "0=node4:0,1"})
        mapped["spec"]["schedulerName"] = "gpu-scheduler"
        made = await call(ann, "POST", pods, mapped)
        assert made["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [{"matchFields": [is_node3]}]
