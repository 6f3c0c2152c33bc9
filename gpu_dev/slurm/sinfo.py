"""`sinfo`: the nodes, by type of GPU and state."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from gpu_dev.errors import ExitCode
from gpu_dev.server.connection import resolve
from gpu_dev.slurm.formats import Field, UnknownFieldError, read_format, table_lines
from gpu_dev.slurm.reading.list_options import SINFO
from gpu_dev.slurm.reading.time_limits import write_time
from gpu_dev.slurm.reading.words import Remark, read_words
from gpu_dev.slurm.saying import last_values, refuse, remarks_of, show_help, warn
from gpu_dev.terminal import put
from gpu_dev.wire.nodes import NodeOut
from reservation_core.domain.short_durations import LONGEST_DURATION

_USAGE = "Usage: sinfo [OPTIONS]"
_SHOWN_NOTHING = "All options and what they are here: sinfo --help"
_USUAL = "%9P %.5a %.12l %.6D %.6t %N"
_BY_NODE = "%20N %.6D %.9P %6t"
_SUMMARY = "%9P %.5a %.12l %.16F  %N"
_LONG_STATES = {"alloc": "allocated", "mix": "mixed", "drng": "draining", "drain": "drained"}


@dataclass(frozen=True, slots=True)
class Place:
    """A node, as one that has GPUs of one type."""

    gpu_type: str
    node: NodeOut

    @property
    def state(self) -> str:
        """The short name of the node's state."""
        node = self.node
        if not node.ready or node.fenced_at is not None:
            return "down"
        if not node.schedulable or node.cordoned_at is not None:
            return "drain" if node.free == node.gpus else "drng"
        return "idle" if node.free == node.gpus else "mix" if node.free else "alloc"


Places = Sequence[Place]


def _first(value: Callable[[Place], str]) -> Callable[[Places], str]:
    return lambda places: value(places[0])


def _long_state(place: Place) -> str:
    return _LONG_STATES.get(place.state, place.state)


def _gres(place: Place) -> str:
    # How many of each type a node of several types has is not known.
    count = f":{place.node.gpus}" if len(place.node.gpu_types) == 1 else ""
    return f"gpu:{place.gpu_type}{count}"


_PLACE_VALUES: Mapping[str, tuple[str, Callable[[Place], str]]] = {
    "P": ("PARTITION", lambda place: place.gpu_type),
    "t": ("STATE", lambda place: place.state),
    "T": ("STATE", _long_state),
    "n": ("HOSTNAMES", lambda place: place.node.name),
    "G": ("GRES", _gres),
}
"""Columns whose values part nodes into lines."""

FIELDS: Mapping[str, Field[Places]] = {
    **{letter: Field(title, _first(value)) for letter, (title, value) in _PLACE_VALUES.items()},
    "a": Field("AVAIL", lambda _: "up"),
    "l": Field("TIMELIMIT", lambda _: write_time(LONGEST_DURATION)),
    "D": Field("NODES", lambda places: str(len(places))),
    "N": Field("NODELIST", lambda places: ",".join(place.node.name for place in places)),
    "A": Field("NODES(A/I)", lambda places: "/".join(_counts(places)[:2])),
    "F": Field("NODES(A/I/O/T)", lambda places: "/".join(_counts(places))),
}


def _counts(places: Places) -> list[str]:
    """Nodes that are allocated, idle and other, and all."""
    states = [place.state for place in places]
    allocated = sum(state in ("alloc", "mix", "drng") for state in states)
    idle = states.count("idle")
    return [str(number) for number in (allocated, idle, len(states) - allocated - idle, len(states))]


def main(words: Sequence[str]) -> int:
    """Print the nodes; returns the exit code."""
    typed = read_words(words, SINFO, mixed=True)
    if show_help(_USAGE, SINFO, typed.given):
        return ExitCode.OK
    refusals, warnings = remarks_of(typed)
    values = last_values(typed)
    form = values.get("format") or (_BY_NODE if "Node" in values else _SUMMARY if "summarize" in values else _USUAL)
    try:
        columns, after = read_format(form, FIELDS)
    except UnknownFieldError as error:
        known = " ".join(f"%{letter}" for letter in FIELDS)
        refusals.append(Remark(None, f"--format={form}", f"{error} is no column here. There are {known}."))
    refuse("sinfo", refusals, _SHOWN_NOTHING)
    warn("sinfo", warnings)

    # Loaded here: a command that is refused needs no client.
    from gpu_dev.session import client_of

    with client_of(resolve(None, None, os.environ)) as client:
        places = [Place(gpu_type, node) for node in client.nodes() for gpu_type in node.gpu_types or ["none"]]
    if (types := values.get("partition")) is not None:
        places = [place for place in places if place.gpu_type in types.lower().split(",")]
    letters = [letter for letter in _PLACE_VALUES if any(column.field is FIELDS[letter] for column in columns)]
    letters += ["n"] if "Node" in values else []

    def key(place: Place) -> list[str]:
        return [_PLACE_VALUES[letter][1](place) for letter in letters]

    groups = [list(group) for _, group in groupby(sorted(places, key=key), key)]
    put(table_lines(groups, columns, after, titles="noheader" not in values))
    return ExitCode.OK
