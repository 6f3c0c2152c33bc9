"""The chart gpu-booking, as Helm renders it: the seed's values and names, safe, valid for each Kubernetes."""

import base64
import json
import re
from typing import Any

import helm_python
import pytest

from pod_scheduling.domain.enforcement.enforcement_marks import ENFORCEMENT_MARKS
from pod_scheduling.runtime.reading.owners_file import read_owners
from pod_scheduling.runtime.settings.webhook import WebhookSettings
from pod_scheduling.runtime.webhook_reviewers import ENFORCE
from reservation_core.domain.pods.map_marks import MAP_DEVICES
from tests.chart.hardening import HOSTILE, check_variables, mounted
from tests.chart.rendering import CHARTS, JsonObject, one, render
from tests.chart.tried_values import BOOKING, GIVEN, OWNERS, URL
from tests.clusters.webhook_registration import ENFORCED_LABEL
from tests.read_yaml import read_all_yaml


def rendered(values: dict[str, Any], **more: Any) -> list[JsonObject]:
    return render("gpu-booking", values, namespace="gpu-booking", **more)


def container_of(documents: list[JsonObject]) -> JsonObject:
    (container,) = one(documents, "Deployment", "gpu-booking-webhook")["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def variables(documents: list[JsonObject]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container_of(documents)["env"]}


@pytest.mark.parametrize("values", BOOKING.values(), ids=list(BOOKING))
def test_the_webhook_has_no_rights(values: dict[str, Any]) -> None:
    webhook = one(rendered(values), "Deployment")["spec"]["template"]["spec"]
    assert webhook["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in webhook  # who renews the certificate is the only one with any


def test_the_seeds_values_and_names() -> None:
    documents = rendered(BOOKING["the seed's"])
    webhook = one(documents, "MutatingWebhookConfiguration", "gpu-booking-webhook")["webhooks"]
    assert len(webhook) == 1
    secret = one(documents, "Secret", "gpu-booking-webhook-tls")
    # What the seed's command copies by hand is there from the start.
    assert webhook[0]["clientConfig"]["caBundle"] == secret["data"]["ca.crt"]
    token = one(documents, "Secret", "gpu-booking-webhook-token")
    assert base64.b64decode(token["data"]["token"]) == b"secret-token"
    told = variables(documents)
    assert told["GPU_DEV_WEBHOOK__API_URL"] == BOOKING["the seed's"]["apiUrl"]
    assert "secret-token" not in json.dumps([document for document in documents if document["kind"] != "Secret"])
    assert {document["metadata"]["namespace"] for document in documents if "namespace" in document["metadata"]} == {
        "gpu-booking"
    }


def test_it_can_live_elsewhere_than_its_release() -> None:
    documents = render("gpu-booking", {**GIVEN, "namespace": "elsewhere"}, namespace="default")
    namespaces = {document["metadata"]["namespace"] for document in documents if "namespace" in document["metadata"]}
    assert namespaces == {"elsewhere"}
    (webhook,) = one(documents, "MutatingWebhookConfiguration")["webhooks"]
    assert webhook["clientConfig"]["service"]["namespace"] == "elsewhere"
    assert webhook["namespaceSelector"]["matchExpressions"][0]["values"] == ["kube-system", "elsewhere"]


def test_the_webhook_is_asked_as_it_has_to_be() -> None:
    documents = rendered(GIVEN)
    (webhook,) = one(documents, "MutatingWebhookConfiguration")["webhooks"]
    assert webhook["clientConfig"]["service"] == {
        "name": "gpu-booking-webhook", "namespace": "gpu-booking", "path": ENFORCE, "port": 443,
    }  # fmt: skip
    assert webhook["namespaceSelector"]["matchLabels"] == {ENFORCED_LABEL: "true"}
    asked = {name: webhook[name] for name in ("failurePolicy", "timeoutSeconds", "sideEffects", "reinvocationPolicy")}
    assert asked == {
        "failurePolicy": "Fail", "timeoutSeconds": 3, "sideEffects": "None", "reinvocationPolicy": "IfNeeded",
    }  # fmt: skip
    assert one(documents, "Deployment")["spec"]["replicas"] == 2
    assert one(documents, "PodDisruptionBudget")["spec"]["minAvailable"] == 1


def test_an_older_cluster_is_asked_about_every_update_and_has_no_policy() -> None:
    documents = rendered(GIVEN, kube_version="v1.27.4")
    (webhook,) = one(documents, "MutatingWebhookConfiguration")["webhooks"]
    assert "matchConditions" not in webhook
    assert webhook["failurePolicy"] == "Fail"  # the namespaces were chosen for it
    assert not [document for document in documents if document["kind"].startswith("ValidatingAdmission")]


def test_owners_and_policy_reach_the_webhook_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        **GIVEN, "owners": OWNERS, "unbooked": "without_gpus", "silence": "fail_open", "freshSeconds": 2,
        "lastKnownSeconds": 60, "place": "anywhere", "gpuTypes": {'a "quoted" card': "h100"},
        "markKeepers": ["one", "two"],
    }  # fmt: skip
    documents = rendered(values)
    text = one(documents, "ConfigMap", "gpu-booking-webhook-owners")["data"]["owners.yaml"]
    rules = read_owners(text.encode(), toml=False)
    assert {"users": rules.users, "prefixes": [*rules.prefixes], "namespaces": rules.namespaces} == OWNERS
    for name, value in variables(documents).items():
        monkeypatch.setenv(name, value)
    settings = WebhookSettings()
    chosen = settings.webhook
    assert (chosen.enforce_bookings, chosen.api_url, chosen.unbooked, chosen.silence) == (
        True, URL, "without_gpus", "fail_open",
    )  # fmt: skip
    assert (chosen.fresh_s, chosen.last_known_s, chosen.mark_keepers) == (2, 60, ("one", "two"))
    assert chosen.place == "anywhere"
    assert settings.gpu.types == {'a "quoted" card': "h100"}


def test_the_defaults_are_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables(rendered(GIVEN)).items():
        monkeypatch.setenv(name, value)
    given, bare = WebhookSettings(), WebhookSettings.model_construct()
    for name in (
        "unbooked",
        "silence",
        "place",
        "fresh_s",
        "last_known_s",
        "allow_claims",
        "allow_shares",
        "share_resource",
        "scheduler_name",
    ):
        assert getattr(given.webhook, name) == getattr(bare.webhook, name), name
    assert given.gpu == bare.gpu


def test_whatever_ends_pods_may_change_their_marks() -> None:
    """As deploy/ installs it and as the chart gpu-dev-server does, each in its own namespace."""
    installed = render("gpu-dev-server", {"reservationExpiry": {"enforcement": {"enabled": True}}})
    bindings = [manifest for manifest in installed if manifest["kind"] == "ClusterRoleBinding"]
    folder = CHARTS.parent / "deploy" / "enforcement"
    bindings += [entry for path in folder.iterdir() for entry in read_all_yaml(path.read_text())]
    accounts = {
        f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
        for binding in bindings
        if binding["kind"] == "ClusterRoleBinding" and binding["roleRef"]["name"] == "gpu-dev-pod-ending"
        for subject in binding["subjects"]
    }
    assert len(accounts) == 3
    assert accounts == set(variables(rendered(GIVEN))["GPU_DEV_WEBHOOK__MARK_KEEPERS"].split(","))


def test_the_policy_protects_each_mark_that_it_goes_by() -> None:
    """Else a new value of the map's GPUs would let a debugging container have them."""
    validations = one(rendered(GIVEN), "ValidatingAdmissionPolicy")["spec"]["validations"]
    [rule] = [validation["expression"] for validation in validations if "can't be changed" in validation["message"]]
    assert {*re.findall(r"'(gpu-dev/[-a-z]+)'", rule)} == {*ENFORCEMENT_MARKS, MAP_DEVICES}


def test_what_can_change_is_mounted_as_a_folder() -> None:
    documents = rendered(BOOKING["all on"])
    spec = one(documents, "Deployment")["spec"]["template"]["spec"]
    assert mounted(spec, "webhook") == ["api-ca", "certificates", "client-ca", "owners", "token"]
    assert not any("subPath" in mount for mount in container_of(documents)["volumeMounts"])
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["token"]["secret"]["items"] == [{"key": "api.key", "path": "token"}]
    assert volumes["owners"]["configMap"]["name"] == "their-owners"
    assert not [document for document in documents if document["kind"] == "ConfigMap"]


def test_every_variable_is_a_setting() -> None:
    check_variables(container_of(rendered(BOOKING["all on"])), WebhookSettings)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({}, "apiUrl is empty"),
        ({"apiUrl": URL}, "existingSecret"),
        ({**GIVEN, "apiToken": "x"}, "Leave one of them out"),
        ({**GIVEN, "apiUrl": "gpu-dev.test"}, "apiUrl"),
        ({**GIVEN, "apiUrl": "https://user:pass@gpu-dev.test/v1/schedulability"}, "apiUrl"),
        ({**GIVEN, "apiURL": URL}, "apiURL"),
        ({**GIVEN, "apiUrl": "https://gpu-dev.test/schedulability"}, "apiShape=own"),
        ({**GIVEN, "unbooked": "maybe"}, "unbooked"),
        ({**GIVEN, "silence": "loud"}, "silence"),
        ({**GIVEN, "place": "here"}, "place"),
        ({**GIVEN, "replicaCount": 0}, "replicaCount"),
        ({**GIVEN, "namespace": HOSTILE}, "namespace"),
        ({**GIVEN, "webhook": {"namespaceLabel": "no-value"}}, "namespaceLabel"),
        ({**GIVEN, "owners": {"namespaces": {"Lab": "ann"}}}, "'Lab'"),
        ({**GIVEN, "markKeepers": ["a', 'b"]}, "markKeepers"),
        ({**GIVEN, "gpuResources": ["' || true || '"]}, "gpuResources"),
        ({**GIVEN, "schedulerName": HOSTILE}, "schedulerName"),
    ],
)
def test_what_is_mistyped_is_named(values: dict[str, Any], named: str) -> None:
    with pytest.raises(helm_python.HelmError, match=named):
        rendered(values)


@pytest.mark.parametrize(
    ("url", "ports"),
    [
        ("https://gpu-dev.test/v1/schedulability", {443, 8080}),
        ("https://gpu-dev.test:8443/v1/schedulability", {8443, 8080}),
        # A Service's port is not the one of its pods, which is what network policies go by.
        ("http://api-service.gpu-controlplane/v1/schedulability", {80, 8080}),
        ("http://api-service.gpu-controlplane.svc:80/v1/schedulability/", {80, 8080}),
        ("http://elsewhere.test:8000/maia-api/gpu-schedulability/", {8000, 8080}),
    ],
)
def test_the_network_policy_lets_the_question_out(url: str, ports: set[int]) -> None:
    documents = rendered({**GIVEN, "apiUrl": url})
    (egress,) = one(documents, "NetworkPolicy")["spec"]["egress"]
    assert {port["port"] for port in egress["ports"]} == {53, *ports}


def test_the_webhook_is_asked_by_the_api_server_alone_where_that_is_known() -> None:
    """By its address and by its certificate; kubelets need neither."""
    peers = [{"ipBlock": {"cidr": "10.0.0.1/32"}}]
    more = {"networkPolicy": {"kubernetesAt": peers}, "webhook": {"clientCaSecret": "api-server"}}
    documents = rendered({**GIVEN, **more})
    (rule,) = one(documents, "NetworkPolicy")["spec"]["ingress"]
    assert rule == {"ports": [{"port": "webhook", "protocol": "TCP"}], "from": peers}
    spec = one(documents, "Deployment")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert "--client-ca=/client-ca/ca.crt" in container["command"]
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "client-ca"]
    assert volume["secret"]["secretName"] == "api-server"
    (rule,) = one(rendered(GIVEN), "NetworkPolicy")["spec"]["ingress"]
    assert "from" not in rule


def test_another_address_is_taken_with_a_shape() -> None:
    url = "https://gpu-dev.test/schedulability"
    assert variables(rendered({**GIVEN, "apiUrl": url, "apiShape": "own"}))["GPU_DEV_WEBHOOK__API_URL"] == url
