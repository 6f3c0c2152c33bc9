"""The cards that the ledger has promised, read again and again for who places pods that the ledger does not know."""

import asyncio
from collections.abc import Callable, Iterable

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.postgres.driver_errors import told_as_unavailable
from reservation_core.adapters.postgres.entitlements import PostgresEntitlements
from reservation_core.domain.map_placement import Reserved, ReservedCards
from reservation_core.ports.entitlements import PromisedCard
from reservation_core.ports.transactions import DatabaseUnavailableError, TransactionLostError

_log = structlog.get_logger(__name__)


class PromisedCards:
    """Reads every `every_s` seconds; what is older than `patience_s` is no knowledge any more."""

    def __init__(self, engine: AsyncEngine, every_s: float, patience_s: float) -> None:
        self._engine = engine
        self._every_s = every_s
        self._patience_s = patience_s
        self._read_at: float | None = None

    def known(self) -> bool:
        """Whether it is known which cards are promised. Nothing may be placed while it is not."""
        return self._read_at is not None and asyncio.get_running_loop().time() - self._read_at < self._patience_s

    async def keep(self, tell: Callable[[ReservedCards], None], known_again: Callable[[], None]) -> None:
        """Read and tell, for ever; `known_again` whenever it was not known before."""
        while True:
            begun = asyncio.get_running_loop().time()
            try:
                found = by_card(await self._read())
            except (DatabaseUnavailableError, TransactionLostError, TimeoutError) as error:
                why = str(error) or "no answer in time"
                _log.warning("the promised cards could not be read; trying again", error=why)
            else:
                known = self.known()
                self._read_at = begun
                tell(found)
                if not known:
                    known_again()
            await asyncio.sleep(self._every_s)

    async def _read(self) -> Iterable[PromisedCard]:
        # A connection may be dead without anybody being told: what takes so long is no knowledge any more anyway.
        async with asyncio.timeout(self._patience_s):
            with told_as_unavailable() as reached:
                async with self._engine.connect() as connection:
                    reached.connected = True
                    return await PostgresEntitlements(connection).promised_cards()


def by_card(found: Iterable[PromisedCard]) -> ReservedCards:
    """What is promised, by node and index, those that begin first first."""
    cards: dict[str, dict[int, list[Reserved]]] = {}
    for each in found:
        times = f"from {each.starts_at:%Y-%m-%d %H:%M} to {each.ends_at:%Y-%m-%d %H:%M} UTC"
        detail = f"Card {each.index} of {each.node} is {each.reservation_id}'s {times}."
        reserved = Reserved(each.reservation_id, each.starts_at, detail)
        cards.setdefault(each.node, {}).setdefault(each.index, []).append(reserved)
    return {
        node: {index: tuple(sorted(each, key=lambda one: one.starts_at)) for index, each in of_node.items()}
        for node, of_node in cards.items()
    }
