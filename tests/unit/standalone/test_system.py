"""What the composed system watches and says."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from reservation_core.adapters.local.inventory import parse_gpus
from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres
from reservation_core.runtime.settings import ClusterKind, StandaloneSettings
from standalone import system
from standalone.administrator import AdminToken
from standalone.components import ComponentFailedError


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "_LOOK_AFTER_DATABASE", timedelta(milliseconds=1))


async def test_a_database_server_that_is_gone_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(ComponentFailedError, match="The database server ended by itself"):
        await system.watch(EmbeddedPostgres(tmp_path), asyncio.Event())


def test_the_greeting_tells_the_url_the_token_file_and_that_cards_are_simulated(tmp_path: Path) -> None:
    settings = StandaloneSettings(home=tmp_path)
    token = AdminToken(tmp_path / "it's" / "admin-token", made=True)
    told = system.greeting("http://0.0.0.0:80", settings, token, list(parse_gpus("h100:4", "here")))
    assert "http://127.0.0.1:80/v1/jobs" in told
    assert str(token.path) in told
    assert "4 x h100, SIMULATED" in told


def test_without_any_card_the_greeting_says_what_to_set(tmp_path: Path) -> None:
    token = AdminToken(tmp_path / "admin-token", made=False)
    assert "GPU_DEV_LOCAL_GPUS=" in system.greeting("http://x:1", StandaloneSettings(home=tmp_path), token, [])
    kubernetes = StandaloneSettings(home=tmp_path, cluster=ClusterKind.KUBERNETES)
    assert "GPU_DEV_KUBERNETES__NODE_SELECTOR" in system.greeting("http://x:1", kubernetes, token, [])


def test_databases_that_nobody_leads_to_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for found in ([], [tmp_path / "home-1", tmp_path / "home-2"]):
        monkeypatch.setattr(system, "abandoned_databases", lambda found=found: found)
        with capture_logs() as lines:
            system.tell_of_leftovers()
        assert [line["folders"] for line in lines] == ([[str(folder) for folder in found]] if found else [])
