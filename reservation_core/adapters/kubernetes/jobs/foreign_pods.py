"""Pods that use GPUs of our nodes without having asked us."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping
from reservation_core.adapters.kubernetes.nodes.gpu_claims import MOST_DEVICES, Claim, ClaimKey, DeviceKey
from reservation_core.adapters.kubernetes.nodes.node_gpus import DeviceCard
from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuAttach
from reservation_core.adapters.kubernetes.pods.mapped_cards import MappedCards, mapped_cards
from reservation_core.adapters.kubernetes.pods.marks import MANAGED, pod_name_of
from reservation_core.adapters.kubernetes.pods.pod_statuses import is_finished
from reservation_core.adapters.kubernetes.pods.quantities import read_quantity
from reservation_core.domain.model import ForeignPod


@dataclass(frozen=True, slots=True)
class ForeignRules:
    """Which pods are ours (those of `namespace` that carry our marks) and by what the others are known.

    By the resources that they ask for, and by the device classes and drivers of what they claim (`device_classes`).
    """

    namespace: str
    attach: GpuAttach = GpuAttach.ENV
    resource_names: Sequence[str] = ("nvidia.com/gpu", "amd.com/gpu")
    device_classes: Sequence[str] = ("gpu.nvidia.com", "mig.nvidia.com", "gpu.amd.com")


@dataclass(frozen=True, slots=True)
class Claimant:
    """A pod of others on a node of ours: how many GPUs its node keeps for it, and its claims, None for one unknown.

    `mapped`: the cards that its scheduling map gave it, which its node knows nothing of.
    """

    node: str
    description: str
    gpus: int
    claims: tuple[ClaimKey | None, ...]
    mapped: MappedCards | None = None


def read_claimant(pod: Mapping[str, Any], rules: ForeignRules, nodes: Collection[str]) -> Claimant | None:
    """A pod of others on `nodes` (the names of ours) that asks for GPUs or has claims, and may have processes.

    Our marks on a pod of another namespace make it none of ours; on one of our namespace that has another name, they
    make it one that has our variables, and may use any card.
    """
    metadata = as_mapping(pod.get("metadata"))
    namespace, name = str(metadata.get("namespace")), str(metadata.get("name"))
    node = as_mapping(pod.get("spec")).get("nodeName")
    if not isinstance(node, str) or node not in nodes or is_finished(pod):
        return None
    gpus = gpus_asked_for(pod, rules.resource_names)
    if namespace == rules.namespace:
        if pod_name_of(pod) is not None:
            return None
        if as_mapping(metadata.get("labels")).get(MANAGED) == "true" and rules.attach is not GpuAttach.DEVICE_PLUGIN:
            gpus = max(gpus, 1)
    claims = _claims(pod, namespace)
    mapped = mapped_cards(pod)
    return Claimant(node, f"{namespace}/{name}", gpus, claims, mapped) if gpus or claims or mapped else None


def read_foreign(
    claimants: Iterable[Claimant],
    claims: Mapping[ClaimKey, Claim],
    cards: Mapping[DeviceKey, DeviceCard],
    rules: ForeignRules,
) -> list[ForeignPod]:
    """Pods that use GPUs of our nodes; which ones is known of claimed devices that are in `cards`, and of scheduling
    maps.

    A claim that is not in `claims` counts as one GPU. One that several pods share counts once on each node.
    """
    counted = rules.attach is GpuAttach.DEVICE_PLUGIN
    shared: set[tuple[str, ClaimKey]] = set()
    foreign = []
    for who in claimants:
        known, unknown = _by_map(who, counted=counted)
        for key in who.claims:
            claim = None if key is None else claims.get(key)
            if claim is None:
                unknown += 1
                continue
            if (who.node, claim.key) in shared:
                continue
            shared.add((who.node, claim.key))
            unknown += claim.asked_for
            for device in claim.devices:
                card = cards.get(device)
                # With a device plugin our indices are only numbers: no card of ours is known to be this one.
                if counted or card is None or card.node != who.node:
                    unknown += 1
                else:
                    known.add(card.index)
        if known:
            foreign.append(ForeignPod(who.node, who.description, len(known), tuple(sorted(known))))
        if unknown:
            count = min(unknown, MOST_DEVICES)
            foreign.append(ForeignPod(who.node, who.description, count, None, counted=counted))
    return foreign


def _by_map(who: Claimant, *, counted: bool) -> tuple[set[int], int]:
    """The cards that it is known to be on by its map, and how many others it has."""
    if who.mapped is None:
        return set(), who.gpus
    if who.mapped.indices is None or counted:
        return set(), who.gpus + who.mapped.count
    return set(who.mapped.indices), who.gpus


def _claims(pod: Mapping[str, Any], namespace: str) -> tuple[ClaimKey | None, ...]:
    """The claims that a pod names itself, and those that were made for it from templates."""
    made = {
        as_mapping(status).get("name"): as_mapping(status)
        for status in as_list(as_mapping(pod.get("status")).get("resourceClaimStatuses"))
        if isinstance(as_mapping(status).get("name"), str)
    }
    found: list[ClaimKey | None] = []
    for claim in map(as_mapping, as_list(as_mapping(pod.get("spec")).get("resourceClaims"))):
        said = claim.get("name")
        name = claim.get("resourceClaimName")
        if name is None and isinstance(said, str) and said in made:
            name = made[said].get("resourceClaimName")
            if name is None:
                continue  # the cluster has found that none is needed
        found.append((namespace, name) if isinstance(name, str) else None)
    return tuple(found[:MOST_DEVICES])


def gpus_asked_for(pod: Mapping[str, Any], resource_names: Sequence[str]) -> int:
    """How many GPUs a pod's node keeps for it, claims aside.

    Init containers run before the others, one after the other, so the larger need counts; those that go on beside the
    others (restartPolicy Always) add to what comes after them.
    """
    spec = as_mapping(pod.get("spec"))
    beside, first = 0, 0
    for container in map(as_mapping, as_list(spec.get("initContainers"))):
        asked = _asked_for(container, resource_names)
        if container.get("restartPolicy") == "Always":
            beside += asked
            first = max(first, beside)
        else:
            first = max(first, beside + asked)
    together = sum(
        _asked_for(container, resource_names) for container in map(as_mapping, as_list(spec.get("containers")))
    )
    return min(max(first, beside + together), MOST_DEVICES)


def _asked_for(container: Mapping[str, Any], resource_names: Sequence[str]) -> int:
    resources = as_mapping(container.get("resources"))
    return sum(
        max(_pieces(as_mapping(resources.get(part)).get(name)) for part in ("requests", "limits"))
        for name in resource_names
    )


def _pieces(amount: object) -> int:
    if amount is None:
        return 0
    try:
        return min(int(read_quantity(amount)), MOST_DEVICES)
    except ValueError:
        return 1  # it asks for some, and the API would not have taken nonsense
