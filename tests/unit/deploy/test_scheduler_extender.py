"""The extender's guide and manifests say what the code does: options, paths, settings; and pods are restricted."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpu_admission.app import App
from gpu_admission.bodies import QuestionBodies
from gpu_admission.flags.options import applied, known_flags, read_options
from gpu_admission.metrics import ExtenderMetrics
from gpu_admission.questions import ExtenderCondition
from pod_scheduling.domain.extender.model_quotas import read_quotas
from pod_scheduling.domain.extender.model_usage import ModelUsage, model_of
from pod_scheduling.ports.extender import AssumeAt, Candidates
from pod_scheduling.runtime.settings.admission import AdmissionRules, AdmissionSettings, VolcanoShape
from tests.clusters.kubernetes_schemas import validate
from tests.integration.gpu_admission.counting_extender import CountingExtender
from tests.kubernetes.manifests import DEPLOY
from tests.read_yaml import read_all_yaml, read_yaml
from tests.unit.reservation_core.adapters.kubernetes.pods.pod_security import violations

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "scheduler-extender.md").read_text()
FILES = sorted((DEPLOY / "scheduler-extender").glob("*.yaml"))
DOCUMENTS = [(file.name, entry) for file in FILES for entry in read_all_yaml(file.read_text())]
ALL = [
    pytest.param(document, id=f"{file}-{document['kind']}-{number}")
    for number, (file, document) in enumerate(DOCUMENTS)
]
DEPLOYMENTS = [document for _, document in DOCUMENTS if document["kind"] == "Deployment"]

# kubescheduler.config.k8s.io/v1, as far as it is used here: an unknown field ends kube-scheduler.
CONFIGURATION = {
    "apiVersion", "kind", "profiles", "leaderElection", "clientConnection", "percentageOfNodesToScore", "extenders",
}  # fmt: skip
EXTENDER = {
    "urlPrefix", "filterVerb", "prioritizeVerb", "weight", "bindVerb", "preemptVerb", "enableHTTPS", "tlsConfig",
    "httpTimeout", "nodeCacheCapable", "managedResources", "ignorable",
}  # fmt: skip


def paths() -> set[str]:
    """Where schedulers may ask."""
    extender = CountingExtender({})
    metrics = ExtenderMetrics(extender.numbers, extender.problems)
    return set(App(extender, ExtenderCondition(), metrics, QuestionBodies(1, 1, 1), VolcanoShape.AUTO).questions)


def configurations() -> list[dict[str, Any]]:
    """The guide's, and that of the manifests."""
    shown = [read_yaml(block) for block in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)]
    maps = [document for _, document in DOCUMENTS if document["kind"] == "ConfigMap"]
    given = [read_yaml(config_map["data"]["config.yaml"]) for config_map in maps]
    return [
        configuration for configuration in [*shown, *given] if configuration.get("kind") == "KubeSchedulerConfiguration"
    ]


@pytest.mark.parametrize("version", ["1.30", "1.33", "1.37"])
@pytest.mark.parametrize("document", ALL)
def test_kubernetes_knows_every_field(document: dict[str, Any], version: str) -> None:
    validate(document, version)


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda each: each["metadata"]["name"])
def test_pods_are_restricted_and_start_what_there_is(deployment: dict[str, Any]) -> None:
    pod = deployment["spec"]["template"]
    # The standard forbids probes of another host; these name none.
    assert {*violations(pod)} <= {"a probe may name a host"}
    assert '"host"' not in json.dumps(pod)
    assert pod["spec"]["serviceAccountName"] == "gpu-admission"
    (ours,) = (container for container in pod["spec"]["containers"] if container["name"] == "gpu-admission")
    assert ours["command"][:3] == ["python", "-m", "gpu_admission"]
    rules = applied(read_options(ours["command"][3:]), AdmissionSettings()).admission
    others = [container for container in pod["spec"]["containers"] if container is not ours]
    # Beside its only scheduler it listens for nobody else; behind a Service by IPv4 and IPv6.
    assert rules.address.startswith("127.0.0.1:" if others else ":")
    assert others or any(document["kind"] == "NetworkPolicy" for _, document in DOCUMENTS)


def test_the_schedulers_configurations_are_known_to_kube_scheduler_and_to_us() -> None:
    found = configurations()
    assert len(found) == 2
    for configuration in found:
        assert configuration["apiVersion"] == "kubescheduler.config.k8s.io/v1"
        assert configuration.keys() <= CONFIGURATION
        assert configuration["percentageOfNodesToScore"] == 100
        # As many as the guide says that it binds, and more: by itself it would bind 50.
        assert configuration["clientConnection"]["burst"] >= configuration["clientConnection"]["qps"] > 360
        for extender in configuration["extenders"]:
            assert extender.keys() <= EXTENDER
            for verb in {"filterVerb", "prioritizeVerb", "bindVerb"} & extender.keys():
                assert f"/scheduler/{extender[verb]}" in paths()
            assert extender["urlPrefix"] == f"http://{AdmissionRules().address}/scheduler"
            assert "preemptVerb" not in extender


@pytest.mark.parametrize("number", range(2))
def test_kube_scheduler_binds_whole_cards_by_itself_and_shares_through_us(number: int) -> None:
    """The manifest's extender and the guide's have to count cards from the question on for that."""
    whole, shares = configurations()[number]["extenders"]
    rules = AdmissionRules()
    assert "bindVerb" not in whole
    assert [resource["name"] for resource in whole["managedResources"]] == ["nvidia.com/gpu"]
    assert shares["bindVerb"] == "bind"
    assert [resource["name"] for resource in shares["managedResources"]] == [
        rules.share_resource,
        rules.memory_resource,
    ]


def test_the_extender_beside_kube_scheduler_is_started_for_that() -> None:
    pods = [deployment["spec"]["template"]["spec"]["containers"] for deployment in DEPLOYMENTS]
    (beside,) = [pod for pod in pods if len(pod) == 2]
    (ours,) = [container for container in beside if container["name"] == "gpu-admission"]
    rules = applied(read_options(ours["command"][3:]), AdmissionSettings()).admission
    assert (rules.assume_at, rules.candidates) == (AssumeAt.FILTER, Candidates.BEST)
    assert "`--assume-at=filter --candidates=best`" in GUIDE


def test_volcanos_configuration_asks_where_we_answer() -> None:
    (block,) = (text for text in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL) if "extender.urlPrefix" in text)
    plugins = [plugin for tier in read_yaml(block)["tiers"] for plugin in tier["plugins"]]
    (arguments,) = (plugin["arguments"] for plugin in plugins if plugin["name"] == "extender")
    assert f"/scheduler/{arguments['extender.predicateVerb']}" in paths()
    (service,) = (document for _, document in DOCUMENTS if document["kind"] == "Service")
    host = f"{service['metadata']['name']}.{service['metadata']['namespace']}:{service['spec']['ports'][0]['port']}"
    assert arguments["extender.urlPrefix"] == f"http://{host}/scheduler"


def test_the_table_of_options_has_them_all_and_no_others() -> None:
    table = GUIDE.partition("## Options")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`-.*?) \|", table, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"--([\w-]+)", row)}
    assert named == {flag.name for flag in known_flags()}
    rules = AdmissionRules()
    for option, default in {
        "address": rules.address, "pprofAddress": rules.debug_address, "policy": rules.policy,
        "gpu-model-label": rules.model_label, "gpu-pool-label": rules.pool_label, "assume-at": rules.assume_at,
        "candidates": rules.candidates, "share-cards": rules.share_cards, "volcano-shape": rules.volcano_shape,
    }.items():  # fmt: skip
        assert f"| `--{option}` | `{default}` |" in table


def test_the_variables_are_there() -> None:
    known = {f"GPU_DEV_ADMISSION__{name.upper()}" for name in AdmissionRules.model_fields}
    assert {*re.findall(r"GPU_DEV_ADMISSION__[A-Z_]+[A-Z]", GUIDE)} <= known
    (told,) = re.findall(r"^Further settings are variables.*?\n\n", GUIDE, re.MULTILINE | re.DOTALL)
    short = {name for name in re.findall(r"`([A-Z][A-Z_]+)`", told) if not name.startswith("GPU_DEV_")}
    assert {f"GPU_DEV_ADMISSION__{name}" for name in short} <= known


def test_the_example_of_quotas_is_read_and_refuses_in_the_guides_words() -> None:
    (block,) = (text for text in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL) if "gpu_quota:" in text)
    document = read_yaml(block)
    rules = AdmissionRules()
    where = (document["metadata"]["namespace"], document["metadata"]["name"])
    assert where == (rules.quota_namespace, rules.quota_name)
    assert json.loads(document["data"][rules.quota_key])
    usage = ModelUsage(rules.model_label, rules.pool_label)
    usage.quotas = read_quotas(document["data"][rules.quota_key])
    h100, t4 = model_of("NVIDIA-H100-80GB-HBM3"), model_of("Tesla-T4")
    usage.use("u", "team-a", h100, 8000)
    told = GUIDE.partition("## Why a pod waits")[2]
    for reason in (
        usage.denial("v", "team-a", 1000, h100, "public"),
        usage.denial("v", "team-a", 16_000, h100, "public"),
        usage.denial("v", "team-a", 1000, h100, "research"),
    ):
        assert reason is not None
        assert reason.partition(";")[0] in told
    assert "has no quota for GPUs Tesla-T4" in str(usage.denial("v", "team-a", 1000, t4, "public"))


def test_the_table_of_shapes_has_them_all() -> None:
    rows = dict(re.findall(r"^\| (1\.[^|]*) \| .* \| `(v[\d.]+)` \|$", GUIDE, re.MULTILINE))
    assert {*rows.values(), "auto"} == {*VolcanoShape}
