"""The same on a real kubelet and containerd, where they are at hand: see `tests/kubernetes/real_kubelet.py`.

The image has busybox alone.
"""

from collections.abc import AsyncIterator, Iterator

import pytest

from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from reservation_core.adapters.kubernetes.sessions.pod_streams import KubernetesPodStreams
from tests.integration.cluster_behaviour import NODE, SpecMaker
from tests.integration.reservation_core.adapters.kubernetes.conftest import transport_to
from tests.integration.reservation_core.adapters.kubernetes.sessions import test_behaviour
from tests.integration.sessions.pod_worlds import ClusterWorld
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.real_kubelet import missing_for_kubelet, started_kubelet

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
    pass
