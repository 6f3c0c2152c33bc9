"""What pods and accounts of the chart may do: no more than they have to, and as the plain manifests say."""

import json
from typing import Any

import pytest

from tests.chart.dev_server.dev_server_values import (
    ALL_ON,
    CONTROLPLANE,
    VALUES,
    containers,
    rendered,
    rules_of,
    templates,
)
from tests.chart.hardening import check_pods
from tests.chart.rendering import JsonObject, one, render
from tests.kubernetes.manifests import DEPLOY
from tests.read_yaml import read_all_yaml


@pytest.mark.parametrize("values", VALUES.values(), ids=list(VALUES))
def test_no_pod_may_do_more_than_it_has_to(values: dict[str, Any]) -> None:
    documents = rendered(values)
    check_pods(documents)
    for kind, template in templates(documents):
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert {"hostNetwork", "hostPID", "hostIPC"}.isdisjoint(spec)
        assert not any("hostPath" in volume for volume in spec.get("volumes", ()))
        for container in containers(template):
            allowed = container["securityContext"]
            assert (allowed["allowPrivilegeEscalation"], allowed["readOnlyRootFilesystem"]) == (False, True)
            assert allowed["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
        if kind in ("Deployment", "StatefulSet"):
            for container in spec["containers"]:
                assert {"startupProbe", "readinessProbe", "livenessProbe"} <= {*container}


@pytest.mark.parametrize("values", VALUES.values(), ids=list(VALUES))
def test_only_who_asks_the_api_server_has_a_token_for_it_and_every_account_is_used(values: dict[str, Any]) -> None:
    documents = rendered(values)
    bound = {
        subject["name"]
        for document in documents if document["kind"].endswith("RoleBinding")
        for subject in document["subjects"]
    }  # fmt: skip
    with_token = {
        template["spec"].get("serviceAccountName")
        for _, template in templates(documents)
        if template["spec"].get("automountServiceAccountToken", True)
    }
    assert with_token == bound
    accounts = {document["metadata"]["name"] for document in documents if document["kind"] == "ServiceAccount"}
    assert accounts == {template["spec"].get("serviceAccountName") for _, template in templates(documents)} - {None}


@pytest.mark.parametrize(
    "account",
    ["api-service", "ssh-gateway", "reservation-processor", "availability-updater", "reservation-expiry", "node-agent"],
)
def test_each_account_may_what_the_plain_manifests_give_it(account: str) -> None:
    plain: list[JsonObject] = []
    for path in [
        *sorted(DEPLOY.glob("rbac/*.yaml")),
        DEPLOY / "enforcement" / "pod-ending.yaml",
        DEPLOY / "sign-in" / "token-reviews.yaml",
        DEPLOY / "monitoring" / "cron-jobs.yaml",
        DEPLOY / "node-agent.yaml",
    ]:
        plain += [entry for entry in read_all_yaml(path.read_text()) if entry]
    expected = rules_of(plain, account)
    assert expected
    assert rules_of(rendered(ALL_ON), account) == expected
    for rule in expected:
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]


def test_the_policy_of_the_node_agent_is_the_plain_manifests() -> None:
    plain = one([*read_all_yaml((DEPLOY / "node-agent.yaml").read_text())], "ValidatingAdmissionPolicy")["spec"]
    ours = one(rendered(ALL_ON), "ValidatingAdmissionPolicy", "gpu-dev-node-agent")["spec"]
    assert ours == json.loads(json.dumps(plain).replace("gpu-dev-system", CONTROLPLANE))


def test_only_their_own_namespace_reaches_the_node_agents() -> None:
    """In the plain manifests, which know no labels of the processor."""
    plain = [*read_all_yaml((DEPLOY / "node-agent.yaml").read_text())]
    agent = one(plain, "DaemonSet")["spec"]["template"]
    policy = one(plain, "NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= agent["metadata"]["labels"].items()
    (port,) = agent["spec"]["containers"][0]["ports"]
    (rule,) = policy["ingress"]
    assert rule == {"ports": [{"port": port["name"], "protocol": "TCP"}], "from": [{"podSelector": {}}]}


def test_who_ends_pods_is_held_to_what_the_plain_manifests_say() -> None:
    """But for standalone, which the chart has not."""
    text = (DEPLOY / "enforcement" / "pod-ending-policy.yaml").read_text()
    plain = one([*read_all_yaml(text)], "ValidatingAdmissionPolicy")["spec"]
    ours = one(rendered(ALL_ON), "ValidatingAdmissionPolicy", "gpu-dev-pod-ending")["spec"]
    (who,) = ours.pop("matchConditions")
    account = f"system:serviceaccount:{CONTROLPLANE}:reservation-expiry"
    assert who["expression"] == f'request.userInfo.username == "{account}"'
    assert account.replace(CONTROLPLANE, "gpu-dev-system") in plain.pop("matchConditions")[0]["expression"]
    assert ours == plain
    older = render("gpu-dev-server", {"reservationExpiry": {"enforcement": {"enabled": True}}}, kube_version="v1.29.0")
    assert not [manifest for manifest in older if manifest["kind"].startswith("ValidatingAdmission")]


def test_without_enforcement_nobody_may_end_pods_of_others() -> None:
    places = {rule["place"] for rule in rules_of(rendered({}), "reservation-expiry")}
    assert places == {"jobs"}
