"""A changed database password has what uses it begin anew; who reads pods learns nothing to test guesses with."""

import base64
import hashlib
from typing import Any

import pytest

from tests.chart.dev_server.dev_server_values import CONTROLPLANE, EXTERNAL, over, rendered, templates
from tests.chart.in_cluster import rendered_in
from tests.chart.rendering import JsonObject, one

OURS = f"v1/Secret/{CONTROLPLANE}/gpu-dev-postgres"
USERS = {
    "Deployment/api-service",
    "Deployment/reservation-processor",
    "Deployment/reservation-expiry-watch",
    "StatefulSet/postgres-primary",
    "StatefulSet/postgres-replica",
}
WATCHING: dict[str, Any] = {"reservationExpiry": {"enforcement": {"enabled": True}}}


def notes(documents: list[JsonObject]) -> dict[str, dict[str, str]]:
    """Each workload's annotations that tell of the database's Secret."""
    found = {}
    for document in documents:
        for kind, template in templates([document]):
            told = template["metadata"].get("annotations", {})
            chosen = {name: value for name, value in told.items() if "database" in name}
            if chosen:
                found[f"{kind}/{document['metadata']['name']}"] = chosen
    return found


def with_password(password: str) -> dict[str, Any]:
    return over(WATCHING, {"postgres": {"auth": {"password": password}}})


def test_another_password_changes_each_that_uses_it_and_the_same_one_changes_nothing() -> None:
    first = rendered_in({}, with_password("one"))
    cluster = {OURS: one(first, "Secret", "gpu-dev-postgres")}
    same, other = (rendered_in(cluster, with_password(password), upgrade=True) for password in ("one", "two"))
    assert {*notes(first)} == USERS
    assert notes(same) == notes(first)
    assert one(same, "Secret", "gpu-dev-postgres")["data"] == one(first, "Secret", "gpu-dev-postgres")["data"]
    assert {name: notes(other)[name] == told for name, told in notes(first).items()} == dict.fromkeys(USERS, False)
    # Left away again, what is there stays.
    assert notes(rendered_in(cluster, WATCHING, upgrade=True)) == notes(first)


def test_who_reads_pods_can_not_test_a_guess() -> None:
    """Two installations with the same password show different values, and none that the password alone gives."""
    first, second = (rendered_in({}, with_password("guessed")) for _ in range(2))
    shown = [notes(rendering)["Deployment/api-service"]["checksum/database"] for rendering in (first, second)]
    assert shown[0] != shown[1]
    data = one(first, "Secret", "gpu-dev-postgres")["data"]
    key = base64.b64decode(data["checksum-key"])
    assert len(key) == 43
    others = {**data, "checksum-key": "", "replication-password": ""}
    guesses = [b"guessed", base64.b64encode(b"guessed"), str(others).encode()]
    assert shown[0] not in [hashlib.sha256(guess).hexdigest() for guess in guesses]
    everything_else = str([manifest for manifest in first if manifest["kind"] != "Secret"])
    assert data["checksum-key"] not in everything_else
    # Nor is the key where pods have it.
    sets = one(first, "StatefulSet", "postgres-primary")["spec"]["template"]["spec"]
    (mounted,) = [volume["projected"]["sources"] for volume in sets["volumes"] if volume["name"] == "secrets"]
    (ours,) = [volume["secret"]["items"] for volume in mounted if volume["secret"]["name"] == "gpu-dev-postgres"]
    assert {item["key"] for item in ours} == {"password", "replication-password"}


def test_an_installation_of_a_former_chart_keeps_its_passwords_and_gets_a_key() -> None:
    data = {"username": "Z3B1ZGV2", "password": "b2xk", "replication-password": "b2xkZXI="}
    documents = rendered_in({OURS: {"data": data}}, {}, upgrade=True)
    made = one(documents, "Secret", "gpu-dev-postgres")["data"]
    assert made.pop("checksum-key")
    assert made == data


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("theirs", {"postgres": {"auth": {"existingSecret": "theirs"}}}),
        ("theirs", {"postgres": {"enabled": False}, "externalDatabase": {"existingSecret": "theirs"}}),
        ("gpu-dev-postgres-app", {"postgres": {"enabled": False}, "cloudNativePG": {"enabled": True}}),
    ],
)
def test_of_a_secret_of_others_the_version_is_shown(name: str, values: dict[str, Any]) -> None:
    told = []
    for version in ("7", "8"):
        secret = {"metadata": {"resourceVersion": version}, "data": {"password": "cGFzcw=="}}
        documents = rendered_in({f"v1/Secret/{CONTROLPLANE}/{name}": secret}, over(WATCHING, values), upgrade=True)
        told.append(notes(documents))
        assert "cGFzcw==" not in str(documents)
    assert {str(notes_of_object) for notes_of_object in told[0].values()} == {"{'gpu-dev/database-secret': '7'}"}
    assert {str(notes_of_object) for notes_of_object in told[1].values()} == {"{'gpu-dev/database-secret': '8'}"}
    assert {*told[0]} == {user for user in USERS if "postgres" not in user or "auth" in values["postgres"]}


def test_another_address_of_an_external_database_changes_each_that_uses_it() -> None:
    first = rendered_in({}, EXTERNAL)
    secret = one(first, "Secret", "gpu-dev-external-database")
    cluster = {f"v1/Secret/{CONTROLPLANE}/gpu-dev-external-database": secret}
    other = over(EXTERNAL, {"externalDatabase": {"url": "postgresql://u:q@db:5433/x"}})
    before, same, after = notes(first), notes(rendered_in(cluster, EXTERNAL, upgrade=True)), notes(
        rendered_in(cluster, other, upgrade=True)
    )  # fmt: skip
    assert before == same
    assert {*before} == {"Deployment/api-service", "Deployment/reservation-processor"}
    assert all(after[name] != before[name] for name in before)


@pytest.mark.parametrize("values", [with_password("x"), EXTERNAL, {"postgres": {"auth": {"existingSecret": "s"}}}])
def test_where_nobody_can_be_asked_nothing_is_shown_that_would_be_new_each_time(values: dict[str, Any]) -> None:
    """`helm template` and Argo CD."""
    first, second = rendered(values), rendered(values)
    assert notes(first) == {}
    pods = [[template for _, template in templates(rendering)] for rendering in (first, second)]
    assert pods[0] == pods[1]
    assert not any("checksum-key" in manifest.get("data", {}) for manifest in first)
