"""How many GPUs a pod that people made asks for, and of which type."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reservation_core.domain.cards.gpu_types import DEFAULT_NAMES, TypeNames
from reservation_core.domain.pods.gpu_resources import is_gpu_resource
from reservation_core.domain.pods.map_marks import MAP_DEVICES
from reservation_core.domain.pods.reviews import annotations_of, items, members

MOST_GPUS = 1024


@dataclass(frozen=True, slots=True)
class GpuNeed:
    """So many GPUs of a type (None: of any). `by_map`: the cards that its scheduling map names."""

    gpus: int
    gpu_type: str | None = None
    by_map: bool = False


def need_of(
    pod: Mapping[str, Any],
    resources: Sequence[str],
    type_labels: Sequence[str],
    map_scheduler: str,
    words: TypeNames = DEFAULT_NAMES,
) -> GpuNeed:
    """What a pod needs; `resources` are those that are GPUs, `type_labels` the node labels that name a product.

    `words` name products as they do on nodes, so that a pod's type is the one that its node has in the ledger.

    What was noted of a map counts on pods of `map_scheduler`, on which only the webhook writes it. What can't be read
    counts as one GPU: the API server would not have taken nonsense.
    """
    spec = members(pod.get("spec"))
    devices = annotations_of(pod).get(MAP_DEVICES)
    if devices is not None and spec.get("schedulerName") == map_scheduler:
        cards = len([part for part in devices.split(",") if part])
        return GpuNeed(cards, _type_of(spec, type_labels, words), by_map=True)
    running = sum(_asked(container, resources) for container in _containers(spec, "containers"))
    beside = most = 0
    for container in _containers(spec, "initContainers"):
        asked = _asked(container, resources)
        if container.get("restartPolicy") == "Always":
            beside += asked
            most = max(most, beside)
        else:
            most = max(most, beside + asked)
    return GpuNeed(min(MOST_GPUS, max(running + beside, most)), _type_of(spec, type_labels, words))


def _containers(spec: Mapping[str, Any], kind: str) -> Iterator[Mapping[str, Any]]:
    yield from map(members, items(spec.get(kind)))


def _asked(container: Mapping[str, Any], resources: Sequence[str]) -> int:
    asked = members(container.get("resources"))
    parts = [members(asked.get(part)) for part in ("requests", "limits")]
    names = {name for part in parts for name in part if is_gpu_resource(name, resources)}
    return sum(max(_pieces(part.get(name)) for part in parts) for name in names)


def _pieces(amount: object) -> int:
    if amount is None:
        return 0
    text = str(amount)
    return min(int(text), MOST_GPUS) if text.isascii() and text.isdigit() and len(text) < 10 else 1


def _type_of(spec: Mapping[str, Any], type_labels: Sequence[str], words: TypeNames) -> str | None:
    """The type that the pod's node selector or required affinity leaves; None where they leave several or any."""
    selector = members(spec.get("nodeSelector"))
    products = {str(selector[label]) for label in type_labels if label in selector}
    node_affinity = members(members(spec.get("affinity")).get("nodeAffinity"))
    terms = items(members(node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")).get("nodeSelectorTerms"))
    if not products and terms:
        named = [_named_in(members(term), type_labels) for term in terms]
        products = set().union(*named) if all(named) else set()
    types = {words.of(product) for product in products}
    return types.pop() if len(types) == 1 else None


def _named_in(term: Mapping[str, Any], type_labels: Sequence[str]) -> set[str]:
    for expression in map(members, items(term.get("matchExpressions"))):
        if expression.get("key") in type_labels and expression.get("operator") == "In":
            return {str(value) for value in items(expression.get("values"))}
    return set()
