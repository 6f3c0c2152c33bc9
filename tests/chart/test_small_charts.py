"""The charts gpu-admission, gpu-booking and gpu-scheduler: what all of them are held to."""

import base64
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from pod_scheduling.runtime.settings.admission import AdmissionSettings
from pod_scheduling.runtime.settings.scheduler import SchedulerSettings
from pod_scheduling.runtime.settings.webhook import WebhookSettings
from reservation_core.adapters.certificates.pairs import read_serving
from reservation_core.runtime.settings.components import CommonSettings
from tests.chart.hardening import VERSIONS, check_objects, check_pods, check_roles, pod_specs
from tests.chart.rendering import JsonObject, one, render
from tests.chart.tried_values import ADMISSION, BOOKING, GIVEN, SCHEDULER
from tests.people.certificate_keys import key_fits

CHARTS = {"gpu-admission": ADMISSION, "gpu-booking": BOOKING, "gpu-scheduler": SCHEDULER}
# The Secret that a job of theirs may change.
OWN_SECRETS = {
    "gpu-admission": "",
    "gpu-booking": "gpu-booking-webhook-tls",
    "gpu-scheduler": "gpu-scheduler-webhook-tls",
}
TRIED = [(chart, name) for chart, tried in CHARTS.items() for name in tried]


def of_the_oldest() -> Iterator[tuple[str, str]]:
    """Holding all against a schema takes a while: what depends on the version is in these."""
    for chart, tried in CHARTS.items():
        for name in ("default", "TLS", "all on"):
            if name in tried:
                yield chart, name


def rendered(chart: str, values: dict[str, Any], **more: Any) -> list[JsonObject]:
    return render(chart, values, namespace="kube-system" if chart == "gpu-admission" else chart, **more)


@pytest.mark.parametrize(
    ("chart", "name", "version"),
    [
        *((*chart_and_values, VERSIONS[-1]) for chart_and_values in TRIED),
        *((*chart_and_values, VERSIONS[0]) for chart_and_values in of_the_oldest()),
    ],
)
def test_every_object_is_one_that_kubernetes_takes(chart: str, name: str, version: str) -> None:
    check_objects(rendered(chart, CHARTS[chart][name], kube_version=f"v{version}.0"), version)


@pytest.mark.parametrize(("chart", "name"), TRIED)
def test_nothing_may_do_more_than_it_has_to(chart: str, name: str) -> None:
    documents = rendered(chart, CHARTS[chart][name])
    check_pods(documents)
    check_roles(documents, OWN_SECRETS[chart])
    accounts = {spec.get("serviceAccountName") for spec in pod_specs(documents)} - {None}
    assert accounts == {document["metadata"]["name"] for document in documents if document["kind"] == "ServiceAccount"}


@pytest.mark.parametrize(
    ("chart", "values", "service"),
    [
        ("gpu-admission", ADMISSION["TLS"], "gpu-admission"),
        ("gpu-booking", GIVEN, "gpu-booking-webhook"),
        ("gpu-scheduler", {}, "gpu-scheduler-webhook"),
    ],
)
def test_the_certificate_that_helm_makes_is_one_for_the_service(
    chart: str, values: dict[str, Any], service: str
) -> None:
    documents = render(
        chart, {**values, "namespace": "elsewhere"} if chart == "gpu-admission" else values, namespace="elsewhere"
    )
    secret = one([document for document in documents if "tls.crt" in document.get("data", {})], "Secret")["data"]
    data = {name: base64.b64decode(value) for name, value in secret.items()}
    serving = read_serving(data["tls.crt"], data["ca.crt"])
    assert f"{service}.elsewhere.svc" in serving.names
    assert serving.authority
    assert key_fits(data["tls.crt"], data["tls.key"])
    for document in documents:
        for webhook in document.get("webhooks", ()):
            assert webhook["clientConfig"]["caBundle"] == secret["ca.crt"]
    ssl.create_default_context(cadata=data["ca.crt"].decode())


@pytest.mark.parametrize(
    ("chart", "path", "container", "settings"),
    [
        ("gpu-admission", "extender", "gpu-admission", AdmissionSettings),
        ("gpu-booking", "webhook", "webhook", WebhookSettings),
        ("gpu-scheduler", "scheduler", "scheduler", SchedulerSettings),
        ("gpu-scheduler", "webhook", "webhook", WebhookSettings),
    ],
)
def test_limits_for_connections_reach_each_server(
    chart: str, path: str, container: str, settings: type[CommonSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {path: {"extraEnv": [{"name": "GPU_DEV_HTTP__MAX_CONNECTIONS", "value": "77"}]}}
    documents = rendered(chart, {**(GIVEN if chart == "gpu-booking" else {}), **extra})
    [found] = [
        other_container
        for other_container in one(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
        if other_container["name"] == container
    ]
    for variable in found["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    assert settings().http.max_connections == 77
