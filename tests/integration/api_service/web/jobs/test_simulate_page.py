"""The page that simulates the queue: a form, and what came of it."""

import re

import pytest

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes
from tests.integration.api_service.policy.test_simulations import add_past
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn

pytestmark = pytest.mark.usefixtures("simulated_here")


async def test_the_form_is_shown_without_a_simulation(browsing: SignedIn) -> None:
    shown = words(await (await browsing("alice")).get("/simulate"))
    assert "How long would your jobs have waited" in shown
    assert "Changed" not in shown


async def test_two_nodes_more_are_answered_with_a_table_and_curves(browsing: SignedIn, runtime: Runtime) -> None:
    await add_nodes(runtime, node1=("h100", 4))
    await add_past(runtime, "alice", (30, 4, 2), (30, 4, 2))
    await add_past(runtime, "bob", (30, 4, 2))
    page = await (await browsing("root")).get("/simulate?days=30&more=2&type=h100&order=area&share=PT0S")
    shown = words(page)
    assert (
        "With 2 more h100 nodes, small jobs first and no fair shares, no job would have waited; today jobs wait"
        in shown
    )
    assert "Of 3 jobs Today Changed GPUs 4 12" in shown
    assert "Mean waits of users" in shown
    assert "with all GPUs free and no GPU-hours used" in shown
    own = words(await (await browsing("alice")).get("/simulate?days=30"))
    assert "Unchanged, jobs would have waited as long as today" in own
    assert "Mean waits of users" not in own
    assert "bob" not in own


@pytest.mark.parametrize("days", ["days=45&", ""], ids=("simulated", "not yet"))
async def test_the_address_fills_the_form_in(browsing: SignedIn, runtime: Runtime, days: str) -> None:
    """A link is ready to be sent again, or for the first time; without days nothing is simulated."""
    await add_nodes(runtime, node1=("h100", 4), node2=("t4", 2))
    await add_past(runtime, "alice", (30, 4, 2))
    page = await (await browsing("alice")).get(f"/simulate?{days}more=3&type=t4&order=area&share=PT0S")
    fields = dict(re.findall(r'<input id="(days|more)" .*? value="(.*?)">', page))
    assert fields == {"days": "45" if days else "90", "more": "3"}
    chosen = re.findall(r"<option(?: value=\"([^\"]*)\")? selected>(.*?)</option>", page)
    assert chosen == [("", "t4"), ("area", "Small jobs first"), ("PT0S", "No fair shares")]
    assert ("What this leaves out" in words(page)) is bool(days)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("days=soon", "whole numbers"),
        ("days=30&more=-1", "whole numbers"),
        ("days=0", "1 to 400 days"),
        ("days=9999", "400 days"),
        ("days=30&more=999", "256 nodes"),
        ("days=30&more=1&type=t4", "t4"),
        ("days=30&order=size", "Order: must be"),
        ("days=1", "No job is left to simulate."),
    ],
)
async def test_what_can_not_be_simulated_is_said_beside_the_form(
    browsing: SignedIn, runtime: Runtime, query: str, sentence: str
) -> None:
    await add_nodes(runtime, node1=("h100", 4))
    await add_past(runtime, "alice", (30, 4, 2))
    answer = await (await browsing("alice")).client.get(f"/simulate?{query}")
    assert answer.status_code == 422
    assert sentence in answer.text
    assert 'name="days"' in answer.text
    assert "broken_rules" not in answer.text
