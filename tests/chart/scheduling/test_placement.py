"""Where pods go and what else their containers are told: each chart takes it for all of its workloads."""

import copy
import re
from collections.abc import Iterator
from typing import Any

import helm_python
import pytest

from tests.chart.dev_server.dev_server_values import ALL_ON, containers, templates
from tests.chart.hardening import VERSIONS
from tests.chart.rendering import CHARTS, JsonObject, one, render
from tests.chart.test_digests import merged
from tests.chart.tried_values import ADMISSION, BOOKING, SCHEDULER, SERVED
from tests.clusters.kubernetes_schemas import validate
from tests.read_yaml import read_yaml

ALL: dict[str, dict[str, Any]] = {
    "gpu-admission": ADMISSION["all on"],
    "gpu-admission, served": {"kubeVersion": "v1.30.0", **SERVED},
    "gpu-booking": BOOKING["all on"],
    "gpu-scheduler": SCHEDULER["all on"],
    "gpu-dev-server": ALL_ON,
}
PLACED: dict[str, Any] = {
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "ours", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}},
    "topologySpreadConstraints": [
        {"maxSkew": 2, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    ],
}  # fmt: skip
# A value of its own has its variables: one that is a map.
UPLOAD = "upload"
FIRST_OF: dict[str, str] = {
    "extender.extraEnv": "LOG_LEVEL",
    "webhook.extraEnv": "GPU_DEV_LOG_LEVEL",
    "scheduler.extraEnv": "GPU_DEV_SCHEDULER__NAME",
    "check.extraEnv": "NODE_NAME",
    "apiService.extraEnv": "GPU_DEV_LISTEN",
    "reservationProcessor.extraEnv": "GPU_DEV_HEALTH_LISTEN",
    "sshGateway.extraEnv": "GPU_DEV_SSH__LISTEN",
    "availabilityUpdater.extraEnv": "GPU_DEV_CLUSTER",
    "reservationExpiry.extraEnv": "GPU_DEV_SECRETS_DIR",
    "nodeAgent.extraEnv": "NVIDIA_VISIBLE_DEVICES",
    "registryCaches.extraEnv": "REGISTRY_PROXY_USERNAME",
    "migration.extraEnv": "GPU_DEV_DATABASE_URL",
    "postgres.primary.extraEnv": "PG_ROLE",
    "postgres.replica.extraEnv": "PGDATA",
    "postgres.backup.extraEnv": "PGHOST",
}


def parts(values: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every map of values, with its path."""
    yield path, values
    for name, value in values.items():
        if isinstance(value, dict):
            yield from parts(value, f"{path}.{name}".lstrip("."))


def chart_of(name: str) -> str:
    return name.partition(",")[0]


def defaults_of(name: str) -> dict[str, Any]:
    return merged(read_yaml((CHARTS / chart_of(name) / "values.yaml").read_text()), ALL[name])


def at(path: str, value: Any) -> dict[str, Any]:
    """Values with this at a path."""
    for part in reversed(path.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("name", ALL)
def test_all_pods_go_where_the_values_say_and_containers_are_told_more(name: str) -> None:
    values = defaults_of(name)
    for path, part in parts(values):
        part.update({key: copy.deepcopy(value) for key, value in PLACED.items() if key in part})
        if "extraEnv" in part:
            part["extraEnv"] = [{"name": "PROBE", "value": path}, {"name": "HOST", "valueFrom": {
                "fieldRef": {"fieldPath": "status.hostIP"}}}]  # fmt: skip
    documents = render(chart_of(name), values)
    seen = 0
    for kind, template in templates(documents):
        spec, labels = template["spec"], template["metadata"]["labels"]
        assert spec["nodeSelector"].items() >= PLACED["nodeSelector"].items()
        assert spec["tolerations"] == PLACED["tolerations"]
        assert spec["affinity"] == PLACED["affinity"]
        if kind != "DaemonSet":  # one on each node anyway
            (spread,) = spec["topologySpreadConstraints"]
            selected = spread.pop("labelSelector")["matchLabels"].items()
            assert selected
            assert selected <= labels.items()
            assert spread == PLACED["topologySpreadConstraints"][0]
        if kind != "Pod":  # helm test
            for container in containers(template):
                told = {variable["name"]: variable for variable in container.get("env", ())}
                assert "PROBE" in told or container["name"] == UPLOAD, container["name"]
                seen += 1
    assert seen
    for document in documents:
        if document["kind"] in ("Deployment", "StatefulSet", "CronJob", "DaemonSet", "Job"):
            validate(document, VERSIONS[-1])


@pytest.mark.parametrize("name", ALL)
def test_two_or_more_pods_of_a_kind_are_spread_over_hosts_by_default(name: str) -> None:
    spread = {}
    for document in render(chart_of(name), ALL[name]):
        if document["kind"] not in ("Deployment", "StatefulSet") or document["metadata"]["name"].endswith("-check"):
            continue
        template = document["spec"]["template"]
        if document["spec"].get("replicas", 2) > 1 or "gpu-dev/database" in template["metadata"]["labels"]:
            (found,) = template["spec"]["topologySpreadConstraints"]
            assert (found["maxSkew"], found["topologyKey"]) == (1, "kubernetes.io/hostname")
            # Where there is one host, both run there.
            assert found["whenUnsatisfiable"] == "ScheduleAnyway"
            selected = found["labelSelector"]["matchLabels"].items()
            assert selected <= template["metadata"]["labels"].items()
            spread[document["metadata"]["name"]] = selected
        else:
            assert "topologySpreadConstraints" not in template["spec"]
    assert spread


def test_one_alone_is_not_spread() -> None:
    for chart, values in (
        ("gpu-booking", BOOKING["one replica"]),
        ("gpu-dev-server", {"postgres": {"replica": {"enabled": False}}, "reservationProcessor": {"replicas": 1},
                            "apiService": {"replicas": 1, "autoscaling": {"enabled": False}}}),
    ):  # fmt: skip
        for _, template in templates(render(chart, values)):
            assert "topologySpreadConstraints" not in template["spec"]


def test_what_selects_pods_by_itself_is_left_as_it_is() -> None:
    own: JsonObject = {**PLACED["topologySpreadConstraints"][0], "labelSelector": {"matchLabels": {"a": "b"}}}
    made = one(render("gpu-scheduler", {"topologySpreadConstraints": [own]}), "Deployment")["spec"]["template"]["spec"]
    assert made["topologySpreadConstraints"] == [own]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        (name, f"{path}.extraEnv")
        for name in ALL
        for path, part in parts(defaults_of(name))
        if "extraEnv" in part and path not in ("cloudNativePG", "webhook.certificates")
        and not (path == "scheduler" and "admission" in name)
    ],
)  # fmt: skip
def test_a_variable_that_is_set_already_is_refused_and_named(name: str, path: str) -> None:
    variable = FIRST_OF[path]
    with pytest.raises(helm_python.HelmError, match=re.escape(f"{path} names {variable}, which is set already")):
        render(chart_of(name), merged(ALL[name], at(path, [{"name": variable, "value": "x"}])))


def test_a_variable_twice_and_one_of_the_settings_are_refused() -> None:
    twice = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    with pytest.raises(helm_python.HelmError, match="names A, which is set already"):
        render("gpu-scheduler", {"webhook": {"certificates": {"extraEnv": twice}}})
    both = {"settings": {"GPU_DEV_LOG_LEVEL": "DEBUG"}, "extraEnv": [{"name": "GPU_DEV_LOG_LEVEL", "value": "INFO"}]}
    with pytest.raises(helm_python.HelmError, match=r"apiService\.extraEnv names GPU_DEV_LOG_LEVEL"):
        render("gpu-dev-server", {"apiService": both})


def test_a_variable_in_lower_case_does_not_set_what_the_chart_has_set() -> None:
    """The programs' settings take it for the same one."""
    values = {"reservationProcessor": {"extraEnv": [{"name": "gpu_dev_health_listen", "value": "0.0.0.0:9999"}]}}
    with pytest.raises(helm_python.HelmError, match="gpu_dev_health_listen, which is set already"):
        render("gpu-dev-server", values)
    proxies = [{"name": name, "value": "http://proxy:3128"} for name in ("HTTPS_PROXY", "https_proxy")]
    assert render("gpu-dev-server", {"reservationProcessor": {"extraEnv": proxies}})


@pytest.mark.parametrize("name", ["GPU_DEV_METRICS_LISTEN", "gpu_dev_metrics_listen"])
def test_a_variable_does_not_move_the_metrics_from_the_port_that_the_chart_opens(name: str) -> None:
    extra = [{"name": name, "value": "0.0.0.0:9999"}]
    with pytest.raises(helm_python.HelmError, match=r"Set it in apiService\.settings"):
        render("gpu-dev-server", {"apiService": {"extraEnv": extra}})


def test_the_operators_cluster_takes_it_as_it_is() -> None:
    values = {"affinity": {"nodeSelector": {"a": "b"}}, "extraEnv": [{"name": "A", "value": "1"}],
              "topologySpreadConstraints": PLACED["topologySpreadConstraints"]}  # fmt: skip
    database = {"postgres": {"enabled": False}, "cloudNativePG": {"enabled": True, **values}}
    spec = one(render("gpu-dev-server", database), "Cluster")["spec"]
    assert (spec["affinity"], spec["env"]) == (values["affinity"], values["extraEnv"])
    assert spec["topologySpreadConstraints"] == values["topologySpreadConstraints"]
