"""The database's replica in the chart gpu-dev-server: the API alone is told of it, and passwords stay in Secrets."""

import base64
import re
from typing import Any

import helm_python
import pytest

from reservation_core.adapters.postgres.connection.engine import engine_url
from tests.chart.dev_server.dev_server_values import VALUES, containers, over, rendered, templates
from tests.chart.rendering import JsonObject, one

NAME = "GPU_DEV_DATABASE_REPLICA_URL"


def told(documents: list[JsonObject]) -> dict[str, JsonObject]:
    """By container, what it is told of a replica."""
    return {
        container["name"]: variable
        for _, template in templates(documents)
        for container in containers(template)
        for variable in container.get("env", ())
        if variable["name"] == NAME
    }


def told_by_a_file(documents: list[JsonObject]) -> dict[str, tuple[str, str]]:
    """By the app of a pod, the Secret and the key that tell it of a replica."""
    return {
        template["metadata"]["labels"]["app"]: (source["secret"]["name"], item["key"])
        for _, template in templates(documents)
        for volume in template["spec"].get("volumes", ())
        for source in volume.get("projected", {}).get("sources", ())
        for item in source["secret"].get("items", ())
        if item["path"] == NAME.lower()
    }


@pytest.mark.parametrize("values", VALUES.values(), ids=list(VALUES))
def test_no_password_of_the_database_is_in_an_environment(values: dict[str, Any]) -> None:
    documents = rendered(values)
    secrets = {"gpu-dev-postgres", "gpu-dev-postgres-app", "gpu-dev-external-database", "db"}
    for _, template in templates(documents):
        for container in containers(template):
            assert "envFrom" not in container
            for variable in container.get("env", ()):
                assert variable["name"] != "PGPASSWORD"
                assert variable.get("valueFrom", {}).get("secretKeyRef", {}).get("name") not in secrets


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("default", "postgres-replica"),
        ("aws", "postgres-replica"),
        ("failed over", "postgres-replica"),
        ("CloudNativePG", "gpu-dev-postgres-ro"),
    ],
)
def test_the_api_and_nobody_else_is_told_where_the_charts_own_replica_is(name: str, host: str) -> None:
    documents = rendered(VALUES[name])
    found = told(documents)
    assert [*found] == ["api-service"]
    url = engine_url(found["api-service"]["value"])
    assert (url.host, url.port, url.username, url.password, url.database) == (host, 5432, "gpudev", None, "gpudev")
    if name != "CloudNativePG":
        # It is a service that leads to the standby, whichever of the two that is; both may be reached.
        selected = one(documents, "Service", host)["spec"]["selector"]["app"]
        assert selected == ("postgres-primary" if name == "failed over" else "postgres-replica")
        labels = one(documents, "StatefulSet", selected)["spec"]["template"]["metadata"]["labels"]
        assert labels["gpu-dev/database"] == "postgres"
        to = one(documents, "NetworkPolicy", "to-the-database")["spec"]
        assert to["egress"][0]["to"] == [{"podSelector": {"matchLabels": {"gpu-dev/database": "postgres"}}}]
        assert "api-service" in to["podSelector"]["matchExpressions"][0]["values"]


@pytest.mark.parametrize(
    "values",
    [
        VALUES["local"],
        VALUES["external"],
        VALUES["external, their secret"],
        over(VALUES["CloudNativePG"], {"cloudNativePG": {"instances": 1}}),
        {"apiService": {"readsFromReplica": False}},
        over(VALUES["external, with a replica"], {"apiService": {"readsFromReplica": False}}),
    ],
    ids=["local", "external", "their secret", "one instance", "not wanted", "external, not wanted"],
)
def test_where_there_is_none_or_it_is_not_wanted_nobody_is_told(values: dict[str, Any]) -> None:
    documents = rendered(values)
    assert told(documents) == {}
    assert told_by_a_file(documents) == {}


def test_the_url_of_a_replica_elsewhere_is_in_a_secret() -> None:
    documents = rendered(VALUES["external, with a replica"])
    key = "gpu_dev_database_replica_url"
    assert told_by_a_file(documents) == {"api-service": ("gpu-dev-external-database", key)}
    data = one(documents, "Secret", "gpu-dev-external-database")["data"]
    assert base64.b64decode(data["gpu_dev_database_replica_url"]) == b"postgresql://u:p@r:6432/x"
    (rule,) = one(documents, "NetworkPolicy", "to-the-database")["spec"]["egress"]
    assert {port["port"] for port in rule["ports"]} == {5433, 6432}

    documents = rendered(VALUES["external, their secret, with a replica"])
    assert told_by_a_file(documents) == {"api-service": ("db", "replica")}
    (rule,) = one(documents, "NetworkPolicy", "to-the-database")["spec"]["egress"]
    assert [port["port"] for port in rule["ports"]] == [5432]


@pytest.mark.parametrize(
    ("external", "said"),
    [
        ({"existingSecret": "db", "replicaUrl": "postgresql://r/x"}, "existingSecretReplicaKey"),
        ({"url": "postgresql://u@db/x", "existingSecretReplicaKey": "replica"}, "replicaUrl"),
        ({"url": "postgresql://u@db/x", "replicaUrl": "mysql://r/x"}, "replicaUrl"),
        ({"url": "postgresql://u@db/x", "replicaPort": 0}, "replicaPort"),
    ],
)
def test_what_can_not_be_is_refused_with_what_to_do(external: dict[str, Any], said: str) -> None:
    with pytest.raises(helm_python.HelmError, match=re.escape(said)):
        rendered({"postgres": {"enabled": False}, "externalDatabase": external})
