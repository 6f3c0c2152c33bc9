"""Where jobs and the lines between them stand in a drawing of their dependencies, in pixels.

A column is a layer of jobs. A line that passes a layer has a lane there, which all lines from the same job share; lines
into a job end in one port for each condition, so that its word stands there once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from reservation_core.domain.jobs.asked_dependencies import DependencyWhen
from reservation_core.ports.jobs.dependencies import DependencyLink

BOX_WIDTH, BOX_HEIGHT = 208, 64
_GAP, _PORT_WIDTH = 128, 72
_LANE_HEIGHT = 12
_BETWEEN = 16
_EDGE = 12
_SWEEPS = 6

_Slot = tuple[str, bool]
"""A job in a column (True), or the lane of lines from a job through a column (False)."""


@dataclass(frozen=True, slots=True)
class Port:
    """Where lines arrive at a job; `when` is what the jobs that they come from have to do."""

    x: int
    y: int
    when: DependencyWhen


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """`places` are the left upper corners of jobs by id, in reading order. `lines` are paths of SVG."""

    width: int
    height: int
    places: Mapping[str, tuple[int, int]]
    ports: Sequence[Port]
    lines: Sequence[str]


def lay_out(layers: Mapping[str, int], links: Sequence[DependencyLink]) -> GraphLayout:
    """Lay out jobs by their layers, and the links between them, each of which leads to a greater layer."""
    segments = _segments(layers, links)
    columns = _columns(layers, segments)
    first = min(columns)
    heights = {layer: sum(_height(slot) + _BETWEEN for slot in column) - _BETWEEN for layer, column in columns.items()}
    tallest = max(heights.values())
    middles: dict[tuple[_Slot, int], tuple[int, int]] = {}
    places: dict[str, tuple[int, int]] = {}
    lines: list[str] = []
    for layer, column in sorted(columns.items()):
        x, y = _EDGE + (layer - first) * (BOX_WIDTH + _GAP), _EDGE + (tallest - heights[layer]) // 2
        for slot in column:
            middles[slot, layer] = x, y + _height(slot) // 2
            if slot[1]:
                places[slot[0]] = x, y
            else:
                lines.append(f"M{x} {y + _LANE_HEIGHT // 2}h{BOX_WIDTH}")
            y += _height(slot) + _BETWEEN
    ports = _ports(places, links)
    for start, layer, end, when in segments:
        x, y = middles[start, layer]
        if when is None:
            lines.append(_curve(x + BOX_WIDTH, y, *middles[end, layer + 1]))
        else:
            port = ports[end[0], when]
            lines.append(_curve(x + BOX_WIDTH, y, port.x - _PORT_WIDTH, port.y))
    lines += [f"M{port.x - _PORT_WIDTH} {port.y}h{_PORT_WIDTH}" for port in ports.values()]
    width = 2 * _EDGE + (max(columns) - first) * (BOX_WIDTH + _GAP) + BOX_WIDTH
    return GraphLayout(width, tallest + 2 * _EDGE, places, list(ports.values()), lines)


def _segments(
    layers: Mapping[str, int], links: Sequence[DependencyLink]
) -> list[tuple[_Slot, int, _Slot, DependencyWhen | None]]:
    """Lines from a slot of a layer to a slot of the next one; with a condition where they arrive at a job."""
    found: dict[tuple[_Slot, int, _Slot, DependencyWhen | None], None] = {}
    for link in links:
        at, lane = (link.needed, True), (link.needed, False)
        for layer in range(layers[link.needed], layers[link.waiting] - 1):
            found[at, layer, lane, None] = None
            at = lane
        found[at, layers[link.waiting] - 1, (link.waiting, True), link.when] = None
    return list(found)


def _columns(
    layers: Mapping[str, int], segments: Sequence[tuple[_Slot, int, _Slot, DependencyWhen | None]]
) -> dict[int, list[_Slot]]:
    """The slots of each layer from top to bottom: each near those that it has lines to."""
    columns: dict[int, list[_Slot]] = {}
    for job, layer in layers.items():
        columns.setdefault(layer, []).append((job, True))
    neighbours: dict[tuple[_Slot, int], dict[int, list[_Slot]]] = {}
    for start, layer, end, _ in segments:
        if not end[1] and end not in columns[layer + 1]:
            columns[layer + 1].append(end)
        neighbours.setdefault((start, layer), {}).setdefault(layer + 1, []).append(end)
        neighbours.setdefault((end, layer + 1), {}).setdefault(layer, []).append(start)
    order = sorted(columns)
    for sweep in range(_SWEEPS):
        step = 1 if sweep % 2 == 0 else -1
        for layer in order[1:] if step > 0 else order[-2::-1]:
            beside = {slot: place for place, slot in enumerate(columns[layer - step])}
            stretch = len(columns[layer - step]) / len(columns[layer])
            heights = {
                slot: fmean([beside[other] for other in near])
                if (near := neighbours.get((slot, layer), {}).get(layer - step))
                else place * stretch
                for place, slot in enumerate(columns[layer])
            }
            columns[layer].sort(key=heights.__getitem__)
    return columns


def _height(slot: _Slot) -> int:
    return BOX_HEIGHT if slot[1] else _LANE_HEIGHT


def _ports(
    places: Mapping[str, tuple[int, int]], links: Sequence[DependencyLink]
) -> dict[tuple[str, DependencyWhen], Port]:
    """The ports of each job, one above the other."""
    conditions: dict[str, dict[DependencyWhen, None]] = {}
    for link in links:
        conditions.setdefault(link.waiting, {})[link.when] = None
    ports: dict[tuple[str, DependencyWhen], Port] = {}
    for job, whens in conditions.items():
        x, y = places[job]
        for number, when in enumerate(whens, 1):
            ports[job, when] = Port(x, y + BOX_HEIGHT * number // (len(whens) + 1), when)
    return ports


def _curve(x: int, y: int, to_x: int, to_y: int) -> str:
    middle = (x + to_x) // 2
    return f"M{x} {y}C{middle} {y} {middle} {to_y} {to_x} {to_y}"
