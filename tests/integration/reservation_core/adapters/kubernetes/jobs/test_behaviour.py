"""A Kubernetes cluster keeps the promises that a cluster makes, on a real API server or the emulator.

Three of them it can only keep in its own way; each says here why, and what holds instead.
"""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from reservation_core.domain.model import PodPhase
from reservation_core.ports.cluster import Cluster
from tests.integration.cluster_behaviour import AT_ONCE, GRACE, ClusterBehaviour, SpecMaker, finished, log_of, reaches
from tests.kubernetes.api_server import ApiServer
from tests.waiting import PATIENCE_S, eventually


class TestKubernetesCluster(ClusterBehaviour):
    async def test_creating_after_the_removal_does_nothing(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        """The API remembers nothing of a removed object: the ledger alone keeps a pod from running twice."""
        spec = make_spec("echo", "once")
        await cluster.create_pod(spec)
        await finished(cluster, spec)
        await cluster.delete_pod(str(spec.name), GRACE)
        await eventually(reaches(cluster, spec, PodPhase.GONE))
        await cluster.create_pod(spec)
        assert (await finished(cluster, spec)).exit_code == 0

    async def test_a_running_pod_is_deleted_with_sigterm(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        """The log goes with the pod (`forgets_logs`), so what it says last has to be followed."""
        spec = make_spec("sh", "-c", "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
        await cluster.create_pod(spec)
        heard: list[bytes] = []

        async def follow() -> None:
            await eventually(reaches(cluster, spec, PodPhase.RUNNING))
            async for chunk in cluster.pod_logs(str(spec.name), follow=True):
                heard.append(chunk)  # noqa: PERF401 -- each is to be seen as it comes

        following = asyncio.create_task(follow())
        await eventually(lambda: heard)
        await cluster.delete_pod(str(spec.name), timedelta(seconds=60))
        await eventually(reaches(cluster, spec, PodPhase.GONE))
        await following
        assert b"".join(heard).split() == [b"ready", b"bye"]
        assert cluster.forgets_logs
        assert await log_of(cluster, spec) == ""

    async def test_a_moved_deadline_is_the_one_that_counts(
        self, cluster: Cluster, transport: Transport, rules: ClusterRules, api_server: ApiServer, make_spec: SpecMaker
    ) -> None:
        """Kubernetes never lengthens a pod's time: pods get room beyond their deadline, which is only written down."""
        roomy = replace(rules, pods=replace(rules.pods, extension_room=timedelta(hours=1)))
        first = datetime.now(UTC) + timedelta(seconds=PATIENCE_S)  # the pod is made before that
        spec = make_spec("sleep", "600", deadline=first, grace=AT_ONCE)
        await KubernetesCluster(transport, roomy, SystemClock()).create_pod(spec)
        await eventually(reaches(cluster, spec, PodPhase.RUNNING))
        for moved in (first + timedelta(seconds=1), first - timedelta(seconds=1)):
            await cluster.extend_deadline(str(spec.name), moved)
            async with api_server.client() as client:
                pod = await client.call("GET", f"/api/v1/namespaces/{rules.pods.namespace}/pods/{spec.name}")
            written = datetime.fromisoformat(pod["metadata"]["annotations"]["gpu-dev/deadline"])
            assert written == moved
            assert 3600 <= pod["spec"]["activeDeadlineSeconds"] <= 3601 + PATIENCE_S

    async def test_an_extension_beyond_the_room_is_told(
        self, cluster: Cluster, make_spec: SpecMaker, capsys: pytest.CaptureFixture[str]
    ) -> None:
        spec = make_spec("sleep", "600", deadline=datetime.now(UTC) + timedelta(minutes=1))
        await cluster.create_pod(spec)
        await eventually(reaches(cluster, spec, PodPhase.RUNNING))
        await cluster.extend_deadline(str(spec.name), datetime.now(UTC) + timedelta(hours=2))
        assert "GPU_DEV_KUBERNETES__EXTENSION_ROOM_S" in capsys.readouterr().out
