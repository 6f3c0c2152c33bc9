"""Programs: what they say, and the code they end with."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pod_scheduling.runtime.settings.admission import AdmissionSettings
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.loops.start_waiting import StoppedError
from reservation_core.runtime.processes import programs
from reservation_core.runtime.processes.programs import run_program
from reservation_core.runtime.settings.components import CommonSettings, ExpirySettings
from reservation_core.runtime.settings.error import SettingsError


@pytest.fixture(autouse=True)
def _as_a_program_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "configure", lambda *_: None)
    for name in [name for name in os.environ if name.startswith("GPU_DEV_")]:
        monkeypatch.delenv(name)


def code_of(error: Exception | None = None) -> int:
    async def main(_settings: CommonSettings) -> None:
        if error is not None:
            raise error

    return run_program("probe", "Probes.", CommonSettings, main, [])


def test_a_program_that_is_done_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of() == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DatabaseUnavailableError("the database is not available"), 1),
        (ClusterUnavailableError("the cluster did not answer"), 1),
        (SettingsError("GPU_DEV_CLUSTER is not right"), 2),
    ],
)
def test_trouble_is_told_in_one_line(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(error) == code
    told = capsys.readouterr().err
    assert told.startswith(f"probe: {error}")
    assert told.count("\n") == 1


def test_one_that_was_asked_to_stop_while_it_waited_ends_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(StoppedError()) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("errors", "told", "code"),
    [
        ([DatabaseUnavailableError("away")], "away. Try again", 1),
        ([ExceptionGroup("inner", [ClusterUnavailableError("silent")])], "silent. Try again", 1),
        ([DatabaseUnavailableError("away"), SettingsError("GPU_DEV_X is not right")], "GPU_DEV_X is not right", 2),
    ],
)
def test_trouble_of_several_tasks_is_told_in_one_line_too(
    errors: list[Exception], told: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(ExceptionGroup("unhandled errors in a TaskGroup", errors)) == code
    said = capsys.readouterr().err
    assert said.startswith(f"probe: {told}")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError(),
        ExceptionGroup("tasks", [ZeroDivisionError()]),
        ExceptionGroup("tasks", [DatabaseUnavailableError("away"), ZeroDivisionError()]),
    ],
)
def test_an_error_of_our_own_is_not_hidden(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        code_of(error)
    assert caught.value is error


def test_help_tells_which_settings_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    async def main(_settings: ExpirySettings) -> None:
        raise AssertionError("nothing is to be done")

    with pytest.raises(SystemExit) as caught:
        run_program("probe", "Probes.", ExpirySettings, main, ["--help"])
    assert caught.value.code == 0
    told = "".join(capsys.readouterr().out.split())
    assert "GPU_DEV_WARN_BEFORE_S" in told
    assert "GPU_DEV_DATABASE_URL" in told


def test_a_bad_setting_is_named_and_its_value_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPU_DEV_DATABASE_POOL", "hunter2")
    assert code_of() == 2
    told = capsys.readouterr().err
    assert told.startswith("probe: GPU_DEV_DATABASE_POOL: ")
    assert "hunter2" not in told


def test_a_setting_of_the_extender_that_does_not_exist_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPU_DEV_ADMISSION__QUOTA_NAEM", "ours")

    async def main(_settings: AdmissionSettings) -> None:
        raise AssertionError("it began")

    assert run_program("probe", "Probes.", AdmissionSettings, main, []) == 2
    meant = "GPU_DEV_ADMISSION__QUOTA_NAME"
    told = f"There is no such setting. Did you mean {meant}? Correct its name, or remove it."
    assert capsys.readouterr().err == f"probe: GPU_DEV_ADMISSION__QUOTA_NAEM: {told}\n"


def test_a_mistyped_setting_is_refused_with_the_one_that_was_meant(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPU_DEV_LISTN", "127.0.0.1:8081")
    monkeypatch.setenv("GPU_DEV_NOTICSE__ALLOW", "10.0.0.0/8")
    assert code_of() == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("probe: GPU_DEV_LISTN: There is no such setting. Did you mean GPU_DEV_LISTEN?")
    assert "Did you mean GPU_DEV_NOTICES__ALLOW?" in second


@pytest.mark.parametrize("component", ["reservation_processor", "reservation_expiry", "availability_updater"])
def test_every_component_has_its_help(component: str) -> None:
    done = subprocess.run([sys.executable, "-m", component, "--help"], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"python -m {component}" in done.stdout


def test_one_that_looks_once_waits_a_while_for_the_database(tmp_path: Path) -> None:
    given = {"GPU_DEV_DATABASE_URL": "postgresql://127.0.0.1:1/x", "GPU_DEV_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "reservation_expiry"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **given, "GPU_DEV_DATABASE_WAIT_S": "3"},
    )
    assert done.returncode == 1
    assert done.stderr.count("waiting to start") == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith("reservation_expiry: the database is not available")


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("GPU_DEV_LOG_LEVEL", "loud", 2),
        ("GPU_DEV_LOCAL_GPUS", "nonsense", 2),
        ("GPU_DEV_DATABASE_URL", "hunter2", 2),
        ("GPU_DEV_SECRETS_DIR", __file__, 2),
        ("GPU_DEV_DATABASE_URL", "postgresql://gpu:hunter2@127.0.0.1:1/x", 1),
        ("GPU_DEV_DATABASE_URL", "postgresql://gpu:hunter2@nowhere.invalid/x", 1),
    ],
)
def test_a_component_that_can_not_start_says_why_in_one_line(tmp_path: Path, name: str, value: str, code: int) -> None:
    given = {"GPU_DEV_DATABASE_URL": "postgresql://127.0.0.1:1/x", "GPU_DEV_HOME": str(tmp_path), name: value}
    done = subprocess.run(
        [sys.executable, "-m", "availability_updater"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "GPU_DEV_LOG_LEVEL": "ERROR", "GPU_DEV_DATABASE_WAIT_S": "0", **given},
    )
    assert done.returncode == code
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("availability_updater: ")
    assert "hunter2" not in done.stderr
