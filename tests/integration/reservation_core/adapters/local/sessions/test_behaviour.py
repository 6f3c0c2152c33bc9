"""The ways into local pods keep the promises of the port."""

from tests.integration.sessions.pod_streams_contract import PodStreamsContract


class TestLocalPodStreams(PodStreamsContract):
    pass
