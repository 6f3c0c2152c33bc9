"""What the composed system watches and says."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from gpu_dev.server.connection import login_file, resolve, store_login
from reservation_core.adapters.local.inventory import parse_gpus
from reservation_core.adapters.postgres.embedded.errors import EmbeddedPostgresError
from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres
from reservation_core.runtime.http.serving import ListenError
from reservation_core.runtime.loops import loops as loops_module
from reservation_core.runtime.loops.loops import Loops
from reservation_core.runtime.settings.components import ClusterKind, StandaloneSettings
from reservation_core.runtime.settings.ssh import SshSettings
from reservation_core.runtime.wiring import Runtime
from standalone import system
from standalone.administrator import AdminToken
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "_DATABASE_CHECK_S", 0.001)


class Server:
    """An embedded server that is dead until it has been started often enough."""

    log = Path("server.log")

    def __init__(self, failures: int) -> None:
        self._failures = failures
        self.starts = 0

    def alive(self) -> bool:
        return self.starts > self._failures

    def start_again(self, given_up: Callable[[], bool]) -> None:
        assert not given_up()
        self.starts += 1
        if not self.alive():
            raise EmbeddedPostgresError("no space")


async def test_a_database_server_that_has_ended_is_started_again_until_it_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loops_module, "FIRST_PAUSE_S", 0.001)
    server, stop, loop = Server(failures=2), asyncio.Event(), Loops()["database_server"]
    keeping = asyncio.create_task(system.keep_server(cast("EmbeddedPostgres", server), loop, stop))
    await eventually(lambda: server.alive() and loop.failing_since is None)
    assert server.starts == 3
    assert loop.failures == 5  # found dead three times, and twice it did not start
    stop.set()
    await keeping


async def test_an_api_that_is_started_again_listens_where_it_did_and_greets_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listened, greeted = list[str](), list[str]()

    @asynccontextmanager
    async def reads(*_arguments: object, **_more: object) -> AsyncIterator[None]:
        yield

    async def serve(_app: object, listen: str, *, stop: asyncio.Event, ready: Callable[[str], None]) -> None:
        assert not stop.is_set()
        listened.append(listen)
        ready("http://127.0.0.1:4711")

    monkeypatch.setattr(system, "open_reads", reads)
    monkeypatch.setattr(system, "create_app", lambda *_arguments, **_more: None)
    monkeypatch.setattr(system, "serve", serve)
    settings = StandaloneSettings(listen="127.0.0.1:0")
    api = system.Api(cast("Runtime", None), settings, asyncio.Event(), greeted.append)
    await api.run()
    await api.run()
    assert listened == ["127.0.0.1:0", "127.0.0.1:4711"]
    assert greeted == ["http://127.0.0.1:4711"]


def test_the_greeting_tells_the_url_the_token_file_and_that_cards_are_simulated(tmp_path: Path) -> None:
    settings = StandaloneSettings(home=tmp_path)
    token = AdminToken(tmp_path / "it's" / "admin-token", made=True)
    told = system.greeting("http://0.0.0.0:80", settings, token, list(parse_gpus("h100:4", "here")))
    assert "http://127.0.0.1:80 " in told
    assert f"GPU_DEV_HOME={tmp_path} " in told
    elsewhere = system.greeting("http://10.1.2.3:80", settings, token, list(parse_gpus("h100:4", "here")))
    assert "gpu-dev --server http://10.1.2.3:80 run" in elsewhere
    assert str(token.path) in told
    assert "4 x h100, SIMULATED" in told


def test_the_greetings_command_names_a_server_that_it_would_not_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, url = tmp_path / "home", "http://127.0.0.1:18080"
    home.mkdir(mode=0o700)
    (home / "admin-token").write_text("secret")
    system.write_address(home, url)
    settings, token = StandaloneSettings(home=home), AdminToken(home / "admin-token", made=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("GPU_DEV_SERVER", "GPU_DEV_TOKEN", "GPU_DEV_LISTEN"):
        monkeypatch.delenv(name, raising=False)

    def is_named() -> bool:
        return f"gpu-dev --server {url} run" in system.greeting(url, settings, token, [])

    assert not is_named()  # the home says where the server listens
    monkeypatch.setenv("GPU_DEV_LISTEN", "127.0.0.1:18080")
    (home / "address").unlink()
    assert is_named()  # a second terminal need not have that variable
    system.write_address(home, url)
    assert not is_named()
    for name, value in (("GPU_DEV_SERVER", "https://gpus.example"), ("GPU_DEV_TOKEN", "secret")):
        with monkeypatch.context() as other:
            other.setenv(name, value)
            assert is_named(), name
    store_login(login_file({"XDG_CONFIG_HOME": str(tmp_path)}), "https://gpus.example", "secret")
    assert is_named()
    login_file({"XDG_CONFIG_HOME": str(tmp_path)}).write_text("{")
    assert is_named()


def test_the_greetings_command_needs_no_options_where_all_is_as_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    token = AdminToken(tmp_path / "admin-token", made=False)
    told = system.greeting("http://127.0.0.1:8080", StandaloneSettings(home=Path(".gpu-dev").absolute()), token, [])
    assert "gpu-dev run --gpus 1" in told
    assert "GPU_DEV_HOME=" not in told


def test_a_second_terminal_finds_the_server_at_any_port(tmp_path: Path) -> None:
    for url, reached in (
        ("http://127.0.0.1:18080", "http://127.0.0.1:18080"),
        ("https://0.0.0.0:1", "https://127.0.0.1:1"),
    ):
        system.write_address(tmp_path, url)
        (tmp_path / "admin-token").write_text("secret")
        environ = {"GPU_DEV_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
        assert resolve(None, None, environ).server == reached
        assert resolve(None, None, environ | {"GPU_DEV_LISTEN": "127.0.0.1:2"}).server == "http://127.0.0.1:2"


def test_without_any_card_the_greeting_says_what_to_set(tmp_path: Path) -> None:
    token = AdminToken(tmp_path / "admin-token", made=False)
    assert "GPU_DEV_LOCAL_GPUS=" in system.greeting("http://x:1", StandaloneSettings(home=tmp_path), token, [])
    kubernetes = StandaloneSettings(home=tmp_path, cluster=ClusterKind.KUBERNETES)
    assert "GPU_DEV_KUBERNETES__NODE_SELECTOR" in system.greeting("http://x:1", kubernetes, token, [])


def test_databases_that_nobody_leads_to_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for found in ([], [tmp_path / "home-1", tmp_path / "home-2"]):
        monkeypatch.setattr(system, "abandoned_databases", lambda found=found: found)
        with capture_logs() as lines:
            system.warn_of_abandoned_databases()
        assert [line["folders"] for line in lines] == ([[str(folder) for folder in found]] if found else [])


@pytest.fixture
def taken() -> Iterator[str]:
    """An address at which another server listens."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield f"127.0.0.1:{other.getsockname()[1]}"


async def test_all_else_goes_on_when_the_usual_ssh_port_is_taken(taken: str) -> None:
    usual = SshSettings.model_construct(set(), **{**SshSettings().model_dump(), "listen": taken})
    settings = StandaloneSettings().model_copy(update={"ssh": usual})
    stop = asyncio.Event()
    with capture_logs() as lines:
        serving = asyncio.create_task(system._serve_ssh(cast("Runtime", None), settings, stop))
        await eventually(lambda: lines)
        assert not serving.done()
        stop.set()
        await serving
    assert [(line["log_level"], line["event"]) for line in lines] == [
        ("warning", "there is no SSH gateway: its port is taken")
    ]
    assert taken in lines[0]["error"]


async def test_an_ssh_address_that_was_set_and_is_taken_ends_the_start(taken: str) -> None:
    settings = StandaloneSettings(ssh=SshSettings(listen=taken))
    with pytest.raises(ListenError, match="GPU_DEV_SSH__LISTEN"):
        await system._serve_ssh(cast("Runtime", None), settings, asyncio.Event())


def test_gpus_that_are_set_to_nothing_are_those_of_the_machine(tmp_path: Path) -> None:
    system._check(StandaloneSettings(home=tmp_path, local_gpus=" ", listen="127.0.0.1:0"))


@pytest.mark.parametrize(
    ("listen", "given", "tls", "address"),
    [
        ("127.0.0.1:8080", None, False, "http://127.0.0.1:8080"),
        ("0.0.0.0:80", None, False, "http://127.0.0.1:80"),
        ("[::]:8443", None, True, "https://[::1]:8443"),
        ("gpus.example.org:443", None, True, "https://gpus.example.org:443"),
        ("127.0.0.1:0", None, False, None),
        ("127.0.0.1:8080", "https://gpus.example.org", False, "https://gpus.example.org"),
    ],
)
def test_jobs_are_given_this_systems_own_address_unless_another_one_is_set(
    listen: str, given: str | None, tls: bool, address: str | None
) -> None:
    files = {"tls_cert": Path("cert.pem"), "tls_key": Path("key.pem")} if tls else {}
    settings = StandaloneSettings(job_server=given).model_copy(update={"listen": listen, **files})
    assert system.with_own_address(settings).job_server == address
