"""Rows of cards, as readers see these."""

from typing import Any

from sqlalchemy import Row

from reservation_core.domain.model import GpuState, ReservationKind
from reservation_core.ports.cards_now import CardHold, CardNow


def card_now_of(row: Row[Any]) -> CardNow:
    """One row of `cards_now`."""
    holder = follower = None
    if row.holder_id is not None:
        holder = CardHold(
            row.holder_id,
            ReservationKind(row.holder_kind),
            row.holder_user_id,
            row.holder_user,
            row.holder_starts_at,
            row.holder_ends_at,
        )
    if row.next_id is not None:
        follower = CardHold(
            row.next_id,
            ReservationKind(row.next_kind),
            row.next_user_id,
            row.next_user,
            row.next_starts_at,
            row.next_ends_at,
        )
    return CardNow(
        row.node, row.card_index, row.uuid, row.gpu_type, row.memory_bytes, GpuState(row.state), holder, follower
    )
