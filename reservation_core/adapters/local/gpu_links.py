"""The links between this machine's GPUs, from NVML."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from reservation_core.domain.cards.link_words import MOST_LINKED_CARDS, Links, link_strength

_MOST_NVLINKS = 99


def links_of(nvml: Any, handles: Sequence[Any]) -> Links | None:
    """The links between these GPUs, in their order; None for fewer than two or too many. Raises nvml.NVMLError."""
    if not 2 <= len(handles) <= MOST_LINKED_CARDS:
        return None
    number_of = {_bus(nvml.nvmlDeviceGetPciInfo(handle).busId): number for number, handle in enumerate(handles)}
    ends = [_far_ends(nvml, handle, number_of) for handle in handles]
    rows = [[0] * len(handles) for _ in handles]
    for one, handle in enumerate(handles):
        for other in range(one):
            # GPUs on a switch reach each other by the links that both have to it.
            nvlinks = max(ends[one][other], ends[other][one]) + min(ends[one][None], ends[other][None])
            path = link_strength(f"NV{min(nvlinks, _MOST_NVLINKS)}") if nvlinks else _path(nvml, handle, handles[other])
            rows[one][other] = rows[other][one] = path
    return tuple(map(tuple, rows))


def _far_ends(nvml: Any, handle: Any, number_of: dict[str, int]) -> Counter[int | None]:
    """The number of active NVLinks of a GPU by the GPU at the far end, None for a switch."""
    ends: Counter[int | None] = Counter()
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(handle, link) != nvml.NVML_FEATURE_ENABLED:
                continue
            card = number_of.get(_bus(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId))
            kind = None if card is not None else nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
        except nvml.NVMLError as problem:
            if problem.value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT):
                continue  # the GPU lacks this link
            raise
        if card is not None or kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            ends[card] += 1
    return ends


def _path(nvml: Any, one: Any, other: Any) -> int:
    """The link strength of two GPUs without NVLink."""
    words = {
        nvml.NVML_TOPOLOGY_INTERNAL: "PIX",
        nvml.NVML_TOPOLOGY_SINGLE: "PIX",
        nvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
        nvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
        nvml.NVML_TOPOLOGY_NODE: "NODE",
        nvml.NVML_TOPOLOGY_SYSTEM: "SYS",
    }
    return link_strength(words.get(nvml.nvmlDeviceGetTopologyCommonAncestor(one, other), "SYS"))


def _bus(bus_id: str | bytes) -> str:
    """A comparable bus id: NVML writes the domain with four or eight digits."""
    text = bus_id.decode() if isinstance(bus_id, bytes) else bus_id
    domain, _, rest = text.lower().partition(":")
    return f"{domain.lstrip('0')}:{rest}"
