"""The chart gpu-dev-server, as Helm renders it: the seed's names and values, safe, valid for each Kubernetes."""

import base64
import re
from typing import Any

import helm_python
import pytest

from reservation_core.adapters.kubernetes.pods.pod_defaults import PodDefaults
from reservation_core.runtime.settings.components import (
    ApiSettings,
    CommonSettings,
    ExpirySettings,
    NodeAgentSettings,
    ProcessorSettings,
    SshGatewaySettings,
    UpdaterSettings,
)
from tests.chart.dev_server.dev_server_schema import CHART, COMPONENTS, FILE, OWN, names_of, written
from tests.chart.dev_server.dev_server_values import (
    ALL_ON,
    CONTROLPLANE,
    EXTERNAL,
    OPERATORS,
    VALUES,
    WORKLOADS,
    containers,
    over,
    rendered,
    templates,
    variables,
)
from tests.chart.hardening import HOSTILE, VERSIONS, check_objects
from tests.chart.rendering import VERSION, documents_of, one
from tests.read_yaml import read_yaml


@pytest.mark.parametrize(
    ("name", "version"),
    [*((name, VERSIONS[-1]) for name in VALUES), ("default", VERSIONS[0]), ("all on", VERSIONS[0])],
)
def test_every_object_is_one_that_kubernetes_takes(name: str, version: str) -> None:
    documents = rendered(VALUES[name], kube_version=f"v{version}.0")
    check_objects([document for document in documents if document["kind"] not in OPERATORS], version)


def test_the_oldest_kubernetes_gets_no_policy() -> None:
    documents = rendered(ALL_ON, kube_version="v1.24.0")
    assert not [document for document in documents if document["kind"].startswith("ValidatingAdmission")]
    check_objects([document for document in documents if document["kind"] not in OPERATORS], VERSIONS[0])


@pytest.mark.parametrize("values", VALUES.values(), ids=list(VALUES))
def test_what_was_hostile_is_still_one_value_and_namespaces_are_the_two(values: dict[str, Any]) -> None:
    documents = rendered(values)
    for document in documents:
        assert "injected" not in document["metadata"].get("annotations", {})
        assert document["metadata"].get("namespace") in (None, CONTROLPLANE, WORKLOADS)
    if values is ALL_ON:
        api = one(documents, "Deployment", "api-service")
        assert api["spec"]["template"]["metadata"]["annotations"]["a"] == HOSTILE
        told = variables(one(documents, "Deployment", "reservation-processor"))
        assert told["GPU_DEV_SMTP__HOST"] == HOSTILE
        # Helm's own way with large numbers is 1.048576e+06.
        assert variables(api)["GPU_DEV_MAX_BODY_BYTES"] == "1048576"


def test_the_seeds_names_labels_and_commands() -> None:
    documents = rendered(VALUES["aws"])
    for label in ("api-service", "reservation-processor", "availability-updater", "reservation-expiry"):
        found = [
            template
            for kind, template in templates(documents)
            if template["metadata"]["labels"]["app"] == label and kind in ("Deployment", "CronJob")
        ]
        assert len(found) == 1
        assert containers(found[0])[-1]["image"] == f"your-registry/{label}:{VERSION}"
        account = one(documents, "ServiceAccount", label)
        assert account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"].endswith(f"/{label}-role")
    assert one(documents, "Service", "postgres-primary")["spec"]["ports"][0]["port"] == 5432
    assert one(documents, "Service", "postgres-replica")
    assert one(documents, "Deployment", "reservation-processor")["spec"]["replicas"] == 2
    assert one(documents, "HorizontalPodAutoscaler", "api-service")["spec"]["minReplicas"] == 2
    # kubectl delete pvc -n gpu-controlplane -l app.kubernetes.io/instance=gpu-dev
    claims = [document for document in documents if document["kind"] == "PersistentVolumeClaim"]
    for document in documents:
        if document["kind"] == "StatefulSet":
            claims += document["spec"]["volumeClaimTemplates"]
    assert len(claims) == 5
    for claim in claims:
        assert claim["metadata"]["labels"]["app.kubernetes.io/instance"] == "gpu-dev"
        assert claim["spec"]["storageClassName"] == "gp3"
    assert base64.b64decode(one(documents, "Secret", "gpu-dev-postgres")["data"]["password"]) == b"your-secure-password"
    assert one(documents, "StorageClass", "gpu-dev-efs")["parameters"]["fileSystemId"] == "fs-1"
    zone = one(documents, "StatefulSet", "postgres-primary")["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    assert "us-east-2a" in str(zone)


def test_of_the_databases_pair_one_at_a_time_may_be_taken_from_its_node() -> None:
    documents = rendered({})
    budget = one(documents, "PodDisruptionBudget", "postgres")["spec"]
    sets = [
        document["spec"]["template"]["metadata"]["labels"]
        for document in documents
        if document["kind"] == "StatefulSet"
    ]
    assert len(sets) == 2
    assert all(budget["selector"]["matchLabels"].items() <= labels.items() for labels in sets)
    assert budget["minAvailable"] == 1
    # Of one alone it would keep every node from being drained.
    alone = rendered({"postgres": {"replica": {"enabled": False}}})
    assert "postgres" not in {
        manifest["metadata"]["name"] for manifest in alone if manifest["kind"] == "PodDisruptionBudget"
    }


def test_what_must_outlive_the_release_is_kept() -> None:
    kept = {
        (manifest["kind"], manifest["metadata"]["name"])
        for manifest in rendered({})
        if manifest["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
    }
    assert kept == {
        ("Namespace", CONTROLPLANE),
        ("Namespace", WORKLOADS),
        ("ConfigMap", "gpu-dev-postgres"),
        ("Secret", "gpu-dev-postgres"),
        ("Secret", "gpu-dev-postgres-owner"),
        ("Secret", "gpu-dev-postgres-tls"),
        ("Secret", "gpu-dev-admin-token"),
        ("PersistentVolumeClaim", "postgres-backups"),
        ("PersistentVolumeClaim", "registry-cache-ghcr"),
        ("PersistentVolumeClaim", "registry-cache-dockerhub"),
    }


def test_another_version_of_the_chart_alone_starts_nothing_anew() -> None:
    """Least of all the database, and both of its servers at once."""
    for kind, template in templates(rendered(ALL_ON)):
        if kind != "Pod":
            assert {"helm.sh/chart", "app.kubernetes.io/version"}.isdisjoint(template["metadata"]["labels"])


def test_generated_secrets_are_long_and_no_two_alike() -> None:
    first, second = (
        one(anew, "Secret", "gpu-dev-postgres")["data"] | one(anew, "Secret", "gpu-dev-admin-token")["data"]
        for anew in (documents_of(CHART, {}, name="gpu-dev", namespace="default") for _ in range(2))
    )
    values = [base64.b64decode(part[key]) for part in (first, second) for key in ("password", "replication-password")]
    assert len({*values}) == 4
    assert {len(value) for value in values} == {32}
    assert first["token"] != second["token"]


def test_a_database_that_is_elsewhere_is_told_by_a_file() -> None:
    documents = rendered(EXTERNAL)
    secret = one(documents, "Secret", "gpu-dev-external-database")
    assert base64.b64decode(secret["data"]["gpu_dev_database_url"]) == b"postgresql://u:p@db:5433/x"
    assert not [document for document in documents if document["kind"] == "StatefulSet"]
    for _, template in templates(documents):
        for container in containers(template):
            told = {variable["name"]: variable.get("value") for variable in container.get("env", ())}
            assert "p@db" not in str(container)
            if "GPU_DEV_SECRETS_DIR" in told:
                assert "settings" in {mount["name"] for mount in container["volumeMounts"]}
    # Each of the four, what waits for the migration, and the migration itself.
    users = [
        container
        for _, template in templates(documents)
        for container in containers(template)
        if "/secrets/settings" in str(container.get("volumeMounts"))
    ]
    assert len(users) == 7


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"externalDatabase": {"url": "postgresql://u:p@db/x"}}, "There has to be one database, and 2"),
        ({"postgres": {"enabled": False}}, "There has to be one database, and 0"),
        ({"namespaces": {"workloads": CONTROLPLANE}}, "have to differ"),
        ({"apiService": {"ingress": {"enabled": True}}}, "ingress.host is empty"),
        ({"storage": {"create": True}}, "storage.provisioner"),
        # What the values file said would go back to the defaults, such as volumes' sizes.
        ({"cloudProvider": {"name": "local"}}, "-f charts/gpu-dev-server/values-local.yaml"),
        ({"postgres": {"primaryIs": "postgres-replica", "replica": {"enabled": False}}}, "there is no database"),
        # A mistyped value is named.
        ({"postgress": {}}, "postgress"),
        ({"postgres": {"auth": {"pasword": "x"}}}, "pasword"),
        ({"apiService": {"replicas": "two"}}, "replicas"),
        ({"apiService": {"settings": {"GPU_DEV_MAX_DURATION": 1}}}, "GPU_DEV_MAX_DURATION"),
        ({"apiService": {"settings": {"GPU_DEV_LEASE_S": 1}}}, "GPU_DEV_LEASE_S"),
        ({"settings": {"GPU_DEV_DATABASE_URL": "x"}}, "GPU_DEV_DATABASE_URL"),
        ({"cloudProvider": {"name": "azure"}}, "cloudProvider/name"),
        ({"global": {"prefix": HOSTILE}}, "prefix"),
        ({"postgres": {"auth": {"username": "x'; DROP"}}}, "username"),
        ({"postgres": {"configuration": {"x = 'y'\nfsync": "off"}}}, "nfsync"),
        ({"postgres": {"configuration": {"work_mem": "1\nfsync = off"}}}, "work_mem"),
        ({"availabilityUpdater": {"schedule": HOSTILE}}, "schedule"),
        ({"postgres": {"primary": {"storageSize": "lots"}}}, "storageSize"),
        ({"registryCaches": {"ghcr": {"nodePort": 5000}}}, "nodePort"),
    ],
)
def test_what_can_not_be_is_refused_and_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(helm_python.HelmError, match=re.escape(said)):
        rendered(values)


def test_the_schema_knows_every_setting_and_no_other() -> None:
    assert FILE.read_text() == written(), "run python -m tests.chart.dev_server.dev_server_schema"
    known = set().union(*(names_of(settings) for settings in COMPONENTS.values()))
    assert known >= OWN


@pytest.mark.parametrize("values", VALUES.values(), ids=list(VALUES))
def test_every_variable_of_a_container_is_a_setting_of_its_program(values: dict[str, Any]) -> None:
    programs: dict[str, type[CommonSettings]] = {
        "api_service": ApiSettings,
        "reservation_processor": ProcessorSettings,
        "ssh_gateway": SshGatewaySettings,
        "availability_updater": UpdaterSettings,
        "reservation_expiry": ExpirySettings,
        "reservation_core.runtime.database": CommonSettings,
    }
    for _, template in templates(rendered(values)):
        for container in containers(template):
            if container.get("command", [])[:2] != ["python", "-m"]:
                continue
            settings = programs[container["command"][2]]
            if "--node-agent" in container["command"]:
                settings = NodeAgentSettings
            told = {variable["name"] for variable in container["env"] if variable["name"].startswith("GPU_DEV_")}
            assert told - {"GPU_DEV_SECRETS_DIR"} <= names_of(settings)
            # No variable twice: what the chart says can't be said again.
            assert len({variable["name"] for variable in container["env"]}) == len(container["env"])


@pytest.mark.parametrize("name", ["default", "local", "gcp", "all on"])
def test_what_pods_of_jobs_get_is_what_the_program_takes(name: str) -> None:
    data = one(rendered(VALUES[name]), "ConfigMap", "gpu-dev-configuration")["data"]
    defaults = PodDefaults.model_validate(read_yaml(data["pod-defaults.yaml"]))
    assert defaults.priorityClassName == "gpu-dev-jobs"
    assert (defaults.runtimeClassName is None) == (name in ("local", "gcp"))


def test_components_are_in_the_network_policies_that_let_them_work() -> None:
    documents = rendered(ALL_ON)
    apps = {template["metadata"]["labels"]["app"] for _, template in templates(documents)}
    named: dict[str, set[str]] = {}
    for document in documents:
        if document["kind"] == "NetworkPolicy":
            for expression in document["spec"]["podSelector"].get("matchExpressions", ()):
                named[document["metadata"]["name"]] = {*expression["values"]}
    users = {
        template["metadata"]["labels"]["app"]
        for _, template in templates(documents)
        for container in containers(template)
        if {"GPU_DEV_DATABASE_URL", "PG_SECRETS"} & {variable["name"] for variable in container.get("env", ())}
    }
    assert users == named["to-the-database"]
    assert named["to-kubernetes"] == {"api-service", "ssh-gateway", "reservation-processor", "availability-updater",
                                      "reservation-expiry", "reservation-expiry-watch", "node-agent"}  # fmt: skip
    assert named["to-the-database"] <= apps
    deny = one(documents, "NetworkPolicy", "default-deny")["spec"]
    assert (deny["podSelector"], deny["policyTypes"], deny.get("ingress")) == ({}, ["Ingress", "Egress"], None)


def test_without_the_api_there_is_no_test_of_it() -> None:
    named = {manifest["metadata"]["name"] for manifest in rendered({"apiService": {"enabled": False}})}
    assert not named & {"helm-test", "gpu-dev-test", "into-the-api"}
    assert {"helm-test", "gpu-dev-test", "into-the-api"} <= {manifest["metadata"]["name"] for manifest in rendered({})}


def test_others_reach_the_database_where_they_are_named() -> None:
    """Such as the charts gpu-scheduler and gpu-admission, which read the ledger from their own namespaces."""
    others = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gpu-scheduler-system"}}}]
    let_in = []
    for values in ({}, {"networkPolicy": {"databaseFrom": others}}):
        (rule,) = one(rendered(values), "NetworkPolicy", "into-the-database")["spec"]["ingress"]
        let_in.append(rule["from"])
    assert len(let_in[0]) == 1
    assert let_in[1] == [*let_in[0], *others]


def test_stopped_nobody_works_with_the_database_unless_told_to() -> None:
    documents = rendered(over(ALL_ON, {"stopped": True}))
    names = {
        document["metadata"]["name"] for document in documents if document["kind"] in ("Deployment", "CronJob", "Job")
    }
    assert names == {"postgres-backup", "postgres-restore", "registry-cache-dockerhub", "registry-cache-ghcr"}
    assert len([document for document in documents if document["kind"] == "StatefulSet"]) == 2
    assert one(documents, "Service", "api-service")
    check_objects([document for document in documents if document["kind"] not in OPERATORS], VERSIONS[-1])


def test_notes_say_what_to_do_next() -> None:
    with helm_python.Chart.load(CHART) as chart:
        for values in VALUES.values():
            rendered_files = chart.render(values, name="gpu-dev", namespace="default")
            (notes,) = [text for path, text in rendered_files.items() if path.endswith("NOTES.txt")]
            has_api = values.get("apiService", {}).get("enabled", True)
            assert ("helm test gpu-dev" in notes, "gpu-dev run" in notes) == (has_api, has_api)
            assert has_api or "api-service" not in notes
        assert (
            "--subnet-id subnet-2"
            in chart.render(VALUES["aws"], name="gpu-dev", namespace="default")["gpu-dev-server/templates/NOTES.txt"]
        )


def test_notes_tell_whom_an_ingress_hides() -> None:
    behind = {"apiService": {"ingress": {"enabled": True, "host": "gpus.test"}, "signIn": {"file": "issuer = []\n"}}}
    listed = over(behind, {"apiService": {"settings": {"GPU_DEV_TRUSTED_PROXIES": "10.0.0.0/8"}}})
    with helm_python.Chart.load(CHART) as chart:
        told = [
            "GPU_DEV_TRUSTED_PROXIES" in "".join(chart.render(values, name="gpu-dev", namespace="default").values())
            for values in ({}, behind)
        ]
        notes = chart.render(listed, name="gpu-dev", namespace="default")["gpu-dev-server/templates/NOTES.txt"]
    assert told == [False, True]
    assert "GPU_DEV_TRUSTED_PROXIES" not in notes
    api = one(rendered(listed), "Deployment", "api-service")
    assert variables(api)["GPU_DEV_TRUSTED_PROXIES"] == "10.0.0.0/8"


@pytest.mark.parametrize("cache", ["registry-cache-ghcr", "registry-cache-dockerhub"])
def test_what_has_expired_may_be_removed_from_a_registry_cache(cache: str) -> None:
    assert variables(one(rendered({}), "Deployment", cache))["REGISTRY_STORAGE_DELETE_ENABLED"] == "true"


def test_the_notes_bring_no_password_into_the_environment() -> None:
    with helm_python.Chart.load(CHART) as chart:
        notes = chart.render({}, name="gpu-dev", namespace="default")["gpu-dev-server/templates/NOTES.txt"]
    assert "psql -h localhost -U gpudev -d gpudev\n" in notes
    assert "PGPASSWORD" not in notes


def test_a_secret_that_serves_several_purposes_is_replaced_in_none_but_the_one() -> None:
    """The migration and the restore work as the owner; certificates and keys are where the values say."""
    documents = rendered({
        "postgres": {"auth": {"existingSecret": "theirs"}, "tls": {"existingSecret": "theirs"}},
        "sealing": {"existingSecret": "theirs"},
    })  # fmt: skip
    job = one(documents, "Job")["spec"]
    restore = one(documents, "CronJob", "postgres-restore")["spec"]["jobTemplate"]["spec"]
    named = []
    for pod_owner, volume in ((job, "settings"), (restore, "secrets")):
        [found] = [volumes for volumes in pod_owner["template"]["spec"]["volumes"] if volumes["name"] == volume]
        named.append([
            (source["secret"]["name"], source["secret"]["items"][0]["key"]) for source in found["projected"]["sources"]
        ])  # fmt: skip
    owner, authority = ("gpu-dev-postgres-owner", "password"), ("theirs", "ca.crt")
    assert named == [[owner, authority, ("theirs", "keys")], [owner, authority]]


def test_a_primary_with_an_empty_volume_reaches_a_replica_that_is_not_ready_yet() -> None:
    """Others do not: a connection to a server that is away would wait where none is refused."""
    documents = rendered({})
    asked = variables(one(documents, "StatefulSet", "postgres-primary"))["PG_STANDBY_HOST"]
    services = {
        document["metadata"]["name"]: document["spec"] for document in documents if document["kind"] == "Service"
    }
    assert services[str(asked)]["selector"] == services["postgres-replica"]["selector"]
    unready = {name for name, spec in services.items() if spec.get("publishNotReadyAddresses")}
    assert unready == {asked}
    assert services[str(asked)]["clusterIP"] == "None"
