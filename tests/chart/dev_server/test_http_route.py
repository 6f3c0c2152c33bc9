"""The API behind a Gateway: the same paths as behind the Ingress, and streams that no timeout ends."""

from typing import Any

import helm_python
import pytest

from tests.chart.dev_server.dev_server_schema import CHART
from tests.chart.dev_server.dev_server_values import over, rendered, variables
from tests.chart.dev_server.test_dev_server_sign_in import BY_ACCOUNTS, signing_in
from tests.chart.rendering import one

ROUTE: dict[str, Any] = {
    "enabled": True,
    "parentRefs": [{"name": "public", "namespace": "gateways", "sectionName": "https"}],
    "hostnames": ["gpus.test", "gpus.example.org"],
}
VALUES: dict[str, Any] = {"apiService": {"httpRoute": ROUTE}}


def test_it_leads_where_the_ingress_leads() -> None:
    documents = rendered(over(VALUES, {"apiService": {"ingress": {"enabled": True, "host": "gpus.test"}}}))
    route, ingress = one(documents, "HTTPRoute"), one(documents, "Ingress")
    assert route["apiVersion"] == "gateway.networking.k8s.io/v1"
    assert route["metadata"]["namespace"] == ingress["metadata"]["namespace"]
    assert (route["spec"]["parentRefs"], route["spec"]["hostnames"]) == (ROUTE["parentRefs"], ROUTE["hostnames"])
    (rule,), (there,) = route["spec"]["rules"], ingress["spec"]["rules"]
    paths = [
        (match_of_rule["path"]["type"].removeprefix("Path"), match_of_rule["path"]["value"])
        for match_of_rule in rule["matches"]
    ]
    assert paths == [(path["pathType"], path["path"]) for path in there["http"]["paths"]]
    (backend,) = rule["backendRefs"]
    service = one(documents, "Service", backend["name"])["spec"]
    assert backend["name"] == there["http"]["paths"][0]["backend"]["service"]["name"]
    assert backend["port"] in {port["port"] for port in service["ports"]}


def test_streams_have_no_end_unless_the_values_give_them_one() -> None:
    def timeouts(values: dict[str, Any]) -> object:
        return one(rendered(over(VALUES, {"apiService": {"httpRoute": values}})), "HTTPRoute")["spec"]["rules"][0].get(
            "timeouts"
        )

    assert timeouts({}) == {"request": "0s", "backendRequest": "0s"}
    assert timeouts({"timeouts": {"request": "2h", "backendRequest": "1h30m"}}) == {
        "request": "2h", "backendRequest": "1h30m",
    }  # fmt: skip
    assert timeouts({"timeouts": {"request": None, "backendRequest": None}}) is None


def test_it_is_off_by_default_and_without_the_api() -> None:
    for values in ({}, over(VALUES, {"apiService": {"enabled": False}})):
        assert not [manifest for manifest in rendered(values) if manifest["kind"] == "HTTPRoute"]


def test_people_know_the_server_by_its_first_name() -> None:
    told = variables(one(rendered(signing_in(BY_ACCOUNTS, httpRoute=ROUTE)), "Deployment", "api-service"))
    assert told["GPU_DEV_AUTH__SERVER_IDS"] == told["GPU_DEV_WEB__PUBLIC_URL"] == "https://gpus.test"
    off = variables(
        one(rendered({"apiService": {"httpRoute": {**ROUTE, "enabled": False}}}), "Deployment", "api-service")
    )
    assert "GPU_DEV_WEB__PUBLIC_URL" not in off
    with helm_python.Chart.load(CHART) as chart:
        notes = chart.render(VALUES, name="gpu-dev", namespace="default")["gpu-dev-server/templates/NOTES.txt"]
    assert "GPU_DEV_SERVER=https://gpus.test" in notes
    assert "not reachable from outside" not in notes


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"parentRefs": []}, "parentRefs is empty: nothing would lead to the API"),
        ({"parentRefs": [{"namespace": "x"}]}, "parentRefs"),
        ({"timeouts": {"request": "forever"}}, "timeouts"),
        ({"hostnames": ["https://gpus.test"]}, "hostnames"),
    ],
)
def test_what_leads_nowhere_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(helm_python.HelmError, match=said):
        rendered(over(VALUES, {"apiService": {"httpRoute": values}}))
