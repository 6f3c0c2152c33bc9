"""Foreign pods: pods that use GPUs of our nodes without a job or booking."""

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
    """How to recognise our pods (our labels in `namespace`) and foreign pods with GPUs.

    Foreign pods request `resource_names`, or claim devices of `device_classes` (class and driver names).
    """

    namespace: str
    attach: GpuAttach = GpuAttach.ENV
    resource_names: Sequence[str] = ("nvidia.com/gpu", "amd.com/gpu")
    device_classes: Sequence[str] = ("gpu.nvidia.com", "mig.nvidia.com", "gpu.amd.com")


@dataclass(frozen=True, slots=True)
class Claimant:
    """A foreign pod on a node of ours: the GPUs that it requests, and its claims (None for an unknown one).

    `mapped`: the GPUs that its scheduling map assigned, which the kubelet does not count.
    """

    node: str
    description: str
    gpus: int
    claims: tuple[ClaimKey | None, ...]
    mapped: MappedCards | None = None


def read_claimant(pod: Mapping[str, Any], rules: ForeignRules, nodes: Collection[str]) -> Claimant | None:
    """Read an unfinished foreign pod on `nodes` (our nodes' names) that requests GPUs or has claims.

    Our labels count in our namespace alone. There, a pod with our labels and another name has our environment
    variables, and may use any GPU.
    """
    metadata = as_mapping(pod.get("metadata"))
    namespace, name = str(metadata.get("namespace")), str(metadata.get("name"))
    node = as_mapping(pod.get("spec")).get("nodeName")
    if not isinstance(node, str) or node not in nodes or is_finished(pod):
        return None
    gpus = requested_gpus(pod, rules.resource_names)
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
    """Foreign pods with their GPUs; the exact GPUs are known from scheduling maps and for devices in `cards`.

    A claim that is not in `claims` counts as one GPU. A claim of several pods counts once on each node.
    """
    counted = rules.attach is GpuAttach.DEVICE_PLUGIN
    shared: set[tuple[str, ClaimKey]] = set()
    foreign = []
    for claimant in claimants:
        known, unknown = _by_map(claimant, counted=counted)
        for key in claimant.claims:
            claim = None if key is None else claims.get(key)
            if claim is None:
                unknown += 1
                continue
            if (claimant.node, claim.key) in shared:
                continue
            shared.add((claimant.node, claim.key))
            unknown += claim.asked_for
            for device in claim.devices:
                card = cards.get(device)
                # With a device plugin our indices are only counts, so the device matches no particular GPU of ours.
                if counted or card is None or card.node != claimant.node:
                    unknown += 1
                else:
                    known.add(card.index)
        if known:
            foreign.append(ForeignPod(claimant.node, claimant.description, len(known), tuple(sorted(known))))
        if unknown:
            count = min(unknown, MOST_DEVICES)
            foreign.append(ForeignPod(claimant.node, claimant.description, count, None, counted=counted))
    return foreign


def _by_map(claimant: Claimant, *, counted: bool) -> tuple[set[int], int]:
    """The indices of its GPUs by its map, and the number of its other GPUs."""
    if claimant.mapped is None:
        return set(), claimant.gpus
    if claimant.mapped.indices is None or counted:
        return set(), claimant.gpus + claimant.mapped.count
    return set(claimant.mapped.indices), claimant.gpus


def _claims(pod: Mapping[str, Any], namespace: str) -> tuple[ClaimKey | None, ...]:
    """The claims that a pod names, and those created for it from templates."""
    from_template = {
        as_mapping(status).get("name"): as_mapping(status)
        for status in as_list(as_mapping(pod.get("status")).get("resourceClaimStatuses"))
        if isinstance(as_mapping(status).get("name"), str)
    }
    keys: list[ClaimKey | None] = []
    for claim in map(as_mapping, as_list(as_mapping(pod.get("spec")).get("resourceClaims"))):
        entry = claim.get("name")
        name = claim.get("resourceClaimName")
        if name is None and isinstance(entry, str) and entry in from_template:
            name = from_template[entry].get("resourceClaimName")
            if name is None:
                continue  # the cluster decided that no claim is needed
        keys.append((namespace, name) if isinstance(name, str) else None)
    return tuple(keys[:MOST_DEVICES])


def requested_gpus(pod: Mapping[str, Any], resource_names: Sequence[str]) -> int:
    """The number of GPUs that a pod requests, without claims.

    Init containers run one after the other before the others, so the maximum counts; sidecars (restartPolicy Always)
    add to the containers that start after them.
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
        return 1  # some amount that we can't parse, but the API accepted
