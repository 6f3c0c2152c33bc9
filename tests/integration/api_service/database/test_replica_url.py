"""Where the replica is, as the settings say it."""

import asyncio
import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from reservation_core.runtime.reading.reading import (
    open_reads,
)
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.settings.error import SettingsError


def test_a_url_that_is_none_stops_the_start_and_is_not_shown(tmp_path: Path) -> None:
    settings = ApiSettings(home=tmp_path, database_replica_url=SecretStr("hunter2"))

    async def start() -> None:
        async with open_reads(settings, None):  # type: ignore[arg-type]
            pass

    with pytest.raises(SettingsError, match="GPU_DEV_DATABASE_REPLICA_URL") as caught:
        asyncio.run(start())
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(settings)


def test_an_empty_url_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "GPU_DEV_DATABASE_REPLICA_URL", "")
    assert ApiSettings().database_replica_url is None


def test_the_url_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "gpu_dev_database_replica_url").write_text("postgresql://u:p@r/d")
    found = ApiSettings(_secrets_dir=tmp_path).database_replica_url  # type: ignore[call-arg]
    assert found is not None
    assert found.get_secret_value() == "postgresql://u:p@r/d"
