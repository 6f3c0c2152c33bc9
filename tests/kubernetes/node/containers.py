"""What a test kubelet runs for a container: a process on this machine, or a pretended one that only takes time."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import FileIO
from pathlib import Path
from typing import Protocol

from tests.kubernetes.api_client import JsonObject
from tests.waiting import PATIENCE_S

_REFERENCE = re.compile(r"\$(?:\$|\(([^)\s]*)\))")
_DRAINED_WITHIN_S = 2.0


@dataclass(slots=True)
class ContainerLog:
    """What a container has printed, line by line as the kubelet keeps it."""

    lines: list[tuple[datetime, bytes]] = field(default_factory=list)
    over: bool = False
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, chunk: bytes) -> None:
        """Append output; a line that has not ended yet goes on."""
        now = datetime.now(UTC)
        for part in chunk.splitlines(keepends=True):
            if self.lines and not self.lines[-1][1].endswith(b"\n"):
                self.lines[-1] = (self.lines[-1][0], self.lines[-1][1] + part)
            else:
                # No runtime stamps two lines alike, however they come.
                if self.lines:
                    now = max(now, self.lines[-1][0] + timedelta(microseconds=1))
                self.lines.append((now, part))
        self._wake()

    def close(self) -> None:
        """Nothing more will come."""
        self.over = True
        self._wake()

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    async def read(
        self, *, tail: int | None, since: datetime | None, follow: bool
    ) -> AsyncIterator[tuple[datetime, bytes]]:
        """Lines with their times; with `follow` also what comes, in parts where a line comes in parts."""
        at = 0 if tail is None else max(0, len(self.lines) - tail)
        done = 0
        while True:
            more = self._more
            while at < len(self.lines):
                time, line = self.lines[at]
                if (since is None or time >= since) and line[done:]:
                    yield time, line[done:]
                done = 0
                if at == len(self.lines) - 1 and not line.endswith(b"\n"):
                    done = len(line)
                    break
                at += 1
            if not follow or (self.over and more is self._more):
                return
            await more.wait()


class Container(Protocol):
    """One container of a pod."""

    log: ContainerLog

    async def start(self) -> None:
        """Raises OSError when it can't be."""
        ...

    async def wait(self) -> int:
        """Its exit code, 128 + n for signal n. Everything that it printed is in the log then."""
        ...

    def terminate(self) -> None:
        """SIGTERM to its first process."""
        ...

    def kill(self) -> None:
        """SIGKILL to all of its processes."""
        ...


class ProcessContainer:
    """A container's command, run as a process group on this machine, with the container's environment and no other."""

    def __init__(self, spec: JsonObject, folder: Path, hostname: str, reaper: "Reaper", names: dict[str, str]) -> None:
        self.log = ContainerLog()
        self._reaper = reaper
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._output: FileIO | None = None
        self._reading: asyncio.Task[None] | None = None
        self._adopted: set[int] = set()
        self._env = {"PATH": os.environ["PATH"], "HOME": str(folder), "HOSTNAME": hostname}
        for variable in spec.get("env") or []:
            value = expanded(variable.get("value") or "", self._env)
            self._env[variable["name"]] = names.get(value, value)
        self._command = [
            expanded(argument, self._env) for argument in [*(spec.get("command") or []), *(spec.get("args") or [])]
        ]
        wanted = spec.get("workingDir")
        self._cwd = Path(wanted) if wanted and Path(wanted).is_dir() else folder

    @property
    def first_process(self) -> int:
        """Its number on this machine."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Raises OSError for a command that is not there."""
        self._folder.mkdir(parents=True, exist_ok=True)
        # A pipe of our own: asyncio's would have the process end only once its children have closed it, too.
        ours, its = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=its,
                stderr=its,
                cwd=self._cwd,
                env=self._env,
                start_new_session=True,
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(its)
        self._output = os.fdopen(ours, "rb", buffering=0)
        self._reaper.watch(self._process.pid)

    async def wait(self) -> int:
        """A first process that ends takes the others with it, as the end of a PID namespace does."""
        assert self._process is not None
        assert self._output is not None
        if self._reading is None:  # who is cancelled here may wait once more
            self._reading = asyncio.create_task(self._read(self._output))
        try:
            code = await self._process.wait()
        finally:
            self.kill()
            self._reaper.forget(self._process.pid)
            await self._process.wait()  # also of one that is abandoned: nothing of it may outlive the event loop
            _, open_still = await asyncio.wait({self._reading}, timeout=_DRAINED_WITHIN_S)
            if open_still:  # by a process that left the group
                self._reading.cancel()
                await asyncio.wait({self._reading})
        self.log.close()
        return 128 - code if code < 0 else code

    async def _read(self, output: FileIO) -> None:
        reader, loop = asyncio.StreamReader(), asyncio.get_running_loop()
        pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), output)
        try:
            while chunk := await reader.read(2**16):
                self.log.add(chunk)
        finally:
            pipe.close()

    @property
    def env(self) -> dict[str, str]:
        """The variables of all its processes."""
        return self._env

    @property
    def cwd(self) -> Path:
        """Where its processes start."""
        return self._cwd

    def adopt(self, group: int) -> None:
        """Let the processes of an exec end with the container."""
        self._adopted.add(group)
        self._reaper.watch(group)

    def release(self, group: int) -> None:
        """An exec has ended."""
        self._adopted.discard(group)
        self._reaper.forget(group)

    def terminate(self) -> None:
        """To the first process alone."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    def kill(self) -> None:
        """To the whole group, and those of execs."""
        groups = self._adopted if self._process is None else {self._process.pid, *self._adopted}
        for group in groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)


class PretendedContainer:
    """Runs nothing: ends with 0 after `seconds` (None: never by itself), or with 143 or 137 when it is told to."""

    def __init__(self, seconds: float | None) -> None:
        self.log = ContainerLog()
        self._seconds = seconds
        self._told: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Nothing to start."""

    async def wait(self) -> int:
        """0, or what it was told."""
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.shield(self._told)
        except TimeoutError:
            return 0
        finally:
            self.log.close()

    def terminate(self) -> None:
        """Ends it at once."""
        if not self._told.done():
            self._told.set_result(143)

    def kill(self) -> None:
        """Ends it at once."""
        if not self._told.done():
            self._told.set_result(137)


class Reaper:
    """A process that kills the containers' process groups when this process dies in whatever way."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _REAPER], stdin=subprocess.PIPE, start_new_session=True, text=True
        )

    def watch(self, group: int) -> None:
        """Kill this group at the end."""
        self._say(f"+{group}")

    def forget(self, group: int) -> None:
        """It is gone."""
        self._say(f"-{group}")

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Kill what is left, now."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)


_REAPER = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
groups = set()
for word in sys.stdin:
    (groups.add if word[0] == "+" else groups.discard)(int(word[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


def expanded(text: str, env: dict[str, str]) -> str:
    """As Kubernetes does: `$(NAME)` for a variable that is known, `$$` for `$`; everything else as it is."""

    def value(found: re.Match[str]) -> str:
        if found.group() == "$$":
            return "$"
        return env.get(found.group(1), found.group())

    return _REFERENCE.sub(value, text)
