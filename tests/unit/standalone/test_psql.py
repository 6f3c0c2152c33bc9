"""How a database URL reaches psql."""

import os
from pathlib import Path

import pytest

from reservation_core.runtime.settings.error import SettingsError
from standalone import psql
from standalone.psql import connection_variables


def test_a_socket_folder_and_a_server_with_a_password() -> None:
    assert connection_variables("postgresql+asyncpg://gpu_dev@/gpu_dev?host=/a%20b/run") == {
        "PGHOST": "/a b/run",
        "PGUSER": "gpu_dev",
        "PGDATABASE": "gpu_dev",
    }
    assert connection_variables("postgresql+asyncpg://u:p%40ss@db.example:5433/x?ssl=require") == {
        "PGHOST": "db.example",
        "PGPORT": "5433",
        "PGUSER": "u",
        "PGPASSWORD": "p@ss",
        "PGDATABASE": "x",
        "PGSSLMODE": "require",
    }


def database_of(monkeypatch: pytest.MonkeyPatch, home: Path, **variables: str) -> str:
    """The database that psql would open in this environment."""
    for name in [name for name in os.environ if name.startswith("GPU_DEV_")]:
        monkeypatch.delenv(name)
    for name, value in {"HOME": str(home), **variables}.items():
        monkeypatch.setenv(f"GPU_DEV_{name}", value)
    with psql._database(os.environ) as url:
        return url


def test_settings_are_read_where_there_are_more_than_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    elsewhere = "postgresql://u@db.example/x"
    assert database_of(monkeypatch, tmp_path, DATABASE_URL=elsewhere).endswith("u@db.example/x")
    with pytest.raises(SettingsError, match="GPU_DEV_DATABASE_URL"):
        database_of(monkeypatch, tmp_path, DATABASE_ULR=elsewhere)
