"""The same on a real kubelet and containerd, where they are at hand: see `tests/kubernetes/real/kubelet.py`.

The image has busybox alone.
"""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import pytest

from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from reservation_core.adapters.kubernetes.pods.built_pods import build_pod
from reservation_core.adapters.kubernetes.sessions.pod_streams import KubernetesPodStreams
from reservation_core.domain.model import PodPhase
from reservation_core.ports.sessions.pod_streams import ProgramEnd, SignalRefusedError, TerminalSize
from tests.integration.cluster_behaviour import NODE, SpecMaker, reaches
from tests.integration.reservation_core.adapters.kubernetes.conftest import transport_to
from tests.integration.reservation_core.adapters.kubernetes.sessions import test_behaviour
from tests.integration.sessions.pod_worlds import ClusterWorld, Reader
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.real.kubelet import missing_for_kubelet, started_kubelet
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(bool(missing_for_kubelet()), reason=missing_for_kubelet() or "all is there")


class BusyboxWorld(ClusterWorld):
    def echo_server(self, port: int) -> tuple[str, ...]:
        return ("nc", "-ll", "-p", str(port), "-e", "cat")


@pytest.fixture(scope="module")
def kubelet(api_server: ApiServer) -> Iterator[None]:
    with started_kubelet(api_server, NODE):
        yield


@pytest.fixture
async def world(
    api_server: ApiServer, cluster: KubernetesCluster, rules: ClusterRules, make_spec: SpecMaker
) -> AsyncIterator[BusyboxWorld]:
    streams = KubernetesPodStreams(transport_to(api_server.kubeconfig), rules.pods.namespace)
    yield BusyboxWorld(streams, "/tmp", cluster, make_spec)
    await streams.close()


class TestOnARealKubelet(test_behaviour.TestKubernetesPodStreams):
    async def test_the_terminal_of_a_jobs_command_is_joined(
        self, world: BusyboxWorld, api_server: ApiServer, rules: ClusterRules, make_spec: SpecMaker
    ) -> None:
        """Where admission gives the container a terminal."""
        spec = make_spec("sh")
        thing = build_pod(spec, rules.pods, datetime.now(UTC))
        thing["spec"]["containers"][0] |= {"stdin": True, "tty": True}
        async with api_server.client() as client:
            await client.call("POST", f"/api/v1/namespaces/{rules.pods.namespace}/pods", thing)
        await eventually(reaches(world.cluster, spec, PodPhase.RUNNING))

        first = await world.streams.attach(spec.name, TerminalSize(100, 40))
        shown = Reader(first)
        await first.write(b"until [ \"$(stty size)\" = '40 100' ]; do :; done; kept=41; echo as''ked\n")
        await shown.has("asked")
        await first.resize(TerminalSize(90, 30))
        await first.write(b"until [ \"$(stty size)\" = '30 90' ]; do :; done; echo res''ized\n")
        await shown.has("resized")
        with pytest.raises(SignalRefusedError):
            await first.send_signal("INT")
        await first.close()

        second = await world.streams.attach(spec.name, TerminalSize())
        shown = Reader(second)
        await second.write(b"echo still $((kept + 1)); sleep 600\n")
        await shown.has("still 42")
        await second.write(b"\x03")
        await second.write(b"exit 3\n")
        assert await shown.end() == ProgramEnd(None, "The job's command has ended. `gpu-dev show` says how.")
        await second.close()
