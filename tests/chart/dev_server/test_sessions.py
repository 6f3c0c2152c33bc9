"""Sessions in the chart: the SSH gateway, the names of applications, and the API's address for programs in jobs."""

from typing import Any

import helm_python
import pytest

from tests.chart.dev_server.dev_server_values import (
    ALL_ON,
    CONTROLPLANE,
    WORKLOADS,
    over,
    rendered,
    rules_of,
    variables,
)
from tests.chart.rendering import JsonObject, one, selects

ON: dict[str, Any] = {"sshGateway": {"enabled": True}}
INGRESS: dict[str, Any] = {"enabled": True, "host": "gpus.test", "tlsSecret": "tls"}
JOB = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": WORKLOADS}}}
API = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": CONTROLPLANE}},
    "podSelector": {"matchLabels": {"app": "api-service"}},
}


def test_the_gateway_is_off_by_default() -> None:
    assert "ssh-gateway" not in {document["metadata"]["name"] for document in rendered({})}


def test_clients_reach_the_gateway_at_the_port_where_it_listens() -> None:
    documents = rendered(ON)
    deployment = one(documents, "Deployment", "ssh-gateway")["spec"]
    service = one(documents, "Service", "ssh-gateway")["spec"]
    policy = one(documents, "NetworkPolicy", "into-the-ssh-gateway")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    (container,) = deployment["template"]["spec"]["containers"]
    listening = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert (
        variables(one(documents, "Deployment", "ssh-gateway"))["GPU_DEV_SSH__LISTEN"] == f"0.0.0.0:{listening['ssh']}"
    )
    assert service["ports"] == [{"name": "ssh", "port": 22, "targetPort": "ssh"}]
    assert (service["type"], "externalTrafficPolicy" in service) == ("ClusterIP", False)
    assert service["selector"].items() <= labels.items()
    assert selects(policy["podSelector"], labels)
    assert policy["ingress"] == [{"ports": [{"port": "ssh", "protocol": "TCP"}]}]
    assert deployment["replicas"] == 2
    assert one(documents, "PodDisruptionBudget", "ssh-gateway")["spec"]["minAvailable"] == 1


def test_a_load_balancer_shows_the_gateway_the_addresses_of_clients() -> None:
    documents = rendered(over(ALL_ON, {"networkPolicy": {"apiFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}}))
    assert one(documents, "Service", "ssh-gateway")["spec"]["externalTrafficPolicy"] == "Local"
    (rule,) = one(documents, "NetworkPolicy", "into-the-ssh-gateway")["spec"]["ingress"]
    assert rule["from"] == [{"ipBlock": {"cidr": "10.0.0.0/8"}}]


def test_the_gateway_enters_pods_of_jobs_and_does_nothing_else() -> None:
    rules = rules_of(rendered(ON), "ssh-gateway")
    assert {(rule["place"], resource, *rule["verbs"]) for rule in rules for resource in rule["resources"]} == {
        ("jobs", "pods", "get"),
        *(("jobs", f"pods/{way}", "get", "create") for way in ("exec", "attach", "portforward")),
    }


def test_stopped_the_gateway_keeps_its_address_alone() -> None:
    kinds = {
        document["kind"]
        for document in rendered(over(ALL_ON, {"stopped": True}))
        if document["metadata"]["name"] == "ssh-gateway"
    }
    assert "Deployment" not in kinds
    assert "Service" in kinds


@pytest.mark.parametrize("host", ["apps.test", "*.apps.test"])
def test_names_of_applications_lead_where_the_api_is(host: str) -> None:
    apps = {"host": host, "tlsSecret": "apps-tls"}
    route = {"enabled": True, "parentRefs": [{"name": "public"}], "hostnames": ["gpus.test"]}
    documents = rendered({"apiService": {"ingress": INGRESS, "httpRoute": route, "apps": apps}})
    ingress = one(documents, "Ingress")["spec"]
    assert ingress["tls"] == [
        {"hosts": ["gpus.test"], "secretName": "tls"},
        {"hosts": ["*.apps.test"], "secretName": "apps-tls"},
    ]
    assert [rule["host"] for rule in ingress["rules"]] == ["gpus.test", "*.apps.test"]
    assert ingress["rules"][0]["http"] == ingress["rules"][1]["http"]
    assert one(documents, "HTTPRoute")["spec"]["hostnames"] == ["gpus.test", "*.apps.test"]
    assert variables(one(documents, "Deployment", "api-service"))["GPU_DEV_APPS_HOST"] == "apps.test"


def test_without_a_name_for_applications_nothing_changes() -> None:
    documents = rendered({"apiService": {"ingress": INGRESS}})
    assert [rule["host"] for rule in one(documents, "Ingress")["spec"]["rules"]] == ["gpus.test"]
    assert "GPU_DEV_APPS_HOST" not in variables(one(documents, "Deployment", "api-service"))
    everything = {"enabled": True, "parentRefs": [{"name": "public"}]}
    route = one(rendered({"apiService": {"httpRoute": everything, "apps": {"host": "apps.test"}}}), "HTTPRoute")
    assert "hostnames" not in route["spec"]


def test_programs_in_jobs_reach_the_api() -> None:
    values = {"apiService": {"service": {"port": 8000}}, "networkPolicy": {"apiFrom": [{"podSelector": {}}]}}
    documents = rendered(values)
    told = variables(one(documents, "Deployment", "reservation-processor"))
    assert told["GPU_DEV_JOB_SERVER"] == f"http://api-service.{CONTROLPLANE}.svc:8000"
    assert admitted(documents) == [{"podSelector": {}}, JOB]
    out = one(documents, "NetworkPolicy", "jobs")["spec"]["egress"]
    (container,) = one(documents, "Deployment", "api-service")["spec"]["template"]["spec"]["containers"]
    assert {"ports": [{"port": container["ports"][0]["containerPort"], "protocol": "TCP"}], "to": [API]} in out


@pytest.mark.parametrize(
    "values",
    [
        {"reservationProcessor": {"settings": {"GPU_DEV_JOB_SERVER": "https://gpus.test"}}},
        {"apiService": {"enabled": False}},
    ],
)
def test_programs_in_jobs_reach_another_address_by_the_settings(values: dict[str, Any]) -> None:
    documents = rendered(over(values, {"networkPolicy": {"apiFrom": [{"podSelector": {}}]}}))
    told = variables(one(documents, "Deployment", "reservation-processor"))
    assert told.get("GPU_DEV_JOB_SERVER") in ("https://gpus.test", None)
    assert API not in [
        place for rule in one(documents, "NetworkPolicy", "jobs")["spec"]["egress"] for place in rule.get("to", ())
    ]
    assert JOB not in admitted(documents)


def admitted(documents: list[JsonObject]) -> list[JsonObject]:
    """Where requests to the API come from."""
    policies = [document for document in documents if document["metadata"]["name"] == "into-the-api"]
    return [place for policy in policies for place in policy["spec"]["ingress"][0].get("from", ())]


def test_jobs_have_files_by_the_processors_image() -> None:
    name, server = "GPU_DEV_KUBERNETES__FILES_IMAGE", "GPU_DEV_JOB_SERVER"
    registry: dict[str, Any] = {"global": {"imageRegistry": "registry.test/team"}, "image": {"tag": "7"}}
    elsewhere = {"reservationProcessor": {"settings": {server: "https://gpus.test"}}}
    by_the_api = {"apiService": {"settings": {server: "https://gpus.test"}}}
    service = f"http://api-service.{CONTROLPLANE}.svc:8000"
    for values, image, address in (
        (registry, "registry.test/team/reservation-processor:7", service),
        (over(registry, {"settings": {name: "other:1"}}), "other:1", service),
        (over(registry, elsewhere), "registry.test/team/reservation-processor:7", "https://gpus.test"),
        (over(registry, by_the_api), "registry.test/team/reservation-processor:7", "https://gpus.test"),
        (over(registry, {"files": {"enabled": False}}), None, service),
    ):
        documents = rendered(over(values, {"apiService": {"service": {"port": 8000}}}))
        for component in ("api-service", "reservation-processor"):
            told = variables(one(documents, "Deployment", component))
            assert (told.get(name), told.get(server)) == (image, address), component


def test_the_image_of_files_is_pulled_as_the_servers_images_are() -> None:
    name = "GPU_DEV_KUBERNETES__FILES_PULL_POLICY"
    for values, policy in (
        ({}, "IfNotPresent"),
        ({"image": {"pullPolicy": "Always"}}, "Always"),
        ({"image": {"pullPolicy": "Always"}, "settings": {name: "Never"}}, "Never"),
        ({"files": {"enabled": False}}, None),
    ):
        told = variables(one(rendered(values), "Deployment", "reservation-processor"))
        assert told.get(name) == policy


def test_the_processor_knows_the_tools_of_sessions() -> None:
    name = "GPU_DEV_KUBERNETES__SESSION_TOOLS_IMAGE"
    tools = {"sessions": {"toolsImage": "registry.test/session-tools:1"}}
    for values, expected in (
        ({}, None),
        (tools, "registry.test/session-tools:1"),
        (over(tools, {"settings": {name: "other:1"}}), "other:1"),
        (over(tools, {"reservationProcessor": {"settings": {name: "other:2"}}}), "other:2"),
    ):
        assert variables(one(rendered(values), "Deployment", "reservation-processor")).get(name) == expected


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"sshGateway": {"settings": {"GPU_DEV_SSH__LISTEN": "0.0.0.0:22"}}}, "GPU_DEV_SSH__LISTEN"),
        ({"sshGateway": {"service": {"port": 0}}}, "port"),
        ({"apiService": {"apps": {"host": "https://apps.test"}}}, "host"),
    ],
)
def test_what_can_not_be_is_refused_and_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(helm_python.HelmError, match=said):
        rendered(values)
