"""What a rendering takes from the cluster: Secrets are kept, and what others made is left alone."""

import re
from typing import Any

from tests.chart.dev_server.dev_server_schema import CHART
from tests.chart.dev_server.dev_server_values import CONTROLPLANE, variables
from tests.chart.in_cluster import rendered_in
from tests.chart.rendering import JsonObject, one

CONFIGURATION = f"v1/ConfigMap/{CONTROLPLANE}/gpu-dev-postgres"


def test_the_cluster_is_asked_in_one_place() -> None:
    asking = {path.name for path in CHART.glob("templates/**/*.*") if re.search(r"\blookup \(?[\"(]", path.read_text())}
    assert asking == {"_cluster.tpl"}


def test_each_secret_that_the_chart_makes_is_kept() -> None:
    first = [manifest for manifest in rendered_in({}, {}) if manifest["kind"] == "Secret"]
    assert len(first) == 5
    cluster = {f"v1/Secret/{CONTROLPLANE}/{manifest['metadata']['name']}": manifest for manifest in first}
    again = [manifest for manifest in rendered_in(cluster, {}, upgrade=True) if manifest["kind"] == "Secret"]
    assert {manifest["metadata"]["name"]: manifest["data"] for manifest in again} == {
        manifest["metadata"]["name"]: manifest["data"] for manifest in first
    }


def test_a_namespace_is_made_by_this_release_or_not_at_all() -> None:
    def made(release: str | None) -> bool:
        notes = {} if release is None else {"annotations": {"meta.helm.sh/release-name": release}}
        documents = rendered_in({f"v1/Namespace//{CONTROLPLANE}": {"metadata": {"name": CONTROLPLANE, **notes}}}, {})
        return CONTROLPLANE in {
            document["metadata"]["name"] for document in documents if document["kind"] == "Namespace"
        }

    assert (made("gpu-dev"), made("another"), made(None)) == (True, False, False)


def test_a_release_whose_database_was_ready_has_begun() -> None:
    def begun(cluster: dict[str, JsonObject], **more: Any) -> str:
        text = one(rendered_in(cluster, {}, **more), "ConfigMap", "gpu-dev-postgres")["data"]["begun"]
        assert isinstance(text, str)
        return text

    ready: JsonObject = {"metadata": {"name": "postgres-replica"}, "status": {"readyReplicas": 1}}
    ready["spec"] = {"volumeClaimTemplates": [{"spec": {}}]}
    cluster = {f"apps/v1/StatefulSet/{CONTROLPLANE}/postgres-replica": ready}
    claim = {f"v1/PersistentVolumeClaim/{CONTROLPLANE}/data-postgres-primary-0": {"metadata": {"name": "data"}}}
    kept = {CONFIGURATION: {"data": {"begun": "yes"}}}
    assert begun({}) == "unknown"
    assert begun(cluster, upgrade=True) == "yes"
    assert begun(kept) == "unknown"
    assert begun({**kept, **claim}) == "yes"


def test_the_migration_before_the_upgrade_that_brings_tls_and_the_owner_does_without() -> None:
    def migration(hba: str, prepare: str) -> dict[str, str | None]:
        there = {CONFIGURATION: {"data": {"pg_hba.conf": hba, "prepare.sql": prepare}}}
        return variables(one(rendered_in(there, {}, upgrade=True), "Job"))

    before, after = migration("host all", ""), migration("hostssl all", "PG_OWNER")
    assert (before["PGSSLMODE"], after["PGSSLMODE"]) == ("prefer", "verify-ca")
    assert before["GPU_DEV_DATABASE_URL"] == "postgresql://gpudev@postgres-primary:5432/gpudev"
    assert after["GPU_DEV_DATABASE_URL"] == "postgresql://gpudev_owner@postgres-primary:5432/gpudev"
