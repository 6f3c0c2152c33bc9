"""Times in pods' files count by the clock that nobody sets."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reservation_core.adapters.boot_time import seconds_since_boot
from reservation_core.adapters.local.kernel import boot_id
from reservation_core.adapters.local.machine_times import MachineTimes
from reservation_core.adapters.local.pod_files import Spec
from reservation_core.adapters.local.workload import PodProcess
from tests.clocks import START, SettableClock

FIVE_MINUTES = timedelta(minutes=5)


@pytest.mark.parametrize("step", [FIVE_MINUTES, -FIVE_MINUTES])
def test_a_start_is_told_in_the_ledgers_time_whatever_the_machines_clock_said(step: timedelta) -> None:
    machine, ledger = SettableClock(START + step), SettableClock()
    times = MachineTimes(machine, ledger, lambda: 1000.0)
    said = {"started_at": machine.now().timestamp(), "started_at_boot": 990.0, "boot_id": boot_id()}
    assert times.ledger_time(said, "started_at") == START - timedelta(seconds=10)
    ledger.go_on(timedelta(milliseconds=3))
    assert times.ledger_time(said, "started_at") == START - timedelta(seconds=10)  # it does not change any more


@pytest.mark.parametrize("boot", [None, "another boot"])
def test_of_another_boot_the_machines_clock_counts(boot: str | None) -> None:
    times = MachineTimes(SettableClock(), SettableClock())
    said = {"started_at": START.timestamp(), "started_at_boot": 990.0, "boot_id": boot}
    assert times.ledger_time(said, "started_at") == START
    assert times.ledger_time({"started_at": START.timestamp()}, "started_at") == START
    assert times.ledger_time({"started_at": None, "started_at_boot": 1.0}, "started_at") is None


def test_a_deadline_is_as_far_away_by_either_clock() -> None:
    machine = SettableClock(datetime(2020, 1, 1, tzinfo=UTC))
    by_clock, since_boot = MachineTimes(machine, SettableClock(), lambda: 50.0).machine_time(START + FIVE_MINUTES)
    assert by_clock == (machine.now() + FIVE_MINUTES).timestamp()
    assert since_boot == 350.0


@pytest.mark.parametrize("step_s", [300, -300])
def test_a_supervisor_ends_its_pod_on_time_when_the_clock_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    pod = PodProcess(str(tmp_path), "", "", Spec(["job-1-1-0", "1.0", "", "0", "0"]), 0, contained=True)
    (tmp_path / "deadline").write_text(repr(time.time() + 60))
    assert 0 < pod.seconds_left() <= 60  # an older control plane has made it
    (tmp_path / "deadline_boot").write_text(repr(seconds_since_boot() + 60))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + step_s)
    assert 0 < pod.seconds_left() <= 60
