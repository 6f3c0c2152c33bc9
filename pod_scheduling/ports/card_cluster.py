"""The cluster, as an extender sees it: nodes and their cards, who is on them, quotas; and how it writes a decision."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pod_scheduling.domain.extender.card_footprints import Footprint
from pod_scheduling.domain.extender.cards_in_use import CardNode, CardPod
from pod_scheduling.ports.pod_binding import NamespaceSeen, NodeGone, PodBindings, PodGone, PodRef

_LONGEST_VERSION = 20


@dataclass(frozen=True, slots=True)
class CardNodeSeen:
    """A node as it is now."""

    node: CardNode


@dataclass(frozen=True, slots=True)
class CardPodSeen:
    """A pod that has not ended, as it is now; `node` None: it is on none.

    `footprint`: the cards that it is known to have. `marked`: somebody has written there which. `version` is that of
    the object. `nominated`: where its scheduler has said that it goes, before it is there. `put_off`: its scheduler has
    written why it could not place it: a number, another one where it has written something else; None: nothing.
    """

    pod: CardPod
    node: str | None = None
    footprint: Footprint | None = None
    marked: bool = False
    version: str = ""
    nominated: str | None = None
    put_off: int | None = None

    def was_put_off_since(self, asked: "CardPodSeen") -> bool:
        """Whether its scheduler has written why it could not place it after it asked; `asked`: as it was then.

        Where versions are no numbers, whatever is another reason than then is a newer one.
        """
        if self.put_off is None or self.put_off == asked.put_off:
            return False
        versions = (self.version, asked.version)
        comparable = all(version.isdecimal() and len(version) <= _LONGEST_VERSION for version in versions)
        return not comparable or int(self.version) > int(asked.version)


@dataclass(frozen=True, slots=True)
class QuotasSeen:
    """What the object of quotas holds under the `key` that counts; `text` None: nothing."""

    uid: str
    key: str
    text: str | None


@dataclass(frozen=True, slots=True)
class QuotasGone:
    """There is no object of quotas."""


CardSight = CardNodeSeen | NodeGone | CardPodSeen | PodGone | NamespaceSeen | QuotasSeen | QuotasGone


class CardCluster(PodBindings, Protocol):
    """The cluster for an extender. Every method that waits raises ClusterUnavailableError."""

    async def follow(self, handle: Callable[[CardSight], None], listed: Callable[[], None]) -> None:
        """Call `handle` for everything once, then `listed`, then `handle` for every change. Goes on through whatever
        may pass, until cancelled."""
        ...

    @property
    def problem(self) -> str | None:
        """The reason why the cluster cannot be followed now; None while it is followed."""
        ...

    def read_anew(self) -> None:
        """Have `follow` begin with everything again, as it is after this call, and with `listed` when that was all."""
        ...

    def pod_of(self, thing: Mapping[str, Any]) -> CardPod:
        """Read a pod as a scheduler sends it. Never raises."""
        ...

    def asked_of(self, thing: Mapping[str, Any]) -> CardPodSeen:
        """Read a pod that is on no node, with its version and why its scheduler failed to place it before."""
        ...

    async def mark(self, pod: PodRef, version: str | None, marks: Mapping[str, str]) -> None:
        """Write annotations on a pod of that version; None: of any. Raises PodChangedError when it is another one now,
        or gone."""
        ...

    async def read_pod(self, pod: PodRef) -> CardPodSeen | PodGone:
        """Read a pod from the API server."""
        ...

    def add_pod_event(self, pod: PodRef, reason: str, message: str) -> None:
        """Queue a warning Event about a pod."""
        ...

    def add_quota_event(self, uid: str, reason: str, message: str, *, warning: bool) -> None:
        """Queue an Event about the ConfigMap of quotas."""
        ...
