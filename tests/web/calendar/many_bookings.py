"""Hundreds of bookings for a calendar to show, made by the product's own rules in one transaction.

Over REST each is a request, and a transaction after which the planner plans anew.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from reservation_core.contracts.bookings import BookingCreate
from reservation_core.domain.errors import NotBookableError
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import open_runtime
from reservation_core.usecases.bookings.book import book
from tests.web.web_system import WebSystem

Book = Callable[[str, dict[str, Any]], Awaitable[bool]]


@asynccontextmanager
async def booking_at_once(system: WebSystem, database_url: str, home: Path) -> AsyncIterator[Book]:
    """`await book(who, body)`: whether that was booked. All is there after the block."""
    async with open_runtime(ApiSettings(home=home), database_url) as runtime, runtime.uow() as uow:
        now = await uow.now()
        people = {
            name: await uow.identities.principal(runtime.ids.digest(token), now)
            for name, token in system.tokens.items()
        }

        async def book_one(who: str, body: dict[str, Any]) -> bool:
            principal = people[who]
            assert principal is not None
            try:
                await book(uow, principal, BookingCreate.model_validate(body), runtime.ids)
            except NotBookableError:
                return False
            return True

        yield book_one
