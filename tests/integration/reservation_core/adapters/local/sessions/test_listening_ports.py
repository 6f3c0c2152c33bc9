"""Ports of pods on one machine: each pod's own are reached, and no others, also by what is remembered."""

import sys
from collections.abc import Callable

import pytest

from reservation_core.adapters.local.sessions import listening_ports
from reservation_core.domain.model import PodName
from reservation_core.ports.sessions.pod_streams import PortClosedError, Program
from tests.integration.sessions.pod_worlds import ClusterWorld, Reader, echoing, running
from tests.programs.ports import own_port
from tests.waiting import eventually

# Shares its port with others, and says who it is.
_SHARING = """
import socket, sys
server = socket.socket(socket.AF_INET6 if ":" in sys.argv[2] else socket.AF_INET)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
server.bind((sys.argv[2], int(sys.argv[1])))
server.listen()
print("listens", flush=True)
while True:
    server.accept()[0].sendall(b"it")
"""


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A scan of /proc adds its root."""
    roots: list[int] = []
    find: Callable[[int], list[int]] = listening_ports.descendants
    monkeypatch.setattr(listening_ports, "descendants", lambda root: [roots.append(root), *find(root)][1:])
    return roots


async def _is_reached(world: ClusterWorld, pod: PodName, port: int) -> bool:
    try:
        connection = await world.streams.connect(pod, port)
    except PortClosedError:
        return False
    await connection.close()
    return True


async def test_a_port_is_the_pods_whose_process_listens_now(world: ClusterWorld) -> None:
    first, second = await world.start(), await world.start()
    port, server = await echoing(world, first)
    assert not await _is_reached(world, second, port)
    await server.close()
    await eventually(lambda: not listening_ports._listeners(port))
    async with running(world, second, Program(world.echo_server(port))):
        await eventually(lambda: listening_ports._listeners(port))
        assert not await _is_reached(world, first, port)
        assert await _is_reached(world, second, port)


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1"])
async def test_a_port_that_pods_share_is_reached_in_neither(world: ClusterWorld, address: str) -> None:
    first, second = await world.start(), await world.start()
    port = own_port()
    sharing = (sys.executable, "-c", _SHARING, str(port))
    async with running(world, first, Program((*sharing, "0.0.0.0"))) as one:
        await Reader(one).has("listens")
        assert await _is_reached(world, first, port)
        async with running(world, second, Program((*sharing, address))) as other:
            await Reader(other).has("listens")
            assert not await _is_reached(world, first, port)
            assert not await _is_reached(world, second, port)


async def test_whose_a_port_is_is_looked_up_once_while_it_listens(world: ClusterWorld, scans: list[int]) -> None:
    pod = await world.start()
    port, server = await echoing(world, pod)
    scans.clear()
    for _ in range(20):
        assert await _is_reached(world, pod, port)
    assert scans == []
    await server.close()
    await eventually(lambda: not listening_ports._listeners(port))
    assert not await _is_reached(world, pod, port)
    async with running(world, pod, Program(world.echo_server(port))):
        await eventually(lambda: listening_ports._listeners(port))
        assert await _is_reached(world, pod, port)
        assert len(scans) == 1


async def test_pods_are_forgotten_before_there_are_too_many(
    world: ClusterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening_ports, "_MOST_KNOWN", 2)
    pod = await world.start()
    port, server = await echoing(world, pod)
    ports = listening_ports.PortOwners()
    for root in range(2**22 + 1, 2**22 + 10):
        assert ports.addresses(root, port) == []
    assert len(ports._known) <= 2
    await server.close()


async def test_only_ports_of_the_pods_own_processes_are_known(world: ClusterWorld) -> None:
    pod, other = await world.start(), await world.start()
    port, server = await echoing(world, pod)
    known = await world.streams.listening_ports(pod)
    assert known is not None
    assert [found.port for found in known] == [port]
    assert known[0].program.startswith("python")
    assert await world.streams.listening_ports(other) == []
    await server.close()

    async def closed() -> bool:
        return await world.streams.listening_ports(pod) == []

    await eventually(closed)


async def test_a_pod_that_never_was_listens_at_none(world: ClusterWorld) -> None:
    assert await world.streams.listening_ports(PodName("job-neverwas", 1, 0)) == []
