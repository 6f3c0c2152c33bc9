"""Rules that are set over REST, and GPUs that they hold for."""

import httpx
import pytest

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import (
    add_nodes,
    execute,
)


@pytest.fixture(autouse=True)
async def lab(runtime: Runtime) -> None:
    """Two types: `a` has four h100, `b` two t4."""
    await add_nodes(runtime, a=("h100", 4), b=("t4", 2))


async def put(root: httpx.AsyncClient, scope: str, **rules: object) -> dict[str, object]:
    """Rules that were set."""
    response = await root.put(f"/v1/policy/{scope}", json=rules)
    assert response.status_code == 200, response.text
    answer: dict[str, object] = response.json()
    return answer


async def earlier(runtime: Runtime, hours: int, *bookings: str) -> None:
    """As if these had been so much earlier."""
    for booking in bookings:
        await execute(
            runtime,
            "UPDATE allocations SET during = tstzrange(lower(during) - make_interval(hours => :hours), "
            "upper(during) - make_interval(hours => :hours)) WHERE reservation_id = :id RETURNING id",
            hours=hours,
            id=booking,
        )


def codes(problem: httpx.Response) -> list[str]:
    return [rule["code"] for rule in problem.json()["broken_rules"]]
