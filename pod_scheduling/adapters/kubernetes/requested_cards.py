"""Requests of a pod's spec (cards, processor time, memory), cached: most pods ask for what others did before."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from pod_scheduling.domain.extender.asked_cards import AskedCards, CardResources, asked_cards
from reservation_core.adapters.kubernetes.pods.pod_requests import pod_requests

Requested = tuple[AskedCards, int, int]
"""Cards; thousandths of cores; bytes."""

_OF_A_CONTAINER = ("name", "resources", "restartPolicy")
_OF_A_POD = ("containers", "initContainers", "resources", "overhead")
_LONGEST = 4096
"""Bytes; what is longer is read anew each time."""


def requested(spec: Mapping[str, Any], resources: CardResources) -> Requested:
    """Read the requests of a spec. Never raises."""
    try:
        known = msgspec.json.encode([_part(spec, name) for name in _OF_A_POD])
    except (UnicodeEncodeError, TypeError, RecursionError):  # nothing that an API server would have taken
        return _read(spec, resources)
    return _of(known, resources) if len(known) <= _LONGEST else _read(spec, resources)


def _part(spec: Mapping[str, Any], name: str) -> object:
    """The part of the spec that counts, as a key for the cache."""
    said = spec.get(name)
    if isinstance(said, list):
        return [
            [container.get(of) for of in _OF_A_CONTAINER] if isinstance(container, dict) else None for container in said
        ]
    return said


@lru_cache(maxsize=1024)
def _of(known: bytes, resources: CardResources) -> Requested:
    said = dict(zip(_OF_A_POD, msgspec.json.decode(known), strict=True))
    for name in ("containers", "initContainers"):
        if isinstance(said[name], list):
            said[name] = [container and dict(zip(_OF_A_CONTAINER, container, strict=True)) for container in said[name]]
    return _read(said, resources)


def _read(spec: Mapping[str, Any], resources: CardResources) -> Requested:
    requests = pod_requests(spec)
    return asked_cards(spec, resources), requests.get("cpu", 0), requests.get("memory", 0)
