"""Sessions by the chart's processes on a real kubelet: see `tests/kubernetes/README.md`."""

import asyncio
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import psutil
import pytest

from tests.e2e.systems.real_kubelet_system import RealKubeletSystem, missing_for_system, real_kubelet_system
from tests.integration.gpu_dev.sessions.conftest import Terminal
from tests.integration.ssh_gateway.ssh_clients import SshClient
from tests.kubernetes.api_server import ApiServer
from tests.programs.ports import own_port
from tests.waiting import PATIENCE_S, eventually_sync

pytestmark = pytest.mark.skipif(bool(missing_for_system()), reason=missing_for_system() or "all is there")

_WARM, _IDLE = 10, 40
_ECHO = "nc -ll -p {port} -e cat >/dev/null 2>&1 &"


@pytest.fixture(scope="module")
def system(
    api_server: ApiServer, module_database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealKubeletSystem]:
    with real_kubelet_system(api_server, module_database_url, tmp_path_factory.mktemp("system")) as opened:
        yield opened


@pytest.fixture(scope="module")
def box(system: RealKubeletSystem) -> str:
    """A session that all tests may use; its name is its id."""
    return system.session("--name", "box")


@pytest.fixture(scope="module")
def ssh(system: RealKubeletSystem) -> SshClient:
    return system.log_in()


@pytest.fixture(autouse=True)
def _nobody_stays_connected(system: RealKubeletSystem) -> Iterator[None]:
    yield
    eventually_sync(lambda: system.rows("SELECT * FROM connections") == [])


def run(client: SshClient, *words: str, program: str = "ssh", stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        client.words(*words, program=program), input=stdin, capture_output=True, timeout=PATIENCE_S, check=False
    )


def resize(terminal: Terminal, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def echoed(port: int) -> bytes:
    """What a port of this machine sends back; nothing if it is closed."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(b"ping")
        return connection.recv(16)
    return b""


class TestWaysIn:
    def test_dev_lands_in_a_shell_on_its_gpus(self, system: RealKubeletSystem) -> None:
        with system.terminal("dev", "--gpus", "2", "--for", "30m", "--name", "mine") as at:
            at.shows("Session job-")
            resize(at, 132, 43)
            at.types("echo gpus=$CUDA_VISIBLE_DEVICES in $PWD as $(id -un) on $GPU_DEV_NODE\r")
            at.shows("gpus=0,1 in /tmp as dev on gpu-node")
            at.types("until [ \"$(stty size)\" = '43 132' ]; do :; done; echo res''ized\r")
            at.shows("resized")
            at.types("exit 4\r")
            at.shows("goes on until")
            assert at.ends() == 4
        assert system.gpu_dev("cancel", "mine").returncode == 0

    def test_a_program_has_its_streams_and_its_exit_code(self, system: RealKubeletSystem, box: str) -> None:
        done = system.gpu_dev("exec", box, "--", "sh", "-c", "cat; echo wrong >&2; exit 7", stdin=b"in")
        assert (done.returncode, done.stdout, b"wrong" in done.stderr) == (7, b"in", True)
        assert system.gpu_dev("exec", box, "--", "no-such-program").returncode == 127
        assert system.gpu_dev("exec", box, "--", "sh", "-c", "kill -9 $$").returncode == 137

    def test_a_port_is_reached_here(self, system: RealKubeletSystem, box: str) -> None:
        port, inside = own_port(), own_port()
        system.gpu_dev("exec", box, "--", "sh", "-c", _ECHO.format(port=inside))
        command = [sys.executable, "-m", "gpu_dev", "forward", box, f"{port}:{inside}"]
        with subprocess.Popen(command, env=system.environment) as forwarding:
            eventually_sync(lambda: echoed(port) == b"ping")
            forwarding.send_signal(signal.SIGINT)
            assert forwarding.wait(PATIENCE_S) == 130

    def test_files_are_copied_both_ways(self, system: RealKubeletSystem, box: str, tmp_path: Path) -> None:
        (tmp_path / "up").write_bytes(os.urandom(300_000))
        assert system.gpu_dev("cp", str(tmp_path / "up"), f"{box}:there").returncode == 0
        assert system.gpu_dev("cp", f"{box}:there", str(tmp_path / "back")).returncode == 0
        assert (tmp_path / "back").read_bytes() == (tmp_path / "up").read_bytes()

    def test_an_idle_program_costs_the_api_little(self, system: RealKubeletSystem, box: str) -> None:
        """At most 200 KiB, of which TLS to the API server is a part; see `benchmarks/sessions/session_streams.py`."""
        api = psutil.Process(system.processes["api_service"].pid)

        async def measure() -> float:
            before = 0
            async with AsyncExitStack() as stack:
                for number in range(_WARM + _IDLE):
                    if number == _WARM:
                        before = api.memory_info().rss
                    await stack.enter_async_context(system.program(box, "cat"))
                return (api.memory_info().rss - before) / 1024 / _IDLE

        assert asyncio.run(measure()) < 200

    def test_only_the_permitted_enter(self, system: RealKubeletSystem, box: str) -> None:
        """Each component uses its account of `deploy/rbac`, and none is refused by the API server."""
        assert system.gpu_dev("exec", box, "--", "true").returncode == 0
        for component in ("api_service", "ssh_gateway", "reservation_processor", "availability_updater"):
            assert "orbidden" not in system.log(component)


class TestSsh:
    def test_a_command_ends_with_its_exit_code(self, box: str, ssh: SshClient) -> None:
        done = run(ssh, f"{box}@gw", "cat; echo $CUDA_VISIBLE_DEVICES >&2; exit 7", stdin=b"in")
        assert (done.returncode, done.stdout) == (7, b"in")
        assert done.stderr.splitlines()[-1].isdigit()

    def test_a_terminal_has_the_clients_size(self, system: RealKubeletSystem, box: str, ssh: SshClient) -> None:
        with system.terminal(command=("/usr/bin/ssh", *ssh.words("-t", f"{box}@gw")[1:])) as at:
            at.shows("Session job-")
            resize(at, 101, 31)
            at.types("until [ \"$(stty size)\" = '31 101' ]; do :; done; echo res''ized\r")
            at.shows("resized")
            at.types("exit 5\r")
            assert at.ends() == 5

    @pytest.mark.parametrize("protocol", ["-s", "-O"])
    def test_scp_copies_with_both_protocols(self, box: str, ssh: SshClient, tmp_path: Path, protocol: str) -> None:
        (tmp_path / "up").write_bytes(os.urandom(3_000_000))
        up = run(ssh, protocol, str(tmp_path / "up"), f"{box}@gw:{protocol[1:]}", program="scp")
        assert up.returncode == 0, up.stderr
        back = run(ssh, protocol, f"{box}@gw:{protocol[1:]}", str(tmp_path / "back"), program="scp")
        assert back.returncode == 0, back.stderr
        assert (tmp_path / "back").read_bytes() == (tmp_path / "up").read_bytes()

    def test_sftp_brings_files_up_and_back(self, box: str, ssh: SshClient, tmp_path: Path) -> None:
        (tmp_path / "up").write_bytes(os.urandom(3_000_000))
        batch = f"mkdir by-sftp\nput {tmp_path}/up by-sftp/\nget by-sftp/up {tmp_path}/back\n"
        done = run(ssh, "-b", "-", f"{box}@gw", program="sftp", stdin=batch.encode())
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "back").read_bytes() == (tmp_path / "up").read_bytes()

    def test_rsync_brings_files_up_and_back(self, box: str, ssh: SshClient, tmp_path: Path) -> None:
        (tmp_path / "up").mkdir()
        (tmp_path / "up" / "large").write_bytes(os.urandom(3_000_000))
        there = f"{box}@gw:by-rsync/"
        for source, target in ((f"{tmp_path}/up/", there), (there, f"{tmp_path}/back/")):
            command = ["rsync", "-a", "-e", " ".join(ssh.words()), source, target]
            subprocess.run(command, check=True, timeout=PATIENCE_S)
        assert (tmp_path / "back" / "large").read_bytes() == (tmp_path / "up" / "large").read_bytes()

    def test_a_port_is_forwarded(self, system: RealKubeletSystem, box: str, ssh: SshClient) -> None:
        port, inside = own_port(), own_port()
        system.gpu_dev("exec", box, "--", "sh", "-c", _ECHO.format(port=inside))
        with subprocess.Popen(ssh.words("-N", "-L", f"{port}:localhost:{inside}", f"{box}@gw")) as forwarding:
            eventually_sync(lambda: echoed(port) == b"ping")
            forwarding.terminate()


class TestKubelet:
    """The kubelet is killed under open sessions: their streams go through it, their containers don't."""

    def test_streams_break_and_the_job_goes_on(self, system: RealKubeletSystem, box: str, ssh: SshClient) -> None:
        command = [sys.executable, "-m", "gpu_dev", "exec", box, "--", "sh", "-c", "echo up; exec sleep 4001"]
        pipe = subprocess.PIPE
        with (
            system.terminal("shell", box) as at,
            subprocess.Popen(command, env=system.environment, stdin=pipe, stdout=pipe, stderr=pipe) as program,
            subprocess.Popen(ssh.words(f"{box}@gw", "echo up; exec sleep 4002"), stdout=pipe, stderr=pipe) as by_ssh,
        ):
            at.shows("Session job-")
            at.types("echo u''p; sleep 4003\r")
            at.shows("up")
            for started in (program, by_ssh):
                assert started.stdout is not None
                assert started.stdout.readline() == b"up\n"
            try:
                system.kubelet.kill()
                at.shows("The terminal ended with its connection, as this cluster keeps none")
                at.shows(f"try: gpu-dev shell {system.job(box)['id']}")
                assert at.ends() == 5
                assert b"The cluster lost the way to the job's pod" in program.communicate(timeout=PATIENCE_S)[1]
                assert program.returncode == 5
                assert b"The cluster lost the way to the job's pod" in by_ssh.communicate(timeout=PATIENCE_S)[1]
                assert by_ssh.returncode == 255
                refused = system.gpu_dev("exec", box, "--", "true")
                assert refused.returncode == 5
                assert b"can't be entered now: its node or the cluster does not answer" in refused.stderr
                assert system.job(box)["status"] == "running"
            finally:
                system.kubelet.start_again()
        eventually_sync(lambda: system.gpu_dev("exec", box, "--", "true").returncode == 0)
        system.give_gpus()
        left = "! ps | grep '[s]leep 400[1-3]'"  # programs that nobody can come back to are hung up
        eventually_sync(lambda: system.gpu_dev("exec", box, "--", "sh", "-c", left).returncode == 0)
        assert system.job(box)["status"] == "running"


class TestEnds:
    def test_a_session_ends_on_time_with_a_warning(self, system: RealKubeletSystem, ssh: SshClient) -> None:
        job = system.session(length="75s")
        with (
            system.terminal("shell", job) as at,
            system.terminal(command=("/usr/bin/ssh", *ssh.words("-t", f"{job}@gw")[1:])) as by_ssh,
        ):
            for shown in (at, by_ssh):
                shown.shows(f"{job} ends in 1 minute. To extend it: gpu-dev extend {job} --by 1h")
            at.shows("duration_reached: The job reached its end after 1 minute 15 seconds.")
            assert at.ends() != 0
            assert by_ssh.ends() == 255
            assert "You may not be here any more" in by_ssh.all or "-1-0 has ended." in by_ssh.all
        assert system.reaches(job, "expired")["reason"]["code"] == "duration_reached"
        eventually_sync(lambda: not [pod for pod in system.pods() if pod["metadata"]["name"].startswith(job)])

    def test_a_session_that_nobody_is_connected_to_ends(self, system: RealKubeletSystem) -> None:
        used = system.session("--inactivity", "1m")
        alone = system.session("--inactivity", "1m")
        with system.terminal("shell", used) as at:
            at.shows("Session job-")
            eventually_sync(lambda: system.look() or system.job(alone)["status"] == "expired")
            assert system.job(alone)["reason"]["code"] == "inactive"
            assert system.job(used)["status"] == "running"
            at.types("echo still h''ere; exit\r")
            at.shows("still here")
            assert at.ends() == 0
        assert system.gpu_dev("cancel", used).returncode == 0
