"""The ways into the pods of a Kubernetes cluster, which run on this machine."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from reservation_core.adapters.kubernetes.sessions.pod_streams import KubernetesPodStreams
from tests.integration.cluster_behaviour import SpecMaker
from tests.integration.reservation_core.adapters.kubernetes.conftest import transport_to
from tests.kubernetes.api_server import ApiServer

pytest.register_assert_rewrite(
    "tests.integration.sessions.pod_worlds", "tests.integration.sessions.pod_streams_contract"
)

from tests.integration.sessions.pod_worlds import ClusterWorld  # noqa: E402


@pytest.fixture
async def world(
    api_server: ApiServer, cluster: KubernetesCluster, rules: ClusterRules, make_spec: SpecMaker, tmp_path: Path
) -> AsyncIterator[ClusterWorld]:
    streams = KubernetesPodStreams(transport_to(api_server.kubeconfig), rules.pods.namespace)
    yield ClusterWorld(streams, str(tmp_path), cluster, make_spec)
    await streams.close()
