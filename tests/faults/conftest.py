"""A system per test, on a database and in a folder of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.faults.systems.invariants", "tests.faults.systems.system")

from tests.faults.systems.system import System, open_system  # noqa: E402


@pytest.fixture
def gpus() -> str:
    """The simulated cards; a test module may have others."""
    return "a=h100:4;b=h100:4"


@pytest.fixture
async def system(database_url: str, tmp_path: Path, gpus: str) -> AsyncIterator[System]:
    """An installation with its inventory, without a processor."""
    async with open_system(database_url, tmp_path, gpus) as opened:
        yield opened
