"""Clients that leave at bad moments, read nothing, or try to get in where they may not."""

import pytest
from websockets.exceptions import InvalidStatus

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.callers import People
from tests.integration.api_service.sessions.conftest import Enter
from tests.sql import sql


@pytest.mark.parametrize("way", ["exec", "forward/80"])
async def test_a_token_that_reads_enters_nothing_by_an_odd_address(
    enter: Enter, job: str, runtime: Runtime, people: People, way: str
) -> None:
    async with runtime.uow() as uow:
        await sql(uow, "UPDATE tokens SET scopes = '{read}'")
    for ending in ("", "%0A", "%0a%0a", "/"):
        with pytest.raises(InvalidStatus) as refused:
            async with enter(job, way + ending):
                pass
        assert refused.value.response.status_code in (403, 404), ending
