"""Ports at which processes of local pods listen."""

from reservation_core.domain.model import PodName
from tests.integration.sessions.pod_worlds import ClusterWorld, echoing
from tests.waiting import eventually


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
