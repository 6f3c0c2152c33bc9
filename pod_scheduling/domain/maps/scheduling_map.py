"""The map that people write on their pods: which index goes to which node, and which cards it sees there.

`gpu-scheduling-map` is an annotation of a pod. It holds entries `index=node:devices`, one per line or several on a line
with blanks between them:

    0=node1:0,1
    1=node2:2
    2=node3:none

`devices` are integers, or UUIDs as the driver writes them, or `none`. All pods of a set carry the same map; each finds
its own entry by its index. A map with one bad entry is no map: guessing what was meant could give a card away twice.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

MAP_ANNOTATION = "gpu-scheduling-map"
INDEX_ANNOTATION = "gpu-scheduling-index"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"
COMPLETION_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
NO_DEVICES = "none"

MAX_BYTES = 128 * 1024
"""The largest map; Kubernetes allows 256 KiB for all annotations of an object together."""

MAX_INDEX = 2**31 - 1
MAX_DEVICES = 1024
"""Cards in one entry, and one more than the highest index of a card."""

_INTEGER = r"(?:0|[1-9][0-9]{0,9})"
_LABEL = r"[a-z0-9A-Z](?:[-_.a-z0-9A-Z]{0,251}[a-z0-9A-Z])?"
# Possessive throughout: nothing taken is tried again in parts, so that a map of blanks takes no longer than others.
_ENTRY = re.compile(
    r"[ \t]*+(?P<index>[^\s=]*+)[ \t]*+=[ \t]*+(?P<node>[^\s=:,]*+)[ \t]*+:[ \t]*+"
    r"(?P<devices>[^\s,=:]*+(?:[ \t]*+,[ \t]*+[^\s,=:]*+)*+)(?=[ \t]|$)"
)
# The usual line, for which nothing need be looked at twice: a large map is read while others wait.
_CARD = "(?:0|[1-9][0-9]{0,3})"
_PLAIN = re.compile(rf"({_INTEGER})=({_LABEL}):({_CARD}(?:,{_CARD})*+)")
_HEX = "[0-9a-fA-F]"
_UUID = re.compile(rf"(?:GPU|MIG)-{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}")
_SHOWN = 40


class SchedulingMapError(ValueError):
    """A map, or an index, that can't be used; the text says where and what to write. `line` counts from 1."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        self.line = line
        super().__init__(problem if line is None else f"line {line}: {problem}")


@dataclass(frozen=True, slots=True)
class MapEntry:
    """Where the pod of one index goes, and what it sees. `devices` is empty for `none`."""

    index: int
    node: str
    devices: tuple[str, ...]

    @property
    def cuda_visible_devices(self) -> str:
        """The value of CUDA_VISIBLE_DEVICES; empty hides every card."""
        return ",".join(self.devices)


@dataclass(frozen=True, slots=True)
class SchedulingMap:
    """A parsed map. `digest` is the SHA-256 of its text, in hex."""

    entries: Mapping[int, MapEntry]
    digest: str

    def entry(self, index: int) -> MapEntry:
        """The entry of an index. Raises SchedulingMapError where the map has none."""
        found = self.entries.get(index)
        if found is None:
            raise SchedulingMapError(f"the map has no entry for index {index}; add a line {index}=NODE:DEVICES")
        return found


class Controller(Enum):
    """The controller that made a pod, as far as its name's meaning goes."""

    NONE = "none"
    STATEFUL_SET = "StatefulSet"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """What of a pod says its index. `generated`: its name, or the end of it, is chosen by the API server."""

    name: str
    controller: Controller
    generated: bool
    annotations: Mapping[str, str]
    labels: Mapping[str, str]


def map_digest(text: str) -> str:
    """The SHA-256 of a map's text, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def parse_map(text: str) -> SchedulingMap:
    """Parse the map in an annotation. Raises SchedulingMapError, with the line."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise SchedulingMapError(f"the map is longer than {MAX_BYTES // 1024} KiB; split the set of pods")
    entries: dict[int, MapEntry] = {}
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        at, end = 0, len(line.rstrip(" \t"))
        plain = _plain(line)
        if plain is not None and plain.index not in entries:
            entries[plain.index] = plain
            continue
        while at < end:
            match = _ENTRY.match(line, at, end)
            if match is None:
                raise SchedulingMapError(f"{_shown(line[at:end])} is not index=node:devices", number)
            entry = _entry(match, number)
            if entry.index in entries:
                raise SchedulingMapError(f"index {entry.index} stands twice in the map; keep one of the two", number)
            entries[entry.index] = entry
            at = match.end()
    if not entries:
        raise SchedulingMapError("the map is empty; write lines index=node:devices, such as 0=node1:0,1")
    return SchedulingMap(entries, map_digest(text))


def index_of(pod: PodIdentity) -> int:
    """A pod's index: what it is told, what its set's controller says, or the ordinal of its name.

    A name counts only where it was chosen to: a StatefulSet's pod or one that a person named. Raises SchedulingMapError
    for a pod without an index.
    """
    told = pod.annotations.get(INDEX_ANNOTATION)
    if told is not None:
        return _integer(told, MAX_INDEX, f"the annotation {INDEX_ANNOTATION}")
    for label in (POD_INDEX_LABEL, COMPLETION_INDEX_LABEL):
        value = pod.labels.get(label)
        if value is not None:
            return _integer(value, MAX_INDEX, f"the label {label}")
    chosen = pod.controller is Controller.STATEFUL_SET or (pod.controller is Controller.NONE and not pod.generated)
    match = re.search(rf"-({_INTEGER})\Z", pod.name) if chosen else None
    if match is None or int(match[1]) > MAX_INDEX:
        raise SchedulingMapError(
            f"the pod has no index: name it like worker-0, make it by a StatefulSet or an indexed Job, or give it the"
            f" annotation {INDEX_ANNOTATION}"
        )
    return int(match[1])


def _plain(line: str) -> MapEntry | None:
    """The entry of a line that is written as most are, and right; None is for the closer look."""
    match = _PLAIN.fullmatch(line)
    if match is None or int(match[1]) > MAX_INDEX:
        return None
    devices = tuple(match[3].split(","))
    fine = len(devices) <= MAX_DEVICES and len(set(devices)) == len(devices) and max(map(int, devices)) < MAX_DEVICES
    return MapEntry(int(match[1]), match[2], devices) if fine else None


def _entry(match: re.Match[str], line: int) -> MapEntry:
    index = _integer(match["index"], MAX_INDEX, "the index", line)
    node = match["node"]
    if re.fullmatch(_LABEL, node) is None:
        raise SchedulingMapError(f"{_shown(node)} is not the name of a node", line)
    return MapEntry(index, node, _devices([part.strip(" \t") for part in match["devices"].split(",")], line))


def _devices(words: list[str], line: int) -> tuple[str, ...]:
    if words == [NO_DEVICES]:
        return ()
    if len(words) > MAX_DEVICES:
        raise SchedulingMapError(f"more than {MAX_DEVICES} devices", line)
    if all(_UUID.fullmatch(word) for word in words):
        different = {word.lower() for word in words}
    else:
        different = {str(_integer(word, MAX_DEVICES - 1, "a device", line)) for word in words}
    if len(different) < len(words):
        raise SchedulingMapError("a device stands twice", line)
    return tuple(words)


def _integer(text: str, most: int, what: str, line: int | None = None) -> int:
    if re.fullmatch(_INTEGER, text) is None or int(text) > most:
        wanted = f"an integer from 0 to {most}, without leading zeros"
        if what == "a device":
            wanted += f", and devices are integers, or UUIDs like GPU-…, or the one word {NO_DEVICES}, never mixed"
        raise SchedulingMapError(f"{what} is {_shown(text)}; it must be {wanted}", line)
    return int(text)


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
