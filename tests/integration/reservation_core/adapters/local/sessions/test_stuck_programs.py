"""Programs that take no input, or have closed their terminal: they end with their user, and cost nothing meanwhile."""

import asyncio
import hashlib
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from reservation_core.domain.model import PodName
from reservation_core.ports.sessions.pod_streams import RunningProgram, Terminal, TerminalSize
from tests.integration.sessions.pod_worlds import ClusterWorld, Reader, running, sh
from tests.waiting import eventually

_LINES = b"x" * 63 + b"\n"
_STUCK_S = 0.5


@pytest.fixture
async def pod(world: ClusterWorld) -> PodName:
    return await world.start()


async def _stuck(world: ClusterWorld, pod: PodName) -> tuple[RunningProgram, psutil.Process]:
    """A program in a terminal that takes no more input, and its process."""
    file = world.file()
    program = await world.streams.run(pod, sh('echo $$ >"$1"; echo ready; exec sleep 600', file, terminal=Terminal()))
    await Reader(program).has("ready")
    process = psutil.Process(int(Path(file).read_text()))
    with suppress(TimeoutError):
        while True:
            async with asyncio.timeout(_STUCK_S):
                await program.write(_LINES * 1024)
    return program, process


def _is_over(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # since it was asked whether it runs
        return True


async def _rests(process: psutil.Process) -> None:
    """Wait until a process wakes up less than 20 times in a second."""

    async def rests() -> bool:
        before = process.num_ctx_switches().voluntary
        await asyncio.sleep(1)
        return bool(process.num_ctx_switches().voluntary - before < 20)

    await eventually(rests)


async def test_a_terminal_whose_program_takes_no_input_ends_with_its_user(world: ClusterWorld, pod: PodName) -> None:
    program, process = await _stuck(world, pod)
    await program.close()
    await eventually(lambda: _is_over(process))


async def test_a_terminal_goes_on_for_others_while_its_program_takes_no_input(
    world: ClusterWorld, pod: PodName
) -> None:
    first, process = await _stuck(world, pod)
    second = await world.streams.attach(pod, TerminalSize())
    await first.close()
    reader = Reader(second)
    await reader.has("ready")
    await second.resize(TerminalSize(100, 30))
    assert not _is_over(process)
    await second.close()
    await eventually(lambda: _is_over(process))


async def test_one_who_broke_off_while_the_program_took_no_input_does_not_keep_it(
    world: ClusterWorld, pod: PodName
) -> None:
    first, process = await _stuck(world, pod)
    second = await world.streams.attach(pod, TerminalSize())
    await Reader(second).has("ready")
    first._minder._writer.transport.abort()  # type: ignore[attr-defined]
    keeper = psutil.Process(process.ppid())
    await _rests(keeper)
    assert not _is_over(process)
    await second.close()
    await eventually(lambda: _is_over(process))


async def test_input_that_waits_is_typed_after_its_user_broke_off(world: ClusterWorld, pod: PodName) -> None:
    file, go = world.file(), world.file()
    script = (
        'stty raw -echo; echo ready; while [ ! -e "$2" ]; do sleep 0.02; done; '
        'head -c 200000 | sha256sum >"$1.new"; mv "$1.new" "$1"'
    )
    program = await world.streams.run(pod, sh(script, file, go, terminal=Terminal()))
    await Reader(program).has("ready")
    content = b"".join(b"%07d\n" % number for number in range(25_000))
    await program.write(content)
    await program.close(keep=True)
    Path(go).touch()
    await eventually(Path(file).exists)
    assert Path(file).read_text().split()[0] == hashlib.sha256(content).hexdigest()


async def test_a_closed_terminal_costs_nothing_and_may_be_opened_again(world: ClusterWorld, pod: PodName) -> None:
    go = world.file()
    script = (
        'echo ready; exec </dev/null >/dev/null 2>&1; while [ ! -e "$1" ]; do sleep 0.05; done; '
        "echo back >/dev/tty; exit 3"
    )
    async with running(world, pod, sh(f'echo $$ >"$1.pid"; {script}', go, terminal=Terminal())) as program:
        reader = Reader(program)
        await reader.has("ready")
        keeper = psutil.Process(int(Path(f"{go}.pid").read_text())).parent()
        assert keeper is not None
        await _rests(keeper)
        Path(go).touch()
        await reader.has("back")
        assert (await reader.end()).exit_code == 3
