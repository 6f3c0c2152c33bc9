"""The chart gpu-admission, as Helm renders it: the extender beside its kube-scheduler, or behind a Service; safe."""

import base64
import json
import re
from typing import Any

import helm_python
import pytest

from gpu_admission.flags.options import applied, read_options
from pod_scheduling.domain.extender.card_marks import ASKED_AGAIN, ASSIGNED, CARDS, INDEX_OF, NODE, TIME
from pod_scheduling.domain.extender.model_quotas import read_quotas
from pod_scheduling.ports.extender import AssumeAt, Candidates
from pod_scheduling.runtime.settings.admission import AdmissionSettings
from reservation_core.adapters.certificates.pairs import read_serving
from tests.chart.hardening import HOSTILE, check_variables, mounted, pod_specs
from tests.chart.rendering import JsonObject, one, render
from tests.chart.tried_values import ADMISSION, QUOTAS, SERVED, THROUGH_US, VOLCANO
from tests.kubernetes.manifests import DEPLOY
from tests.kubernetes.permissions import allowed_by, granted
from tests.people.certificate_keys import key_fits
from tests.read_yaml import read_all_yaml, read_yaml


def rendered(values: dict[str, Any], **more: Any) -> list[JsonObject]:
    return render("gpu-admission", values, **{"namespace": "kube-system", **more})


def extender_of(documents: list[JsonObject]) -> JsonObject:
    containers = one(documents, "Deployment", "gpu-admission")["spec"]["template"]["spec"]["containers"]
    (found,) = [container for container in containers if container["name"] == "gpu-admission"]
    assert isinstance(found, dict)
    return found


def configuration(documents: list[JsonObject], name: str = "gpu-quota-scheduler") -> JsonObject:
    found = read_yaml(one(documents, "ConfigMap", f"{name}-config")["data"]["gpu-scheduler-config.yaml"])
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("values", ADMISSION.values(), ids=list(ADMISSION))
def test_options_and_variables_are_known_to_the_extender(values: dict[str, Any]) -> None:
    container = extender_of(rendered(values))
    assert container["command"][:3] == ["python", "-m", "gpu_admission"]
    level = {"name": "LOG_LEVEL", "value": "2"}
    assert container["env"][0] == level
    check_variables({"env": container["env"][1:]}, AdmissionSettings)
    rules = applied(read_options(container["command"][3:]), AdmissionSettings()).admission
    alone = any(manifest["kind"] == "Service" for manifest in rendered(values))
    assert rules.address == (":3456" if alone else "127.0.0.1:3456")
    assert rules.debug_address.startswith("127.0.0.1:")
    assert rules.leader_elect == alone


def test_who_writes_cards_on_pods_may_write_nothing_else_on_them() -> None:
    """Its policy is the plain manifests', and names what the extender writes."""
    text = (DEPLOY / "rbac" / "gpu-admission.yaml").read_text()
    plain = one([*read_all_yaml(text)], "ValidatingAdmissionPolicy")["spec"]
    documents = rendered(VOLCANO)
    ours = one(documents, "ValidatingAdmissionPolicy", "gpu-admission-marking")["spec"]
    assert ours == json.loads(json.dumps(plain).replace("gpu-dev-system", "kube-system"))
    binding = one(documents, "ValidatingAdmissionPolicyBinding", "gpu-admission-marking")["spec"]
    assert binding == {"policyName": "gpu-admission-marking", "validationActions": ["Deny"]}
    (others,) = [variable["expression"] for variable in ours["variables"] if variable["name"] == "others"]
    (names,) = re.findall(r"key in (\[[^\]]*\])", others)
    assert sorted(json.loads(names)) == sorted((ASKED_AGAIN, CARDS, ASSIGNED, NODE, TIME))
    assert f'key.startsWith("{INDEX_OF}")' in others


@pytest.mark.parametrize("values", ADMISSION.values(), ids=list(ADMISSION))
def test_whoever_may_patch_pods_is_held_by_the_policy(values: dict[str, Any]) -> None:
    documents = rendered(values)
    role = one(documents, "ClusterRole")
    patches = any("patch" in rule["verbs"] and "pods" in rule["resources"] for rule in role["rules"])
    assert [document["kind"] for document in documents if document["kind"].startswith("ValidatingAdmission")] == (
        ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] if patches else []
    )
    older = rendered(values, kube_version="v1.29.0")
    assert not [manifest for manifest in older if manifest["kind"].startswith("ValidatingAdmission")]


def test_words_for_types_are_those_that_are_given() -> None:
    container = extender_of(rendered({"extender": {"gpuTypes": {"NVIDIA-Odd-Card": "h100"}}}))
    check_variables({"env": container["env"][1:]}, AdmissionSettings)
    (told,) = [variable["value"] for variable in container["env"] if variable["name"] == "GPU_DEV_GPU__TYPES"]
    assert json.loads(told) == {"NVIDIA-Odd-Card": "h100"}


def test_beside_its_scheduler_nobody_else_reaches_it() -> None:
    documents = rendered({})
    assert not [document for document in documents if document["kind"] in ("Service", "NetworkPolicy")]
    spec = one(documents, "Deployment", "gpu-admission")["spec"]["template"]["spec"]
    assert [container["name"] for container in spec["containers"]] == ["kube-scheduler", "gpu-admission"]
    assert not [container for container in spec["containers"] if "ports" in container]
    said = configuration(documents)
    assert said["percentageOfNodesToScore"] == 100
    extenders = said["extenders"]
    assert {extender["urlPrefix"] for extender in extenders} == {"http://127.0.0.1:3456/scheduler"}


def test_the_seeds_objects_have_its_names() -> None:
    documents = rendered(ADMISSION["the seed's names"])
    assert {document["metadata"]["namespace"] for document in documents if "namespace" in document["metadata"]} == {
        "kube-system"
    }
    assert one(documents, "Deployment", "gpu-admission")["spec"]["template"]["metadata"]["labels"]["app"]
    service = one(documents, "Service", "gpu-admission")
    assert service["spec"]["ports"] == [{"name": "extender", "port": 3456, "targetPort": "extender"}]
    one(documents, "Deployment", "gpu-scheduler")
    said = configuration(documents, "gpu-scheduler")
    assert said["profiles"] == [{"schedulerName": "gpu-scheduler"}]
    for extender in said["extenders"]:
        assert extender["urlPrefix"] == "http://gpu-admission.kube-system:3456/scheduler"
        assert extender["enableHTTPS"] is False


@pytest.mark.parametrize(
    ("values", "admitted"),
    [
        (SERVED, ["gpu-quota-scheduler", "volcano-scheduler"]),
        (VOLCANO, ["volcano-scheduler"]),
        ({**SERVED, "networkPolicy": {"from": []}}, ["gpu-quota-scheduler"]),
        ({**VOLCANO, "networkPolicy": {"from": []}}, []),
    ],
)
def test_behind_a_service_only_schedulers_reach_it(values: dict[str, Any], admitted: list[str]) -> None:
    documents = rendered(values)
    spec = one(documents, "NetworkPolicy")["spec"]
    template = one(documents, "Deployment", "gpu-admission")["spec"]["template"]
    assert spec["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    peers = [peer for rule in spec["ingress"] for peer in rule["from"]]
    names = [next(iter(peer["podSelector"]["matchLabels"].values())) for peer in peers]
    assert names == admitted
    # An empty list of peers would let everybody in.
    assert all(rule["from"] for rule in spec["ingress"])
    if values is SERVED:
        scheduler = one(documents, "Deployment", "gpu-quota-scheduler")["spec"]["template"]
        assert peers[0]["podSelector"]["matchLabels"].items() <= scheduler["metadata"]["labels"].items()


def test_an_update_waits_for_no_second_that_is_ready() -> None:
    """Behind the Service the leader alone is ready; new ones are not until the old one has gone."""
    spec = one(rendered(SERVED), "Deployment", "gpu-admission")["spec"]
    assert "--leader-elect" in extender_of(rendered(SERVED))["command"]
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == "100%"
    assert spec["progressDeadlineSeconds"] == 2**31 - 1  # which is none
    assert "strategy" not in one(rendered({}), "Deployment")["spec"]


def test_the_service_does_not_find_the_schedulers_pods() -> None:
    documents = rendered(SERVED)
    selector = one(documents, "Service")["spec"]["selector"]
    for name, found in (("gpu-admission", True), ("gpu-quota-scheduler", False)):
        labels = one(documents, "Deployment", name)["spec"]["template"]["metadata"]["labels"]
        assert (selector.items() <= labels.items()) is found


@pytest.mark.parametrize(("version", "words"), [("v1.24.9", "v1beta3"), ("v1.25.0-eks-1", "v1"), ("v1.36.0", "v1")])
def test_kube_scheduler_is_the_clusters_own_and_is_spoken_to_in_its_words(version: str, words: str) -> None:
    documents = rendered({}, kube_version=version)
    assert configuration(documents)["apiVersion"] == f"kubescheduler.config.k8s.io/{words}"
    images = {
        container["name"]: container["image"] for spec in pod_specs(documents) for container in spec["containers"]
    }  # as the registry calls it, without what a provider adds
    assert images["kube-scheduler"] == f"registry.k8s.io/kube-scheduler:{version.partition('-')[0]}"


WHOLE = ("nvidia.com/gpu", "amd.com/gpu")
SHARES = ("tencent.com/vcuda-core", "tencent.com/vcuda-memory")
APART = [(False, WHOLE), (True, SHARES)]
TOGETHER = [(True, (*WHOLE, *SHARES))]


@pytest.mark.parametrize(
    ("values", "entries", "counting", "told"),
    [
        ({}, APART, AssumeAt.FILTER, Candidates.BEST),
        (SERVED, APART, AssumeAt.FILTER, Candidates.BEST),
        ({"extender": {"candidates": "all"}}, APART, AssumeAt.FILTER, Candidates.ALL),
        (THROUGH_US, TOGETHER, AssumeAt.BIND, Candidates.BEST),
        # As a chart that knew no scheduler.bind was told. The first is how its own values were.
        ({"extender": {"assumeAt": "bind"}}, TOGETHER, AssumeAt.BIND, Candidates.BEST),
        ({"extender": {"assumeAt": "filter"}}, APART, AssumeAt.FILTER, Candidates.BEST),
        # Counting earlier than it has to does no harm, where Volcano asks the same one.
        ({**THROUGH_US, "extender": {"assumeAt": "filter"}}, TOGETHER, AssumeAt.FILTER, Candidates.BEST),
        ({"extender": {"gpuResources": [*WHOLE, SHARES[0]]}}, APART, AssumeAt.FILTER, Candidates.BEST),
        ({"extender": {"gpuResources": [SHARES[0]]}}, [(True, SHARES)], AssumeAt.FILTER, Candidates.BEST),
        ({"extender": {"shareResource": "a.test/core", "memoryResource": "a.test/core"}},
         [(False, WHOLE), (True, ("a.test/core",))], AssumeAt.FILTER, Candidates.BEST),
        ({"scheduler": {"enabled": False}}, None, AssumeAt.AUTO, Candidates.ALL),
        ({"scheduler": {"enabled": False, "bind": "all"}}, None, AssumeAt.BIND, Candidates.ALL),
        ({"extender": {"assumeAt": "auto"}}, APART, AssumeAt.AUTO, Candidates.BEST),
        (VOLCANO, None, AssumeAt.FILTER, Candidates.ALL),
        ({"scheduler": {"enabled": False, "bind": "shares"}}, None, AssumeAt.FILTER, Candidates.ALL),
    ],
)  # fmt: skip
def test_kube_scheduler_and_the_extender_agree_on_who_binds_whom(
    values: dict[str, Any], entries: list[tuple[bool, tuple[str, ...]]] | None, counting: AssumeAt, told: Candidates
) -> None:
    documents = rendered(values)
    rules = applied(read_options(extender_of(documents)["command"][3:]), AdmissionSettings()).admission
    assert (rules.assume_at, rules.candidates) == (counting, told)
    if entries is not None:
        extenders = configuration(documents)["extenders"]
        managed = [tuple(one["name"] for one in extender["managedResources"]) for extender in extenders]
        assert [("bindVerb" in extender, names) for extender, names in zip(extenders, managed, strict=True)] == entries
        # kube-scheduler takes one entry for each resource, and one that binds.
        assert len({*sum(managed, ())}) == len(sum(managed, ()))
        alike = {
            json.dumps({**extender, "bindVerb": "", "managedResources": []}, sort_keys=True) for extender in extenders
        }
        assert len(alike) == 1
        assert not [extender for extender in extenders if "preemptVerb" in extender]


def test_who_does_not_bind_may_not_and_who_writes_on_pods_may() -> None:
    for values, version, binds, writes in (
        ({}, "v1.29.0", True, True),
        (THROUGH_US, "v1.29.0", True, False),
        (THROUGH_US, "v1.30.0", True, True),
        (VOLCANO, "v1.29.0", False, True),
        (ADMISSION["a scheduler of their own"], "v1.30.0", True, True),
    ):
        documents = rendered(values, kube_version=version)
        may = {
            (permission.resource, permission.verb)
            for permission in allowed_by(documents, "gpu-admission", "kube-system")
        }
        assert (("pods/binding", "create") in may) is binds
        assert (("pods", "patch") in may) is writes
        assert ("pods", "get") in may  # what became of a pod that counts is looked up


def test_it_may_do_what_the_manifests_let_it_do() -> None:
    """What these grant is held against the calls of the program, on an API server."""
    given = set()
    for values in (VOLCANO, SERVED):
        given |= allowed_by(rendered({**values, "namespace": "gpu-dev-system"}), "gpu-admission", "gpu-dev-system")
    assert given == granted("gpu-admission")


def test_quotas_are_read_as_they_are_given() -> None:
    assert not [manifest for manifest in rendered({}) if manifest["metadata"]["name"] == "gpuquota"]
    quotas = read_quotas(one(rendered({"quotas": QUOTAS}), "ConfigMap", "gpuquota")["data"]["gpu_quota"])
    team_a = quotas.of("team-a")
    assert team_a is not None
    assert (team_a.models, team_a.pools) == ({"H100": 8000, "A100-80GB": 4000}, {"public"})
    documents = rendered(ADMISSION["all on"], namespace="elsewhere")
    where = {variable["name"]: variable["value"] for variable in extender_of(documents)["env"] if "value" in variable}
    assert where["GPU_DEV_ADMISSION__QUOTA_NAMESPACE"] == "quotas"
    assert one(documents, "ConfigMap", "gpuquota")["metadata"]["namespace"] == "quotas"
    assert one(documents, "Role", "gpu-admission")["metadata"]["namespace"] == "quotas"
    assert one(documents, "Deployment")["metadata"]["namespace"] == "elsewhere"


def test_the_certificate_is_one_for_the_service_and_its_authority_is_told() -> None:
    documents = rendered(ADMISSION["TLS"])
    data = {name: base64.b64decode(value) for name, value in one(documents, "Secret")["data"].items()}
    serving = read_serving(data["tls.crt"], data["ca.crt"])
    assert "gpu-admission.kube-system" in serving.names
    assert key_fits(data["tls.crt"], data["tls.key"])
    for extender in configuration(documents)["extenders"]:
        assert extender["enableHTTPS"] is True
        assert extender["urlPrefix"].startswith("https://gpu-admission.kube-system:")
        assert base64.b64decode(extender["tlsConfig"]["caData"]) == data["ca.crt"]
    container = extender_of(documents)
    assert mounted({"containers": [container]}, "gpu-admission") == ["certificates"]
    assert {"--tls-cert=/certificates/tls.crt", "--tls-key=/certificates/tls.key"} <= {*container["command"]}
    assert {container[probe]["httpGet"]["scheme"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")} == {
        "HTTPS"
    }
    theirs = rendered(ADMISSION["their certificate"])
    assert not [manifest for manifest in theirs if manifest["kind"] == "Secret"]


def test_a_scheduler_starts_anew_with_another_configuration() -> None:
    for beside in (True, False):
        told = set()
        for weight in (5, 6):
            documents = rendered({"scheduler": {"beside": beside, "weight": weight}})
            name = "gpu-admission" if beside else "gpu-quota-scheduler"
            told.add(one(documents, "Deployment", name)["spec"]["template"]["metadata"]["annotations"].popitem())
        assert len(told) == 2


def test_a_release_of_a_former_chart_is_upgraded_with_the_values_that_it_had() -> None:
    """`helm upgrade --reuse-values` brings none of what is new here: null is how that looks to a template."""
    documents = rendered({"extender": {"assumeAt": "bind", "candidates": None}, "scheduler": {"bind": None}})
    (extender,) = configuration(documents)["extenders"]
    assert extender["bindVerb"] == "bind"


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replicas": 3}, "replicas"),
        ({"extender": {"policy": "best"}}, "policy"),
        ({"scheduler": {"name": HOSTILE}}, "name"),
        ({"extender": {"modelLabel": HOSTILE}}, "modelLabel"),
        ({"extender": {"gpuResources": ["gpu"]}}, "gpuResources"),
        ({"quotas": {"team-a": {"quota": {"H100": -1}}}}, "H100"),
        ({"quotas": {"team-a": {"quotas": {}}}}, "quotas"),
        ({"tls": {"enabled": True}}, "scheduler.beside=false"),
        ({**SERVED, "tls": {"enabled": True, "existingSecret": "theirs"}}, "tls.caBundle"),
        ({**SERVED, "tls": {"enabled": True, "caBundle": "YQ=="}}, "tls.existingSecret"),
        ({"scheduler": {"name": "gpu-admission"}}, "another name"),
        ({"scheduler": {"bind": "none"}}, "bind"),
        ({"extender": {"candidates": "few"}}, "candidates"),
        ({"scheduler": {"bind": "shares"}, "extender": {"assumeAt": "bind"}}, "set scheduler.bind=all"),
        ({"scheduler": {"enabled": False, "bind": "shares"}, "extender": {"assumeAt": "bind"}}, "scheduler.bind=all"),
    ],
)
def test_what_does_not_do_is_named(values: dict[str, Any], named: str) -> None:
    with pytest.raises(helm_python.HelmError, match=re.escape(named)):
        rendered(values)
