"""The scheduler's settings, as its environment has them."""

import os

import pydantic
import pytest

from pod_scheduling.domain.maps.map_placement import Overlap
from pod_scheduling.runtime.settings.scheduler import SchedulerSettings


@pytest.fixture(autouse=True)
def _as_a_program_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GPU_DEV_")]:
        monkeypatch.delenv(name)


def test_without_any_it_is_the_scheduler_of_the_guide_and_needs_no_database() -> None:
    settings = SchedulerSettings()
    assert (settings.scheduler.name, settings.scheduler.node_label) == ("gpu-scheduler", "gpu-node-name")
    assert settings.scheduler.overlap is Overlap.DENY
    assert settings.database_url is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NAME", ""),
        ("NAME", "Mine"),
        ("OVERLAP", "perhaps"),
        ("NODE_LABEL", ""),
        ("PARALLEL", "0"),
        ("PARALLEL", "501"),
        ("SWEEP_S", "0"),
        ("LEDGER_PATIENCE_S", "-1"),
        ("EVENTS_PER_S", "0"),
        ("LEASE_NAME", "a/b"),
        ("LEASE_NAMESPACE", "../x"),
        ("LEASE_S", "10"),  # not more than renew_within_s
        ("RETRY_S", "10"),
        ("RENEW_WITHIN_S", "15"),
    ],
)
def test_what_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"GPU_DEV_SCHEDULER__{name}", value)
    with pytest.raises(pydantic.ValidationError):
        SchedulerSettings()
