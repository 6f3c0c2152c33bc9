"""`gpu-dev ssh` and `config-ssh`, with OpenSSH's own client, through a WebSocket to an SSH server."""

import asyncio
import os
import stat
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncssh
import pytest

from gpu_dev.server.connection import Connection
from gpu_dev.sessions.ssh.ssh_config import add, config_text, remove
from gpu_dev.sessions.ssh.ssh_files import SshFiles, ssh_files
from tests.integration.gpu_dev.sessions.conftest import Person
from tests.sessions.sessions_server import JOB, SessionsServer
from tests.waiting import PATIENCE_S


class _Server(asyncssh.SSHServer):
    """Lets in whoever has a certificate of `authority`, and notes the user."""

    users: list[str]

    def __init__(self, world: "SshWorld") -> None:
        self._authority = world.authority
        self._users = world.users
        self._connections = world.connections

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connections.append(conn)

    def begin_auth(self, username: str) -> bool:
        self._users.append(username)
        return True

    def validate_ca_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return key == self._authority.convert_to_public()

    def public_key_auth_supported(self) -> bool:
        return True


class SshWorld(threading.Thread):
    """An SSH server, its host key, and the authority that it believes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self.authority = asyncssh.generate_private_key("ssh-ed25519")
        self.users: list[str] = []
        self.connections: list[asyncssh.SSHServerConnection] = []
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()

    def run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        server = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=lambda: _Server(self),
            server_host_keys=[self.host_key],
            process_factory=_run,
            encoding=None,
        )
        self.port = server.get_port()
        self._up.set()
        await self._over.wait()
        server.close()
        for connection in self.connections:
            connection.abort()
            await connection.wait_closed()

    def __enter__(self) -> "SshWorld":
        self.start()
        assert self._up.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self.join(PATIENCE_S)
        self._loop.close()

    def certify(self, files: SshFiles) -> None:
        """What the server's answer for a certificate leaves behind."""
        files.certificate.parent.mkdir(parents=True, exist_ok=True)
        files.key.parent.mkdir(parents=True, exist_ok=True)
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(str(files.key))
        files.key.chmod(0o600)
        key.write_public_key(str(files.public_key))
        certificate = self.authority.generate_user_certificate(
            key, "ann", principals=[JOB, "notebook", f"{JOB}+1", "notebook+2"]
        )
        certificate.write_certificate(str(files.certificate))
        host_key = self.host_key.export_public_key().decode().strip()
        files.known_hosts.write_text(f"*.gpu-dev {host_key}\n")
        until = datetime.now(UTC) + timedelta(hours=1)
        files.valid_until.write_text(f"{until.isoformat()}\n")


async def _run(process: asyncssh.SSHServerProcess[bytes]) -> None:
    command = process.command or "echo shell"
    running = await asyncio.create_subprocess_shell(command, stdin=-1, stdout=-1, stderr=-1)
    out, err = await running.communicate(await process.stdin.read())
    process.stdout.write(out)
    process.stderr.write(err)
    process.exit(running.returncode or 0)


@pytest.fixture
def world(server: SessionsServer) -> Iterator[SshWorld]:
    with SshWorld() as running:
        server.ssh_port = running.port
        yield running


@pytest.fixture
def files(ann: Person, server: SessionsServer, world: SshWorld) -> SshFiles:
    found = ssh_files(server.url, ann.environment)
    world.certify(found)
    return found


def test_a_command_its_streams_and_its_exit_code(ann: Person, files: SshFiles, world: SshWorld) -> None:
    done = ann.run("ssh", JOB, "--", "sh", "-c", "'cat; echo err >&2; exit 7'", stdin=b"in")
    assert (done.returncode, done.stdout) == (7, b"in"), done.stderr
    assert done.stderr == b"err\n"
    assert world.users == [JOB]


def test_much_both_ways(ann: Person, files: SshFiles) -> None:
    text = bytes(range(256)) * 4096 * 8
    assert ann.run("ssh", JOB, "cat", stdin=text).stdout == text


def test_another_host_key_is_refused(ann: Person, files: SshFiles, world: SshWorld) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
    files.known_hosts.write_text(f"*.gpu-dev {other}\n")
    done = ann.run("ssh", JOB, "true")
    assert done.returncode == 255
    assert b"Host key verification failed" in done.stderr


def test_openssh_by_its_configuration(ann: Person, files: SshFiles, server: SessionsServer, world: SshWorld) -> None:
    assert ann.run("config-ssh").returncode == 0
    # OpenSSH takes the home folder from the password file, not from HOME.
    config = Path(ann.environment["HOME"], ".ssh", "config")
    command = ["ssh", "-F", str(config), "notebook.gpu-dev", "echo $((6 * 7))"]
    done = subprocess.run(command, env=ann.environment, input=b"", capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.stdout == b"42\n", done.stderr
    assert server.asked == ["/v1/ssh?job=notebook"]
    assert world.users == ["notebook"]


def test_a_rank_is_part_of_openssh_s_user_name(ann: Person, files: SshFiles, world: SshWorld) -> None:
    for words in (("--rank", "1", JOB), (JOB, "--rank", "1"), (JOB, "--rank", "1", "--")):
        assert ann.run("ssh", *words, "echo", "in").stdout == b"in\n"
    assert world.users == [f"{JOB}+1"] * 3
    ann.run("config-ssh")
    config = Path(ann.environment["HOME"], ".ssh", "config")
    command = ["ssh", "-F", str(config), "notebook+2.gpu-dev", "echo in"]
    done = subprocess.run(command, env=ann.environment, input=b"", capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.stdout == b"in\n", done.stderr
    assert world.users[3:] == ["notebook+2"]


OWN = "# mine\nHost other\n    User me\n"


@pytest.fixture
def user_config(tmp_path: Path) -> Path:
    (tmp_path / ".ssh").mkdir()
    path = tmp_path / ".ssh" / "config"
    path.write_text(OWN)
    path.chmod(0o644)
    return path


def test_the_users_configuration_keeps_all_else(ann: Person, user_config: Path, server: SessionsServer) -> None:
    first = ann.run("config-ssh")
    assert b"now includes it" in first.stderr
    written = user_config.read_text()
    assert written.endswith(OWN)
    assert written.splitlines()[1] == f"Include {ssh_files(server.url, ann.environment).config}"
    assert stat.S_IMODE(user_config.stat().st_mode) == 0o644
    again = ann.run("config-ssh")
    assert b"now includes it" not in again.stderr
    assert user_config.read_text() == written
    assert b"removed from" in ann.run("config-ssh", "--remove").stdout
    assert user_config.read_text() == OWN
    assert b"not in" in ann.run("config-ssh", "--remove").stdout
    assert user_config.read_text() == OWN


def test_a_preview_writes_nothing(ann: Person, user_config: Path, server: SessionsServer) -> None:
    done = ann.run("config-ssh", "--dry-run")
    assert b"Host *.gpu-dev" in done.stdout
    assert user_config.read_text() == OWN
    assert not ssh_files(server.url, ann.environment).config.exists()


def test_without_a_configuration_and_through_a_link(tmp_path: Path) -> None:
    files = ssh_files("https://gpus.example", {"HOME": str(tmp_path)})
    connection = Connection("https://gpus.example", "secret")
    path = tmp_path / ".ssh" / "config"
    assert add(connection, files, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert remove(files, path)
    assert path.read_text() == ""
    path.unlink()
    real = tmp_path / "dotfiles"
    real.write_bytes(b"Host a\r\n\tUser \xff\n")
    path.symlink_to(real)
    assert add(connection, files, path)
    assert path.is_symlink()
    assert real.read_bytes().endswith(b"Host a\r\n\tUser \xff\n")
    assert remove(files, path)
    assert real.read_bytes() == b"Host a\r\n\tUser \xff\n"


def test_the_configuration_is_openssh_s(tmp_path: Path) -> None:
    """OpenSSH itself reads it, also with a space and a percent sign in paths."""
    home = tmp_path / "a 100% home"
    home.mkdir()
    files = ssh_files("https://gpus.example/x", {"HOME": str(home)})
    text = config_text(Connection("https://gpus.example/x", "secret"), files)
    assert "secret" not in text
    path = tmp_path / "config"
    path.write_text(text.replace("exec", "user nobody-else exec"))  # the command is not to run here
    shown = subprocess.run(["ssh", "-G", "-F", str(path), "train.gpu-dev"], capture_output=True, text=True, check=True)
    assert f"identityfile {files.key}".replace("%", "%%") in shown.stdout or f"identityfile {files.key}" in shown.stdout
    assert "stricthostkeychecking true" in shown.stdout
    assert "ssh --stdio %h" in shown.stdout


def test_files_are_apart_by_server_and_private(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    one, other = ssh_files("https://a.example", environ), ssh_files("http://a.example:8080", environ)
    assert one.certificate != other.certificate
    assert one.key == other.key
    assert os.path.commonpath([one.certificate, tmp_path / ".config" / "gpu-dev" / "ssh"]).endswith("ssh")
