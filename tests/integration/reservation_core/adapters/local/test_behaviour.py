"""The local cluster keeps every promise that a cluster makes."""

from tests.integration.cluster_behaviour import ClusterBehaviour


class TestLocalCluster(ClusterBehaviour):
    pass
