"""Shells, commands and subsystems in a job (channels of kind `session`)."""

import asyncio
import re
from collections.abc import Awaitable, Coroutine
from signal import Signals
from typing import Protocol

import structlog
from asyncssh.channel import SSHServerChannel
from asyncssh.constants import EXTENDED_DATA_STDERR
from asyncssh.packet import SSHPacket
from asyncssh.session import SSHServerSession

from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.sessions.pod_streams import (
    InputClosedError,
    Outlet,
    PodNotReachableError,
    Program,
    ProgramEnd,
    RunningProgram,
    SignalRefusedError,
    Terminal,
    TerminalSize,
)
from reservation_core.runtime.ssh.counts import StreamKind
from reservation_core.runtime.ssh.flow import Flow, Host, LeftError
from reservation_core.runtime.ssh.pod_commands import login_shell_command, sftp_command

NO_EXIT_CODE = 255
"""The exit code when there is none, as OpenSSH's client has it."""

_MOST_VARIABLES = 64
_MOST_VARIABLE_BYTES = 4096
_VARIABLE = re.compile(rb"LANG|TERM|LC_[A-Z]{1,32}")
_KIND = re.compile(r"[A-Za-z0-9._+-]{1,64}")
_NAMES = ("ABRT", "ALRM", "FPE", "HUP", "ILL", "INT", "KILL", "PIPE", "QUIT", "SEGV", "TERM", "USR1", "USR2")
_SIGNALS: dict[int, str] = {Signals[f"SIG{name}"]: name for name in _NAMES}
_OTHER_SIGNAL = "SIG@openssh.com"  # sshd's name for signals that RFC 4254 does not have
_MOST_CHARACTERS = 10_000
_LOST = "The cluster lost the way to the job's pod. Try again."
_log = structlog.get_logger(__name__)


class JobRefusedError(Exception):
    """The job can't be entered; the text says why."""


class ProgramHost(Host, Protocol):
    """The connection of a program's channel."""

    def start(self, program: Program) -> Awaitable[RunningProgram]:
        """Start a program in the connection's job. Raises JobRefusedError."""

    def greet(self) -> Awaitable[str]:
        """What a login shell shows first. Raises JobRefusedError."""

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Do something beside, as long as the connection lasts."""

    def variables(self) -> tuple[tuple[str, str], ...]:
        """The variables that say where the client is."""

    def take_notes(self) -> list[str]:
        """Take the refusals that the client has not seen."""


class ProgramChannel(SSHServerChannel[bytes]):
    """A channel that takes few variables from the client, and forgets all others."""

    def _process_env_request(self, packet: SSHPacket) -> bool:
        name, value = packet.get_string(), packet.get_string()
        packet.check_end()
        fits = len(self._env) < _MOST_VARIABLES and len(value) <= _MOST_VARIABLE_BYTES and b"\0" not in value
        if not (fits and _VARIABLE.fullmatch(name)):
            return False
        self._env[name] = value
        return True


class ProgramStream(Flow, SSHServerSession[bytes]):
    """One program, with or without a terminal."""

    def __init__(self, host: ProgramHost) -> None:
        super().__init__(host)
        self._visit = host
        self._terminal: Terminal | None = None
        self._command: tuple[str, ...] = ()
        self._program: RunningProgram | None = None
        self.keeps_terminal = False
        """Whether a terminal goes on when the server closes the channel."""

    def pty_requested(self, term_type: str, term_size: tuple[int, int, int, int], term_modes: object) -> bool:  # noqa: ARG002
        kind = term_type if _KIND.fullmatch(term_type) else "dumb"
        self._terminal = Terminal(_size(term_size[0], term_size[1]) or TerminalSize(), kind)
        return True

    def shell_requested(self) -> bool:
        self.kind = StreamKind.SHELL
        return True

    def exec_requested(self, command: str) -> bool:
        self.kind = StreamKind.COMMAND
        self._command = login_shell_command(command)
        return "\0" not in command

    def subsystem_requested(self, subsystem: str) -> bool:
        self.kind = StreamKind.SFTP
        self._command = sftp_command()
        return subsystem == "sftp"

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:  # noqa: ARG002
        size = _size(width, height)
        if size is not None and self._program is not None:
            self._visit.spawn(self._program.resize(size))
        elif size is not None and self._terminal is not None:
            self._terminal = Terminal(size, self._terminal.kind)

    def signal_received(self, signal: str) -> None:
        if self._program is not None:
            self._visit.spawn(self._signal(self._program, signal))

    def break_received(self, msec: int) -> bool:  # noqa: ARG002
        self.signal_received("INT")
        return True

    def show(self, text: str) -> None:
        """Show a message on the terminal, on a line of its own."""
        if self._terminal is not None and not self.channel.is_closing():
            self.channel.write(f"\r\n\a*** {text} ***\r\n".encode())

    def finish(self, why: str, *, keep: bool) -> None:
        """End the channel because the connection must end, and say why."""
        self.keeps_terminal = keep
        if not self.channel.is_closing():
            self._tell(why)

    async def serve(self) -> None:
        """Run the program until it ends or the client leaves."""
        if self._terminal is not None or self.kind is StreamKind.COMMAND:
            for note in self._visit.take_notes():
                self._tell(note)
        try:
            self._program = await self._visit.start(self._described())
        except (JobRefusedError, PodNotReachableError, ClusterUnavailableError) as error:
            self._end(ProgramEnd(None, str(error)))
            return
        keep = True
        try:
            if self.kind is StreamKind.SHELL and self._terminal is not None:
                await self.send((await self._visit.greet()).encode())
            self._end(await self._pass_on(self._program))
            keep = False
        except ClusterUnavailableError as error:
            _log.warning("ssh_program_broken_off", error=str(error))
            self._end(ProgramEnd(None, _LOST))
        except (LeftError, asyncio.CancelledError):
            keep = self.broken or self.keeps_terminal
            raise
        finally:
            await self._program.close(keep=keep and self._terminal is not None)

    def _described(self) -> Program:
        environment = self._server_channel.get_environment_bytes()
        given = tuple((name.decode(), value.decode("utf-8", "replace")) for name, value in environment.items())
        return Program(self._command, self._terminal, (*given, *self._visit.variables()))

    @property
    def _server_channel(self) -> SSHServerChannel[bytes]:
        assert isinstance(self.channel, SSHServerChannel)  # noqa: S101 - sessions have no other
        return self.channel

    async def _pass_on(self, program: RunningProgram) -> ProgramEnd:
        feeding = asyncio.create_task(self._feed(program))
        try:
            async for outlet, data in program.output():
                errors = outlet is Outlet.STDERR and self._terminal is None
                await self.send(data, EXTENDED_DATA_STDERR if errors else None)
            return await program.wait()
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    async def _feed(self, program: RunningProgram) -> None:
        """Pass input on; what a program does not read any more is dropped."""
        reads = True
        while data := await self.receive():
            if reads:
                try:
                    await program.write(data)
                except InputClosedError:
                    reads = False
        await program.close_input()

    async def _signal(self, program: RunningProgram, name: str) -> None:
        try:
            await program.send_signal(name)
        except (SignalRefusedError, ClusterUnavailableError) as error:
            self._tell(str(error))

    def _end(self, end: ProgramEnd) -> None:
        if self.channel.is_closing():
            return
        if end.exit_code is None:
            self._tell(end.detail)
        self.channel.write_eof()
        if end.signal is None:
            self._server_channel.exit(NO_EXIT_CODE if end.exit_code is None else end.exit_code)
        else:
            self._server_channel.exit_with_signal(_SIGNALS.get(end.signal, _OTHER_SIGNAL), end.core_dumped, lang="")

    def _tell(self, text: str) -> None:
        """Say something on standard error."""
        end = "\r\n" if self._terminal is not None else "\n"
        if not self.channel.is_closing():
            self.channel.write(f"gpu-dev: {text}{end}".encode(), EXTENDED_DATA_STDERR)


def _size(columns: int, rows: int) -> TerminalSize | None:
    """A size that a terminal can have; None for none."""
    if not (columns and rows):
        return None
    return TerminalSize(min(columns, _MOST_CHARACTERS), min(rows, _MOST_CHARACTERS))
