"""Programs that a signal ends, beside OpenSSH's own sshd."""

import shlex
import subprocess
from getpass import getuser
from pathlib import Path

import asyncssh
import pytest

from tests.integration.ssh_gateway.ssh_clients import SshClient
from tests.integration.ssh_gateway.test_programs import AtTerminal
from tests.waiting import PATIENCE_S

SSHD = Path("/usr/sbin/sshd")

Reported = tuple[int | None, tuple[str, bool, str, str] | None]


@pytest.fixture
def sshd(alice: SshClient, tmp_path: Path) -> list[str]:
    """The words that start an sshd which lets alice in, on its standard input and output."""
    if not SSHD.exists():
        pytest.skip("openssh-server is not installed")
    host = tmp_path / "host"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(host)], check=True)
    keys = alice.key.with_suffix(".pub")
    options = [f"AuthorizedKeysFile={keys}", "StrictModes=no", "PermitRootLogin=yes", "PidFile=none", "UsePAM=no"]
    options.append(f"SetEnv=HOME={tmp_path}")  # without the ~/.bashrc of this user
    if getuser() == "root":
        Path("/run/sshd").mkdir(exist_ok=True)
    words = [str(SSHD), "-i", "-E", str(tmp_path / "sshd.log"), "-f", "/dev/null", "-h", str(host)]
    return [*words, *(word for option in options for word in ("-o", option))]


async def _reported(command: str, client: SshClient, user: str, server: list[str] | None) -> Reported:
    """The exit code and signal that a server reports; without `server` the gateway."""
    async with asyncssh.connect(
        "127.0.0.1",
        client.port,
        username=user,
        client_keys=[str(client.key)],
        known_hosts=None,
        config=None,
        proxy_command=server or (),
        connect_timeout=PATIENCE_S,
    ) as connection:
        ended = await connection.run(command, timeout=PATIENCE_S)
        return ended.exit_status, ended.exit_signal


@pytest.mark.parametrize(
    ("command", "signal", "code"),
    [
        ("kill -TERM $$", "TERM", 255),
        ("kill -KILL $$", "KILL", 255),
        ("kill -XCPU $$", "SIG@openssh.com", 255),
        ("sh -c 'kill -TERM $$'; exit $?", None, 143),
    ],
)
async def test_a_signal_is_reported_as_sshd_reports_it(
    alice: SshClient, job: str, sshd: list[str], command: str, signal: str | None, code: int
) -> None:
    command = f"ulimit -c 0; {command}"
    ours = await _reported(command, alice, "box", None)
    assert ours == await _reported(command, alice, getuser(), sshd)
    assert (None if ours[1] is None else ours[1][0]) == signal
    quiet = ["-o", "LogLevel=ERROR"]
    ended = await alice.run(*quiet, "box@gw", command)
    proxy = f"ProxyCommand={shlex.join(sshd)}"
    beside = await alice.run(*quiet, "-o", proxy, "-o", "HostKeyAlias=sshd", f"{getuser()}@sshd", command)
    assert (ended, ended.code) == (beside, code)


async def test_a_signal_ends_a_program_in_a_terminal(alice: SshClient, job: str) -> None:
    async with AtTerminal(alice, "-t", "box@gw", "kill -TERM $$") as terminal:
        assert await terminal.process.wait() == 255
