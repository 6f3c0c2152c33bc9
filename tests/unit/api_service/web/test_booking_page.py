"""What the page of a booking reads."""

import asyncio
from typing import Any, cast

import pytest

from api_service.web.rest_calls import RestProblemError
from api_service.web.routes.bookings import _jobs
from api_service.web.visit import Visit
from reservation_core.contracts.bookings import BookingOut

OTHERS = 3


class Rest:
    """Refuses the first job and answers nothing about the others."""

    def __init__(self) -> None:
        self.open = 0
        self.all_are_open = asyncio.Event()

    async def get(self, _: object, path: str) -> Any:
        if path.endswith("job-4"):
            await self.all_are_open.wait()
            raise RestProblemError.because(503, "The database does not answer.")
        self.open += 1
        if self.open == OTHERS:
            self.all_are_open.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.open -= 1


class Page:
    """A visit of which only REST is asked."""

    def __init__(self) -> None:
        self.rest = Rest()

    def encoded(self, text: str) -> str:
        return text


async def test_nothing_goes_on_after_a_job_could_not_be_read() -> None:
    page = Page()
    booking = BookingOut.model_construct(jobs=[f"job-{number}" for number in range(1, 5)])
    with pytest.raises(RestProblemError):
        await _jobs(cast("Visit", page), booking)
    assert page.rest.open == 0
