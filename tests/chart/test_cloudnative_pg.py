"""The chart on a Cluster of CloudNativePG: the values file and the examples in `deploy/cloudnative-pg` fit together.

GPU_DEV_CNPG_CRDS names a folder with the operator's CustomResourceDefinitions: then the objects are held against them.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python
import jsonschema
import pytest

from tests.chart.rendering import CHARTS, one, render
from tests.read_yaml import read_all_yaml, read_yaml

EXAMPLES = CHARTS.parent / "deploy" / "cloudnative-pg"
CRDS = os.environ.get("GPU_DEV_CNPG_CRDS")
CLUSTERS = ("cluster.yaml", "cluster-import.yaml", "cluster-recovered.yaml")


def example(file: str, kind: str) -> dict[str, Any]:
    [found] = [manifest for manifest in read_all_yaml((EXAMPLES / file).read_text()) if manifest["kind"] == kind]
    return dict(found)


def rendered(*, upgrade: bool = False, **of_cluster: str) -> list[dict[str, Any]]:
    """The chart with the values file, and more values of `cloudNativePG`."""
    values = read_yaml((CHARTS / "gpu-dev-server" / "values-cloudnative-pg.yaml").read_text())
    values["cloudNativePG"] |= of_cluster
    return render("gpu-dev-server", values, name="gpu-dev", namespace="gpu-controlplane", upgrade=upgrade)


def reads(documents: list[dict[str, Any]], kind: str, name: str) -> tuple[dict[str, str], set[tuple[str, str]]]:
    """The literal variables of a workload's first container, and the Secrets' keys that are mounted as settings."""
    pod = one(documents, kind, name)["spec"]["template"]["spec"]
    variables = {variable["name"]: variable["value"] for variable in pod["containers"][0]["env"] if "value" in variable}
    [settings] = [volume for volume in pod["volumes"] if volume["name"] == "settings"]
    secrets = [source["secret"] for source in settings["projected"]["sources"] if "secret" in source]
    return variables, {(secret["name"], item["key"]) for secret in secrets for item in secret["items"]}


@pytest.mark.parametrize("upgrade", [False, True])
@pytest.mark.parametrize("file", CLUSTERS)
def test_programs_and_migration_connect_by_the_roles_of_the_cluster(file: str, upgrade: bool) -> None:
    cluster = example(file, "Cluster")
    name = cluster["metadata"]["name"]
    [role] = cluster["spec"]["managed"]["roles"]
    documents = rendered(upgrade=upgrade, existingCluster=name)
    api, secrets = reads(documents, "Deployment", "api-service")
    assert api["GPU_DEV_DATABASE_URL"] == f"postgresql://{role['name']}@{name}-rw:5432/gpudev"
    assert api["PGSSLMODE"] == "verify-ca"
    assert secrets >= {(role["passwordSecret"]["name"], "password"), (f"{name}-ca", "ca.crt")}
    [job] = [
        document["metadata"]["name"]
        for document in documents
        if document["kind"] == "Job" and "migrat" in str(document)
    ]
    migration, secrets = reads(documents, "Job", job)
    bootstrap = next(iter(cluster["spec"]["bootstrap"].values()))
    assert migration["GPU_DEV_DATABASE_URL"] == f"postgresql://{bootstrap['owner']}@{name}-rw:5432/gpudev"
    assert migration["PGSSLMODE"] == "verify-ca"
    assert secrets >= {(bootstrap["secret"]["name"], "password"), (f"{name}-ca", "ca.crt")}
    assert (role["passwordSecret"]["name"], "password") not in secrets


def test_a_cluster_with_an_authority_of_its_own_is_believed_by_that() -> None:
    documents = rendered(caSecret="theirs")
    [job] = [document["metadata"]["name"] for document in documents if document["kind"] == "Job"]
    for kind, name in (("Deployment", "api-service"), ("Job", job)):
        variables, secrets = reads(documents, kind, name)
        assert variables["PGSSLMODE"] == "verify-ca"
        assert [secret for secret in secrets if secret[1] == "ca.crt"] == [("theirs", "ca.crt")]


def test_an_owner_without_the_application_is_refused() -> None:
    with pytest.raises(helm_python.HelmError, match="needs the Secret of the application's role as well"):
        rendered(existingSecret="")


def test_nothing_of_the_built_in_pair_is_left() -> None:
    kinds = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in rendered()}
    assert not {name for kind, name in kinds if kind in ("StatefulSet", "Cluster") or name.startswith("postgres-")}


def test_only_encrypted_connections_are_let_in_and_the_programs_reach_the_instances() -> None:
    for file in CLUSTERS:
        rules = example(file, "Cluster")["spec"]["postgresql"]["pg_hba"]
        assert rules == ["hostssl all all all scram-sha-256", "hostnossl all all all reject"]
    policy = example("cluster.yaml", "NetworkPolicy")["spec"]
    [apps] = policy["ingress"][0]["from"][0]["podSelector"]["matchExpressions"]
    asking = {
        pod["metadata"]["labels"]["app"]
        for manifest in rendered()
        for pod in _templates(manifest)
        if any(variable["name"] == "GPU_DEV_DATABASE_URL" for variable in pod["spec"]["containers"][0].get("env", ()))
    }
    assert asking
    assert asking <= set(apps["values"])


def test_the_database_is_reached_by_the_programs_its_own_instances_and_those_that_the_values_name() -> None:
    """As the example's policy has it."""
    values: dict[str, Any] = {"postgres": {"enabled": False}, "cloudNativePG": {"enabled": True}}
    others = [{"podSelector": {"matchLabels": {"cnpg.io/poolerName": "pooler"}}}]
    expected = example("cluster.yaml", "NetworkPolicy")["spec"]["ingress"]
    expected[0]["from"][1] = {"podSelector": {"matchLabels": {"cnpg.io/cluster": "gpu-dev-postgres"}}}
    policy = one(render("gpu-dev-server", values), "NetworkPolicy", "cloudnativepg")["spec"]
    assert policy["ingress"] == expected
    policy = one(
        render("gpu-dev-server", {**values, "networkPolicy": {"databaseFrom": others}}),
        "NetworkPolicy",
        "cloudnativepg",
    )["spec"]
    assert policy["ingress"][0]["from"] == [*expected[0]["from"], *others]


def _templates(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    match document["kind"]:
        case "Deployment" | "Job":
            yield document["spec"]["template"]
        case "CronJob":
            yield document["spec"]["jobTemplate"]["spec"]["template"]


@pytest.mark.skipif(CRDS is None, reason="GPU_DEV_CNPG_CRDS names no folder with the operator's definitions")
@pytest.mark.parametrize("file", sorted(path.name for path in EXAMPLES.glob("*.yaml")))
def test_the_examples_are_what_the_operators_definitions_allow(file: str) -> None:
    schemas = {}
    for path in Path(str(CRDS)).rglob("*.yaml"):
        for definition in read_all_yaml(path.read_text()):
            if isinstance(definition, dict) and definition.get("kind") == "CustomResourceDefinition":
                version = definition["spec"]["versions"][0]
                schemas[definition["spec"]["names"]["kind"]] = strict(version["schema"]["openAPIV3Schema"])
    tried = 0
    for document in read_all_yaml((EXAMPLES / file).read_text()):
        if document["kind"] in schemas:
            jsonschema.validate(document, schemas[document["kind"]])
            tried += 1
    assert tried or "cnpg" not in (EXAMPLES / file).read_text()


def strict(schema: Any) -> Any:
    """The schema without unknown members, as strict field validation has it."""
    if isinstance(schema, list):
        return [strict(nested) for nested in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: strict(nested) for name, nested in schema.items()}
    if "properties" in closed and isinstance(closed["properties"], dict) and "type" in closed:
        closed.setdefault("additionalProperties", bool(closed.get("x-kubernetes-preserve-unknown-fields")))
    if closed.pop("x-kubernetes-int-or-string", False):
        closed.pop("anyOf", None)
        closed["type"] = ["integer", "string"]
    return closed
