"""The chart gpu-scheduler, as Helm renders it: valid for each Kubernetes that is supported, safe, with known names."""

from pathlib import Path
from typing import Any

import helm_python
import pytest

from pod_scheduling.domain.extender.visible_cards import LABEL, VISIBLE
from pod_scheduling.runtime.settings.scheduler import SchedulerSettings
from pod_scheduling.runtime.settings.webhook import WebhookSettings
from tests.chart.hardening import HOSTILE, check_variables, mounted
from tests.chart.plain_manifests import FOLDER, library_of, users_of_the_library, written
from tests.chart.rendering import one, render
from tests.chart.tried_values import GIVEN, SCHEDULER


def test_the_accounts_token_is_the_schedulers_alone() -> None:
    spec = one(render("gpu-scheduler"), "Deployment")["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert mounted(spec, "scheduler") == ["api-access"]
    assert mounted(spec, "webhook") == ["certificates"]
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "api-access"]
    paths = [source["serviceAccountToken"]["path"] for source in volume["projected"]["sources"][:1]]
    paths += [source[kind]["items"][0]["path"] for source in volume["projected"]["sources"][1:] for kind in source]
    # As programs look for them, ours and kubectl alike.
    assert paths == ["token", "ca.crt", "namespace"]
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"


def test_where_our_own_jobs_run_is_told() -> None:
    for values, expected in (({}, "gpu-dev"), ({"scheduler": {"jobsNamespace": "jobs"}}, "jobs")):
        container = one(render("gpu-scheduler", values), "Deployment")["spec"]["template"]["spec"]["containers"][0]
        told = {variable["name"]: variable.get("value") for variable in container["env"]}
        assert told["GPU_DEV_KUBERNETES__NAMESPACE"] == expected


def test_what_the_webhook_wrote_of_bookings_is_believed_where_it_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is where the chart gpu-booking says: by default and by the same value of both."""
    label = "lab.test/held-to-bookings=yes"
    chosen: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, GIVEN),
        ({"scheduler": {"enforcedLabel": label}}, {**GIVEN, "webhook": {"namespaceLabel": label}}),
    ]
    for scheduler, booking in chosen:
        container = one(render("gpu-scheduler", scheduler), "Deployment")["spec"]["template"]["spec"]["containers"][0]
        for variable in container["env"]:
            monkeypatch.setenv(variable["name"], variable["value"])
        name, _, value = SchedulerSettings().scheduler.enforced_label.partition("=")
        (webhook,) = one(render("gpu-booking", booking), "MutatingWebhookConfiguration")["webhooks"]
        assert webhook["namespaceSelector"]["matchLabels"] == {name: value}


def test_the_names_of_the_setup_guide() -> None:
    documents = render("gpu-scheduler", SCHEDULER["the guide's"])
    deployment = one(documents, "Deployment", "gpu-scheduler")
    assert deployment["spec"]["replicas"] == 2
    template = deployment["spec"]["template"]
    assert template["metadata"]["labels"]["app.kubernetes.io/name"] == "gpu-scheduler"
    assert [container["name"] for container in template["spec"]["containers"]] == ["scheduler", "webhook"]
    image = "registry.test/gpu-scheduler/gpu-scheduler:latest"
    assert {container["image"] for container in template["spec"]["containers"]} == {image}
    assert {container["imagePullPolicy"] for container in template["spec"]["containers"]} == {"Always"}
    assert one(documents, "Service", "gpu-scheduler")["spec"]["ports"][0]["port"] == 8080
    webhook = one(documents, "MutatingWebhookConfiguration", "gpu-scheduler-webhook")["webhooks"]
    assert len(webhook) == 1
    assert webhook[0]["clientConfig"]["caBundle"] == SCHEDULER["the guide's"]["webhook"]["caBundle"]
    (volume,) = [volume for volume in template["spec"]["volumes"] if volume["name"] == "certificates"]
    assert volume["secret"]["secretName"] == "gpu-scheduler-webhook-tls"
    # With an authority of one's own comes the certificate.
    assert not [document for document in documents if document["kind"] in ("Secret", "CronJob")]


def test_the_webhook_is_asked_as_it_has_to_be() -> None:
    (webhook,) = one(render("gpu-scheduler"), "MutatingWebhookConfiguration")["webhooks"]
    assert webhook["failurePolicy"] == "Fail"
    assert webhook["timeoutSeconds"] == 3
    assert webhook["sideEffects"] == "None"
    assert webhook["reinvocationPolicy"] == "IfNeeded"
    (excluded,) = webhook["namespaceSelector"]["matchExpressions"]
    assert excluded["values"] == ["kube-system", "gpu-scheduler-system"]
    assert "gpu-scheduler" in webhook["matchConditions"][0]["expression"]


@pytest.mark.parametrize("version", ["v1.27.4", "v1.30.0"])
def test_pods_of_the_extender_are_asked_about_by_their_label_where_that_is_wanted(version: str) -> None:
    values = {"webhook": {"extenderPods": True, "excludedNamespaces": ["monitoring"]}}
    by_map, by_label = one(render("gpu-scheduler", values, kube_version=version), "MutatingWebhookConfiguration")[
        "webhooks"
    ]
    assert by_label["objectSelector"] == {"matchLabels": {LABEL: VISIBLE}}
    assert by_label["failurePolicy"] == "Fail"  # every cluster can tell these pods from others before it asks
    assert by_label["reinvocationPolicy"] == "IfNeeded"
    assert "matchConditions" not in by_label
    assert [rule["operations"] for rule in by_label["rules"]] == [["CREATE"]]
    for shared in ("clientConfig", "namespaceSelector", "timeoutSeconds", "sideEffects"):
        assert by_label[shared] == by_map[shared]


def test_an_older_cluster_is_never_stopped_by_the_webhook_and_has_no_policy() -> None:
    documents = render("gpu-scheduler", kube_version="v1.27.4")
    (webhook,) = one(documents, "MutatingWebhookConfiguration")["webhooks"]
    assert webhook["failurePolicy"] == "Ignore"
    assert "matchConditions" not in webhook
    assert not [document for document in documents if document["kind"].startswith("ValidatingAdmission")]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replicas": 3}, "replicas"),
        ({"webhook": {"cabundle": "x"}}, "cabundle"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"scheduler": {"overlap": "maybe"}}, "overlap"),
        ({"replicaCount": 0}, "replicaCount"),
        ({"schedulerName": HOSTILE}, "schedulerName"),
        ({"scheduler": {"nodeLabel": HOSTILE}}, "nodeLabel"),
        ({"webhook": {"caBundle": "not base64!"}}, "caBundle"),
        ({"webhook": {"extenderPods": "yes"}}, "extenderPods"),
        ({"gpuResources": ["' || true || '"]}, "gpuResources"),
    ],
)
def test_what_is_mistyped_is_named(values: dict[str, Any], named: str) -> None:
    with pytest.raises(helm_python.HelmError, match=named):
        render("gpu-scheduler", values)


def test_every_variable_of_a_container_is_a_setting() -> None:
    scheduler, webhook = one(render("gpu-scheduler", SCHEDULER["all on"]), "Deployment")["spec"]["template"]["spec"][
        "containers"
    ]
    check_variables(scheduler, SchedulerSettings)
    check_variables(webhook, WebhookSettings)


def test_the_plain_manifests_are_the_charts() -> None:
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == written(), "run `make manifests`"


def test_each_chart_has_the_library_as_it_is() -> None:
    """Helm takes what lies in `charts/` and fetches nothing."""
    users = users_of_the_library()
    assert {"gpu-booking", "gpu-scheduler"} <= {*users}
    for user in users:
        assert library_of(user).readlink() == Path("../../gpu-dev-library"), user
