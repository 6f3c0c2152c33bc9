"""A booking's page: its life, changes, drags, found slots, series and the waitlist."""

import asyncio
import re
from datetime import timedelta
from typing import Any

import httpx
import pytest

from api_service.web.rest_calls import Query, RestCalls, RestProblemError
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import at, booked, execute, said
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.calendar.calendar_pages import GIVE_NODES_CPUS_BY_GPUS, field, sent, week
from tests.integration.api_service.web.conftest import SignedIn
from tests.waiting import PATIENCE_S


@pytest.mark.usefixtures("lab")
async def test_others_bookings_have_no_page_and_take_no_forms(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    made = await booked(bob, at(3), gpu_type="h100", title="secret plans")
    browser = await browsing("alice")
    page = await browser.get(f"/bookings/{made['id']}", status=404)
    assert "secret" not in page
    for what in ("", "/check", "/cancel", "/accept", "/decline"):
        done = await browser.send(f"/bookings/{made['id']}{what}", page="/calendar", title="taken over")
        assert done.status_code == 404, what
        assert "secret" not in done.text
    done = await browser.send("/calendar/change-verdict", page="/calendar", booking=made["id"], title="x")
    assert done.status_code == 404
    assert (await bob.get(f"/v1/bookings/{made['id']}")).json()["title"] == "secret plans"
    # A user who may see everything may cancel it.
    admin = await browsing("root")
    assert "secret plans" in await admin.get(f"/bookings/{made['id']}")


@pytest.mark.usefixtures("lab")
async def test_its_jobs_are_listed_with_their_names_and_status(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    made = await booked(alice, at(3), gpu_type="h100")
    wanted = {"gpus": 1, "duration": "PT10M", "booking_id": made["id"], "workload": {"command": ["true"]}}
    first, second = [(await alice.post("/v1/jobs", json=wanted | more)).json()["id"] for more in ({"name": "fit"}, {})]
    await alice.post(f"/v1/jobs/{first}/cancel")
    page = await (await browsing("alice")).get(f"/bookings/{made['id']}")
    assert f"Jobs in it {second} queued fit cancelled {first} " in words(page)
    assert f'data-live="booking:{made["id"]} job:{second}"' in page


@pytest.mark.usefixtures("lab")
async def test_it_says_what_it_runs(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    workload = {"command": ["sh", "-c", "echo <hi>"], "env": {"KEY": "in-confidence"}, "working_dir": "/tmp"}
    runs = await booked(alice, at(3), gpu_type="h100", workload=workload)
    page = await (await browsing("alice")).get(f"/bookings/{runs['id']}")
    assert "Command sh -c 'echo <hi>' Working folder /tmp Variables KEY " in words(page)
    assert "in-confidence" not in page
    alone = await booked(alice, at(6), gpu_type="h100")
    assert "<dt>Command" not in await (await browsing("alice")).get(f"/bookings/{alone['id']}")


@pytest.mark.usefixtures("lab")
async def test_its_share_of_cpus_and_memory_is_shown(
    browsing: SignedIn, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    made = await booked(alice, at(3), gpu_type="h100")
    browser = await browsing("alice")
    assert "CPUs and memory" not in await browser.get(f"/bookings/{made['id']}")
    await execute(runtime, GIVE_NODES_CPUS_BY_GPUS)
    assert "CPUs and memory 16 CPUs, 64 GiB" in words(await browser.get(f"/bookings/{made['id']}"))


@pytest.mark.usefixtures("lab")
async def test_its_jobs_are_asked_for_together(
    browsing: SignedIn, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await booked(alice, at(3), gpu_type="h100")
    wanted = {"gpus": 1, "duration": "PT10M", "booking_id": made["id"], "workload": {"command": ["true"]}}
    for _ in range(2):
        assert (await alice.post("/v1/jobs", json=wanted)).status_code == 202
    both_asked, get = asyncio.Barrier(2), RestCalls.get

    async def get_together(rest: RestCalls, model: type[Any], path: str, query: Query | None = None) -> Any:
        if path.startswith("/v1/jobs/"):
            await asyncio.wait_for(both_asked.wait(), PATIENCE_S)
        return await get(rest, model, path, query)

    browser = await browsing("alice")
    monkeypatch.setattr(RestCalls, "get", get_together)
    assert words(await browser.get(f"/bookings/{made['id']}")).count(" queued ") == 2


@pytest.mark.usefixtures("lab")
async def test_it_is_changed_and_cancelled_by_forms(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    made = await booked(alice, at(3), gpu_type="h100", title="runs")
    browser, path = await browsing("alice"), f"/bookings/{made['id']}"
    page = await browser.get(path)
    same = {name: field(page, name) for name in ("start", "end", "node", "title", "etag", "zone")}
    was = {f"was_{name}": same[name] for name in ("start", "end", "node", "title")}
    longer = f"{at(6):%Y-%m-%dT%H:%M}"
    done = await browser.send(f"{path}/check", **{**same, **was, "end": longer})
    assert "It can be from" in words(done.text)
    assert field(done.text, "end") == longer
    assert (await alice.get(f"/v1{path}")).json() == made
    done = await browser.send(path, **{**same, **was, "end": longer, "title": "other"})
    assert (done.status_code, done.headers["location"]) == (303, path)
    changed = (await alice.get(f"/v1{path}")).json()
    assert (changed["start"], changed["end"], changed["title"]) == (made["start"], said(at(6)), "other")
    done = await browser.send(path, **same, **was)
    assert (done.status_code, "Nothing has changed" in words(done.text)) == (422, True)
    done = await browser.send(f"{path}/cancel", etag=field(await browser.get(path), "etag"), next=week())
    assert (done.status_code, done.headers["location"]) == (303, week())
    assert (await alice.get(f"/v1{path}")).json()["status"] == "cancelled"
    assert "Change it" not in words(await browser.get(path))


@pytest.mark.usefixtures("lab")
async def test_its_page_tells_its_life_and_who_changed_it(
    browsing: SignedIn, alice: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    made = await booked(alice, at(3), gpu_type="h100", title="runs")
    path = f"/bookings/{made['id']}"
    assert (await root.patch(f"/v1{path}", json={"end": at(6).isoformat()})).status_code == 200
    assert (await root.delete(f"/v1{path}")).status_code == 200
    _, heading, life = words(await (await browsing("alice")).get(path)).partition("Its life so far")
    assert heading
    steps = [life.index(said) for said in ("booked: ", "by you", "changed: ", "before ", "by root", "cancelled")]
    assert steps == sorted(steps)
    assert "by you" in words(await (await browsing("root")).get(path))


@pytest.mark.usefixtures("lab")
async def test_a_drag_has_its_verdict_and_what_to_click(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    made = await booked(alice, at(3), gpu_type="h100", gpus=4, title="runs")
    await booked(bob, at(6), gpu_type="h100", gpus=1, duration="PT3H")
    browser, path = await browsing("alice"), f"/bookings/{made['id']}"

    async def dragged(end: int) -> str:
        done = await browser.send(
            "/calendar/change-verdict",
            page="/calendar",
            booking=made["id"],
            end=f"{at(end):%Y-%m-%dT%H:%M}",
            zone="UTC",
        )
        assert done.status_code == 200, words(done.text)
        return done.text

    assert "It can be from" in words(await dragged(5))
    refused = await dragged(7)
    assert "This is not possible" in words(refused)
    slots = re.findall(r'name="slot" value="([^"]+)"', refused)
    assert slots
    done = await browser.send(path, etag=field(refused, "etag"), slot=slots[-1], next=week())
    assert done.headers["location"] == week()
    changed = (await alice.get(f"/v1{path}")).json()
    assert f"{changed['start']}/{changed['end']}" == slots[-1]


@pytest.mark.usefixtures("two_nodes")
async def test_what_is_refused_on_a_node_is_offered_on_another_at_that_time(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    await booked(bob, at(2), gpus=2, node="titan", duration="PT6H")
    browser = await browsing("alice")
    refused = await sent(browser, "/calendar/verdict", node="titan")
    assert "On another node it fits at that time: Book it on titus: GPU 0" in words(refused.text)
    done = await sent(browser, node="titan", elsewhere="titus")
    made = (await alice.get(f"/v1{done.headers['location']}")).json()
    assert (made["node"], made["start"], made["allocations"][0]["node"]) == ("titus", said(at(2)), "titus")
    # Where no node has them, none is offered.
    assert "another node" not in words((await sent(browser, "/calendar/verdict", node="titan")).text)


@pytest.mark.usefixtures("two_nodes")
async def test_a_drag_that_is_refused_offers_another_node_at_that_time(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    await booked(bob, at(5), gpus=2, node="titan", duration="PT6H")
    made = await booked(alice, at(2), node="titan", title="runs")
    browser, path = await browsing("alice"), f"/bookings/{made['id']}"
    times = {"start": f"{at(6):%Y-%m-%dT%H:%M}", "end": f"{at(7):%Y-%m-%dT%H:%M}", "zone": "UTC"}
    refused = await browser.send("/calendar/change-verdict", page="/calendar", booking=made["id"], **times)
    assert "On another node it fits at that time: Move it to titus" in words(refused.text)
    done = await browser.send(path, etag=field(refused.text, "etag"), elsewhere="titus", **times)
    assert done.status_code == 303, words(done.text)
    changed = (await alice.get(f"/v1{path}")).json()
    assert (changed["node"], changed["start"], changed["end"]) == ("titus", said(at(6)), said(at(7)))


@pytest.mark.usefixtures("lab")
async def test_slots_are_found_and_booked_by_one_button(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    await booked(bob, at(0), gpus=3, gpu_type="h100", duration="PT8H")
    browser = await browsing("alice")
    page = await browser.get(week(gpus="3", length="2h", type="h100", find="yes"))
    assert "3 GPUs for 2 h: the best slots" in words(page)
    found = page.partition('id="found-slots"')[2].partition("</section>")[0]
    slots = re.findall(r'name="slot" value="([^"]+)"', found)
    assert len(slots) == 5
    assert slots[0] == f"{said(at(8))}/{said(at(10))}"
    assert slots == sorted(slots)
    assert "h100 on titan: GPUs 0, 1, 2" in words(found)
    done = await browser.send("/calendar/bookings", page="/calendar", gpus="3", type="h100", slot=slots[1], key="found")
    made = (await alice.get(f"/v1{done.headers['location']}")).json()
    assert f"{made['start']}/{made['end']}" == slots[1]
    nowhere = await browser.get(week(gpus="8", length="2h", find="yes"))
    assert "No slot found" in words(nowhere)
    for wrong in ({"gpus": "many"}, {"length": "long"}, {"length": "0h"}, {"gpus": "0"}):
        page = await browser.get(week(**{"gpus": "1", "length": "2h", "find": "yes", **wrong}))
        assert "Say how many GPUs" in words(page)


@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize("call", [("GET", "/v1/bookings/slots"), ("POST", "/v1/bookings")])
@pytest.mark.parametrize(("status", "answered"), [(409, 200), (429, 429), (503, 503)])
async def test_no_slot_is_said_to_be_free_only_where_that_is_so(
    browsing: SignedIn, monkeypatch: pytest.MonkeyPatch, call: tuple[str, str], status: int, answered: int
) -> None:
    browser, send = await browsing("alice"), RestCalls.send

    async def send_or_fail(calls: RestCalls, method: str, path: str, **parts: Any) -> Any:
        if (method, path) == call:
            raise RestProblemError.because(status, "This is why.")
        return await send(calls, method, path, **parts)

    monkeypatch.setattr(RestCalls, "send", send_or_fail)
    page = words(await browser.get(week(gpus="1", length="2h", type="h100", find="yes"), status=answered))
    assert "This is why." in page
    assert ("No slot found" in page) is (status == 409)


@pytest.mark.usefixtures("lab")
async def test_nobody_is_led_elsewhere_by_a_form(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    made = await booked(alice, at(3), gpu_type="h100", title="runs")
    browser = await browsing("alice")
    done = await browser.send(f"/bookings/{made['id']}/cancel", next="//evil.example/")
    assert done.headers["location"] == "/now"


@pytest.mark.usefixtures("lab")
async def test_dates_of_a_series_that_are_not_free_are_counted(browsing: SignedIn, bob: httpx.AsyncClient) -> None:
    for days in (1, 2):
        await booked(bob, at(3) + timedelta(days=days), gpus=4, gpu_type="h100")
    browser = await browsing("alice")
    for count, left_out in (("2", "1 was not free and is left out."), ("3", "2 were not free and are left out.")):
        done = await sent(browser, repeats="daily", count=count, skip="yes", key=count)
        assert f"1 date is booked. {left_out}" in words(await browser.get(done.headers["location"]))


@pytest.mark.usefixtures("lab")
async def test_a_series_is_booked_shown_with_its_dates_and_cancelled_from_one_on(
    browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    browser = await browsing("alice")
    done = await sent(browser, repeats="daily", count="4", title="standup")
    page = await browser.get(done.headers["location"])
    assert "4 dates are booked." in words(page)
    links = set(re.findall(r'<li><a href="(/bookings/bkg-[0-9a-z]+)"', page))
    assert len(links) == 3
    items = (await alice.get("/v1/bookings")).json()["items"]
    second = f"/bookings/{items[1]['id']}"
    done = await browser.send(f"{second}/cancel", reach="following", etag=field(await browser.get(second), "etag"))
    assert "3 bookings are cancelled." in words(await browser.get(done.headers["location"]))
    left = [booking["id"] for booking in (await alice.get("/v1/bookings?status=confirmed")).json()["items"]]
    assert left == [items[0]["id"]]


@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize(("answer", "status"), [("accept", "confirmed"), ("decline", "cancelled")])
async def test_what_the_waitlist_offers_is_taken_or_left(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient, answer: str, status: str
) -> None:
    theirs = await booked(bob, at(3), gpus=4, gpu_type="h100")
    browser = await browsing("alice")
    done = await sent(browser, start=f"{at(3):%Y-%m-%dT%H:%M}", length="1h", wait="yes")
    path = done.headers["location"]
    await bob.delete(f"/v1/bookings/{theirs['id']}")
    page = await browser.get(path)
    assert "These GPUs are free for you now." in words(page)
    assert "Accept the offer first: until then only its title can change." in words(page)
    assert "Its GPUs go to others at once." in words(page)
    assert "These GPUs are free for alice now." in words(await (await browsing("root")).get(path))
    done = await browser.send(f"{path}/{answer}", etag=field(page, "etag"), key="a1")
    assert (done.status_code, done.headers["location"]) == (303, path)
    assert (await alice.get(f"/v1{path}")).json()["status"] == status


@pytest.mark.usefixtures("lab")
async def test_the_list_has_ones_own_ahead_and_before(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    ahead = await booked(alice, at(3), gpu_type="h100", title="ahead")
    gone = await booked(alice, at(9), gpu_type="h100", title="taken back")
    await alice.delete(f"/v1/bookings/{gone['id']}")
    browser = await browsing("alice")
    page = await browser.get("/bookings")
    assert f'href="/bookings/{ahead["id"]}"' in page
    assert "taken back" not in page
    assert "taken back" in await browser.get("/bookings?when=past")
