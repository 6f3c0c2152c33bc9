"""Settings from the environment and from files: what is wrong is named, what is secret is not shown."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pydantic
import pytest
from pydantic import SecretStr
from sqlalchemy import make_url

from reservation_core.runtime.database_urls import database_url_of, readable_url
from reservation_core.runtime.settings.components import (
    ApiSettings,
    ClusterKind,
    CommonSettings,
    ExpirySettings,
    KubernetesSettings,
    ProcessorSettings,
    StandaloneSettings,
    UpdaterSettings,
)
from reservation_core.runtime.settings.error import SettingsError
from reservation_core.runtime.wiring import open_cluster
from tests.clocks import SettableClock

URL = "postgresql://gpu:hunter2@db.example:5432/gpu_dev"


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GPU_DEV_")]:
        monkeypatch.delenv(name)


def test_every_component_works_without_settings() -> None:
    settings = StandaloneSettings()
    assert (settings.cluster, settings.start_allowance) == (ClusterKind.LOCAL, timedelta(minutes=2))
    assert settings.warn_before_s == (1800, 900, 300)
    # The processor counts on a start taking at most what the expiry allows it.
    assert ProcessorSettings().start_allowance_s == ExpirySettings().start_allowance_s


@pytest.mark.parametrize(
    ("settings_type", "name", "value"),
    [
        (CommonSettings, "GPU_DEV_CLUSTER", "slurm"),
        (CommonSettings, "GPU_DEV_DATABASE_POOL", "0"),
        (CommonSettings, "GPU_DEV_LOG_LEVEL", "loud"),
        (ApiSettings, "GPU_DEV_MAX_BODY_BYTES", "1"),
        (ProcessorSettings, "GPU_DEV_LEASE_S", "0"),
        (ProcessorSettings, "GPU_DEV_MAX_READS", "many"),
        (ExpirySettings, "GPU_DEV_WARN_BEFORE_S", "60,-1"),
        (ExpirySettings, "GPU_DEV_WARN_BEFORE_S", "soon"),
    ],
)
def test_a_bad_value_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch, settings_type: type[CommonSettings], name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(pydantic.ValidationError) as caught:
        settings_type()
    [problem] = caught.value.errors(include_input=False)
    assert name == f"GPU_DEV_{problem['loc'][0]}".upper()


@pytest.mark.parametrize("text", ["60,20", " 60 , 20 ", "[60, 20]"])
def test_lists_are_written_as_people_write_them(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("GPU_DEV_WARN_BEFORE_S", text)
    assert ExpirySettings().warn_before_s == (60, 20)


@pytest.mark.parametrize("section", ["GPU", "KUBERNETES", "PLACEMENT", "SMTP", "NOTICES", "ENFORCEMENT", "AUTH", "WEB"])
def test_a_mistyped_name_in_a_section_is_an_error(monkeypatch: pytest.MonkeyPatch, section: str) -> None:
    monkeypatch.setenv(f"GPU_DEV_{section}__NAMESPCAE", "research")
    with pytest.raises(pydantic.ValidationError) as raised:
        StandaloneSettings()
    [error] = raised.value.errors()
    assert (error["type"], error["loc"]) == ("extra_forbidden", (section.lower(), "namespcae"))


def test_no_warnings_are_an_empty_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_DEV_WARN_BEFORE_S", "")
    assert ExpirySettings().warn_before_s == ()


def test_a_secret_is_in_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_DEV_DATABASE_URL", URL)
    settings = CommonSettings()
    assert database_url_of(settings) == URL
    for text in (repr(settings), str(settings), settings.model_dump_json()):
        assert "hunter2" not in text
    monkeypatch.setenv("GPU_DEV_DATABASE_POOL", "hunter2")
    with pytest.raises(pydantic.ValidationError) as caught:
        CommonSettings()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["hunter2", "postgresql://gpu:hunter2@db:port/x"])
def test_an_unreadable_database_url_is_named_and_not_shown(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("GPU_DEV_DATABASE_URL", url)
    with pytest.raises(SettingsError, match="GPU_DEV_DATABASE_URL") as caught:
        database_url_of(CommonSettings())
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_the_databases_password_may_have_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "gpu_dev_database_url").write_text("postgresql://gpu@db:5432/x")
    (tmp_path / "gpu_dev_database_password").write_text("a:b/c@d %\n")
    settings = CommonSettings(_secrets_dir=tmp_path)  # type: ignore[call-arg]
    url = make_url(database_url_of(settings))
    assert (url.username, url.password, url.host, url.database) == ("gpu", "a:b/c@d %", "db", "x")
    # A URL that names one knows better.
    assert readable_url("ANY", SecretStr(URL), settings.database_password) == URL


def test_a_database_is_needed() -> None:
    with pytest.raises(SettingsError, match="GPU_DEV_DATABASE_URL is not set"):
        database_url_of(CommonSettings())


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (CommonSettings(local_gpus="h100:none"), "GPU_DEV_LOCAL_GPUS"),
        (
            CommonSettings(cluster=ClusterKind.KUBERNETES, kubernetes=KubernetesSettings(kubeconfig=Path("/nowhere"))),
            "GPU_DEV_KUBERNETES__KUBECONFIG",
        ),
    ],
)
def test_a_cluster_that_can_not_be_opened_says_what_to_set(settings: CommonSettings, name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        open_cluster(settings, SettableClock())


def test_secrets_come_from_files_too(tmp_path: Path) -> None:
    """The directory is read when the program starts, so a program is started."""
    (tmp_path / "gpu_dev_database_url").write_text(URL + "\n")
    code = (
        "from reservation_core.runtime.settings.components import CommonSettings as C;"
        f"assert C().database_url.get_secret_value() == {URL!r}"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "GPU_DEV_SECRETS_DIR": str(tmp_path)}, timeout=300
    )


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({}, 5),
        ({"cluster": ClusterKind.KUBERNETES}, 60),
        ({"cluster": ClusterKind.KUBERNETES, "resync_s": 7}, 7),
        ({"resync_s": 0.5}, 0.5),
    ],
)
def test_rows_and_pods_are_compared_as_often_as_the_cluster_needs_it(given: dict[str, object], seconds: float) -> None:
    assert ProcessorSettings.model_validate(given).resync_every == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["a.example/gpu,b.example/gpu", '["a.example/gpu", "b.example/gpu"]'])
def test_lists_below_a_section_are_written_as_people_write_them(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("GPU_DEV_GPU__RESOURCE_NAMES", text)
    assert CommonSettings().gpu.resource_names == ("a.example/gpu", "b.example/gpu")


@pytest.mark.parametrize(
    ("given", "turnaround_s"),
    [({"cluster": "local"}, 10), ({"cluster": "kubernetes"}, 12), ({"cluster": "kubernetes", "release_s": 5}, 15)],
)
def test_gpus_are_free_when_pods_are_known_to_be_gone(given: dict[str, object], turnaround_s: int) -> None:
    assert ProcessorSettings.model_validate(given).turnaround == timedelta(seconds=turnaround_s)


@pytest.mark.parametrize(
    ("cluster", "said", "kept"),
    [
        (ClusterKind.LOCAL, None, None),
        (ClusterKind.KUBERNETES, None, 0.0),
        (ClusterKind.LOCAL, 0.0, 0.0),
        (ClusterKind.KUBERNETES, 0.2, 0.2),
    ],
)
def test_kubernetes_keeps_nothing_for_jobs_without_gpus_unless_it_is_said(
    cluster: ClusterKind, said: float | None, kept: float | None
) -> None:
    assert UpdaterSettings(cluster=cluster, cpu_job_share=said).kept_for_cpu_jobs == kept
