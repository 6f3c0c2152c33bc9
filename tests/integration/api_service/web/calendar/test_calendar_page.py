"""The calendar, as a browser without scripts has it, and what the timeline's script asks for."""

import json
import random
import re
from datetime import timedelta

import httpx
import pytest

from api_service.web.calendar import timeline_data, timeline_merging
from reservation_core.runtime.settings.components import ApiSettings, Holders
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, asked, at, booked, execute, said
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.calendar.calendar_pages import HOSTILE, RUNNING, drawn, events, sent, week
from tests.integration.api_service.web.conftest import SignedIn

_DATA = re.compile(r'<script type="application/json" id="calendar-data"[^>]*>(.*?)</script>', re.DOTALL)


async def test_nobody_sees_it_who_is_not_signed_in(browsing: SignedIn) -> None:
    browser = await browsing("anonymous")
    for path in ("/calendar", "/calendar/events", "/bookings", "/bookings/bkg-1"):
        response = await browser.client.get(path)
        assert (response.status_code, response.headers["location"].partition("?")[0]) == (303, "/sign-in")


async def test_without_gpus_it_says_what_will_be_here(browsing: SignedIn) -> None:
    browser = await browsing("alice")
    assert "There are no GPUs yet." in words(await browser.get("/calendar"))
    assert "You have no bookings ahead." in words(await browser.get("/bookings"))


@pytest.mark.usefixtures("lab")
async def test_the_table_has_free_counts_and_links_to_ones_own(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    made = await booked(alice, at(26), gpus=3, gpu_type="h100", title="runs", duration="PT30M")
    page = await (await browsing("alice")).get(week(by="type", **{"as": "table"}))
    line = next(part for part in page.split("<tr>") if 'scope="row">h100' in part)
    cells = re.findall(r'<span class="free-count[^"]*">([\d–]+)</span>', line)
    assert sorted(cells) == ["1–4", *["4"] * 6]
    assert f'href="/bookings/{made["id"]}"' in line
    assert sorted(words(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", line, re.DOTALL)) == [
        "1–4 runs",
        *["4"] * 6,
    ]
    # Without `as=table` it is there as well, for browsers without scripts.
    assert "free-count" in (await (await browsing("alice")).get(week(by="type"))).partition("<noscript>")[2]


@pytest.mark.usefixtures("lab")
async def test_what_others_have_is_seen_and_whose_by_policy(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime, settings: ApiSettings
) -> None:
    settings.holders = Holders.SELF
    made = await booked(bob, at(3), gpus=2, gpu_type="h100", title="secret plans")
    mine = await booked(alice, at(3), gpus=1, gpu_type="h100", title="my runs")
    await execute(runtime, RUNNING)
    browser = await browsing("alice")
    found = await events(browser, by="node")
    [other] = [event for event in drawn(found) if "others" in event["classNames"]]
    assert (other["title"], other["resourceIds"], other["extendedProps"].get("href")) == ("taken", ["titan"], None)
    assert not {"startEditable", "durationEditable"} & other.keys()
    [own] = [event for event in drawn(found) if "mine" in event["classNames"]]
    assert (own["title"], own["extendedProps"]["booking"]) == ("my runs", mine["id"])
    assert [event["title"] for event in drawn(found, "job")] == ["taken"]
    for path in (week(by="node"), week(by="card"), week(by="type"), "/bookings"):
        page = await browser.get(path)
        assert "secret" not in page
        assert "bob" not in page
    settings.holders = Holders.EVERYONE
    found = await events(browser, by="node")
    assert {event["title"] for event in drawn(found)} == {"bob", "my runs"}
    assert [event["title"] for event in drawn(found, "job")] == ["bob (runs)"]
    assert "secret" not in json.dumps(found)
    admin = await events(await browsing("root"), by="node")
    assert f"/bookings/{made['id']}" in {event["extendedProps"].get("href") for event in drawn(admin)}


@pytest.mark.usefixtures("lab")
async def test_a_workload_that_would_be_refused_today_is_shown(
    browsing: SignedIn, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    made = await booked(alice, at(3), gpu_type="h100", title="old runs", workload={"command": ["true"]})
    await execute(runtime, """UPDATE reservations SET workload = jsonb_set(workload, '{image}', '"no image"')""")
    assert (await alice.get(f"/v1/bookings/{made['id']}")).json()["workload"]["image"] == "no image"
    browser = await browsing("alice")
    for path in ("/bookings", f"/bookings/{made['id']}", "/submit"):
        assert "old runs" in await browser.get(path), path


@pytest.mark.usefixtures("lab")
async def test_what_people_write_is_text_everywhere(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    made = await booked(alice, at(3), gpu_type="h100", title=HOSTILE)
    browser = await browsing("alice")
    for path in (week(by="card"), week(**{"as": "table"}), "/bookings", f"/bookings/{made['id']}"):
        page = await browser.get(path)
        assert "<script>alert" not in page, path
        assert "</script><script>" not in page, path
    data = _DATA.search(await browser.get(week(by="card")))
    if data is not None:  # only where the pages' scripts were built
        assert drawn(json.loads(data[1]))[0]["title"] == HOSTILE
    assert HOSTILE in words(await browser.get(f"/bookings/{made['id']}"))


@pytest.mark.usefixtures("lab")
async def test_maintenance_and_what_is_over_are_seen(
    browsing: SignedIn, alice: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    window = {"node": "rhea", "start": at(30).isoformat(), "duration": "PT2H", "reason": "New fans."}
    assert (await root.post("/v1/maintenance", json=window)).status_code == 201
    made = await booked(alice, at(3), gpu_type="h100", title="was")
    await execute(
        runtime,
        "UPDATE reservations SET status = 'ended', finished_at = now(), reason_code = 'slot_over' WHERE id = :id",
        id=made["id"],
    )
    await execute(runtime, "UPDATE allocations SET released_at = now() WHERE reservation_id = :id", id=made["id"])
    found = await events(await browsing("alice"), by="node")
    [fans] = drawn(found, "maintenance")
    assert (fans["title"], fans["resourceIds"], fans["extendedProps"].get("href")) == ("maintenance", ["rhea"], None)
    [was] = drawn(found)
    assert (was["title"], "durationEditable" in was) == ("was", False)
    await alice.delete(f"/v1/bookings/{made['id']}")


@pytest.mark.usefixtures("lab")
async def test_times_are_those_of_the_chosen_zone(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    await booked(alice, at(3), gpu_type="h100", title="runs")
    browser = await browsing("alice")
    browser.client.cookies.set("gpu_dev_zone", "Asia/Kolkata")
    found = await events(browser, by="node", view="month")
    assert (found["zone"], found["offset"]) == ("Asia/Kolkata", "+05:30")
    shifted = at(3) + timedelta(hours=5, minutes=30)
    assert drawn(found)[0]["start"] == f"{shifted:%Y-%m-%dT%H:%M:%S}"
    # Times typed there are meant there.
    done = await sent(browser, zone="Asia/Kolkata", start=f"{shifted + timedelta(hours=5):%Y-%m-%dT%H:%M}")
    path = f"/v1{done.headers['location']}"
    assert (await alice.get(path)).json()["start"] == said(at(8))


@pytest.mark.usefixtures("lab")
async def test_too_many_are_in_the_counts_and_ones_own_are_drawn(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline_data, "_MOST_DRAWN", 1)
    await booked(alice, at(30), gpu_type="h100", title="mine")
    await booked(bob, at(30), gpu_type="h100")
    found = await events(await browsing("alice"), by="type")
    assert found["crowded"] is True
    assert [event["title"] for event in drawn(found)] == ["mine"]
    assert 2 in [least for _, _, least, _ in found["free"]["h100"]]


@pytest.mark.usefixtures("lab")
async def test_too_many_to_be_apart_are_merged_with_their_exact_number(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline_merging, "MOST_APART", 30)
    noon = at(1).replace(hour=12) + timedelta(days=1)
    for minutes in range(35):
        title = f"run {minutes}"
        await booked(alice, noon + timedelta(minutes=minutes), gpu_type="h100", title=title, duration=60)
    await booked(alice, noon, gpu_type="a100", title="alone", duration=3600)
    for _ in range(2):
        await booked(bob, noon, gpu_type="h100", duration=3600)
    browser = await browsing("alice")
    page = await browser.get(week(by="node"))
    shown = {name: drawn(await events(browser, by="node"), name) for name in ("mine", "others")}
    alone, together = shown["mine"]
    assert (alone["title"], alone["resourceIds"], alone["startEditable"]) == ("alone", ["rhea"], True)
    assert (together["extendedProps"]["count"], together["resourceIds"]) == (35, ["titan"])
    assert (together["start"], together["end"]) == tuple(
        f"{noon + timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%S}" for minutes in (0, 35)
    )
    named = [entry["extendedProps"] for entry in together["extendedProps"]["entries"]]
    assert [entry["words"].splitlines()[:2] for entry in named] == [
        [f"Your booking run {number}", "1 GPU"] for number in range(len(named))
    ]
    assert all(entry["href"].startswith("/bookings/bkg-") for entry in named)
    [others] = shown["others"]
    assert others["extendedProps"]["count"] == 2
    assert "href" not in json.dumps(others)
    # Without scripts, too: the first ones, and how many more.
    assert f"and {35 - len(named)} more" in page
    assert "run 0" in page


@pytest.mark.parametrize("view", ["day", "week", "2weeks", "month"])
@pytest.mark.usefixtures("lab")
async def test_free_counts_are_exact_at_every_zoom(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime, view: str
) -> None:
    """Against the ledger, minute by minute: a short booking leaves the rest of its day free."""
    chance = random.Random(view)
    await execute(runtime, RUNNING)
    await booked(alice, at(1), gpu_type="a100", duration="PT20M")  # at any time of day, something is on the first day
    for _ in range(12):
        start = at(chance.randint(0, 40), minutes=chance.randrange(60))
        body = asked(start, gpus=chance.randint(1, 3), duration=f"PT{chance.choice([7, 20, 60, 600])}M")
        await chance.choice([alice, bob]).post("/v1/bookings", json=body)
    found = await events(await browsing("alice"), by="type", view=view)
    rows = await execute(
        runtime,
        "SELECT g.gpu_type, lower(a.during), upper(a.during) FROM allocations a JOIN gpus g ON g.id = a.gpu_id "
        "WHERE a.released_at IS NULL",
    )
    taken = [tuple(row) for row in rows]
    midnight = at(1).replace(hour=0) + timedelta(seconds=1)  # jobs end within seconds, which are drawn whole
    for gpu_type, gpus in (("h100", 4), ("a100", 2)):
        runs = found["free"][gpu_type]
        assert runs[-1][1] == found["days"] * 86_400
        assert [run[0] for run in runs[1:]] == [run[1] for run in runs[:-1]]
        shown = {
            minute: (least, most)
            for start, end, least, most in runs
            for minute in range(-(-start // 60), -(-end // 60))
        }
        for minute, counts in shown.items():
            moment = midnight + timedelta(minutes=minute)
            free = gpus - sum(kind == gpu_type and start <= moment < end for kind, start, end in taken)
            assert counts == (free, free), (gpu_type, moment)
        assert min(least for _, _, least, _ in runs) < gpus, "nothing was booked"


async def test_four_thousand_cards_are_as_readable_as_four(
    browsing: SignedIn, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    await add_nodes(runtime, **{f"n{number:03}": ("h100" if number % 2 else "a100", 8) for number in range(500)})
    await booked(alice, at(3), gpu_type="h100", node="n499", title="runs")
    browser = await browsing("alice")
    found = await events(browser)
    assert (found["by"], [row["id"] for row in found["rows"]]) == ("type", ["a100", "h100"])
    page = await browser.get(week(by="card"))
    assert "Page 1 of 125, 4000 rows in all" in words(page)
    assert len(page) < 300_000
    last = await events(browser, by="node", page="42")
    assert last["rows"][-1]["id"] == "n499"
    assert [event["title"] for event in drawn(last)] == ["runs"]
    one = await events(browser, by="card", node="n499")
    assert len(one["rows"]) == 8


@pytest.mark.parametrize("wrong", ["view=year", "by=person", "from=soon", "page=0", "node=" + "x" * 300])
async def test_what_cannot_be_shown_is_refused_in_words(browsing: SignedIn, wrong: str) -> None:
    page = await (await browsing("alice")).get(f"/calendar?{wrong}", status=422)
    assert " Write " in words(page) or " Choose one " in words(page)
