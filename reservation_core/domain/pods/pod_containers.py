"""The containers of a pod's spec, with their paths."""

from collections.abc import Iterator, Mapping
from typing import Any

from reservation_core.domain.pods.pod_changes import Path

EPHEMERAL = "ephemeralContainers"
_KINDS = {"initContainers": "init container", EPHEMERAL: "ephemeral container"}


class RefusedPodError(Exception):
    """The pod is refused; the text is the reason."""


def containers_of(spec: Mapping[str, Any], *kinds: str) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The containers of these kinds. Raises RefusedPodError for malformed ones."""
    for kind in kinds:
        listed = spec.get(kind)
        if listed is None:
            continue
        if not isinstance(listed, list) or not all(isinstance(container, Mapping) for container in listed):
            raise RefusedPodError(f"spec.{kind} is not a list of containers")
        for position, container in enumerate(listed):
            yield ("spec", kind, position), container


def container_named(path: Path, container: Mapping[str, Any]) -> str:
    """A container for messages: by its name, else by its number."""
    kind = _KINDS.get(str(path[1]), "container")
    name = container.get("name")
    return f"{kind} {shown(name)}" if isinstance(name, str) and name else f"{kind} {path[2]}"


def shown(value: object) -> str:
    """Another party's text for messages; empty for anything but a string."""
    text = value if isinstance(value, str) else ""
    return repr(text if len(text) <= 64 else text[:64] + "…")
