"""What the guide to scheduling maps has people apply: its pods, its Argo CD files, and that all it names is there."""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from reservation_core.domain.admission import Operation, Patched, PodReview
from reservation_core.domain.injection import InjectionRules, injection
from tests.chart.hardening import check_objects
from tests.chart.rendering import one, render

ROOT = Path(__file__).parents[3]
ARGOCD = ROOT / "deploy" / "argocd"
GUIDES = ["scheduling-map.md", "enforcing-bookings.md"]


def documents(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def test_the_three_pods_see_what_the_guide_says() -> None:
    found = {}
    for pod in documents(ROOT / "deploy" / "scheduling-map" / "webhook-test.yaml"):
        kubernetes_validate.validate(pod, "1.36", strict=True)
        verdict = injection(PodReview(Operation.CREATE, pod), InjectionRules())
        assert isinstance(verdict, Patched), verdict
        notes = verdict.pod["metadata"]["annotations"]
        found[pod["metadata"]["name"]] = notes["gpu-dev/map-node"], notes["gpu-dev/map-devices"]
    assert found == {
        "webhook-test-0": ("node1", "0,1"),
        "webhook-test-1": ("node2", "2"),
        "webhook-test-2": ("node3", "0,1,2"),
    }


@pytest.mark.parametrize("guide", GUIDES)
def test_every_file_that_a_guide_names_is_there(guide: str) -> None:
    text = (ROOT / "docs" / "guides" / guide).read_text()
    named = {each.rstrip("./") for each in re.findall(r"(?<![\w/])(?:deploy|charts|docs|tests)/[\w./-]+", text)}
    assert named
    assert [each for each in sorted(named) if not (ROOT / each).exists()] == []


def test_the_values_of_the_guide_install_the_chart() -> None:
    guide = (ROOT / "docs" / "guides" / "enforcing-bookings.md").read_text()
    (values,) = re.findall(r"```yaml\n# my-values.yaml\n(.*?)```", guide, re.DOTALL)
    objects = render("gpu-booking", yaml.safe_load(values), namespace="gpu-booking")
    check_objects(objects, "1.36")
    (webhook,) = one(objects, "MutatingWebhookConfiguration")["webhooks"]
    assert f'admission webhook "{webhook["name"]}" denied' in guide


def test_the_application_is_the_chart_with_names_of_the_setup_guide() -> None:
    (application_set,) = documents(ARGOCD / "gpu-scheduler-complete-applicationset.yaml")
    (project,) = documents(ARGOCD / "gpu-scheduler-project.yaml")
    (cluster,) = documents(ARGOCD / "local-cluster-secret.yaml")
    kubernetes_validate.validate(cluster, "1.36", strict=True)
    assert (application_set["metadata"]["name"], cluster["metadata"]["name"]) == (
        "gpu-scheduler-complete", "local-cluster",
    )  # fmt: skip
    (generator,) = application_set["spec"]["generators"]
    wanted = generator["clusters"]["selector"]["matchLabels"]
    assert wanted.items() <= cluster["metadata"]["labels"].items()
    spec = application_set["spec"]["template"]["spec"]
    assert spec["project"] == project["metadata"]["name"]
    assert spec["source"]["repoURL"] in project["spec"]["sourceRepos"]
    assert (ROOT / spec["source"]["path"] / "Chart.yaml").exists()
    objects = _rendered(spec)
    check_objects(objects, "1.36")
    allowed = {(each["group"], each["kind"]) for each in project["spec"]["clusterResourceWhitelist"]}
    namespaces = {each["namespace"] for each in project["spec"]["destinations"]}
    for each in objects:
        group = each["apiVersion"].rpartition("/")[0]
        where = each["metadata"].get("namespace")
        assert where in namespaces if where is not None else (group, each["kind"]) in allowed


def test_what_changes_with_each_rendering_is_left_as_it_is_in_the_cluster() -> None:
    (application_set,) = documents(ARGOCD / "gpu-scheduler-complete-applicationset.yaml")
    spec = application_set["spec"]["template"]["spec"]
    assert "RespectIgnoreDifferences=true" in spec["syncPolicy"]["syncOptions"]
    ignored = {(each["kind"], each["name"]): each for each in spec["ignoreDifferences"]}
    changed = set()
    for first, second in zip(_rendered(spec), _rendered(spec), strict=True):
        if first != second:
            changed.add((first["kind"], first["metadata"]["name"]))
            for each in (first, second):
                each.pop("data", None)
                for webhook in each.get("webhooks", ()):
                    webhook["clientConfig"].pop("caBundle")
            assert first == second
    assert changed == set(ignored)
    assert ignored["Secret", "gpu-scheduler-webhook-tls"]["jsonPointers"] == ["/data"]
    webhook = ignored["MutatingWebhookConfiguration", "gpu-scheduler-webhook"]
    assert webhook["jqPathExpressions"] == [".webhooks[].clientConfig.caBundle"]


def _rendered(spec: dict[str, Any]) -> list[dict[str, Any]]:
    helm = spec["source"]["helm"]
    namespace = spec["destination"]["namespace"]
    return render("gpu-scheduler", helm["valuesObject"], name=helm["releaseName"], namespace=namespace)
