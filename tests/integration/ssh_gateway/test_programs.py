"""Programs in a job by OpenSSH's own client."""

import asyncio
import fcntl
import hashlib
import os
import pty
import signal
import struct
import termios
from contextlib import suppress
from pathlib import Path

import pytest

from reservation_core.adapters.local.sessions.pod_streams import LocalPodStreams
from reservation_core.domain.model import PodName
from reservation_core.ports.sessions.pod_streams import Program, TerminalSize
from reservation_core.runtime.wiring import Runtime
from tests.integration.ssh_gateway.ssh_clients import SshClient
from tests.waiting import PATIENCE_S, eventually

HUNDRED_MB = 100 * 1024 * 1024


async def test_a_command_runs_in_the_job_and_its_exit_code_comes_back(alice: SshClient, job: str) -> None:
    ended = await alice.run("box@gw", "echo $CUDA_VISIBLE_DEVICES; echo wrong >&2; exit 7")
    assert (ended.code, ended.out, ended.err.splitlines()[-1]) == (7, b"1\n", "wrong")
    assert (await alice.run(f"{job}@gw", "cat | tr a-z A-Z", input=b"through a pipe")).out == b"THROUGH A PIPE"


async def test_a_command_is_run_by_the_login_shell(alice: SshClient, job: str) -> None:
    assert (await alice.run("box@gw", "echo $0 ${BASH_VERSION:+bash} 'a  b'")).out.split() == [
        b"bash",
        b"bash",
        b"a",
        b"b",
    ]
    assert (await alice.run("box@gw", "no-such-program")).code == 127


async def test_a_shell_reads_its_commands_from_a_pipe(alice: SshClient, job: str) -> None:
    ended = await alice.run("-T", "box@gw", input=b"shopt -q login_shell && echo login\nexit 3\n")
    assert (ended.code, ended.out) == (3, b"login\n")


async def test_few_variables_of_the_client_reach_the_job(alice: SshClient, job: str) -> None:
    options = ["-o", "SetEnv=LC_TIME=de_DE LANG=C LD_PRELOAD=/evil.so PATH=/evil"]
    ended = await alice.run(*options, "box@gw", "echo $LC_TIME $LANG .$LD_PRELOAD. $PATH; echo ${SSH_CONNECTION%% *}")
    time, lang, preload, path, address = ended.out.split()
    assert (time, lang, preload, address) == (b"de_DE", b"C", b"..", b"127.0.0.1")
    assert b"evil" not in path


async def test_a_hundred_megabytes_pass_unchanged_both_ways(alice: SshClient, job: str) -> None:
    block = os.urandom(1024 * 1024)
    process = await alice.start("box@gw", "cat")
    assert process.stdin is not None
    assert process.stdout is not None
    sent, received = hashlib.sha256(), hashlib.sha256()
    count = 0

    async def send() -> None:
        for number in range(100):
            piece = number.to_bytes(4, "big") + block[4:]
            sent.update(piece)
            process.stdin.write(piece)
            await process.stdin.drain()
        process.stdin.close()

    async def receive() -> None:
        nonlocal count
        while data := await process.stdout.read(1024 * 1024):
            received.update(data)
            count += len(data)

    await asyncio.wait_for(asyncio.gather(send(), receive()), PATIENCE_S)
    assert await process.wait() == 0
    assert (count, received.digest()) == (HUNDRED_MB, sent.digest())


class AtTerminal:
    """`ssh -t` at a terminal of the test's."""

    def __init__(self, client: SshClient, *arguments: str) -> None:
        self._client = client
        self._arguments = arguments
        self.shown = b""

    async def __aenter__(self) -> "AtTerminal":
        self.master, slave = pty.openpty()
        os.set_blocking(self.master, False)
        self.process = await self._client.start(*self._arguments, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        os.close(self.master)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    async def sees(self, text: str) -> None:
        """Wait until the terminal shows a text."""

        def look() -> bool:
            with suppress(OSError):
                self.shown += os.read(self.master, 65536)
            return text.encode() in self.shown

        await eventually(look)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)


async def test_a_terminal_has_the_clients_kind_and_size(
    alice: SshClient, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "screen")
    async with AtTerminal(alice, "-t", "box@gw", "bash --norc") as terminal:
        terminal.resize(132, 43)
        terminal.type("PS1=ready''-; stty size; echo $TERM; tty | cut -c-9\n")
        await terminal.sees("43 132\r\nscreen\r\n/dev/pts/")
        terminal.resize(99, 31)
        terminal.type("while [ \"$(stty size)\" != '31 99' ]; do :; done; echo res''ized\n")
        await terminal.sees("resized")
        terminal.type("exit 5\n")
        assert await asyncio.wait_for(terminal.process.wait(), PATIENCE_S) == 5


async def test_a_login_shell_greets_first(alice: SshClient, job: str) -> None:
    async with AtTerminal(alice, "-t", "box@gw") as terminal:
        await terminal.sees(f"Session {job} (box)")
        await terminal.sees("Files in this folder are deleted when the session ends")
        terminal.type("exit 4\n")
        assert await asyncio.wait_for(terminal.process.wait(), PATIENCE_S) == 4


async def test_a_closed_terminal_hangs_its_program_up(alice: SshClient, job: str, tmp_path: Path) -> None:
    command = f"trap 'echo gone > {tmp_path}/hup' HUP; echo up; sleep 60 & wait"
    async with AtTerminal(alice, "-t", "-e", "~", "box@gw", command) as terminal:
        await terminal.sees("up")
        terminal.type("\n~.")
        await asyncio.wait_for(terminal.process.wait(), PATIENCE_S)
    await eventually(lambda: (tmp_path / "hup").exists())


async def test_a_terminal_outlives_a_client_that_breaks_off(runtime: Runtime, alice: SshClient, job: str) -> None:
    async with AtTerminal(alice, "-t", "box@gw", "echo fi''rst; cat") as terminal:
        await terminal.sees("first")
        terminal.process.kill()
    joined = await runtime.pod_streams.attach(PodName(job, 1, 0), TerminalSize())
    shown = b""
    async for _, data in joined.output():
        shown += data
        if b"first" in shown:
            break
    await joined.close()
    assert b"first" in shown


async def test_a_program_that_starts_as_its_client_leaves_is_left(
    runtime: Runtime, alice: SshClient, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, left, run = asyncio.Event(), asyncio.Event(), LocalPodStreams.run

    async def run_late(self: LocalPodStreams, pod: PodName, program: Program) -> object:
        running = await run(self, pod, program)
        started.set()
        await left.wait()
        return running

    monkeypatch.setattr(LocalPodStreams, "run", run_late)
    script = f"trap 'echo gone > {tmp_path}/hup' HUP; touch {tmp_path}/ready; sleep 60 & wait"
    async with AtTerminal(alice, "-t", "box@gw", script) as terminal:
        await asyncio.wait_for(started.wait(), PATIENCE_S)
        await eventually(lambda: (tmp_path / "ready").exists())  # else the shell may not know its trap yet
        terminal.process.kill()
    await eventually(lambda: _has_left(runtime, job))
    left.set()
    await eventually(lambda: (tmp_path / "hup").exists())


async def _ssh_connections(runtime: Runtime, job: str) -> list[object]:
    async with runtime.uow() as uow:
        return [*await uow.connections.of_job(job, 10, runtime.clock.now())]


async def _has_left(runtime: Runtime, job: str) -> bool:
    return not await _ssh_connections(runtime, job)


@pytest.mark.parametrize("name", ["no-such-job", "job-00000000"])
async def test_an_unknown_job_is_refused_in_words(alice: SshClient, job: str, name: str) -> None:
    ended = await alice.run(f"{name}@gw", "true")
    assert ended.code == 255
    assert f"You have no job {name} that you could enter." in ended.err
