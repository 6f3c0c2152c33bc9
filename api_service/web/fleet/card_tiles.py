"""A GPU's tile: its state for a viewer, and words on its holder and the end of the hold."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from api_service.access.sight import Sight
from reservation_core.domain.statuses import GpuState, ReservationKind
from reservation_core.ports.nodes.cards_now import GpuHold, GpuNow


class TileState(StrEnum):
    """A GPU's state for a viewer who wants one; the value is the tile's CSS class."""

    FREE = "free"
    SOON = "soon"
    MINE = "mine"
    OTHERS = "others"
    MAINTENANCE = "maintenance"
    LOST = "lost"
    FOREIGN = "foreign"
    QUARANTINED = "quarantined"
    AWAY = "away"


WORDS = {
    TileState.FREE: "Free",
    TileState.SOON: "Free, taken soon",
    TileState.MINE: "Yours",
    TileState.OTHERS: "Taken",
    TileState.MAINTENANCE: "Maintenance",
    TileState.LOST: "Lost",
    TileState.FOREIGN: "Used from outside",
    TileState.QUARANTINED: "Quarantined",
    TileState.AWAY: "Not given out",
}
MEANINGS = {
    TileState.FREE: "It is free for the next hour.",
    TileState.SOON: "It is free now, but promised to a job, booked or in maintenance within the hour.",
    TileState.MINE: "A job or booking of yours has it.",
    TileState.OTHERS: "Another user's job or booking has it.",
    TileState.MAINTENANCE: "It is in a maintenance window.",
    TileState.LOST: "Its node no longer reports it.",
    TileState.FOREIGN: "A pod that was not started here uses it.",
    TileState.QUARANTINED: "Kept out of use: its node does not answer or is fenced, or the GPU is faulty.",
    TileState.AWAY: "Its node takes nothing new.",
}
_TAKEN_SOON = {
    ReservationKind.JOB: "Free, promised soon",
    ReservationKind.BOOKING: "Free, booked soon",
    ReservationKind.MAINTENANCE: "Free, maintenance soon",
}
OUT_OF_USE = (TileState.LOST, TileState.FOREIGN, TileState.QUARANTINED, TileState.AWAY)


def state_of(card: GpuNow, *, available: bool, user_id: int | None = None) -> TileState:
    """A GPU's state for a user; without a user, no GPU is `mine`. `available`: its node gets new work."""
    match card.state:
        case GpuState.HELD:
            mine = card.holder is not None and card.holder.user_id == user_id
            return TileState.MINE if mine else TileState.OTHERS
        case GpuState.FREE:
            if not available:
                return TileState.AWAY
            return TileState.FREE if card.follower is None else TileState.SOON
        case GpuState.MAINTENANCE:
            return TileState.MAINTENANCE
        case GpuState.LOST:
            return TileState.LOST
        case GpuState.FOREIGN:
            return TileState.FOREIGN
        case GpuState.QUARANTINED:
            return TileState.QUARANTINED
        case _:
            assert_never(card.state)


def word_of(card: GpuNow, state: TileState) -> str:
    """A GPU's state in words; of one that is taken soon, by what."""
    if state is TileState.SOON and card.follower is not None:
        return _TAKEN_SOON[card.follower.kind]
    return WORDS[state]


@dataclass(frozen=True, slots=True)
class Tile:
    """A drawn GPU. `said` is its one-line description; `address` is a query."""

    index: int
    state: TileState
    word: str
    kind: str
    until: str
    said: str
    address: str


@dataclass(frozen=True, slots=True)
class TileWriter:
    """Writes tiles for one viewer; `clock` writes times in the viewer's zone."""

    sight: Sight
    clock: Callable[[datetime], str]

    @property
    def user_id(self) -> int:
        return self.sight.caller.user_id

    def tile(self, card: GpuNow, *, available: bool, address: str) -> Tile:
        """A GPU as the viewer sees it; `address` is its node's name, percent-encoded."""
        state = state_of(card, available=available, user_id=self.user_id)
        until = self.until(card, state)
        word = word_of(card, state)
        said = f"GPU {card.index}: {word.lower()}{', ' if until else ''}{until}"
        return Tile(card.index, state, word, card.gpu_type, until, said, f"?card={address}/{card.index}")

    def until(self, card: GpuNow, state: TileState) -> str:
        """The holder and the end of the hold, or the start of the next one; empty without either."""
        if state is TileState.SOON and card.follower is not None:
            return f"{self.clock(card.follower.starts_at)}: {self.whose(card.follower)}"
        if card.holder is None:
            return ""
        whose = "" if state in (TileState.MINE, TileState.MAINTENANCE) else self.whose(card.holder) + " "
        return f"{whose}until {self.clock(card.holder.ends_at)}"

    def whose(self, hold: GpuHold) -> str:
        """The owner, in a word or two."""
        if hold.kind is ReservationKind.MAINTENANCE:
            return "maintenance"
        if hold.user_id == self.user_id:
            return "you"
        return hold.user if self.sight.sees(hold.user_id) else "somebody"
