"""Every program, started while the database recovers from a crash: it waits, lives, and works once it can."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from reservation_core.adapters.postgres.connection.migrating import upgrade
from tests.database.postgres_proxy import PostgresProxy
from tests.programs.prepared_processes import started
from tests.waiting import eventually_sync

RECOVERS = "57P03"


class Program:
    """One process of a program, forked from one that has loaded it, and what it logs."""

    def __init__(self, log: Path, module: str, **settings: str) -> None:
        self._log = log
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DEV_")}
        self.process = started((module,), environment | settings, log, forked=True)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def address(self, event: str) -> str:
        """Where it listens, as it logs."""

        def logged() -> str | None:
            lines = [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]
            return next((line["address"] for line in lines if line["event"] == event), None)

        found = eventually_sync(logged)
        assert found is not None
        return found

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


Launcher = Callable[..., Program]


@pytest.fixture
def proxy(database_url: str) -> Iterator[PostgresProxy]:
    """A database that recovers."""
    with PostgresProxy(database_url) as running:
        running.answer(RECOVERS)
        yield running


@pytest.fixture
def launch(proxy: PostgresProxy, tmp_path: Path) -> Iterator[Launcher]:
    """Starts programs with a local cluster on that database."""
    launched: list[Program] = []

    def one(module: str, **settings: str) -> Program:
        usual = {"GPU_DEV_DATABASE_URL": proxy.url, "GPU_DEV_HOME": str(tmp_path), "GPU_DEV_LOCAL_GPUS": "h100:4"}
        launched.append(Program(tmp_path / f"{module}.log", module, **usual | settings))
        return launched[-1]

    yield one
    for program in launched:
        program.process.send_signal(signal.SIGKILL)
        program.process.wait(120)


def status(address: str, path: str) -> int:
    return httpx.get(f"{address}{path}", trust_env=False, timeout=60).status_code


def rows(database_url: str, sql: str) -> list[tuple[object, ...]]:
    with psycopg.connect(database_url.replace("+asyncpg", "")) as connection:
        return connection.execute(sql.encode()).fetchall()


def test_the_api_lives_meanwhile_and_takes_its_policy_file_over_afterwards(
    launch: Launcher, proxy: PostgresProxy, database_url: str, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[default]\nmax_gpus = 7\n")
    api = launch("api_service", GPU_DEV_LISTEN="127.0.0.1:0", GPU_DEV_POLICY_FILE=str(policy))
    address = api.address("api_listening")
    assert (status(address, "/healthz"), status(address, "/readyz")) == (200, 503)
    proxy.heal()
    eventually_sync(lambda: "applied the policy file" in api.log)
    eventually_sync(lambda: status(address, "/readyz") == 200)
    assert api.end() == 0, api.log


def test_a_policy_file_that_can_not_be_used_is_told_all_the_same(launch: Launcher, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[default]\nmax_gpu = 7\n")
    api = launch("api_service", GPU_DEV_LISTEN="127.0.0.1:0", GPU_DEV_POLICY_FILE=str(policy))
    assert api.process.wait(120) == 2
    assert "max_gpu" in api.log.splitlines()[-1]


def test_the_processor_lives_meanwhile_and_leads_afterwards(
    launch: Launcher, proxy: PostgresProxy, database_url: str
) -> None:
    processor = launch("reservation_processor", GPU_DEV_HEALTH_LISTEN="127.0.0.1:0")
    address = processor.address("health_listening")
    assert (status(address, "/healthz"), status(address, "/readyz")) == (200, 503)
    proxy.heal()
    eventually_sync(lambda: rows(database_url, "SELECT 1 FROM planner_lease WHERE holder IS NOT NULL"))
    eventually_sync(lambda: status(address, "/readyz") == 200)
    assert processor.end() == 0, processor.log


@pytest.mark.parametrize("module", ["availability_updater", "reservation_expiry"])
def test_what_a_timer_starts_waits_for_a_while(launch: Launcher, proxy: PostgresProxy, module: str) -> None:
    program = launch(module, GPU_DEV_DATABASE_WAIT_S="3600")
    eventually_sync(lambda: "waiting to start" in program.log)
    proxy.heal()
    assert program.process.wait(120) == 0, program.log
    assert program.log.count("waiting to start") == 1


@pytest.mark.parametrize("module", ["availability_updater", "reservation_expiry"])
def test_what_a_timer_starts_waits_for_the_migration(launch: Launcher, empty_database_url: str, module: str) -> None:
    program = launch(module, GPU_DEV_DATABASE_URL=empty_database_url, GPU_DEV_DATABASE_WAIT_S="3600")
    eventually_sync(lambda: "The database is empty and waits for its migration" in program.log)
    asyncio.run(upgrade(empty_database_url))
    assert program.process.wait(120) == 0, program.log
