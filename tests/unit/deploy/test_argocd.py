"""The Argo CD files: each application is a chart with values that it takes, within its project, and stays as it is."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chart.hardening import check_objects
from tests.chart.rendering import render
from tests.clusters.kubernetes_schemas import validate
from tests.read_yaml import read_all_yaml

ROOT = Path(__file__).parents[3]
ARGOCD = ROOT / "deploy" / "argocd"


def document(path: Path) -> dict[str, Any]:
    (found,) = (entry for entry in read_all_yaml(path.read_text()) if entry)
    assert isinstance(found, dict)
    return found


SETS = {path.name: document(path) for path in sorted(ARGOCD.glob("*-applicationset.yaml"))}
PROJECTS = {path["metadata"]["name"]: path for path in map(document, sorted(ARGOCD.glob("*-project.yaml")))}
SETS_BY_NAME = pytest.mark.parametrize("application_set", SETS.values(), ids=list(SETS))


def rendered(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """What Argo CD applies: helm's tests and hooks are not part of it."""
    helm = spec["source"]["helm"]
    chart = Path(spec["source"]["path"]).name
    return render(chart, helm["valuesObject"], name=helm["releaseName"], namespace=spec["destination"]["namespace"])


def test_the_charts_that_run_a_cluster_have_one() -> None:
    charts = {
        Path(application_set["spec"]["template"]["spec"]["source"]["path"]).name for application_set in SETS.values()
    }
    assert charts == {"gpu-dev-server", "gpu-scheduler", "gpu-admission"}
    assert {application_set["spec"]["template"]["spec"]["project"] for application_set in SETS.values()} == {*PROJECTS}
    assert SETS["gpu-scheduler-complete-applicationset.yaml"]["metadata"]["name"] == "gpu-scheduler-complete"


@SETS_BY_NAME
def test_an_application_is_a_chart_within_its_project(application_set: dict[str, Any]) -> None:
    cluster = document(ARGOCD / "local-cluster-secret.yaml")
    (generator,) = application_set["spec"]["generators"]
    assert generator["clusters"]["selector"]["matchLabels"].items() <= cluster["metadata"]["labels"].items()
    spec = application_set["spec"]["template"]["spec"]
    project = PROJECTS[spec["project"]]["spec"]
    assert spec["source"]["repoURL"] in project["sourceRepos"]
    assert (ROOT / spec["source"]["path"] / "Chart.yaml").exists()
    assert spec["destination"]["namespace"] in {destination["namespace"] for destination in project["destinations"]}
    objects = rendered(spec)
    check_objects(objects, "1.36")
    allowed = {(allowed_kind["group"], allowed_kind["kind"]) for allowed_kind in project["clusterResourceWhitelist"]}
    namespaces = {destination["namespace"] for destination in project["destinations"]}
    made = set()
    for manifest in objects:
        kind = manifest["apiVersion"].rpartition("/")[0], manifest["kind"]
        where = manifest["metadata"].get("namespace")
        if where is None:
            made.add(kind)
        else:
            assert where in namespaces
    # Argo CD makes the namespace of its destination itself.
    assert made <= allowed
    assert allowed - made <= {("", "Namespace")}


@SETS_BY_NAME
def test_what_changes_with_each_rendering_is_left_as_it_is_in_the_cluster(application_set: dict[str, Any]) -> None:
    spec = application_set["spec"]["template"]["spec"]
    assert "RespectIgnoreDifferences=true" in spec["syncPolicy"]["syncOptions"]
    ignored = {(difference["kind"], difference["name"]): difference for difference in spec.get("ignoreDifferences", ())}
    for first, second in zip(rendered(spec), rendered(spec), strict=True):
        if first == second:
            continue
        told = ignored[first["kind"], first["metadata"]["name"]]
        for document in (first, second):
            match document["kind"]:
                case "Secret":
                    assert told["jsonPointers"] == ["/data"]
                    document.pop("data")
                case "MutatingWebhookConfiguration":
                    assert told["jqPathExpressions"] == [".webhooks[].clientConfig.caBundle"]
                    for webhook in document["webhooks"]:
                        webhook["clientConfig"].pop("caBundle")
        assert first == second
    names = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in rendered(spec)}
    assert ignored.keys() <= names


@SETS_BY_NAME
def test_jobs_can_be_made_anew_and_no_hook_comes_too_early(
    application_set: dict[str, Any],
) -> None:
    for manifest in rendered(application_set["spec"]["template"]["spec"]):
        notes = manifest["metadata"].get("annotations") or {}
        if manifest["kind"] == "Job":
            assert notes["argocd.argoproj.io/sync-options"] == "Force=true,Replace=true"
        assert notes.get("helm.sh/hook", "test") == "test"


def test_the_cluster_has_no_credentials() -> None:
    cluster = document(ARGOCD / "local-cluster-secret.yaml")
    validate(cluster, "1.36")
    assert cluster["metadata"]["name"] == "local-cluster"
    assert cluster["metadata"]["labels"]["argocd.argoproj.io/secret-type"] == "cluster"
    assert cluster["stringData"].keys() == {"name", "server", "config"}
    assert json.loads(cluster["stringData"]["config"]) == {"tlsClientConfig": {"insecure": False}}
