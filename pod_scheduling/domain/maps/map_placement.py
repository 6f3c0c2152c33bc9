"""Whether a pod with a scheduling map may be bound to the node that its map names, and if not, why.

The map leaves no choice of nodes: there is one, and either everything is right there or the pod waits, with every
reason at once. A bound pod counts until it is gone; a pod about to be bound counts from the decision on.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from pod_scheduling.domain.maps.scheduling_map import MapEntry
from reservation_core.domain.pods.node_choice_terms import Taint, Terms


class Overlap(StrEnum):
    """What to do when pods of two owners want one card."""

    DENY = "deny"
    WARN = "warn"
    ALLOW = "allow"


class BindObstacle(StrEnum):
    """Why a pod is not bound."""

    NOT_ADMITTED = "NotAdmitted"
    NO_SUCH_NODE = "NoSuchNode"
    TWO_NODES = "TwoNodes"
    NOT_READY = "NodeNotReady"
    CORDONED = "NodeCordoned"
    NOT_SELECTED = "NodeNotSelected"
    TAINTED = "NodeTainted"
    NO_SUCH_DEVICE = "NoSuchDevice"
    DEVICE_IN_USE = "DeviceInUse"
    DEVICE_RESERVED = "DeviceReserved"
    NOT_ENOUGH = "NotEnoughResources"
    PORT_IN_USE = "HostPortInUse"


@dataclass(frozen=True, slots=True)
class MapNode:
    """A node as the API has it now.

    `allocatable` is in thousandths of cores (`cpu`), bytes and pieces. `uuids` are those of its cards, lower case, by
    index, where they are known; `card_count` is None where nobody says how many cards it has.
    """

    name: str
    labels: Mapping[str, str]
    ready: bool
    cordoned: bool
    taints: tuple[Taint, ...]
    allocatable: Mapping[str, int]
    uuids: Mapping[int, str] = field(default_factory=dict)
    card_count: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """The cards that a pod sees. `group`: those of one group, one owner's pods with one map, may share cards."""

    devices: tuple[str, ...]
    group: str
    by: str


@dataclass(frozen=True, slots=True)
class Burden:
    """What a pod takes from its node, as amounts by resource, cards and host ports (`TCP/10.0.0.1/80`)."""

    requests: Mapping[str, int]
    use: DeviceUse | None = None
    ports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MappedPod:
    """A pod that waits for its node, `namespace/name`. `refused` says why its map does not count; then it has no entry.

    `booking_id` is what the webhook admitted it under, `ends_at` (UTC) when it will be ended; None: nobody knows.
    """

    name: str
    entry: MapEntry | None
    burden: Burden
    terms: Terms
    refused: str | None = None
    booking_id: str | None = None
    ends_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Reserved:
    """Our ledger has a card for somebody from a time on (UTC): the reservation, and a sentence that says so."""

    reservation_id: str
    starts_at: datetime
    detail: str


ReservedCards = Mapping[str, Mapping[int, tuple[Reserved, ...]]]
"""By node and index of the card, what has not ended yet."""


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind the pod to this node; `warning` is for people."""

    node: str
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """The pod can't be bound now. `message` names every obstacle, `obstacle` is the first."""

    obstacle: BindObstacle
    message: str


Found = tuple[BindObstacle, str]
_OF_UNREADY = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
_OF_CORDONED = "node.kubernetes.io/unschedulable"
_MOST_SENTENCES = 8
"""Sentences in a message: an entry may have a thousand cards."""


class Board:
    """The nodes, and what is taken on each. `logical_label` names nodes as maps do, before their own names."""

    def __init__(self, logical_label: str) -> None:
        self._label = logical_label
        self._nodes: dict[str, MapNode] = {}
        self._called: dict[str, set[str]] = {}
        self._burdens: dict[str, dict[str, Burden]] = {}
        self._where: dict[str, str] = {}
        self._taken: dict[str, dict[str, int]] = {}
        self._enforced: set[str] = set()
        self.reserved: ReservedCards = {}

    def enforce(self, namespace: str, *, enforced: bool) -> bool:
        """Bookings are enforced in a namespace, or not; whether that is news.

        Elsewhere anybody may write of a booking and an end on their pods what they like, and neither counts.
        """
        news = enforced != (namespace in self._enforced)
        (self._enforced.add if enforced else self._enforced.discard)(namespace)
        return news

    def put_node(self, node: MapNode) -> None:
        """Add or update a node."""
        self._forget_name(node.name)
        self._nodes[node.name] = node
        called = node.labels.get(self._label)
        if called:
            self._called.setdefault(called, set()).add(node.name)

    def knows(self, node: MapNode) -> bool:
        """Whether a node is known to be exactly so."""
        return self._nodes.get(node.name) == node

    def drop_node(self, name: str) -> None:
        """Remove a node; its pods are released one by one."""
        self._forget_name(name)
        self._nodes.pop(name, None)

    def names_of(self, name: str) -> set[str]:
        """What maps may call a node."""
        node = self._nodes.get(name)
        return {name, node.labels[self._label]} if node is not None and self._label in node.labels else {name}

    def take(self, key: str, node: str, burden: Burden) -> None:
        """Count a pod on its node, bound or assumed; `key` identifies it."""
        self.release(key)
        self._where[key] = node
        self._burdens.setdefault(node, {})[key] = burden
        self._add(node, burden.requests, 1)

    def release(self, key: str) -> str | None:
        """Stop counting a pod; returns its node."""
        node = self._where.pop(key, None)
        if node is not None:
            burden = self._burdens[node].pop(key)
            self._add(node, burden.requests, -1)
            if not self._burdens[node]:
                del self._burdens[node], self._taken[node]
        return node

    def has(self, key: str, node: str, burden: Burden) -> bool:
        """Whether that very pod is known to be there with that very burden."""
        return self._where.get(key) == node and self._burdens[node][key] == burden

    def place(self, pod: MappedPod, overlap: Overlap) -> Bind | Wait:
        """Bind or wait. Changes nothing."""
        if pod.entry is None:
            return Wait(BindObstacle.NOT_ADMITTED, pod.refused or "The pod has no map.")
        node = self._find(pod.entry.node)
        if isinstance(node, Wait):
            return node
        shared = self._shared(pod, node)
        obstacles = [
            *_closed(node, pod.terms),
            *_missing_cards(node, pod.entry.devices),
            *([(BindObstacle.DEVICE_IN_USE, shared)] if shared and overlap is Overlap.DENY else []),
            *self._promised(pod, node),
            *self._not_enough(pod, node),
            *self._ports(pod, node),
        ]
        if obstacles:
            return Wait(obstacles[0][0], _join_first([text for _, text in obstacles]))
        return Bind(node.name, shared if shared and overlap is Overlap.WARN else None)

    def _find(self, word: str) -> MapNode | Wait:
        called = sorted(self._called.get(word, ()))
        if len(called) > 1:
            names = " and ".join(called)
            return Wait(
                BindObstacle.TWO_NODES, f"The label {self._label}={word} is on {names}; take it from all but one."
            )
        name = called[0] if called else word
        if name not in self._nodes:
            return Wait(
                BindObstacle.NO_SUCH_NODE,
                f"There is no node {word!r}: none has the label {self._label}={word}, and none is called so.",
            )
        return self._nodes[name]

    def _shared(self, pod: MappedPod, node: MapNode) -> str | None:
        """Other users of the pod's cards, unless they are of one group with it."""
        use = pod.burden.use
        if use is None or not use.devices:
            return None
        mine = _canonical(use.devices, node)
        others = [
            burden.use
            for burden in self._burdens.get(node.name, {}).values()
            if burden.use is not None
            and burden.use.group != use.group
            and _meet(mine, _canonical(burden.use.devices, node))
        ]
        if not others:
            return None
        by = ", ".join(sorted({other.by for other in others})[:3]) + (" and others" if len(others) > 3 else "")
        return f"GPUs {','.join(use.devices)} of {node.name} are, or may be, in use by {by}."

    def _promised(self, pod: MappedPod, node: MapNode) -> Iterable[Found]:
        """Cards that are reserved for somebody else before the pod will be gone."""
        devices = pod.entry.devices if pod.entry is not None else ()
        mine = _canonical(devices, node)
        believed = pod.name.partition("/")[0] in self._enforced
        booking_id, ends_at = (pod.booking_id, pod.ends_at) if believed else (None, None)
        for index, reserved in sorted(self.reserved.get(node.name, {}).items()):
            if not mine or not _meet(mine, {str(index)}):
                continue
            for reservation in reserved:
                if reservation.reservation_id != booking_id and (ends_at is None or reservation.starts_at < ends_at):
                    yield BindObstacle.DEVICE_RESERVED, reservation.detail
                    break

    def _not_enough(self, pod: MappedPod, node: MapNode) -> Iterable[Found]:
        taken = self._taken.get(node.name, {})
        for resource, amount in sorted(pod.burden.requests.items()):
            free = node.allocatable.get(resource, 0) - taken.get(resource, 0)
            if amount > max(free, 0):
                text = f"{node.name} has {max(free, 0)} of {_with_unit(resource)} free, and {amount} are asked for."
                yield BindObstacle.NOT_ENOUGH, text

    def _ports(self, pod: MappedPod, node: MapNode) -> Iterable[Found]:
        used = {port for burden in self._burdens.get(node.name, {}).values() for port in burden.ports}
        for port in pod.burden.ports:
            if any(_same_port(port, other) for other in used):
                yield BindObstacle.PORT_IN_USE, f"The host port {port} is in use on {node.name}."

    def _add(self, node: str, requests: Mapping[str, int], sign: int) -> None:
        taken = self._taken.setdefault(node, {})
        for resource, amount in requests.items():
            taken[resource] = taken.get(resource, 0) + sign * amount

    def _forget_name(self, name: str) -> None:
        former = self._nodes.get(name)
        called = former.labels.get(self._label) if former is not None else None
        if called:
            self._called[called].discard(name)
            if not self._called[called]:
                del self._called[called]


def _join_first(sentences: list[str]) -> str:
    more = len(sentences) - _MOST_SENTENCES
    return " ".join(sentences[:_MOST_SENTENCES]) + (f" And {more} more." if more > 0 else "")


def _closed(node: MapNode, terms: Terms) -> Iterable[Found]:
    if not node.ready:
        yield BindObstacle.NOT_READY, f"{node.name} is not ready."
    if node.cordoned:
        yield BindObstacle.CORDONED, f"{node.name} is cordoned; `kubectl uncordon {node.name}` opens it."
    if not terms.matches(node.name, node.labels):
        yield BindObstacle.NOT_SELECTED, f"The pod's own node selector or affinity does not let it onto {node.name}."
    told = {*(() if node.ready else _OF_UNREADY), *((_OF_CORDONED,) if node.cordoned else ())}
    for taint in terms.untolerated([taint for taint in node.taints if taint.key not in told]):
        yield BindObstacle.TAINTED, f"{node.name} has the taint {taint}, which the pod does not tolerate."


def _missing_cards(node: MapNode, devices: Collection[str]) -> Iterable[Found]:
    """Cards that the node is known not to have."""
    if node.card_count is None:
        return
    for device in devices:
        if device.isdigit() and int(device) >= node.card_count:
            text = f"{node.name} has no GPU {device}: it has {node.card_count}, counted from 0."
            yield BindObstacle.NO_SUCH_DEVICE, text
        known = device.startswith("GPU-") and len(node.uuids) == node.card_count
        if known and device.lower() not in node.uuids.values():
            yield BindObstacle.NO_SUCH_DEVICE, f"{node.name} has no GPU {device}."


def _canonical(devices: Iterable[str], node: MapNode) -> set[str]:
    """Cards by index where that is known, else by UUID in lower case."""
    indices = {uuid: str(index) for index, uuid in node.uuids.items()}
    return {indices.get(device.lower(), device.lower()) for device in devices}


def _meet(one: set[str], other: set[str]) -> bool:
    """Whether two sets of cards share one, or can't be told apart.

    That is: an index, a UUID of a card whose index nobody knows, and a part of a card (MIG), whichever two of these.
    """
    if one & other:
        return True
    return len({_kind(card) for card in (*one, *other)}) > 1 and bool(one and other)


def _kind(card: str) -> str:
    return "index" if card.isdigit() else card[:3]


def _same_port(one: str, other: str) -> bool:
    """Whether two host ports exclude each other; 0.0.0.0 is every address."""
    protocol, address, port = one.split("/")
    its_protocol, its_address, its_port = other.split("/")
    same = (protocol, port) == (its_protocol, its_port)
    return same and (address == its_address or "0.0.0.0" in (address, its_address))  # noqa: S104 -- compared, not bound


def _with_unit(resource: str) -> str:
    match resource:
        case "cpu":
            return "cpu (thousandths of cores)"
        case "memory" | "ephemeral-storage":
            return f"{resource} (bytes)"
        case _:
            return resource
