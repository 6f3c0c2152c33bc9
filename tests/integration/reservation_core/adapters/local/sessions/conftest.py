"""The ways into the pods of a local cluster."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reservation_core.adapters.local.cluster import LocalCluster
from reservation_core.adapters.local.sessions.pod_streams import LocalPodStreams
from tests.integration.cluster_behaviour import SpecMaker

pytest.register_assert_rewrite(
    "tests.integration.sessions.pod_worlds", "tests.integration.sessions.pod_streams_contract"
)

from tests.integration.sessions.pod_worlds import ClusterWorld  # noqa: E402


@pytest.fixture
async def world(home: Path, cluster: LocalCluster, make_spec: SpecMaker, tmp_path: Path) -> AsyncIterator[ClusterWorld]:
    streams = LocalPodStreams(home)
    yield ClusterWorld(streams, str(tmp_path), cluster, make_spec)
    await streams.close()
