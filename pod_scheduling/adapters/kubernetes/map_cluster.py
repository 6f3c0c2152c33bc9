"""The map scheduler's view of an API server: changes of nodes and pods, bindings, and reasons to wait."""

from collections.abc import Callable

from pod_scheduling.adapters.kubernetes.map_sights import SightRules, node_sight, pod_sight
from pod_scheduling.adapters.kubernetes.namespace_sights import namespace_sight
from pod_scheduling.adapters.kubernetes.pod_bindings import NOT_ENDED, KubernetesPodBindings, path_of
from pod_scheduling.ports.map_cluster import Sight
from pod_scheduling.ports.pod_binding import PodChangedError, PodRef
from reservation_core.adapters.kubernetes.api_server.errors import (
    ApiServerError,
    ConflictError,
    ObjectNotFoundError,
    is_another_object,
)
from reservation_core.adapters.kubernetes.api_server.following_many import FollowedKind, ManyFollowing
from reservation_core.adapters.kubernetes.api_server.object_watch import ObjectWatch, ObservedObject
from reservation_core.adapters.kubernetes.api_server.retries import ONLY_METADATA, Transport
from reservation_core.adapters.kubernetes.other_objects.event_writer import EventWriter, Regarding
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import ClusterUnavailableError

STRATEGIC_PATCH = "application/strategic-merge-patch+json"
UNSCHEDULABLE = "Unschedulable"
"""The reason that Kubernetes' own tools look for in the condition PodScheduled."""

Read = Callable[[ObservedObject, SightRules], Sight]


class KubernetesMapCluster(KubernetesPodBindings):
    """Nodes and pods of all namespaces of one API server. `events` is run by whoever made it."""

    def __init__(self, transport: Transport, rules: SightRules, events: EventWriter, clock: Clock) -> None:
        super().__init__(transport)
        self._rules = rules
        self._events = events
        self._clock = clock
        self._following = ManyFollowing[Sight]()
        self._kinds: list[FollowedKind[Sight]] = []

    async def follow(self, handle: Callable[[Sight], None], listed: Callable[[], None]) -> None:
        """Report every node and pod once, then the end of the lists, then every change, until cancelled.

        Called again after a failure, it also reports what has gone meanwhile.
        """
        if not self._kinds:
            self._kinds = self._all_kinds()
        await self._following.follow(self._kinds, handle, listed)

    def _all_kinds(self) -> list[FollowedKind[Sight]]:
        enforced = {"labelSelector": self._rules.enforced_label}
        return [
            FollowedKind(ObjectWatch(self._transport, "/api/v1/namespaces", enforced), namespace_sight),
            self._followed(ObjectWatch(self._transport, "/api/v1/nodes"), node_sight),
            self._followed(ObjectWatch(self._transport, "/api/v1/pods", NOT_ENDED), pod_sight),
        ]

    def read_anew(self) -> None:
        """Have `follow` begin with new lists, asked for after this call."""
        self._following.read_anew()

    def _followed(self, watch: ObjectWatch, read: Read) -> FollowedKind[Sight]:
        return FollowedKind(watch, lambda seen: read(seen, self._rules))

    async def report_waiting(self, pod: PodRef, reason: str, message: str) -> None:
        """Write the condition PodScheduled=False on the pod as it was seen; one that is gone or another is left alone.

        Raises PodChangedError for one that has changed, and ClusterUnavailableError.
        """
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": UNSCHEDULABLE,
            "message": f"{reason}: {message}",
            "lastTransitionTime": self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        named = {"uid": pod.uid} | ({"resourceVersion": pod.version} if pod.version else {})
        body = {"metadata": named, "status": {"conditions": [condition]}}
        path = f"{path_of(pod)}/status"
        try:
            await self._transport.request("PATCH", path, body=body, content_type=STRATEGIC_PATCH, accept=ONLY_METADATA)
        except ObjectNotFoundError:
            return
        except ConflictError as problem:
            raise PodChangedError(f"{pod} has changed: {problem.message}") from problem
        except ApiServerError as problem:
            if is_another_object(problem):
                return
            raise ClusterUnavailableError(f"The status of pod {pod} could not be written: {problem}") from problem

    def add_event(self, pod: PodRef, reason: str, message: str, *, warning: bool) -> None:
        """Queue an Event."""
        regarding = Regarding(pod.namespace, pod.name, pod.uid)
        self._events.add(regarding, reason, message, action="Binding", warning=warning)
