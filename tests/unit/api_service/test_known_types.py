"""The types of GPUs, of which the database is asked seldom."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from api_service import known_types
from api_service.known_types import KnownTypes
from reservation_core.domain.errors import NoSuchTypeError
from reservation_core.domain.policy.limits import NO_POLICY


class Database:
    """Answers after a turn of the loop, and counts how often it was asked."""

    def __init__(self) -> None:
        self.types: list[str] = []
        self.asked = 0

    @asynccontextmanager
    async def __call__(self, *, one_statement: bool) -> AsyncIterator[Any]:
        assert one_statement

        async def types() -> list[str]:
            self.asked += 1
            await asyncio.sleep(0)
            return self.types

        yield SimpleNamespace(inventory=SimpleNamespace(types=types))


async def test_before_any_gpu_one_of_many_submissions_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database()
    known = KnownTypes(cast("Any", database), ())
    monkeypatch.setattr(known_types, "_NONE_FOR_S", 0.0)  # the next submission asks again
    await known.check("h100", NO_POLICY, is_admin=False)
    monkeypatch.setattr(known_types, "_NONE_FOR_S", 60.0)
    await asyncio.gather(*(known.check("h100", NO_POLICY, is_admin=False) for _ in range(10)))
    assert database.asked == 2


async def test_no_submission_of_an_unknown_type_passes_beside_the_first_question() -> None:
    database = Database()
    database.types = ["a100"]
    known = KnownTypes(cast("Any", database), ())
    answers = await asyncio.gather(
        *(known.check("h100", NO_POLICY, is_admin=False) for _ in range(3)), return_exceptions=True
    )
    assert all(isinstance(answer, NoSuchTypeError) for answer in answers)
