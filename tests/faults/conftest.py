"""A system per test, on a database and in a folder of its own."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.faults.invariants", "tests.faults.system")

from tests.faults.system import System, open_system  # noqa: E402
from tests.prepared_processes import prepared_processes  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def _processes_are_prepared(session_folder: Path) -> Iterator[None]:
    """Before the session's folder is looked at: what processes are forked from is gone by then."""
    folder = session_folder / "forking"
    folder.mkdir(mode=0o700)
    with prepared_processes(folder):
        yield


@pytest.fixture
def gpus() -> str:
    """The simulated cards; a test module may have others."""
    return "a=h100:4;b=h100:4"


@pytest.fixture
async def system(database_url: str, tmp_path: Path, gpus: str) -> AsyncIterator[System]:
    """An installation with its inventory, without a processor."""
    async with open_system(database_url, tmp_path, gpus) as opened:
        yield opened
