"""Local pods share a machine: what one of them opens is reached only through it, and ends with it."""

import asyncio
import stat
import sys
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from reservation_core.adapters.local.sessions.wire import DESCRIPTION, ENTRANCE, TERMINALS
from reservation_core.domain.model import PodPhase
from reservation_core.ports.sessions.pod_streams import PortClosedError, Program, Terminal
from tests.integration.cluster_behaviour import reaches
from tests.integration.sessions.pod_worlds import ClusterWorld, Reader, echoing, is_steady, running, sh
from tests.waiting import eventually

_BLOCK = 20_000
_BLOCKS = 500
_MOST_BLOCKS = 50
_MIB = 50  # in blocks


async def test_a_port_of_another_pod_or_of_the_machine_is_closed(world: ClusterWorld) -> None:
    first, second = await world.start(), await world.start()
    port, server = await echoing(world, first)
    ours = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with ours:
        for closed in (port, ours.sockets[0].getsockname()[1]):
            with pytest.raises(PortClosedError, match=str(closed)):
                await world.streams.connect(second, closed)
    await (await world.streams.connect(first, port)).close()
    await server.close()


async def test_sockets_of_a_pod_are_for_the_servers_user_alone(world: ClusterWorld, home: Path) -> None:
    pod = await world.start()
    async with running(world, pod, sh("echo ready; cat", terminal=Terminal())) as program:
        await Reader(program).has("ready")
        folder = home / "pods" / str(pod)
        (kept,) = (path for path in (folder / TERMINALS).iterdir() if not path.name.endswith(DESCRIPTION))
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder / ENTRANCE, folder / TERMINALS, kept)]
    assert modes == [0o600, 0o700, 0o600]


@pytest.mark.parametrize("terminal", [None, Terminal()], ids=["pipes", "terminal"])
async def test_programs_end_with_a_pod_that_has_no_command(world: ClusterWorld, terminal: Terminal | None) -> None:
    spec = world.make_spec()
    await world.cluster.create_pod(spec)
    await eventually(reaches(world.cluster, spec, PodPhase.RUNNING))
    file = world.file()
    script = 'trap \'\' HUP; setsid sleep 600 & echo $! >"$1"; echo $$ >>"$1"; echo ready; exec sleep 600'
    async with running(world, spec.name, sh(script, file, terminal=terminal)) as program:
        await Reader(program).has("ready")
        processes = [psutil.Process(int(number)) for number in Path(file).read_text().split()]
        await world.cluster.delete_pod(str(spec.name), timedelta(0))
        await eventually(lambda: not any(process.is_running() for process in processes))


async def test_a_slow_reader_of_a_terminal_makes_the_program_wait(world: ClusterWorld) -> None:
    count = Path(world.file())
    script = 'stty raw; n=0; while [ $n -lt "$3" ]; do head -c "$1" /dev/zero; n=$((n+1)); echo >>"$2"; done; echo end'
    async with running(
        world, await world.start(), sh(script, str(_BLOCK), str(count), str(_BLOCKS), terminal=Terminal())
    ) as program:

        async def blocks() -> int:
            await asyncio.sleep(0.05)
            return len(count.read_bytes()) if count.exists() else 0

        assert await is_steady(blocks) < _MOST_BLOCKS
        size = 0
        async for output in program.output():
            size += len(output.data)
    assert size == _BLOCKS * _BLOCK + len("end\n")


async def test_a_port_that_takes_nothing_makes_the_writer_wait(world: ClusterWorld) -> None:
    pod = await world.start()
    script = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    async with running(world, pod, Program((sys.executable, "-c", script))) as server:
        reader = Reader(server)
        await reader.has("\n")
        connection = await world.streams.connect(pod, int(reader.text))
        sent = 0

        async def feed() -> None:
            nonlocal sent
            for _ in range(_MIB * 200):
                await connection.write(bytes(_BLOCK))
                sent += 1

        async def taken() -> int:
            await asyncio.sleep(0.05)
            return sent

        feeding = asyncio.create_task(feed())
        assert await is_steady(taken) < _MIB * 50
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        connection._writer.transport.abort()  # type: ignore[attr-defined]
        await connection.close()
