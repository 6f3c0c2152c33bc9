"""A cluster that watches behind a proxy which does harm."""

from collections.abc import AsyncIterator

import pytest

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from tests.integration.reservation_core.adapters.kubernetes.conftest import transport_to
from tests.kubernetes.fault_proxy import FaultProxy
from tests.kubernetes.node.kubelet import Kubelet


@pytest.fixture
async def watched(
    fault_proxy: FaultProxy, rules: ClusterRules, kubelet: Kubelet, runtime_class: None
) -> AsyncIterator[KubernetesCluster]:
    """A cluster behind the fault proxy, that watches."""
    cluster = KubernetesCluster(transport_to(fault_proxy.kubeconfig(), timeout_s=1), rules, SystemClock())
    yield cluster
    await cluster.close()
