"""The database's replica in the chart gpu-dev-server: the API alone is told of it, and passwords stay in Secrets."""

import base64
import re
from typing import Any

import helm_python
import pytest

from reservation_core.adapters.postgres.engine import engine_url
from tests.chart.dev_server_values import VALUES, containers, over, rendered, templates
from tests.chart.rendering import JsonObject, one

NAME = "GPU_DEV_DATABASE_REPLICA_URL"


def told(documents: list[JsonObject]) -> dict[str, JsonObject]:
    """By container, what it is told of a replica."""
    return {
        container["name"]: each
        for _, template in templates(documents)
        for container in containers(template)
        for each in container.get("env", ())
        if each["name"] == NAME
    }


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
    assert told(rendered(values)) == {}


def test_the_url_of_a_replica_elsewhere_is_in_a_secret() -> None:
    documents = rendered(VALUES["external, with a replica"])
    by = {"secretKeyRef": {"name": "gpu-dev-external-database", "key": "gpu_dev_database_replica_url"}}
    assert told(documents) == {"api-service": {"name": NAME, "valueFrom": by}}
    data = one(documents, "Secret", "gpu-dev-external-database")["data"]
    assert base64.b64decode(data["gpu_dev_database_replica_url"]) == b"postgresql://u:p@r:6432/x"
    (rule,) = one(documents, "NetworkPolicy", "to-the-database")["spec"]["egress"]
    assert {each["port"] for each in rule["ports"]} == {5433, 6432}

    documents = rendered(VALUES["external, their secret, with a replica"])
    assert told(documents)["api-service"]["valueFrom"] == {"secretKeyRef": {"name": "db", "key": "replica"}}
    (rule,) = one(documents, "NetworkPolicy", "to-the-database")["spec"]["egress"]
    assert [each["port"] for each in rule["ports"]] == [5432]


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
