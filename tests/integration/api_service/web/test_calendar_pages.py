"""The calendar and bookings' pages, as a browser without scripts has them, and what the timeline's script asks for."""

import html
import json
import random
import re
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from api_service.web.calendar import timeline_data, timeline_merging
from api_service.web.rest_calls import RestCalls, RestProblemError
from reservation_core.runtime.settings.components import ApiSettings, Holders
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, asked, at, booked, execute, said
from tests.integration.api_service.web.browsing import Browser, words
from tests.integration.api_service.web.conftest import SignedIn

HOSTILE = "</script><script>alert('x')</script>\"'&"
_DATA = re.compile(r'<script type="application/json" id="calendar-data"[^>]*>(.*?)</script>', re.DOTALL)

# A job of bob's that runs on one card of titan's for three hours: into the week that is looked at, late in the day too.
RUNNING = """
WITH made AS (
    INSERT INTO reservations (id, kind, user_id, name, status, reason_code, reason, gpus, gpu_type, nodes, duration,
                              priority, workload, created_at, changed_at, attempt, started_at, ends_at)
    SELECT 'job-bobs', 'job', id, 'secret job', 'running', 'running', 'x', 1, 'h100', 1, interval '3 hours', 0, '{}',
           now(), now(), 1, now(), now() + interval '3 hours' FROM users WHERE name = 'bob'
    RETURNING id
)
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at)
SELECT made.id, 1, (SELECT g.id FROM gpus g JOIN nodes n ON n.id = g.node_id WHERE n.name = 'titan' AND g.index = 3), 0,
       tstzrange(now(), now() + interval '3 hours'), true, now() FROM made
"""


@pytest.fixture
async def lab(runtime: Runtime) -> None:
    """Two nodes."""
    await add_nodes(runtime, titan=("h100", 4), rhea=("a100", 2))


def week(**more: str) -> str:
    """The calendar from the day of the next hours on, in UTC."""
    return "/calendar?" + "&".join(f"{name}={value}" for name, value in {"from": f"{at(1):%Y-%m-%d}", **more}.items())


async def sent(browser: Browser, path: str = "/calendar/bookings", **fields: str) -> httpx.Response:
    given = {
        "gpus": "1",
        "type": "h100",
        "start": f"{at(2):%Y-%m-%dT%H:%M}",
        "length": "2h",
        "zone": "UTC",
        "key": "k1",
    }
    return await browser.send(path, page="/calendar", **{**given, **fields})


async def events(browser: Browser, **more: str) -> dict[str, Any]:
    response = await browser.client.get(week(**more).replace("/calendar?", "/calendar/events?"))
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def drawn(found: dict[str, Any], kind: str = "booking") -> list[dict[str, Any]]:
    return [event for event in found["events"] if kind in event["classNames"]]


def field(page: str, name: str) -> str:
    """What a field of the page holds."""
    found = re.search(rf'name="{name}"[^>]*? value="([^"]*)"', page)
    assert found is not None, name
    return html.unescape(found[1])


# == The calendar ==


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
    assert "must be" in words(page) or "longer than" in words(page)


# == Booking ==


@pytest.mark.usefixtures("lab")
async def test_a_slot_is_booked_once_however_often_the_form_is_sent(
    browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    browser = await browsing("alice")
    first, second = await sent(browser, title="runs"), await sent(browser, title="runs")
    assert (first.status_code, first.headers["location"]) == (303, second.headers["location"])
    [made] = (await alice.get("/v1/bookings")).json()["items"]
    assert (made["title"], made["start"], made["duration"]) == ("runs", said(at(2)), "PT2H")
    # With something else in it, it is another: whoever goes back and books more gets more.
    assert (await sent(browser, title="more")).headers["location"] != first.headers["location"]


@pytest.mark.usefixtures("lab")
async def test_the_verdict_books_nothing(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    browser = await browsing("alice")
    for path in ("/calendar/verdict", "/calendar/check"):
        done = await sent(browser, path)
        assert done.status_code == 200
        assert "Free: 1 × h100" in words(done.text)
    done = await sent(browser, "/calendar/verdict", repeats="daily", count="3")
    assert "3 dates can be booked" in words(done.text)
    done = await sent(browser, "/calendar/verdict", gpus="5")
    assert "This can’t be booked" in words(done.text)
    done = await sent(browser, "/calendar/verdict", gpus="4", wait="yes")
    assert "Free: 4" in words(done.text)
    assert (await alice.get("/v1/bookings")).json()["items"] == []


@pytest.mark.usefixtures("lab")
async def test_the_verdict_says_what_a_booking_and_each_date_of_a_series_cost(
    browsing: SignedIn, root: httpx.AsyncClient
) -> None:
    browser = await browsing("alice")
    assert "cost" not in words((await sent(browser, "/calendar/verdict", repeats="daily", count="3")).text)
    assert (await root.put("/v1/policy/default", json={"cost_per_gpu_hour": "400 EUR"})).status_code == 200
    one = words((await sent(browser, "/calendar/verdict")).text)
    assert "It costs about 800.00 EUR for its whole duration." in one
    series = words((await sent(browser, "/calendar/verdict", repeats="daily", count="3")).text)
    assert series.count(", 800.00 EUR") == 3
    assert "All dates together cost about 2,400.00 EUR" in series


@pytest.mark.usefixtures("lab")
async def test_what_is_refused_is_shown_with_the_slots_that_would_do(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    await booked(bob, at(1), gpus=4, gpu_type="h100", duration="PT6H")
    browser = await browsing("alice")
    done = await sent(browser, title="kept as it was")
    assert done.status_code == 409
    assert 'value="kept as it was"' in done.text
    slots = re.findall(r'name="slot" value="([^"]+)"', done.text)
    assert f"{said(at(7))}/{said(at(9))}" in slots
    done = await sent(browser, slot=slots[-1])
    made = (await alice.get(f"/v1{done.headers['location']}")).json()
    assert f"{made['start']}/{made['end']}" == slots[-1]
    done = await sent(browser, wait="yes", key="k2")
    assert "on the waitlist" in words(await browser.get(done.headers["location"]))


@pytest.mark.usefixtures("lab")
async def test_what_is_typed_wrong_is_said_and_sent_nowhere(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    browser = await browsing("alice")
    done = await sent(browser, length="long", title="kept")
    assert done.status_code == 422
    assert "written like 4h" in words(done.text)
    assert 'value="kept"' in done.text
    done = await sent(browser, node="no such node")
    assert done.status_code == 422
    assert (await alice.get("/v1/bookings")).json()["items"] == []


@pytest.mark.usefixtures("lab")
async def test_forms_that_are_not_from_our_pages_do_nothing(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    made = await booked(alice, at(3), gpu_type="h100")
    browser = await browsing("alice")
    for path in ("/calendar/bookings", "/calendar/feed", f"/bookings/{made['id']}", f"/bookings/{made['id']}/cancel"):
        for forged in ({}, {"csrf_token": "0" * 96}):
            response = await browser.client.post(path, data={"gpus": "1", "title": "x", **forged})
            assert response.status_code == 403, path
    [same] = (await alice.get("/v1/bookings")).json()["items"]
    assert same == made


async def test_a_calendar_address_is_shown_once_and_works(browsing: SignedIn) -> None:
    browser = await browsing("alice")
    done = await browser.send("/calendar/feed", page="/calendar", key="f1")
    address = field(done.text.replace('id="feed"', 'name="feed"'), "feed")
    parts = urlsplit(address)
    assert parts.netloc == "pages"
    assert parse_qs(parts.query)["token"]
    response = await browser.client.get(f"{parts.path}?{parts.query}")
    assert response.text.startswith("BEGIN:VCALENDAR")
    again = await browser.send("/calendar/feed", page="/calendar", key="f1")
    assert "shown once" in words(again.text)
    assert parts.query not in again.text
    await browser.send("/calendar/feed/remove", page="/calendar")
    assert (await browser.client.get(f"{parts.path}?{parts.query}")).status_code == 401
    assert "does not work any more" in words(await browser.get("/calendar"))
    await browser.send("/calendar/feed/remove", page="/calendar", key="again")
    assert "You have no calendar address." in words(await browser.get("/calendar"))


# == A booking's page ==


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
async def test_what_was_changed_meanwhile_is_shown_beside_what_was_typed(
    browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    made = await booked(alice, at(3), gpu_type="h100", title="runs")
    browser, path = await browsing("alice"), f"/bookings/{made['id']}"
    etag = field(await browser.get(path), "etag")
    assert (await alice.patch(f"/v1{path}", json={"end": at(5).isoformat()})).status_code == 200
    done = await browser.send(path, etag=etag, title="typed", was_title="runs", zone="UTC")
    assert done.status_code == 412
    assert "It was changed meanwhile." in words(done.text)
    assert 'value="typed"' in done.text
    assert field(done.text, "was_end") == f"{at(5):%Y-%m-%dT%H:%M}"
    done = await browser.send(f"{path}/cancel", etag=etag)
    assert done.status_code == 412
    assert (await alice.get(f"/v1{path}")).json()["status"] == "confirmed"


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


@pytest.fixture
async def two_nodes(runtime: Runtime) -> None:
    """Two nodes of a type."""
    await add_nodes(runtime, titan=("h100", 2), titus=("h100", 1))


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
