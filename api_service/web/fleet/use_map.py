"""The heat map of the use of GPUs: a cell for each GPU, in steps that differ by shade and by how full a cell is."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2s

from api_service.web.fleet.card_tiles import WORDS, TileState, state_of
from api_service.web.fleet.fleet import FleetNode
from api_service.web.fleet.node_groups import NodeGroup
from api_service.web.fleet.node_markup import Look
from api_service.web.fleet.use_reading import FleetUse
from reservation_core.domain.statuses import ReservationKind
from reservation_core.ports.gpu_use import GpuUseNow
from reservation_core.ports.nodes.cards_now import GpuNow

MOST_CELLS = 4096
"""Of more GPUs, groups are shown as counts alone."""
MOST_IN_BLOCK = 256
"""Cells that a browser shows in one frame, where there are more than it draws at once."""
MOST_AT_ONCE = 1024


class UseStep(StrEnum):
    """How busy a GPU is; the value is the cell's CSS class."""

    NONE = "un"
    IDLE = "u0"
    LOW = "u1"
    HALF = "u2"
    HIGH = "u3"
    FULL = "u4"


STEP_WORDS = {
    UseStep.IDLE: "Below 10%",
    UseStep.LOW: "10 to 34%",
    UseStep.HALF: "35 to 64%",
    UseStep.HIGH: "65 to 89%",
    UseStep.FULL: "90% or more",
    UseStep.NONE: "No data",
}
_FROM = ((90, UseStep.FULL), (65, UseStep.HIGH), (35, UseStep.HALF), (10, UseStep.LOW))


def percent_of(use: GpuUseNow | None) -> int | None:
    """The utilisation in whole percent; None: no data."""
    utilisation = None if use is None or use.sample is None else use.sample.utilisation
    return None if utilisation is None else round(100 * utilisation)


def step_of(percent: int | None) -> UseStep:
    """The step of a utilisation in percent."""
    if percent is None:
        return UseStep.NONE
    return next((step for least, step in _FROM if percent >= least), UseStep.IDLE)


@dataclass(frozen=True, slots=True)
class UseCell:
    """One GPU. `said` is its one-line description; `address` is a query."""

    step: UseStep
    percent: int | None
    said: str
    address: str


@dataclass(frozen=True, slots=True)
class UseGroup:
    """The GPUs of a group of nodes."""

    group: NodeGroup
    cells: Sequence[UseCell]

    @property
    def blocks(self) -> Iterable[Sequence[UseCell]]:
        """The cells in parts of a frame each."""
        return (self.cells[start : start + MOST_IN_BLOCK] for start in range(0, len(self.cells), MOST_IN_BLOCK))

    @property
    def sum(self) -> str:
        """What the cells say together, such as `12 of 64 GPUs below 10%, mean 48%, 3 without data`."""
        known = [cell.percent for cell in self.cells if cell.percent is not None]
        count = len(self.cells)
        noun = "GPU" if count == 1 else "GPUs"
        if not known:
            return f"{count} {noun} without data"
        idle = sum(cell.step is UseStep.IDLE for cell in self.cells)
        words = f"{idle} of {count} {noun} below 10%, mean {round(sum(known) / len(known))}%"
        return words if len(known) == count else f"{words}, {count - len(known)} without data"


@dataclass(frozen=True, slots=True)
class UseMap:
    """The groups of a page. `simulated`: samples are played back from a recording."""

    groups: Sequence[UseGroup]
    simulated: bool

    @property
    def cells(self) -> Iterable[UseCell]:
        return (cell for group in self.groups for cell in group.cells)

    @property
    def drawn(self) -> bool:
        """Whether there are few enough GPUs for a cell each."""
        return self._count <= MOST_CELLS

    @property
    def by_blocks(self) -> bool:
        """Whether there are so many cells that a script shows them block by block."""
        return MOST_AT_ONCE < self._count <= MOST_CELLS

    @property
    def _count(self) -> int:
        return sum(len(group.cells) for group in self.groups)

    @property
    def steps(self) -> Sequence[tuple[UseStep, str, int]]:
        """How many GPUs there are in each step."""
        counts = Counter(cell.step for cell in self.cells)
        return [(step, words, counts[step]) for step, words in STEP_WORDS.items()]

    @property
    def mark(self) -> str:
        """Which GPUs are shown, in which order: a page with the same mark has the same cells."""
        return blake2s("\n".join(cell.address for cell in self.cells).encode(), digest_size=8).hexdigest()


def use_map(groups: Iterable[NodeGroup], use: FleetUse, look: Look) -> UseMap:
    """The use of the GPUs that a filter shows, for one viewer."""
    drawn = [UseGroup(group, [*_cells(group, use, look)]) for group in groups]
    simulated = any(gpu.simulated and gpu.sample is not None for gpu in use.gpus.values())
    return UseMap(drawn, simulated)


def _cells(group: NodeGroup, use: FleetUse, look: Look) -> Iterable[UseCell]:
    for node in group.nodes:
        for card in node.cards:
            if look.shows(card):
                yield _cell(node, card, use.gpus.get((node.name, card.index)), look)


def _cell(node: FleetNode, card: GpuNow, use: GpuUseNow | None, look: Look) -> UseCell:
    percent = percent_of(use)
    words = "no data" if percent is None else f"{percent}% used"
    said = f"{node.name}, GPU {card.index}: {words}, {_holder(node, card, use, look)}"
    return UseCell(step_of(percent), percent, said, f"?view=use&card={node.address}/{card.index}")


def _holder(node: FleetNode, card: GpuNow, use: GpuUseNow | None, look: Look) -> str:
    """What has the GPU; its id and owner only where the viewer may see these."""
    holder = None if use is None else use.holder
    if holder is not None and holder.kind is not ReservationKind.MAINTENANCE:
        if holder.user_id == look.sight.caller.user_id:
            return f"yours: {holder.id}"
        return f"{holder.id} ({holder.user})" if look.sight.sees(holder.user_id) else "held"
    state = state_of(card, available=node.now.available, user_id=look.sight.caller.user_id)
    return "held" if state in (TileState.MINE, TileState.OTHERS) else WORDS[state].lower()
