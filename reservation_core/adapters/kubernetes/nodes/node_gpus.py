"""The GPUs of a node with their UUIDs, from DRA ResourceSlices or the node agent's annotation."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeGuard

from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping
from reservation_core.adapters.kubernetes.nodes.gpu_claims import DeviceKey
from reservation_core.adapters.kubernetes.pods.built_pods import GPU_UUID
from reservation_core.adapters.kubernetes.pods.marks import NODE_GPUS
from reservation_core.adapters.kubernetes.pods.quantities import read_quantity

MOST_CARDS = 1024
_LONGEST_ANNOTATION = 256 * 1024
_LONGEST_NAME = 200
_KEYS = frozenset({"index", "uuid", "memory_bytes", "product", "lost"})


class BadAnnotationError(ValueError):
    """A node's annotation about its GPUs is unusable; the text says why."""


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU with its UUID. `lost`: its driver reports that it has fallen off the bus."""

    index: int
    uuid: str
    memory_bytes: int | None = None
    product: str | None = None
    lost: bool = False


def format_cards(cards: Iterable[Card]) -> str:
    """The annotation's text: the same for the same GPUs, whatever their order."""
    listed = []
    for card in sorted(cards, key=lambda card: card.index):
        described = asdict(card)
        if not card.lost:
            del described["lost"]
        listed.append(described)
    return json.dumps(listed, separators=(",", ":"), sort_keys=True)


def annotated_cards(node: Mapping[str, Any]) -> tuple[Card, ...]:
    """The GPUs that a node's annotation lists, by index; none without it. Raises BadAnnotationError."""
    text = as_mapping(as_mapping(node.get("metadata")).get("annotations")).get(NODE_GPUS)
    if text is None:
        return ()
    if not isinstance(text, str) or len(text) > _LONGEST_ANNOTATION:
        raise BadAnnotationError("it is no text, or too long")
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise BadAnnotationError("it is not JSON") from problem
    if not isinstance(listed, list) or len(listed) > MOST_CARDS:
        raise BadAnnotationError(f"it is not a list of at most {MOST_CARDS} GPUs")
    cards = tuple(sorted((_annotated(described) for described in listed), key=lambda card: card.index))
    if len({card.index for card in cards}) < len(cards) or len({card.uuid for card in cards}) < len(cards):
        raise BadAnnotationError("it lists an index or a UUID twice")
    return cards


def _annotated(described: object) -> Card:
    if not isinstance(described, Mapping) or not described.keys() <= _KEYS:
        raise BadAnnotationError(f"a GPU is an object of {', '.join(sorted(_KEYS))} and nothing else")
    keys = ("index", "uuid", "memory_bytes", "product", "lost")
    index, uuid, memory, product, lost = (described.get(key) for key in keys)
    if not _whole(index) or index >= MOST_CARDS:
        raise BadAnnotationError("a GPU's index is a whole number from 0")
    if not isinstance(uuid, str) or not GPU_UUID.fullmatch(uuid):
        raise BadAnnotationError("a GPU's uuid begins with GPU- or MIG-")
    if memory is not None and (not _whole(memory) or memory >= 2**62):
        raise BadAnnotationError("a GPU's memory_bytes is a whole number")
    if product is not None and (not isinstance(product, str) or len(product) > _LONGEST_NAME):
        raise BadAnnotationError("a GPU's product is a short text")
    if lost is not None and not isinstance(lost, bool):
        raise BadAnnotationError("a GPU's lost is true or false")
    return Card(index, uuid, memory, product, lost is True)


@dataclass(frozen=True, slots=True)
class DeviceCard:
    """The node and index of the GPU that a device is, or is a slice of."""

    node: str
    index: int


def sliced_cards(slices: Iterable[Mapping[str, Any]]) -> dict[str, tuple[Card, ...]]:
    """The GPUs that DRA drivers publish, by node, in the versions v1alpha3 to v1 of resource.k8s.io.

    Only the newest generation of each pool counts. GPUs have the driver's index, else an index in the order of their
    bus ids, as with CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    return {node: _numbered(list(devices.values())) for node, devices in _devices(slices)[0].items()}


def cards_of_devices(slices: Iterable[Mapping[str, Any]]) -> dict[DeviceKey, DeviceCard]:
    """The GPU of every device that DRA drivers publish, also of GPU slices; indices as in `sliced_cards`."""
    whole, uuids = _devices(slices)
    cards = {
        (node, card.uuid): DeviceCard(node, card.index)
        for node, devices in whole.items()
        for card in _numbered(list(devices.values()))
    }
    return {device: cards[place] for device, place in uuids.items() if place in cards}


def _devices(
    slices: Iterable[Mapping[str, Any]],
) -> tuple[dict[str, dict[str, "_Device"]], dict[DeviceKey, tuple[str, str]]]:
    """Whole GPUs by node and UUID; and for every device the node and UUID of the GPU that it is, or is a slice of."""
    newest: dict[tuple[str, str], int] = {}
    specs = [as_mapping(resource_slice.get("spec")) for resource_slice in slices]
    for spec in specs:
        pool = _pool(spec)
        newest[pool] = max(newest.get(pool, 0), _generation(spec))
    whole: dict[str, dict[str, _Device]] = {}
    uuids: dict[DeviceKey, tuple[str, str]] = {}
    for spec in specs:
        if _generation(spec) < newest[_pool(spec)]:
            continue
        for raw in map(as_mapping, as_list(spec.get("devices"))):
            device = _device(raw)
            node = raw.get("nodeName") or spec.get("nodeName")
            if not isinstance(node, str):
                continue
            if device is not None:
                whole.setdefault(node, {})[device.uuid] = device
            uuid = _value(_attributes(raw), "parentUUID", "string") if device is None else device.uuid
            if isinstance(uuid, str):
                uuids[*_pool(spec), str(raw.get("name"))] = (node, uuid)
    return whole, uuids


@dataclass(frozen=True, slots=True)
class _Device:
    name: str
    uuid: str
    product: str | None
    memory_bytes: int | None
    index: int | None
    minor: int | None
    bus: str | None


def _attributes(raw: Mapping[str, Any]) -> dict[str, Any]:
    basic = as_mapping(raw.get("basic")) or raw
    return {_short(key): value for key, value in as_mapping(basic.get("attributes")).items()}


def _device(raw: Mapping[str, Any]) -> _Device | None:
    """A whole GPU; None for GPU slices, network devices and devices without a UUID."""
    basic = as_mapping(raw.get("basic")) or raw
    attributes = _attributes(raw)
    uuid = _value(attributes, "uuid", "string")
    if not isinstance(uuid, str) or not GPU_UUID.fullmatch(uuid):
        return None
    if _value(attributes, "type", "string") not in (None, "gpu"):
        return None
    product = _value(attributes, "productName", "string")
    bus = _value(attributes, "pciBusID", "string") or _value(attributes, "pcieBusID", "string")
    index, minor = _value(attributes, "index", "int"), _value(attributes, "minor", "int")
    return _Device(
        name=str(raw.get("name")),
        uuid=uuid,
        product=product[:_LONGEST_NAME] if isinstance(product, str) else None,
        memory_bytes=_memory(as_mapping(basic.get("capacity"))),
        index=index if _whole(index) and index < MOST_CARDS else None,
        minor=minor if _whole(minor) else None,
        bus=bus.lower() if isinstance(bus, str) else None,
    )


def _numbered(devices: list[_Device]) -> tuple[Card, ...]:
    indices = {device.index for device in devices}
    if None in indices or len(indices) < len(devices):
        if all(device.bus is not None for device in devices):
            devices = sorted(devices, key=lambda device: device.bus or "")
        elif all(device.minor is not None for device in devices):
            devices = sorted(devices, key=lambda device: device.minor or 0)
        else:
            devices = sorted(devices, key=lambda device: (len(device.name), device.name))
        numbers = list(range(len(devices)))
    else:
        devices = sorted(devices, key=lambda device: device.index or 0)
        numbers = [device.index or 0 for device in devices]
    return tuple(
        Card(number, device.uuid, device.memory_bytes, device.product)
        for number, device in zip(numbers, devices, strict=True)
    )


def _memory(capacity: Mapping[str, Any]) -> int | None:
    for key, value in capacity.items():
        if _short(key) == "memory":
            try:
                return int(read_quantity(value.get("value") if isinstance(value, Mapping) else value))
            except ValueError:
                return None
    return None


def _pool(spec: Mapping[str, Any]) -> tuple[str, str]:
    return str(spec.get("driver")), str(as_mapping(spec.get("pool")).get("name"))


def _generation(spec: Mapping[str, Any]) -> int:
    generation = as_mapping(spec.get("pool")).get("generation")
    return generation if _whole(generation) else 0


def _short(key: object) -> str:
    """An attribute's name without its driver's domain."""
    return str(key).rpartition("/")[2]


def _value(attributes: Mapping[str, Any], name: str, kind: str) -> object:
    return as_mapping(attributes.get(name)).get(kind)


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
