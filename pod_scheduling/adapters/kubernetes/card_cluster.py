"""The extender's way to an API server: nodes, pods and quotas as they change; bindings with their annotations."""

from collections.abc import Callable, Mapping
from typing import Any

from pod_scheduling.adapters.kubernetes.brought_marks import BroughtMarks
from pod_scheduling.adapters.kubernetes.card_sights import (
    CardSightRules,
    card_pod,
    node_sight,
    pod_sight,
    put_off_of,
    quota_sight,
)
from pod_scheduling.adapters.kubernetes.namespace_sights import namespace_sight
from pod_scheduling.adapters.kubernetes.pod_bindings import NOT_ENDED, KubernetesPodBindings, path_of
from pod_scheduling.adapters.kubernetes.waiting_pods import WaitingPods
from pod_scheduling.domain.extender.cards_in_use import CardPod
from pod_scheduling.ports.card_cluster import CardPodSeen, CardSight, QuotasGone
from pod_scheduling.ports.pod_binding import PodChangedError, PodGone, PodRef
from reservation_core.adapters.kubernetes.api_server.errors import (
    ApiServerError,
    ObjectNotFoundError,
    is_another_object,
)
from reservation_core.adapters.kubernetes.api_server.following_many import FollowedKind, ManyFollowing
from reservation_core.adapters.kubernetes.api_server.object_watch import ObjectWatch, ObservedObject
from reservation_core.adapters.kubernetes.api_server.plain_json import as_mapping
from reservation_core.adapters.kubernetes.api_server.retries import MERGE_PATCH, ONLY_METADATA, Transport
from reservation_core.adapters.kubernetes.other_objects.event_writer import EventWriter, Regarding
from reservation_core.ports.cluster import ClusterUnavailableError

_Read = Callable[[ObservedObject, CardSightRules], CardSight]


class KubernetesCardCluster(KubernetesPodBindings):
    """See pod_scheduling.ports.card_cluster.CardCluster. Nodes and pods of all namespaces; `events` is run by whoever
    made it.

    Namespaces are looked at where an `enforced_label` (`key=value`) is given: what pods there say of bookings counts.
    """

    def __init__(
        self,
        transport: Transport,
        rules: CardSightRules,
        events: EventWriter,
        quota_namespace: str,
        enforced_label: str | None = None,
    ) -> None:
        super().__init__(transport)
        self._rules = rules
        self._events = events
        self._quota_namespace = quota_namespace
        self._enforced_label = enforced_label
        self._following = ManyFollowing[CardSight]()
        self._kinds: list[FollowedKind[CardSight]] = []
        nothing: Mapping[str, Any] = {}
        self._last_asked = nothing, card_pod(nothing, rules)
        self._waiting = WaitingPods()
        self._brought = BroughtMarks()

    async def follow(self, handle: Callable[[CardSight], None], listed: Callable[[], None]) -> None:
        """Report every object once, then the end of the list, then every change, until cancelled.

        Called again after a failure, it also reports what has gone meanwhile.
        """
        if not self._kinds:
            self._kinds = self._all_kinds()
        await self._following.follow(self._kinds, handle, listed)

    def _all_kinds(self) -> list[FollowedKind[CardSight]]:
        quotas = f"/api/v1/namespaces/{self._quota_namespace}/configmaps"
        by_name = {"fieldSelector": f"metadata.name={self._rules.quota_name}"}
        kinds = [
            self._followed(ObjectWatch(self._transport, quotas, by_name), quota_sight, QuotasGone()),
            self._followed(ObjectWatch(self._transport, "/api/v1/nodes"), node_sight),
            self._followed(ObjectWatch(self._transport, "/api/v1/pods", NOT_ENDED), self._pod_sight),
        ]
        if self._enforced_label is not None:
            enforced = {"labelSelector": self._enforced_label}
            kinds.append(FollowedKind(ObjectWatch(self._transport, "/api/v1/namespaces", enforced), namespace_sight))
        return kinds

    @property
    def problem(self) -> str | None:
        """The reason why the cluster cannot be followed now; None while it is followed."""
        return next((kind.watch.problem for kind in self._kinds if kind.watch.problem is not None), None)

    def read_anew(self) -> None:
        """Have `follow` begin with new lists, asked for after this call."""
        self._following.read_anew()

    def _followed(
        self, watch: ObjectWatch, read: _Read, when_empty: CardSight | None = None
    ) -> FollowedKind[CardSight]:
        return FollowedKind(watch, lambda seen: read(seen, self._rules), when_empty)

    def pod_of(self, thing: Mapping[str, Any]) -> CardPod:
        """Read a pod as a scheduler sends it; the object of the last question and watched pods are not read again."""
        if thing is not self._last_asked[0]:
            self._last_asked = thing, self._waiting.known(thing) or card_pod(thing, self._rules)
        return self._last_asked[1]

    def asked_of(self, thing: Mapping[str, Any]) -> CardPodSeen:
        """Read a pod that is on no node, with its version and why its scheduler failed to place it before."""
        version = as_mapping(thing.get("metadata")).get("resourceVersion")
        return CardPodSeen(self.pod_of(thing), version=str(version or ""), put_off=put_off_of(thing))

    def _pod_sight(self, seen: ObservedObject, rules: CardSightRules) -> CardSight:
        sight = pod_sight(seen, rules, self._brought.of(seen.uid))
        self._waiting.see(seen.uid, sight)
        self._brought.see(seen.uid, sight, seen.thing)
        return sight

    async def mark(self, pod: PodRef, version: str | None, marks: Mapping[str, str]) -> None:
        """Write annotations on a pod that has not changed since. Raises PodChangedError and ClusterUnavailableError."""
        unchanged = {} if version is None else {"resourceVersion": version}
        body = {"metadata": {"uid": pod.uid, **unchanged, "annotations": dict(marks)}}
        try:
            await self._transport.request(
                "PATCH", path_of(pod), body=body, content_type=MERGE_PATCH, accept=ONLY_METADATA
            )
        except ObjectNotFoundError as problem:
            raise PodChangedError(f"{pod} is gone") from problem
        except ApiServerError as problem:
            if is_another_object(problem):
                raise PodChangedError(f"{pod} has changed: {problem.message}") from problem
            raise ClusterUnavailableError(f"The annotations of {pod} could not be written: {problem}") from problem

    async def read_pod(self, pod: PodRef) -> CardPodSeen | PodGone:
        """Read a pod from the API server. Raises ClusterUnavailableError."""
        found = await self.find(pod)
        if found is None:
            return PodGone(pod.uid)
        seen = pod_sight(
            ObservedObject(pod.namespace, pod.name, pod.uid, found), self._rules, self._brought.of(pod.uid)
        )
        return seen if isinstance(seen, CardPodSeen) else PodGone(pod.uid)

    def add_pod_event(self, pod: PodRef, reason: str, message: str) -> None:
        """Queue a warning Event about a pod."""
        self._events.add(Regarding(pod.namespace, pod.name, pod.uid), reason, message, action="Binding", warning=True)

    def add_quota_event(self, uid: str, reason: str, message: str, *, warning: bool) -> None:
        """Queue an Event about the ConfigMap of quotas."""
        about = Regarding(self._quota_namespace, self._rules.quota_name, uid, kind="ConfigMap")
        self._events.add(about, reason, message, action="Reading", warning=warning)
