"""The ledger's promised cards, read repeatedly for placing pods that the ledger does not know."""

from collections.abc import Iterable
from datetime import UTC

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from pod_scheduling.domain.maps.map_placement import Reserved, ReservedCards
from reservation_core.adapters.postgres.policy.entitlements import Entitlements
from reservation_core.domain.time_words import range_words
from reservation_core.ports.policy.entitlements import PromisedGpu
from reservation_core.runtime.reading.repeated_reading import RepeatedReading


class PromisedCards(RepeatedReading[ReservedCards]):
    """By node and index. Times are in seconds."""

    def __init__(self, engine: AsyncEngine, every_s: float, patience_s: float) -> None:
        super().__init__(engine, every_s, patience_s, _promised, "the promised GPUs")


async def _promised(connection: AsyncConnection) -> ReservedCards:
    return by_card(await Entitlements(connection).promised_cards())


def by_card(found: Iterable[PromisedGpu]) -> ReservedCards:
    """Promised cards, by node and index, those that begin first first."""
    cards: dict[str, dict[int, list[Reserved]]] = {}
    for card in found:
        times = f"from {range_words(card.starts_at, card.ends_at, UTC)}"
        detail = f"GPU {card.index} of {card.node} is {card.reservation_id}'s {times}."
        reserved = Reserved(card.reservation_id, card.starts_at, detail)
        cards.setdefault(card.node, {}).setdefault(card.index, []).append(reserved)
    return {
        node: {index: tuple(sorted(promises, key=lambda one: one.starts_at)) for index, promises in of_node.items()}
        for node, of_node in cards.items()
    }
