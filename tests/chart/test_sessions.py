"""Sessions in the chart: the SSH gateway."""

from typing import Any

import helm_python
import pytest

from tests.chart.dev_server_values import (
    ALL_ON,
    over,
    rendered,
    rules_of,
    variables,
)
from tests.chart.rendering import one, selects

ON: dict[str, Any] = {"sshGateway": {"enabled": True}}


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


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"sshGateway": {"settings": {"GPU_DEV_SSH__LISTEN": "0.0.0.0:22"}}}, "GPU_DEV_SSH__LISTEN"),
        ({"sshGateway": {"service": {"port": 0}}}, "port"),
    ],
)
def test_what_can_not_be_is_refused_and_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(helm_python.HelmError, match=said):
        rendered(values)
