"""What waits for the database finds it: the CronJobs' pods, and the migration that goes before an upgrade."""

from typing import Any

import pytest

from tests.chart.dev_server.dev_server_values import over, rendered, variables
from tests.chart.rendering import one, selects


@pytest.mark.parametrize(
    ("values", "wait_s"),
    [
        ({}, 900),
        ({"migration": {"patienceSeconds": 86400}}, 3600),
        ({"settings": {"GPU_DEV_DATABASE_WAIT_S": 20}}, 20),
        (
            {
                "settings": {"GPU_DEV_DATABASE_WAIT_S": 20},
                "reservationExpiry": {"settings": {"GPU_DEV_DATABASE_WAIT_S": 40}},
                "availabilityUpdater": {"settings": {"GPU_DEV_DATABASE_WAIT_S": 40}},
            },
            40,
        ),
    ],
)
@pytest.mark.parametrize("name", ["availability-updater", "reservation-expiry"])
def test_what_looks_once_a_minute_waits_for_the_database_and_has_its_time_afterwards(
    name: str, values: dict[str, Any], wait_s: int
) -> None:
    documents = rendered(values)
    job = one(documents, "CronJob", name)
    assert variables(job)["GPU_DEV_DATABASE_WAIT_S"] == str(wait_s)
    assert job["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] == wait_s + 300


@pytest.mark.parametrize(
    ("values", "port"),
    [
        ({"cloudNativePG": {"enabled": True, "existingCluster": "mine"}}, 5432),
        ({"externalDatabase": {"existingSecret": "mine", "port": 6432}}, 6432),
    ],
)
def test_the_migration_before_an_upgrade_reaches_a_database_that_was_the_chart_s_own_until_now(
    values: dict[str, Any], port: int
) -> None:
    """Hooks are there by then; the other policies are those of the release as it was."""
    after = rendered(over(values, {"postgres": {"enabled": False}}), upgrade=True)
    hooks = [manifest for manifest in after if "helm.sh/hook" in manifest["metadata"].get("annotations", {})]
    labels = one(hooks, "Job")["spec"]["template"]["metadata"]["labels"]
    ways = [
        (entry["port"], rule.get("to"))
        for policy in [*rendered({}), *hooks]
        if policy["kind"] == "NetworkPolicy" and selects(policy["spec"]["podSelector"], labels)
        for rule in policy["spec"].get("egress", ())
        for entry in rule.get("ports", ())
    ]
    assert (port, None) in ways
    of_release = [manifest for manifest in after if manifest not in hooks]
    assert "migration" not in {
        manifest["metadata"]["name"] for manifest in of_release if manifest["kind"] == "NetworkPolicy"
    }
