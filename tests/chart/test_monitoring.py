"""What Prometheus is told of each chart: all processes are measured, and alerts go by metrics that there are."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import generate_latest

from admission_webhook.metrics import WebhookMetrics
from api_service.metrics.metrics import ApiMetrics
from gpu_admission.metrics import ExtenderMetrics
from gpu_scheduler import health as scheduler_health
from pod_scheduling.runtime.extender import RunningExtender
from pod_scheduling.runtime.settings.admission import AdmissionRules
from reservation_core.adapters.clock import SystemClock
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.cron_jobs import CronJobCollector
from reservation_core.runtime.loops.loop_metrics import LoopCollector
from reservation_core.runtime.loops.loops import Loops
from reservation_core.runtime.reading.reading import ReplicaReads
from tests.chart.dashboards import panels
from tests.chart.dev_server.dev_server_values import ALL_ON, over, templates
from tests.chart.rendering import JsonObject, one, render, selects
from tests.chart.tried_values import ADMISSION, BOOKING, GIVEN, SCHEDULER

ON: dict[str, Any] = {"monitoring": {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}}
CHARTS: dict[str, dict[str, Any]] = {
    "gpu-admission": {**ADMISSION["TLS"], **ON},
    "gpu-booking": {**GIVEN, **ON},
    "gpu-scheduler": ON,
    "gpu-dev-server": ALL_ON,
}


class Anything:
    """Whatever is asked of it is a number or another one of these."""

    def __getattr__(self, name: str) -> "Anything":
        return Anything()

    def __call__(self, *_arguments: object) -> "Anything":
        return self

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __float__(self) -> float:
        return 1.0

    def __add__(self, other: object) -> "Anything":
        return self

    def __radd__(self, other: float) -> float:
        return other + 1.0


class Away(ReplicaReads):
    """No database answers."""

    async def __call__(self, work: object) -> Any:
        """The metrics are written out without it."""
        raise DatabaseUnavailableError("there is none")


async def exported() -> set[str]:
    """The names of all metrics, as the processes themselves would write them out."""
    anything: Any = Anything()
    api = ApiMetrics(Away(anything, anything, anything), SystemClock(), loops=Loops())
    api.http.set_certificate_end(1.0)
    extender = ExtenderMetrics(lambda: RunningExtender.numbers(anything), list)
    texts = [await api.text(), WebhookMetrics().text(), extender.text()]
    others = (CronJobCollector(), LoopCollector(Loops()), scheduler_health._Scheduler(anything))
    texts += [generate_latest(collector) for collector in others]  # type: ignore[arg-type]
    return set(re.findall(r"^# TYPE (\w+) ", b"".join(texts).decode(), re.MULTILINE))


def rules(documents: list[JsonObject]) -> list[JsonObject]:
    return [rule for group in one(documents, "PrometheusRule")["spec"]["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("chart", CHARTS)
async def test_every_alert_and_panel_goes_by_metrics_that_the_processes_write_out(chart: str) -> None:
    documents = render(chart, CHARTS[chart])
    expressions = [rule["expr"] for rule in rules(documents)]
    if chart == "gpu-dev-server":
        expressions += [target["expr"] for _, panel in panels() for target in panel["targets"]]
    named = {name for expression in expressions for name in re.findall(r"gpu_dev_\w+", expression)}
    known = await exported()
    assert named
    assert {name for name in named if name not in known and name.removesuffix("_bucket") not in known} == set()
    # An expression without a metric would be another mistake.
    assert all("gpu_dev_" in expression for expression in expressions)


@pytest.mark.parametrize("chart", CHARTS)
def test_alerts_say_how_bad_it_is_what_it_is_and_what_to_do(chart: str) -> None:
    for rule in rules(render(chart, CHARTS[chart])):
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert {"summary", "description"} == {*rule["annotations"]}
        assert all(len(text) > 20 for text in rule["annotations"].values())
        assert rule["expr"].count("(") == rule["expr"].count(")")


def test_what_the_issue_of_an_operator_needs_has_an_alert() -> None:
    named = {chart: {rule["alert"] for rule in rules(render(chart, values))} for chart, values in CHARTS.items()}
    assert {"GpuQuotaInvalid", "GpuAdmissionCertificateEnds"} <= named["gpu-admission"]
    assert "GpuDevWebhookCertificateEnds" in named["gpu-booking"] & named["gpu-scheduler"]
    assert {"GpuDevReplicaLags", "GpuDevBackupOld", "GpuDevCronJobNotRun", "GpuDevGpusQuarantined"} <= (
        named["gpu-dev-server"]
    )


@pytest.mark.parametrize(
    ("chart", "alert", "metric"),
    [
        ("gpu-admission", "GpuAdmissionNotReady", "gpu_dev_admission_synced"),
        ("gpu-scheduler", "GpuSchedulerNobodyBinds", "gpu_dev_scheduler_leading"),
        ("gpu-dev-server", "GpuDevApiAbsent", "gpu_dev_database_up"),
        ("gpu-dev-server", "GpuDevProcessorAbsent", "gpu_dev_cron_job_succeeded_timestamp_seconds"),
    ],
)
def test_processes_that_are_all_away_have_an_alert(chart: str, alert: str, metric: str) -> None:
    """A comparison with a metric that nobody writes out is never true."""
    (rule,) = [rule for rule in rules(render(chart, CHARTS[chart])) if rule["alert"] == alert]
    assert re.search(rf"(^|\bor )absent\({metric}(\{{[^}}]*\}})?\)$", rule["expr"])


def test_processors_that_prometheus_is_not_led_to_are_not_missed() -> None:
    values = over(ALL_ON, {"monitoring": {"podMonitor": {"enabled": False}}})
    assert "GpuDevProcessorAbsent" not in {rule["alert"] for rule in rules(render("gpu-dev-server", values))}


@pytest.mark.parametrize("chart", CHARTS)
def test_nothing_of_the_operators_unless_asked_for(chart: str) -> None:
    values = {**CHARTS[chart], "monitoring": {}}
    kinds = {manifest["kind"] for manifest in render(chart, values)}
    assert kinds.isdisjoint({"PodMonitor", "ServiceMonitor", "PrometheusRule"})


@pytest.mark.parametrize("chart", CHARTS)
def test_each_port_with_metrics_is_read_and_network_policies_let_it_be(chart: str) -> None:
    documents = render(chart, CHARTS[chart])
    monitor = one(documents, "PodMonitor")["spec"]
    seen = 0
    for _, template in templates(documents):
        labels = template["metadata"]["labels"]
        if not selects(monitor["selector"], labels):
            continue
        ports = {port["name"] for container in template["spec"]["containers"] for port in container.get("ports", ())}
        assert {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]} <= ports
        seen += 1
        reached = set()
        for policy in documents:
            if policy["kind"] == "NetworkPolicy" and selects(policy["spec"]["podSelector"], labels):
                for rule in policy["spec"].get("ingress", ()):
                    if not rule.get("from"):
                        reached |= {port["port"] for port in rule["ports"]}
        assert {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]} <= reached
    assert seen == (3 if chart == "gpu-dev-server" else 1)


def test_a_webhook_is_believed_by_who_signed_its_certificate() -> None:
    for chart, values in (("gpu-booking", {**GIVEN, **ON}), ("gpu-scheduler", ON)):
        documents = render(chart, values, namespace="here")
        (endpoint,) = [
            endpoint for endpoint in one(documents, "PodMonitor")["spec"]["podMetricsEndpoints"] if "scheme" in endpoint
        ]
        secret = endpoint["tlsConfig"]["ca"]["secret"]
        assert secret["key"] in one(documents, "Secret", secret["name"])["data"]
        assert (
            endpoint["tlsConfig"]["serverName"]
            == f"{one(documents, 'MutatingWebhookConfiguration')['metadata']['name']}.here.svc"
        )
    theirs = {**BOOKING["their certificate"], **ON}
    (endpoint,) = one(render("gpu-booking", theirs), "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["tlsConfig"] == {"insecureSkipVerify": True}


def test_where_the_api_server_alone_may_ask_the_webhook_prometheus_is_named_beside_it() -> None:
    at, monitoring = [{"ipBlock": {"cidr": "10.0.0.1/32"}}], [{"namespaceSelector": {}}]
    narrowed = {"networkPolicy": {"kubernetesAt": at, "metricsFrom": monitoring}}
    for chart, values in (
        ("gpu-booking", {**GIVEN, **narrowed}),
        ("gpu-scheduler", {**SCHEDULER["default"], **narrowed}),
    ):
        rule = one(render(chart, values), "NetworkPolicy")["spec"]["ingress"][-1]
        assert rule["from"] == [*at, *monitoring]


def test_beside_kube_scheduler_the_extender_shows_its_metrics_and_nothing_else() -> None:
    template = one(render("gpu-admission", ON), "Deployment")["spec"]["template"]
    (container,) = [container for container in template["spec"]["containers"] if container["name"] == "gpu-admission"]
    assert "--address=127.0.0.1:3456" in container["command"]
    said = {variable["name"]: variable.get("value") for variable in container["env"]}[
        "GPU_DEV_ADMISSION__METRICS_ADDRESS"
    ]
    assert AdmissionRules(metrics_address=said).metrics_address == "0.0.0.0:9090"
    assert container["ports"] == [{"name": "metrics", "containerPort": 9090}]


def test_backups_may_be_as_old_as_the_values_say() -> None:
    values = over(ALL_ON, {"monitoring": {"prometheusRule": {"backupAgeHours": 50}}})
    (rule,) = [rule for rule in rules(render("gpu-dev-server", values)) if rule["alert"] == "GpuDevBackupOld"]
    assert rule["expr"].endswith("> 180000")


def test_the_api_s_metrics_are_read_at_a_port_of_their_own_where_they_have_one() -> None:
    values = over(ALL_ON, {"apiService": {"settings": {"GPU_DEV_METRICS_LISTEN": "0.0.0.0:9191"}}})
    documents = render("gpu-dev-server", values)
    assert one(documents, "ServiceMonitor")["spec"]["endpoints"][0]["port"] == "metrics"
    assert {port["name"]: port["port"] for port in one(documents, "Service", "api-service")["spec"]["ports"]} == {
        "http": 80, "metrics": 9191,
    }  # fmt: skip
    rule = one(documents, "NetworkPolicy", "into-the-api")["spec"]["ingress"][-1]
    assert rule["ports"] == [{"port": "metrics", "protocol": "TCP"}]


def test_the_processor_asks_after_the_cron_jobs_that_its_role_names_and_the_chart_makes() -> None:
    documents = render("gpu-dev-server", ALL_ON)
    (container,) = one(documents, "Deployment", "reservation-processor")["spec"]["template"]["spec"]["containers"]
    named = {variable["name"]: variable.get("value") for variable in container["env"]}["GPU_DEV_CRON_JOBS"].split(",")
    role = next(
        document for document in documents
        if document["kind"] == "Role" and document["rules"][0]["apiGroups"] == ["batch"]
    )  # fmt: skip
    assert role["rules"] == [
        {"apiGroups": ["batch"], "resources": ["cronjobs"], "resourceNames": named, "verbs": ["get"]}
    ]
    made = {document["metadata"]["name"] for document in documents if document["kind"] == "CronJob"}
    assert {*named} <= made
    alerted = re.findall(r'cron_job=~?"([^"]+)"', " ".join(rule["expr"] for rule in rules(documents)))
    assert {name for text in alerted for name in text.split("|")} == {*named}
