"""The manifests: what the Kubernetes schemas say of them, and that they give nobody more than its work needs."""

from pathlib import Path
from typing import Any

import pytest

from reservation_core.adapters.kubernetes.nodes.node_reports import LOGICAL_NAME_LABEL
from reservation_core.adapters.kubernetes.pods.marks import NODE_GPUS
from reservation_core.adapters.kubernetes.pods.pod_defaults import read_pod_defaults
from reservation_core.runtime.settings.components import NodeAgentSettings
from reservation_core.runtime.settings.kubernetes import KubernetesSettings
from tests.clusters.kubernetes_schemas import validate
from tests.kubernetes.manifests import DEPLOY, manifests, objects
from tests.kubernetes.permissions import Permission, granted, needed
from tests.read_yaml import read_yaml
from tests.unit.reservation_core.adapters.kubernetes.pods.pod_security import violations

WORKLOADS = KubernetesSettings().namespace
SYSTEM = "gpu-dev-system"
ALL = [pytest.param(document, id=f"{file}-{document['kind']}") for file, document in manifests()]
ROLES = [*objects("Role"), *objects("ClusterRole")]


@pytest.mark.parametrize("version", ["1.30", "1.33", "1.37"])
@pytest.mark.parametrize("document", ALL)
def test_kubernetes_knows_every_field(document: dict[str, Any], version: str) -> None:
    validate(document, version)


def test_both_namespaces_admit_restricted_pods_only() -> None:
    labels = {manifest["metadata"]["name"]: manifest["metadata"]["labels"] for manifest in objects("Namespace")}
    assert labels.keys() == {WORKLOADS, SYSTEM}
    for label in labels.values():
        assert label["pod-security.kubernetes.io/enforce"] == "restricted"


def test_who_makes_pods_of_jobs_can_borrow_no_account() -> None:
    """Creating pods in a namespace is using any account there: ours are in another one."""
    assert {manifest["metadata"]["namespace"] for manifest in objects("ServiceAccount")} == {SYSTEM}
    creators = [
        role for role in ROLES for rule in role["rules"] if "create" in rule["verbs"] and "pods" in rule["resources"]
    ]
    assert [(role["kind"], role["metadata"]["namespace"]) for role in creators] == [("Role", WORKLOADS)]


@pytest.mark.parametrize("role", [pytest.param(role, id=role["metadata"]["name"]) for role in ROLES])
def test_no_role_says_all_or_reads_secrets(role: dict[str, Any]) -> None:
    for rule in role["rules"]:
        words = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        assert "*" not in "".join(words)
        assert not {"serviceaccounts/token", "nodes/proxy"} & {*words}
        if "secrets" in words:  # who makes pods writes their Secrets; nobody reads one
            place = role["metadata"].get("namespace"), role["metadata"]["name"]
            assert (place, rule["resources"], rule["verbs"]) == (
                (WORKLOADS, "reservation-processor"), ["secrets"], ["create", "update"]
            )  # fmt: skip
        entering = [("gpu-dev", "api-service"), ("gpu-dev", "ssh-gateway")]
        if role["metadata"]["name"] == "reservation-processor":  # it sends jobs signals
            assert not {"pods/attach", "pods/portforward"} & {*words}
        elif (role["metadata"].get("namespace"), role["metadata"]["name"]) not in entering:
            assert not {"pods/exec", "pods/attach", "pods/portforward"} & {*words}
        assert not {"escalate", "bind", "impersonate", "deletecollection"} & {*words}


def test_every_binding_binds_what_there_is() -> None:
    accounts = {manifest["metadata"]["name"] for manifest in objects("ServiceAccount")}
    roles = {(role["kind"], role["metadata"].get("namespace"), role["metadata"]["name"]) for role in ROLES}
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        for binding in objects(kind):
            to = binding["roleRef"]
            assert (to["kind"], binding["metadata"].get("namespace"), to["name"]) in roles
            assert {subject["name"] for subject in binding["subjects"]} <= accounts
            assert {subject["namespace"] for subject in binding["subjects"]} == {SYSTEM}


def test_standalone_may_do_what_its_components_may() -> None:
    components = ("api-service", "reservation-processor", "availability-updater", "reservation-expiry")
    assert granted("standalone") == set().union(*(granted(component) for component in components))


def test_whoever_does_not_enforce_bookings_gives_nobody_a_right_to_end_pods_of_people() -> None:
    for account in ("reservation-expiry", "standalone"):
        bare = granted(account, enforcing=False)
        assert not {
            permission for permission in bare if permission.resource in ("pods/eviction", "namespaces", "leases")
        }
        assert not {permission for permission in bare if permission.namespace == "" and permission.resource == "events"}
        assert not {
            permission
            for permission in bare
            if permission.namespace == "" and permission.resource == "pods" and permission.verb != "list"
        }
    assert granted("reservation-expiry", enforcing=False) == {Permission("gpu-dev", "", "pods", "list")}


def test_who_only_looks_may_change_nothing() -> None:
    changing = {"create", "update", "patch", "delete"}
    accounts = {manifest["metadata"]["name"] for manifest in objects("ServiceAccount")}
    able = {account for account in accounts if changing & {permission.verb for permission in granted(account)}}
    assert able == {
        "api-service",
        "ssh-gateway",
        "reservation-processor",
        "reservation-expiry",
        "node-agent",
        "standalone",
        "gpu-admission",
    }
    for account in ("api-service", "ssh-gateway"):
        entering = {permission for permission in granted(account) if permission.verb in changing}
        assert entering == {
            Permission("gpu-dev", "", f"pods/{way}", "create") for way in ("exec", "attach", "portforward")
        }
    ending = {permission for permission in granted("reservation-expiry") if permission.verb in changing}
    bare = {
        account
        for account in accounts
        if changing & {permission.verb for permission in granted(account, enforcing=False)}
    }
    assert bare == able - {"reservation-expiry"}
    assert {(permission.namespace, permission.resource, permission.verb) for permission in ending} == {
        ("", "pods", "patch"),  # one annotation: when it has to go
        ("", "pods/eviction", "create"),
        ("", "events", "create"),
        ("gpu-dev-system", "leases", "create"),
        ("gpu-dev-system", "leases", "update"),
    }


def test_the_node_agents_pods_are_restricted_and_start_the_node_agent() -> None:
    (daemon_set,) = objects("DaemonSet")
    pod = daemon_set["spec"]["template"]
    assert violations(pod) == []
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["python", "-m", "availability_updater", "--node-agent"]
    assert pod["spec"]["serviceAccountName"] in {manifest["metadata"]["name"] for manifest in objects("ServiceAccount")}


def test_the_node_agents_settings_are_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    (daemon_set,) = objects("DaemonSet")
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable.get("value", "node-a"))
    assert NodeAgentSettings().node_name == "node-a"  # type: ignore[call-arg]


def test_the_policy_speaks_of_the_annotation_that_the_agent_writes() -> None:
    (policy,) = [
        manifest for manifest in objects("ValidatingAdmissionPolicy") if "node-agent" in manifest["metadata"]["name"]
    ]
    assert f'"{NODE_GPUS}"' in policy["spec"]["validations"][1]["expression"]


def test_the_kind_cluster_is_one_control_plane_and_four_named_workers() -> None:
    """Held against kind's v1alpha4: it refuses unknown fields, other roles, and names of other characters."""
    cluster = read_yaml((DEPLOY / "kind" / "kind-config.yaml").read_text())
    assert (cluster["kind"], cluster["apiVersion"]) == ("Cluster", "kind.x-k8s.io/v1alpha4")
    assert cluster.keys() <= {"kind", "apiVersion", "name", "nodes", "networking", "kubeadmConfigPatches"}
    assert cluster["name"].replace("-", "").isalnum()
    assert [node["role"] for node in cluster["nodes"]] == ["control-plane"] + ["worker"] * 4
    for node in cluster["nodes"]:
        assert node.keys() <= {"role", "image", "labels"}
        assert all(isinstance(value, str) for value in node.get("labels", {}).values())
    names = [node["labels"][LOGICAL_NAME_LABEL] for node in cluster["nodes"][1:]]
    assert names == ["node1", "node2", "node3", "node4"]


def test_pods_of_the_kind_cluster_ask_for_no_runtime_that_it_lacks() -> None:
    assert read_pod_defaults(Path(DEPLOY / "kind" / "pod-defaults.yaml")).runtimeClassName is None


@pytest.mark.parametrize(
    ("method", "path", "permission"),
    [
        ("GET", "/api/v1/nodes?limit=500", Permission("", "", "nodes", "list")),
        ("GET", "/api/v1/nodes/a", Permission("", "", "nodes", "get")),
        ("GET", "/api/v1/namespaces/n/pods?watch=true", Permission("n", "", "pods", "watch")),
        ("GET", "/api/v1/namespaces/n/pods/p/log?follow=true", Permission("n", "", "pods/log", "get")),
        ("DELETE", "/api/v1/namespaces/n/pods/p", Permission("n", "", "pods", "delete")),
        ("POST", "/api/v1/namespaces/n/services", Permission("n", "", "services", "create")),
        ("GET", "/apis/resource.k8s.io/v1/resourceslices", Permission("", "resource.k8s.io", "resourceslices", "list")),
        ("GET", "/apis/resource.k8s.io", None),
    ],
)
def test_what_a_request_needs(method: str, path: str, permission: Permission | None) -> None:
    assert needed(method, path) == permission
