"""A watched cluster behind a proxy, what was asked of its API server, and pods whose labels are taken off."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from reservation_core.domain.model import PodPhase, PodSpec, PodStatus
from tests.integration.cluster_behaviour import SpecMaker, phases, reaches, watching
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fault_proxy import FaultProxy
from tests.waiting import eventually


async def strip(api_server: ApiServer, rules: ClusterRules, spec: PodSpec, *labels: str) -> None:
    """Take labels from a pod, as anybody may who can change pods."""
    path = f"/api/v1/namespaces/{rules.pods.namespace}/pods/{spec.name}"
    async with api_server.client() as client:
        body = {"metadata": {"labels": {f"gpu-dev/{label}": None for label in labels}}}
        await client.call("PATCH", path, body, content_type="application/merge-patch+json")


def lists(proxy: FaultProxy) -> int:
    """How often our pods were listed, by pages."""
    return len([seen for seen in proxy.requests if "/pods?" in seen.path and "watch=" not in seen.path])


def watches(proxy: FaultProxy) -> list[str]:
    """The watches that have ended, as they were asked for."""
    return [seen.path for seen in proxy.requests if "watch=true" in seen.path]


@asynccontextmanager
async def settled(
    watched: KubernetesCluster, cluster: KubernetesCluster, make_spec: SpecMaker
) -> AsyncIterator[tuple[list[PodStatus], PodSpec]]:
    """A watch that knows of one running pod and is waiting for more."""
    spec = make_spec("sleep", "600")
    await cluster.create_pod(spec)
    await eventually(reaches(cluster, spec, PodPhase.RUNNING))
    async with watching(watched) as seen:
        await eventually(lambda: phases(seen, spec) == [PodPhase.RUNNING])
        marker = make_spec("true")
        await cluster.create_pod(marker)  # its end is seen only by an open watch
        await eventually(lambda: PodPhase.FINISHED in phases(seen, marker))
        yield seen, spec
