"""Secrets of pods in Kubernetes: objects that belong to their pod, which alone has no value."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from reservation_core.domain.model import PodSecret, PodSpec
from reservation_core.domain.sessions.secret_uses import SecretUse
from reservation_core.domain.sync.job_sync import JobSync
from tests.integration.cluster_behaviour import SpecMaker
from tests.kubernetes.api_client import ApiClient
from tests.kubernetes.api_server import ApiServer

VALUE = "hunter2 in\nconfidence=ä"


@pytest.fixture
def alone(transport: Transport, rules: ClusterRules, runtime_class: None) -> KubernetesCluster:
    """The cluster without a kubelet: pods stay as they were written."""
    return KubernetesCluster(transport, rules, SystemClock())


def with_secrets(spec: PodSpec, value: str = VALUE) -> PodSpec:
    uses = (SecretUse("t.x", env="TOKEN"), SecretUse("t.x", path="/run/a/token"), SecretUse("u", path="/run/b"))
    return replace(spec, secrets=tuple(PodSecret(use, value) for use in uses))


async def read(client: ApiClient, namespace: str, plural: str, name: str) -> dict[str, Any]:
    return dict(await client.call("GET", f"/api/v1/namespaces/{namespace}/{plural}/{name}"))


async def test_a_pod_names_its_secret_and_the_secret_belongs_to_it(
    alone: KubernetesCluster, api_server: ApiServer, namespace: str, make_spec: SpecMaker
) -> None:
    spec = with_secrets(make_spec("true"))
    await alone.create_pod(spec)
    async with api_server.client() as client:
        pod = await read(client, namespace, "pods", str(spec.name))
        secret = await read(client, namespace, "secrets", str(spec.name))
        events = await client.call("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    [owner] = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", str(spec.name), pod["metadata"]["uid"])
    assert {key: base64.b64decode(value).decode() for key, value in secret["data"].items()} == {
        "t.x": VALUE,
        "u": VALUE,
    }
    container = pod["spec"]["containers"][0]
    variables = {variable["name"]: variable for variable in container["env"]}
    assert variables["TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": str(spec.name), "key": "t.x"}
    assert variables["GPU_DEV_SECRET_FILES"].get("value", "") == ""
    [volume] = [volume for volume in pod["spec"]["volumes"] if "secret" in volume]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"] if mount["name"] == volume["name"]}
    assert {path: mount["subPath"] for path, mount in mounts.items()} == {"/run/a/token": "t.x", "/run/b": "u"}
    assert all(mount["readOnly"] for mount in mounts.values())
    for text in (json.dumps(pod, ensure_ascii=False), json.dumps(events, ensure_ascii=False)):
        assert "hunter2" not in text
        assert base64.b64encode(VALUE.encode()).decode() not in text


async def test_the_token_that_passes_files_is_in_the_secret(
    transport: Transport, rules: ClusterRules, api_server: ApiServer, namespace: str, make_spec: SpecMaker
) -> None:
    made = make_spec("true")
    env = (*made.env, ("GPU_DEV_JOB_TOKEN", "gpudev-job.hunter2"))
    spec = replace(made, workload=replace(made.workload, sync=JobSync(None, ("out",))), env=env)
    with_image = replace(rules, pods=replace(rules.pods, files_image="registry.test/processor:1"))
    await KubernetesCluster(transport, with_image, SystemClock()).create_pod(spec)
    async with api_server.client() as client:
        pod = await read(client, namespace, "pods", str(spec.name))
        secret = await read(client, namespace, "secrets", str(spec.name))
    assert "hunter2" not in json.dumps(pod)
    [value] = secret["data"].values()
    assert base64.b64decode(value) == b"gpudev-job.hunter2"


async def test_a_pod_without_secrets_has_no_such_object(
    alone: KubernetesCluster, api_server: ApiServer, namespace: str, make_spec: SpecMaker
) -> None:
    spec = make_spec("true")
    await alone.create_pod(spec)
    async with api_server.client() as client:
        listed = await client.call("GET", f"/api/v1/namespaces/{namespace}/secrets")
    assert str(spec.name) not in {secret["metadata"]["name"] for secret in listed["items"]}


async def test_a_creation_that_was_cut_short_is_completed_and_what_has_its_name_is_replaced(
    alone: KubernetesCluster, api_server: ApiServer, namespace: str, make_spec: SpecMaker
) -> None:
    spec = make_spec("true")
    await alone.create_pod(spec)  # and the process was killed before it wrote the Secret
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    async with api_server.client() as client:
        stale = {"metadata": {"name": str(spec.name)}, "stringData": {"old": "x"}}
        await client.call("POST", secrets, stale)
        for value in (VALUE, "new"):
            await alone.create_pod(with_secrets(spec, value))
            secret = await read(client, namespace, "secrets", str(spec.name))
            assert base64.b64decode(secret["data"]["u"]).decode() == value
            assert secret["data"].keys() == {"t.x", "u"}
        pod = await read(client, namespace, "pods", str(spec.name))
    assert secret["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
