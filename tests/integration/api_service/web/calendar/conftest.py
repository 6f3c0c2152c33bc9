"""Nodes for the calendar's pages."""

import pytest

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes


@pytest.fixture
async def lab(runtime: Runtime) -> None:
    """Two nodes."""
    await add_nodes(runtime, titan=("h100", 4), rhea=("a100", 2))


@pytest.fixture
async def two_nodes(runtime: Runtime) -> None:
    """Two nodes of a type."""
    await add_nodes(runtime, titan=("h100", 2), titus=("h100", 1))
