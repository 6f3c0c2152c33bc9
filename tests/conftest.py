"""Fixtures that many tests share: a real PostgreSQL with our schema, and a runtime on it.

One embedded server per test session, in a folder that is removed at the end; one template database, migrated once; one
fresh database per test. `GPU_DEV_TEST_DATABASE_URL` (a role that may create databases) names another server to use.

What only a fixture needs is imported in it: every session pays for what is imported here.
"""

import asyncio
import gc
import os
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import psycopg
import pytest
from pytest_postgresql import factories
from pytest_postgresql.executors import NoopExecutor

from tests.programs.leftovers import end_orderly_when_told_to, folder_in_memory, own_folder
from tests.programs.prepared_processes import prepared_processes

if TYPE_CHECKING:
    from reservation_core.runtime.wiring import Runtime

pytest_plugins = ["tests.kubernetes.fixtures"]

# As servers do. Python's own threshold is for less memory: what is loaded stays, and searching it for garbage takes a
# sixth of the time in which tests are collected, and a fifteenth of that in which they run.
gc.set_threshold(50_000, 20, 50)

# A test's server needs no power cut survived; everything else is as in earnest.
TEST_SERVER_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "autovacuum_naptime": "60s",
    "max_wal_size": "128MB",
}


class Server(NoopExecutor):
    """A bare server: what is built on it starts from `template1`."""

    template_dbname = "template1"  # type: ignore[assignment]


# It signs nobody, as its key is lost. Reading the 140 authorities of the Internet takes each client 60 ms.
AUTHORITY = Path(__file__).parent / "network" / "authority.pem"


def pytest_configure() -> None:
    """Whatever ends this session, it cleans up; it and what it starts trust no authority of the Internet."""
    end_orderly_when_told_to()
    # Helm, which is Go, renders charts in this process: looking for garbage seldom spares it a third.
    os.environ.setdefault("GOGC", "400")
    if "GPU_DEV_IMAGE_BUILD" not in os.environ:  # packages come from the Internet then
        os.environ |= {"SSL_CERT_FILE": str(AUTHORITY), "SSL_CERT_DIR": str(AUTHORITY.parent)}


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exempt loaded modules from garbage collection: searching them takes a tenth of a session's time.

    And draw tracebacks of the log plainly: with frames, colours and all variables one takes a second.
    """
    if "structlog" in sys.modules:
        log = import_module("structlog.dev")
        log.ConsoleRenderer.get_active().exception_formatter = log.plain_traceback
    if "httpx" in sys.modules:  # which reads no variables where it is told to
        import_module("certifi").where = lambda: str(AUTHORITY)
    gc.freeze()


def pytest_pycollect_makemodule(module_path: Path) -> None:
    """Before a module with generated examples is imported: their settings are taken from the profile of that moment."""
    if b"hypothesis" in module_path.read_bytes():
        import_module("tests.examples")


@pytest.fixture(scope="session", autouse=True)
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that the accounts of servers can reach, gone at the end of the session; nothing else may be left."""
    tmp_path_factory.getbasetemp()  # pytest's own folders are outside, for those who look at what failed
    with own_folder() as folder:
        yield folder


@pytest.fixture(scope="session", autouse=True)
def _processes_are_prepared(session_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Before the session's folder is looked at: what processes are forked from is gone by then."""
    if "api_service.web.rendering" in sys.modules:
        folder = tmp_path_factory.getbasetemp()
        together = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
        import_module("tests.programs.compiled_templates").keep_compiled_templates(together / "templates")
    with prepared_processes():
        yield


@pytest.fixture(scope="session")
def quick_folder(session_folder: Path) -> Iterator[Path]:
    """The same in memory, where there is room."""
    with folder_in_memory(session_folder) as folder:
        yield folder


@pytest.fixture(scope="session")
def database_server(quick_folder: Path) -> Iterator[NoopExecutor]:
    """The server of this test session, as pytest-postgresql describes one."""
    given = os.environ.get("GPU_DEV_TEST_DATABASE_URL")
    if given:
        with _administered(_described(given)) as described:
            yield described
        return
    from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres

    server = EmbeddedPostgres(quick_folder, settings=TEST_SERVER_SETTINGS)
    server.start()
    try:
        with _administered(_described(server.libpq_url)) as described:
            yield described
    finally:
        server.destroy()


_administrators: dict[tuple[str, int], psycopg.Connection] = {}
"""Of each server of this session one connection, by host and port: a new one for each copy costs as much as its end."""


@contextmanager
def _administered(server: NoopExecutor) -> Iterator[NoopExecutor]:
    """With a connection over which databases are made and dropped while the block runs."""
    where: dict[str, Any] = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    with psycopg.connect(**where, dbname="postgres", autocommit=True) as connection:
        _administrators[server.host, server.port] = connection
        try:
            yield server
        finally:
            del _administrators[server.host, server.port]


def _described(url: str) -> NoopExecutor:
    parts = urlsplit(url)
    host = parts.hostname or parse_qs(parts.query).get("host", ["127.0.0.1"])[0]
    return Server(
        host=host,
        port=parts.port or 5432,
        user=unquote(parts.username or "postgres"),
        password=unquote(parts.password) if parts.password else None,
        dbname="postgres",
        options="",
    )


def url_of(server: NoopExecutor, database: str) -> str:
    """A database's URL as SQLAlchemy with asyncpg takes it."""
    password = f":{quote(server.password, safe='')}" if server.password else ""
    user = f"{quote(server.user, safe='')}{password}"
    if server.host.startswith("/"):
        return f"postgresql+asyncpg://{user}@/{database}?host={quote(server.host, safe='/')}&port={server.port}"
    return f"postgresql+asyncpg://{user}@{server.host}:{server.port}/{database}"


def _migrate(**where: Any) -> None:
    """Bring the template database to the newest schema. In a thread: the calling one may belong to an event loop."""
    from reservation_core.adapters.postgres.connection.migrating import upgrade

    server = Server(where["host"], where["port"], where["user"], "", where["dbname"], where["password"])
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(upgrade(url_of(server, where["dbname"])))).result()


migrated_server = factories.postgresql_noproc(
    depends_on="database_server", dbname=f"gpu_dev_test_{os.getpid()}", load=[_migrate]
)
"""The server with a migrated template database on it."""


@pytest.fixture
def database_url(migrated_server: NoopExecutor) -> Iterator[str]:
    """A fresh, migrated database: its URL as SQLAlchemy with asyncpg takes it."""
    with copied_database(migrated_server, migrated_server.template_dbname) as name:
        yield url_of(migrated_server, name)


@pytest.fixture(scope="module")
def module_database_url(migrated_server: NoopExecutor) -> Iterator[str]:
    """The same, one for all tests of a module that share a system."""
    with copied_database(migrated_server, migrated_server.template_dbname) as name:
        yield url_of(migrated_server, name)


@pytest.fixture
def empty_database_url(database_server: NoopExecutor) -> Iterator[str]:
    """A fresh database without any of our tables."""
    with copied_database(database_server, "template1") as name:
        yield url_of(database_server, name)


@contextmanager
def copied_database(server: NoopExecutor, template: str) -> Iterator[str]:
    """A copy of a database, by its files: half the work of a copy that is logged."""
    name = f"test_{uuid.uuid4().hex}"
    _run(server, f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY file_copy')
    try:
        yield name
    finally:
        _run(server, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _run(server: NoopExecutor, statement: str) -> None:
    _administrators[server.host, server.port].execute(statement.encode())


@pytest.fixture
async def runtime(database_url: str, tmp_path: Path) -> "AsyncIterator[Runtime]":
    """Adapters on a fresh database, with a local cluster of four simulated cards; no pod outlives the test."""
    from reservation_core.runtime.sealing_keys import ensure_key_file
    from reservation_core.runtime.settings.components import StandaloneSettings
    from reservation_core.runtime.wiring import open_runtime
    from tests.pods import end_all_pods

    (tmp_path / "keys").mkdir()
    key_file = ensure_key_file(tmp_path / "keys")
    settings = StandaloneSettings(home=tmp_path / "home", local_gpus="h100:4", secrets_key_file=key_file)
    async with open_runtime(settings, database_url) as opened:
        try:
            yield opened
        finally:
            await end_all_pods(opened.cluster)
