"""Why a job waits, on its page, as a browser without scripts has it."""

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from reservation_core.adapters.postgres.connection import direct
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.runtime.settings.components import ApiSettings, Holders
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, at, booked, booked_now, execute, ledger
from tests.integration.api_service.callers import People
from tests.integration.api_service.policy.test_verdicts import Lab
from tests.integration.api_service.web.browsing import Browser, words
from tests.integration.api_service.web.conftest import SignedIn

_LANE = re.compile(r'<div class="lane"><span class="lane-name" title="([^"]*)">.*?</svg></div>', re.DOTALL)


@pytest.fixture
async def lab(alice: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime, settings: ApiSettings) -> Lab:
    """One node of four h100."""
    await add_nodes(runtime, titan=("h100", 4))
    return Lab(alice, root, runtime, settings)


async def submitted(client: httpx.AsyncClient, **changed: Any) -> str:
    body = {"gpus": 1, "gpu_type": "h100", "duration": "PT1H", "workload": {"command": ["true"]}, **changed}
    response = await client.post("/v1/jobs", json=body)
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


def lanes(page: str) -> dict[str, str]:
    """The rows of the picture by name, as HTML."""
    return {found[1]: found[0] for found in _LANE.finditer(page)}


def begins(name: str, start: str, page: str) -> bool:
    """Whether the page says so of a bar; of another day than today, with the day."""
    return re.search(rf"{name}, from [\w ]*{start[11:16]}", page) is not None


@pytest.fixture
async def waiting(lab: Lab, bob: httpx.AsyncClient) -> str:
    """Alice's job of three GPUs for two hours, which waits for bob's job of two and her own booking of one."""
    await submitted(bob, gpus=2, duration="PT90M", name="bobs sweep")
    await lab.plan()
    await booked_now(lab.alice, gpus=1, gpu_type="h100", duration="PT3H", title="hers")
    job = await submitted(lab.alice, gpus=3, duration="PT2H", name="train")
    await lab.plan()
    return job


async def test_the_slot_is_on_the_gpus_that_the_ledger_promises(
    waiting: str, lab: Lab, browsing: SignedIn, runtime: Runtime
) -> None:
    page = await (await browsing("alice")).get(f"/jobs/{waiting}")
    rows = lanes(page)
    promised = {f"{node} / {index}" for node, index, _, _ in await ledger(runtime, waiting)}
    assert len(promised) == 3
    assert {name for name, row in rows.items() if "bar-of slot" in row} == promised
    job = (await lab.alice.get(f"/v1/jobs/{waiting}")).json()
    assert f'<time datetime="{job["estimated_start_at"]}"' in page
    assert sum('bob (runs)<span class="rest">, until' in row for row in rows.values()) == 2
    assert sum('hers<span class="rest">, until' in row for row in rows.values()) == 1
    assert "bar-of taken" not in page
    assert "The same as a list" in page
    assert begins("Its slot", job["estimated_start_at"], page)


async def test_a_smaller_request_is_asked_about_without_scripts(waiting: str, lab: Lab, browsing: SignedIn) -> None:
    browser = await browsing("alice")
    page = await browser.get(f"/jobs/{waiting}?size=1x1&duration=7200")
    assert "With 1 GPU for 2 h it would start now ( 1 h 3" in words(page).replace("(1", "( 1")
    assert '<option value="1x1" selected>1 GPU</option>' in page
    assert f"/submit?again={waiting}&amp;gpus=1&amp;nodes=1&amp;duration=2h&amp;instead_of={waiting}" in page
    form = await browser.get(f"/submit?again={waiting}&gpus=1&nodes=1&duration=2h")
    assert 'name="gpus" type="number" value="1"' in form
    assert 'value="train"' in form
    same = await browser.get(f"/jobs/{waiting}?size=1x3&duration=3600")
    assert "With 3 GPUs for 1 h it would start about" in words(same)
    assert "(no sooner), because: Until then, other jobs or bookings hold GPUs that it needs" in words(same)
    for nonsense in ("size=9x9&duration=1", "size=x&duration=", "size=1x3&duration=7200"):
        assert "it would" not in words(await browser.get(f"/jobs/{waiting}?{nonsense}"))
    assert (await lab.alice.get(f"/v1/jobs/{waiting}")).json()["gpus"] == 3
    assert len((await lab.alice.get("/v1/queue")).json()["items"]) == 1


async def test_a_job_takes_the_place_of_one_that_waits_and_of_no_other(
    waiting: str, lab: Lab, browsing: SignedIn
) -> None:
    browser = await browsing("alice")
    page = await browser.get(f"/submit?again={waiting}&gpus=1&instead_of={waiting}")
    assert f'name="instead_of" value="{waiting}" checked' in page
    assert "Starts now" in words(page)
    fields = {"gpus": "1", "nodes": "1", "duration": "2h", "command": "true", "instead_of": waiting}
    assert "Starts now" in words((await browser.send("/submit/verdict", **fields)).text)
    # What no verdict depends on is no reason to refuse a job that the server accepts.
    more = {"retries": "3", "requeue": "yes", "secrets": "HF_TOKEN", "name": "x", "priority": "-1", "env": "A=1"}
    assert "Starts now" in words((await browser.send("/submit/verdict", **fields, **more)).text)
    refused = await browser.send("/submit", **{**fields, "duration": "never"})
    assert f'name="instead_of" value="{waiting}" checked' in refused.text
    assert (await lab.alice.get(f"/v1/jobs/{waiting}")).json()["status"] == "queued"
    for key in ("k-1", "k-1"):  # sent twice
        done = await browser.send("/submit", **fields, key=key)
        assert f"{waiting} is cancelled." in words(await browser.get(done.headers["location"]))
    [after] = (await lab.alice.get("/v1/queue")).json()["items"]
    assert after["id"] == done.headers["location"].removeprefix("/jobs/")
    await lab.plan()
    started = await browser.send("/submit", **{**fields, "instead_of": after["id"]}, key="k-2")
    page = words(await browser.get(started.headers["location"]))
    assert f"{after['id']} was not cancelled: it no longer waits." in page
    assert (await lab.alice.get(f"/v1/jobs/{after['id']}")).json()["status"] == "starting"
    verdict = words((await browser.send("/submit/verdict", **{**fields, "instead_of": after["id"]})).text)
    assert "It starts about" in verdict
    other = await browsing("bob")
    assert 'name="instead_of"' not in await other.get(f"/submit?instead_of={started.headers['location'][6:]}")


async def test_a_job_may_spend_the_budget_of_the_one_whose_place_it_takes(
    waiting: str, lab: Lab, people: People, browsing: SignedIn
) -> None:
    made = await lab.alice.post("/v1/tokens", json={"name": "agent", "budget": {"gpu_hours": 8}})
    people.secrets["agent"] = made.json()["token"]
    browser = await browsing("agent")
    fields = {"gpus": "4", "nodes": "1", "duration": "2h", "command": "true"}
    first = (await browser.send("/submit", **fields, key="k-1")).headers["location"].removeprefix("/jobs/")
    fields |= {"gpus": "3", "instead_of": first}
    assert "Refused" in words((await browser.send("/submit/verdict", **{**fields, "instead_of": waiting})).text)
    assert "Accepted" in words((await browser.send("/submit/verdict", **fields)).text)
    too_much = await browser.send("/submit", **{**fields, "duration": "3h"}, key="k-2")
    assert too_much.status_code == 409
    assert "the budget of token" in words(too_much.text)
    refused = await browser.send("/submit", **{**fields, "image": "python:3.11"}, key="k-2")
    assert refused.status_code == 422
    assert (await lab.alice.get(f"/v1/jobs/{first}")).json()["status"] == "queued"
    for key in ("k-3", "k-3"):  # sent twice
        done = await browser.send("/submit", **fields, key=key)
        assert f"{first} is cancelled." in words(await browser.get(done.headers["location"]))
    assert (await lab.alice.get(f"/v1/jobs/{first}")).json()["status"] == "cancelled"


FORM = {"gpus": "3", "nodes": "1", "gpu_type": "h100", "duration": "2h", "command": "true", "name": "next"}


async def test_a_form_has_the_picture_before_it_is_sent(waiting: str, lab: Lab, browsing: SignedIn) -> None:
    browser = await browsing("alice")
    more = {"retries": "3", "secrets": "HF_TOKEN", "env": "A=1"}  # which no start depends on
    part = (await browser.send("/submit/verdict", **FORM, **more)).text
    explained = (
        await lab.alice.post("/v1/policy/explain", json={"gpus": 3, "gpu_type": "h100", "duration": 7200})
    ).json()
    assert explained["verdict"] == "accepted"
    rows = lanes(part)
    here = [row for row in rows.values() if "bar-of slot likely" in row]
    assert (len(rows), len(here)) == (4, 3)
    assert all(begins("It could run here", explained["starts_at"], row) for row in here)
    assert sum("bar-of mine planned" in row for row in rows.values()) == 3, "the job that waits already"
    assert 'id="why-waiting" class="card" aria-labelledby="why-waiting-title" hx-swap-oob="true"' in part
    assert "bar-of slot likely" in await browser.get("/submit?gpus=3&gpu_type=h100&duration=2h")
    for now in ({"gpus": "9" * 9}, {"duration": "soon"}, {"gpus": "1", "duration": "1h", "gpu_type": "t4"}):
        assert 'id="why-waiting" hidden' in (await browser.send("/submit/verdict", **FORM | now)).text


async def test_a_smaller_form_is_asked_about_and_taken_over(waiting: str, lab: Lab, browsing: SignedIn) -> None:
    browser = await browsing("alice")
    less = {"smaller_size": "1x1", "smaller_duration": "3600"}
    page = (await browser.send("/submit/check", **FORM, **less, env="A=1")).text
    assert '<option value="1x1" selected>1 GPU</option>' in page
    assert "With 1 GPU for 1 h it would start now" in words(page)
    part = (await browser.send("/submit/waiting", **FORM, **less)).text
    assert "With 1 GPU for 1 h it would start now" in words(part)
    assert 'name="use" value="gpus=1&amp;nodes=1&amp;duration=1h"' in part
    assert "<form" not in part
    taken = await browser.send("/submit/check", **FORM, **less, env="A=1", use="gpus=1&nodes=1&duration=1h")
    assert 'name="gpus" type="number" value="1"' in taken.text
    assert 'name="duration" type="text" value="1h"' in taken.text
    assert ">A=1</textarea>" in taken.text
    assert 'name="name" type="text" value="next"' in taken.text
    assert 'id="why-waiting" hidden' in taken.text
    gone = await browser.send("/submit/waiting", **FORM | {"gpus": "1", "duration": "1h"})
    assert (gone.headers["hx-retarget"], gone.headers["hx-reswap"]) == ("#why-waiting", "outerHTML")
    assert 'id="why-waiting" hidden' in gone.text


async def test_a_form_in_place_of_a_job_has_its_gpus(waiting: str, browsing: SignedIn) -> None:
    browser = await browsing("alice")
    rows = lanes((await browser.send("/submit/verdict", **FORM, instead_of=waiting)).text)
    assert not any("planned" in row for row in rows.values())
    assert sum("bar-of slot likely" in row for row in rows.values()) == 3


async def test_a_form_for_a_booking_or_too_large_has_no_slot(lab: Lab, browsing: SignedIn) -> None:
    browser = await browsing("alice")
    booking = await booked(lab.alice, at(2), gpus=2, gpu_type="h100")
    within = (await browser.send("/submit/verdict", **FORM | {"gpus": "1"}, booking=booking["id"])).text
    assert "It starts about" in words(within)
    assert 'id="why-waiting" hidden' in within
    large = (await browser.send("/submit/verdict", **FORM | {"gpus": "5"})).text
    assert len(lanes(large)) == 4
    assert "likely" not in large


async def test_a_smaller_request_may_be_refused(waiting: str, lab: Lab, browsing: SignedIn) -> None:
    await lab.rules(max_duration="PT30M")
    page = words(await (await browsing("alice")).get(f"/jobs/{waiting}?size=1x1&duration=3600"))
    assert "With 1 GPU for 1 h it would be refused:" in page


async def test_an_administrator_hears_what_the_owner_would(waiting: str, browsing: SignedIn) -> None:
    page = await (await browsing("root")).get(f"/jobs/{waiting}?size=1x1&duration=7200")
    assert "With 1 GPU for 2 h it would start now" in words(page)
    assert "Submit this smaller job" not in page


async def test_others_see_nothing_of_it(waiting: str, browsing: SignedIn) -> None:
    await (await browsing("bob")).part(f"/jobs/{waiting}/waiting", 404)


async def test_only_a_job_that_waits_in_the_queue_has_the_picture(
    lab: Lab, browsing: SignedIn, runtime: Runtime
) -> None:
    booking = await booked(lab.alice, at(2), gpus=2, gpu_type="h100")
    within = await submitted(lab.alice, booking_id=booking["id"])
    running = await submitted(lab.alice, gpus=2)
    await lab.plan()
    browser = await browsing("alice")
    for job in (within, running):
        assert 'id="why-waiting"' not in await browser.get(f"/jobs/{job}")
        gone = await browser.client.get(f"/jobs/{job}/waiting", headers={"HX-Request": "true"})
        assert (gone.headers["hx-retarget"], gone.headers["hx-reswap"], gone.text) == ("#why-waiting", "delete", "")


async def test_a_job_that_fits_nowhere_has_no_slot(lab: Lab, browsing: SignedIn) -> None:
    job = await submitted(lab.alice, gpus=5)
    await lab.plan()
    browser = await browsing("alice")
    page = await browser.get(f"/jobs/{job}")
    assert "It can’t start on the nodes that are here." in page
    assert "bar-of slot" not in page
    assert "it would start now" in words(await browser.get(f"/jobs/{job}?size=1x4&duration=3600"))


async def test_many_gpus_are_few_rows(lab: Lab, browsing: SignedIn, runtime: Runtime) -> None:
    await add_nodes(runtime, **{f"n{number:02}": ("a100", 8) for number in range(20)})
    await booked_now(lab.alice, gpus=8, nodes=20, gpu_type="a100", duration="PT2H")
    job = await submitted(lab.alice, gpus=8, nodes=2, gpu_type="a100")
    await lab.plan()
    page = await (await browsing("alice")).get(f"/jobs/{job}?size=1x8&duration=3600")
    rows = lanes(page)
    assert len(rows) == 16
    assert {name for name, row in rows.items() if "bar-of slot" in row} == {
        node for node, *_ in await ledger(runtime, job)
    }
    assert all("0 of 8 free until" in row for row in rows.values())
    assert "And 32 more GPUs." in words(page)
    assert "With 8 GPUs for 1 h it would start about" in words(page)


class TestHidden:
    """Where the operator shows nobody who holds what."""

    @pytest.fixture
    def settings(self) -> ApiSettings:
        return ApiSettings(holders=Holders.SELF)

    async def test_holders_are_named_to_those_alone_who_may_see_them(
        self, waiting: str, browsing: SignedIn, runtime: Runtime
    ) -> None:
        page = await (await browsing("alice")).get(f"/jobs/{waiting}")
        assert "bob" not in page
        assert sum('taken<span class="rest">, until' in row for row in lanes(page).values()) == 2
        assert 'hers<span class="rest">, until' in page


@pytest.fixture
def count_statements(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The names of the statements that ran since the last call."""
    ran: list[str] = []
    run, fetch = StatementRunner._run, direct.fetch

    async def counted(self: StatementRunner, statement: str, /, **values: Any) -> Any:
        ran.append(statement)
        return await run(self, statement, **values)

    async def counted_fetch(connection: Any, name: str, *more: Any) -> Any:
        ran.append(name)
        return await fetch(connection, name, *more)

    monkeypatch.setattr(StatementRunner, "_run", counted)
    monkeypatch.setattr(direct, "fetch", counted_fetch)

    def taken() -> list[str]:
        names = list(ran)
        ran.clear()
        return names

    return taken


async def test_the_number_of_statements_depends_on_nothing(
    waiting: str, lab: Lab, browsing: SignedIn, runtime: Runtime, count_statements: Callable[[], list[str]]
) -> None:
    browser = await browsing("alice")

    async def statements(query: str = "") -> list[str]:
        """Of several looks the one with the fewest: what is kept for a moment is read anew now and then."""
        looks = []
        for _ in range(5):
            await browser.part(f"/jobs/{waiting}/waiting{query}")
            looks.append(count_statements())
        return min(looks[1:], key=len)

    few, asked = await statements(), await statements("?size=1x1&duration=3600")
    for hour in range(4, 24, 2):
        await booked(lab.alice, at(hour), gpus=2, gpu_type="h100")
    await submitted(lab.alice, gpus=2, duration="PT3H")
    await lab.plan()
    assert sorted(await statements()) == sorted(few)
    assert sorted(await statements("?size=1x1&duration=3600")) == sorted(asked)
    assert len(few) <= 8, few
    assert len(asked) <= 24, asked


async def test_an_estimate_without_a_slot_is_no_slot(waiting: str, browsing: SignedIn, runtime: Runtime) -> None:
    """Jobs far back in the queue have an estimated start, and no GPUs are reserved for them yet."""
    await execute(runtime, "DELETE FROM allocations WHERE reservation_id = :id", id=waiting)
    browser = await browsing("alice")
    page = await browser.get(f"/jobs/{waiting}?size=1x3&duration=3600")
    assert "by the planner's estimate." in words(page)
    assert "of its slot" not in words(page)
    assert "bar-of slot" not in page
    assert "(no sooner)" in words(page)


async def test_a_slot_of_the_past_is_no_fault(waiting: str, browsing: SignedIn, runtime: Runtime) -> None:
    """The planner is late: the slot should have begun."""
    await execute(runtime, "DELETE FROM allocations WHERE reservation_id <> :id", id=waiting)
    await execute(
        runtime,
        "UPDATE allocations SET during = tstzrange(now() - interval '5 minutes', now() + interval '1 hour') "
        "WHERE reservation_id = :id",
        id=waiting,
    )
    browser: Browser = await browsing("alice")
    assert "any moment" in words(await browser.get(f"/jobs/{waiting}"))
