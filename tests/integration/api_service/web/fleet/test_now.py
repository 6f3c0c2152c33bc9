"""The page Now: what is told of cards, to whom, and how an open page keeps up."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI

from reservation_core.runtime.settings.components import ApiSettings, Holders
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, booked, booked_now, execute, node_report
from tests.integration.api_service.callers import People
from tests.integration.api_service.web.browsing import Browser, words
from tests.integration.api_service.web.conftest import SignedIn
from tests.waiting import eventually

_SINCE = re.compile(r'name="since" value="([^"]+)"')
_TILE = re.compile(r'<a class="(?:t|tile) (\w+)" href="\?card=([^"]+)"')
_CELL = re.compile(r'<a class="c[^>]* data-free="([^"]+)" title="([^:"]+):')
_ROW = re.compile(r"<tr><th data-label=\"Type\" scope=\"row\">(.*?)</tr>", re.DOTALL)
MANY = 4000
PARTS = {"HX-Request": "true"}


def tiles(page: str) -> dict[str, str]:
    """Each card's state."""
    return {card: state for state, card in _TILE.findall(page)}


def cells(page: str) -> dict[str, str]:
    """The number of each node of a heat map."""
    return {node: free for free, node in _CELL.findall(page)}


def numbers(page: str) -> dict[str, list[str]]:
    """The rows of the table of types: free, taken soon, yours, others', maintenance, out of use, all, next."""
    rows = [words(row).split() for row in _ROW.findall(page)]
    return {row[0]: row[1:] for row in rows}


def since(page: str) -> str:
    """The version that a page shows."""
    found = _SINCE.search(page)
    assert found is not None
    return found[1]


async def changes(browser: Browser, version: str, query: str = "") -> httpx.Response:
    """What an open page asks for when something has changed."""
    return await browser.client.get(f"/now/changes?since={version}{query}", headers=PARTS)


def soon() -> datetime:
    """A whole minute within the hour."""
    return (datetime.now(UTC) + timedelta(minutes=30)).replace(second=0, microsecond=0)


@pytest.fixture(params=[Holders.EVERYONE, Holders.SELF])
def holders(request: pytest.FixtureRequest) -> Holders:
    """Whether names are told."""
    found: Holders = request.param
    return found


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> ApiSettings:
    """Names are told where a test does not say otherwise."""
    chosen = request.getfixturevalue("holders") if "holders" in request.fixturenames else Holders.EVERYONE
    return ApiSettings(holders=chosen)


async def test_four_cards_are_told_with_words(
    runtime: Runtime, browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    await add_nodes(runtime, titan=("h100", 4))
    hers = await booked_now(alice, title="secret plan")
    await booked_now(bob)
    await booked(alice, soon(), gpus=2)
    page = await (await browsing("bob")).get("/now")
    assert sorted(tiles(page).values()) == ["mine", "others", "soon", "soon"]
    told = words(page)
    assert "alice until" in told
    assert "Free, booked soon" in told
    assert "secret plan" not in page
    assert hers["id"] not in page
    assert numbers(page)["h100"][:7] == ["0", "2", "1", "1", "0", "0", "4"]
    # The command line counts by the same: what is taken within the hour is not free.
    cards = (await alice.get("/v1/gpus")).json()["items"]
    taken = [datetime.fromisoformat(card["taken_at"]) for card in cards if card["state"] == "free"]
    [node] = (await alice.get("/v1/nodes")).json()["items"]
    assert (len(taken), node["free"], node["taken_soon"]) == (2, 2, 2)
    assert {at - datetime.now(UTC) < timedelta(hours=1) for at in taken} == {True}


async def test_names_are_told_as_the_operator_chose(
    holders: Holders, runtime: Runtime, browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    await add_nodes(runtime, titan=("h100", 2))
    await booked_now(alice)
    await booked(alice, soon())
    cards = tiles(await (await browsing("alice")).get("/now"))
    assert cards == {"titan/0": "mine", "titan/1": "soon"}
    seen = holders is Holders.EVERYONE
    for who, named in (("bob", seen), ("root", True)):
        browser = await browsing(who)
        for path in ("/now", "/now/card?card=titan/0", "/now/card?card=titan/1", "/now?card=titan/0"):
            page = await (browser.part if "/card" in path else browser.get)(path)
            assert ("alice" in words(page)) is named, (who, path)
            assert ("somebody" in words(page)) is not named, (who, path)
    assert "Held by you" in words(await (await browsing("alice")).part("/now/card?card=titan/0"))


async def test_every_state_is_shown(runtime: Runtime, browsing: SignedIn, root: httpx.AsyncClient) -> None:
    await add_nodes(runtime, titan=("h100", 3), rhea=("a100", 1))
    await execute(runtime, "UPDATE gpus SET condition = 'lost' WHERE gpu_type = 'h100' AND index = 1")
    await execute(runtime, "UPDATE gpus SET condition = 'quarantined' WHERE gpu_type = 'h100' AND index = 2")
    await execute(runtime, "UPDATE nodes SET schedulable = false WHERE name = 'rhea'")
    window = {"node": "titan", "duration": "PT2H", "reason": "New fans."}  # from now on
    made = await root.post("/v1/maintenance", json=window)
    assert made.status_code == 201, made.text
    page = await (await browsing("alice")).get("/now")
    assert tiles(page) == {
        "rhea/0": "away", "titan/0": "maintenance", "titan/1": "maintenance", "titan/2": "maintenance"
    }  # fmt: skip
    assert "It takes no new pods." in words(page)
    assert numbers(page)["h100"][:7] == ["0", "0", "0", "0", "3", "0", "3"]
    assert numbers(page)["a100"][:7] == ["0", "0", "0", "0", "0", "1", "1"]


async def test_what_is_out_of_use_is_told(runtime: Runtime, browsing: SignedIn) -> None:
    await add_nodes(runtime, titan=("h100", 3))
    await execute(runtime, "UPDATE gpus SET condition = 'lost' WHERE index = 1")
    await execute(runtime, "UPDATE gpus SET condition = 'quarantined' WHERE index = 2")
    page = await (await browsing("alice")).get("/now")
    assert tiles(page) == {"titan/0": "free", "titan/1": "lost", "titan/2": "quarantined"}
    assert numbers(page)["h100"][:8] == ["1", "0", "0", "0", "0", "2", "3", "now"]


async def test_a_free_card_offers_what_can_be_done_with_it(runtime: Runtime, browsing: SignedIn) -> None:
    await add_nodes(runtime, titan=("h100", 1))
    browser = await browsing("alice")
    for read, path in ((browser.part, "/now/card?card=titan/0"), (browser.get, "/now?card=titan/0")):
        page = await read(path)
        assert 'href="/submit?gpus=1&amp;gpu_type=h100"' in page
        assert 'href="/calendar?by=card&amp;node=titan&amp;type=h100"' in page
        assert "/admin/nodes" not in page
    assert "/admin/nodes?node=titan" in await (await browsing("root")).part("/now/card?card=titan/0")


async def test_a_job_is_led_to_by_its_owner_and_administrators_alone(
    runtime: Runtime, browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    await add_nodes(runtime, titan=("h100", 1))
    hers = await booked_now(alice)
    for who, led in (("alice", True), ("bob", False), ("root", True)):
        page = await (await browsing(who)).part("/now/card?card=titan/0")
        assert (f"/bookings/{hers['id']}" in page) is led, who
        assert "Submit a job" not in page


@pytest.mark.parametrize("card", ["titan/7", "nowhere/0", "titan", "", "titan/x", "<script>/0", "/"])
async def test_a_card_that_is_not_there_is_a_problem(runtime: Runtime, browsing: SignedIn, card: str) -> None:
    await add_nodes(runtime, titan=("h100", 1))
    browser = await browsing("alice")
    page = await browser.part(f"/now/card?card={quote(card)}", 404)
    assert "There is no GPU" in words(page)
    assert "<script>/" not in page


async def test_no_gpus_yet_says_what_to_do(browsing: SignedIn) -> None:
    page = await (await browsing("alice")).get("/now")
    assert "No GPUs are known yet." in words(page)
    assert 'hx-get="/now"' in page


async def test_filters_are_in_the_address(runtime: Runtime, browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    await add_nodes(runtime, titan=("h100", 2), titan2=("h100", 1), rhea=("a100", 1))
    await booked_now(alice, gpu_type="a100")
    browser = await browsing("alice")
    for query, shown in {
        "": {"rhea/0", "titan/0", "titan/1", "titan2/0"},
        "?type=h100": {"titan/0", "titan/1", "titan2/0"},
        "?node=titan": {"titan/0", "titan/1"},
        "?node=TIT": {"titan/0", "titan/1", "titan2/0"},
        "?node=titan&type=a100": set(),
        "?mine=yes": {"rhea/0"},
        "?mine=yes&type=h100": set(),
        "?type=no-such": set(),
    }.items():
        page = await browser.get(f"/now{query}")
        assert tiles(page).keys() == shown, query
        assert ("No GPU matches the filter." in words(page)) is (not shown)
    assert "You have no GPU now." in words(await (await browsing("bob")).get("/now?mine=yes"))
    part = (await browser.client.get("/now?type=a100", headers=PARTS)).text
    assert tiles(part).keys() == {"rhea/0"}
    assert "<html" not in part


async def test_hostile_text_is_only_text(runtime: Runtime, browsing: SignedIn) -> None:
    bad = "<script>alert('x')</script>\"'&"
    report = node_report("titan", "h100", 1)
    async with runtime.uow() as uow:
        await uow.inventory.update([report], [], runtime.clock.now())
    await execute(runtime, "UPDATE nodes SET name = :bad, detail = :bad", bad=bad)
    browser = await browsing("root")
    (card,) = tiles(await browser.get("/now"))
    paths = ["/now", f"/now?card={card}", f"/now/card?card={card}", f"/now?type={quote(bad)}&node={quote(bad)}"]
    for path in paths:
        page = await (browser.part if "/card" in path else browser.get)(path)
        assert "<script>alert" not in page, path
        assert bad in words(page) or bad in page.replace("&lt;", "<"), path
    assert (await changes(browser, "x", f"&node={quote(bad)}")).text.count("<script") == 0
    assert "Shorten" in words(await browser.get("/now?node=" + "x" * 300, 422))


async def test_an_open_page_is_told_what_differs(
    runtime: Runtime, browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    await add_nodes(runtime, titan=("h100", 2), rhea=("a100", 2))
    browser = await browsing("bob")
    page = await browser.get("/now")
    assert (await changes(browser, since(page))).status_code == 204
    await booked_now(alice, gpu_type="a100")
    answer = await changes(browser, since(page))
    assert answer.status_code == 200
    assert set(tiles(answer.text)) == {"rhea/0", "rhea/1"}
    assert sorted(tiles(answer.text).values()) == ["free", "others"]
    assert answer.text.count('class="node" hx-swap-oob="morph" id=') == 1
    assert 'id="cards"' not in answer.text
    assert numbers(answer.text)["a100"][:4] == ["1", "0", "0", "1"]
    assert (await changes(browser, since(answer.text))).status_code == 204
    # The node of another type is not on a page that shows one type alone.
    assert tiles((await changes(browser, since(page), "&type=h100")).text) == {}


@pytest.mark.parametrize("version", ["", "x", "1", "abc.1", ".", "{known}x", "{before}.", "{before}.-1", "{before}.²"])
async def test_who_shows_what_nobody_knows_is_told_all(runtime: Runtime, browsing: SignedIn, version: str) -> None:
    await add_nodes(runtime, titan=("h100", 2), rhea=("a100", 2))
    browser = await browsing("alice")
    known = since(await browser.get("/now"))
    answer = await changes(browser, quote(version.format(known=known, before=known.rpartition(".")[0])))
    assert len(tiles(answer.text)) == 4
    assert 'id="cards"' in answer.text


async def test_nodes_that_come_are_told_with_all(runtime: Runtime, browsing: SignedIn) -> None:
    await add_nodes(runtime, titan=("h100", 2))
    browser = await browsing("alice")
    page = await browser.get("/now")
    await add_nodes(runtime, titan=("h100", 2), rhea=("a100", 1))
    answer = await changes(browser, since(page))
    assert set(tiles(answer.text)) == {"titan/0", "titan/1", "rhea/0"}
    assert 'id="cards"' in answer.text


async def test_ones_own_cards_come_and_go(runtime: Runtime, browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    await add_nodes(runtime, titan=("h100", 2), rhea=("a100", 2))
    browser = await browsing("alice")
    page = await browser.get("/now?mine=yes")
    await booked_now(alice, gpu_type="a100")
    answer = await changes(browser, since(page), "&mine=yes")
    assert list(tiles(answer.text).values()) == ["mine"]


async def test_when_the_next_is_free_is_told_soon(
    runtime: Runtime, browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    await add_nodes(runtime, titan=("h100", 1))
    held = await booked_now(alice)
    browser = await browsing("bob")
    page = await browser.get("/now")

    async def told() -> bool:
        return f'datetime="{held["end"]}"' in await browser.get("/now")

    await eventually(told)
    answer = await changes(browser, since(page))
    assert (answer.status_code, tiles(answer.text)) == (200, {})


async def _add_many(runtime: Runtime, prefix: str = "node-") -> None:
    await execute(
        runtime,
        "INSERT INTO nodes (name, ready, schedulable, last_seen_at) "
        "SELECT :prefix || lpad(CAST(n AS text), 4, '0'), true, true, now() FROM generate_series(1, :nodes) n",
        nodes=MANY // 8,
        prefix=prefix,
    )
    await execute(
        runtime,
        "INSERT INTO gpus (node_id, index, gpu_type, updated_at) "
        "SELECT n.id, i, 'h100', now() FROM nodes n, generate_series(0, 7) i",
    )


async def test_four_thousand_gpus_are_a_heat_map(runtime: Runtime, browsing: SignedIn) -> None:
    await _add_many(runtime)
    browser = await browsing("alice")
    response = await browser.client.get("/now", headers={"Accept-Encoding": "gzip"})
    page = response.text
    assert cells(page) == {f"node-{number:04}": "8" for number in range(1, MANY // 8 + 1)}
    assert "500 nodes · 4000 of 4000 free · up to 8 together" in words(page)
    assert tiles(page) == {}
    assert int(response.headers["content-length"]) < 20_000
    assert len(page) < 150_000
    assert numbers(page)["h100"][0] == str(MANY)
    asked = await browser.get("/now?view=tiles")
    assert tiles(asked) == {}
    assert "at most 1024 can be shown one by one" in words(asked)
    part = await browser.get("/now?view=tiles&node=node-00")
    # One stop for Tab a node: the arrow keys go from tile to tile.
    assert (len(tiles(part)), part.count('tabindex="-1"')) == (99 * 8, 99 * 7 + 2)
    alone = await browser.get("/now?node=node-0001")
    assert len(tiles(alone)) == 8
    assert alone.count('class="tile free"') == 8


async def test_nodes_are_sorted_and_filtered_by_what_is_free_together(
    runtime: Runtime, browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    await add_nodes(runtime, titan=("h100", 4), rhea=("h100", 4), dione=("h100", 2))
    await booked_now(alice, gpus=3)
    browser = await browsing("bob")
    free = {name: int(number) for name, number in cells(await browser.get("/now?view=map")).items()}
    assert sorted(free.values()) == [1, 2, 4]
    for least in (1, 2, 3, 4, 5):
        page = await browser.get(f"/now?view=map&free={least}")
        assert cells(page).keys() == {name for name, number in free.items() if number >= least}
    ordered = list(cells(await browser.get("/now?view=map&sort=free")))
    assert ordered == sorted(free, key=lambda name: -free[name])
    for address, said in (
        ("sort=nonsense", "This page has no such order. Write sort= in the address with one of name, free."),
        ("view=maps", "This page has no such view. Write view= in the address with one of auto, tiles, map, use."),
        ("free=x", "Free GPUs on one node are a number from 1 to 999, such as 4. Correct it."),
        ("free=1000", "Free GPUs on one node are a number from 1 to 999"),
    ):
        assert said in words(await browser.get(f"/now?{address}", 422))


async def test_the_reason_of_a_closed_node_is_plain_text_in_a_heat_map(runtime: Runtime, browsing: SignedIn) -> None:
    await add_nodes(runtime, titan=("h100", 2))
    await execute(runtime, "UPDATE nodes SET schedulable = false, detail = 'Run `fsck` first.'")
    page = await (await browsing("bob")).get("/now?view=map")
    assert 'title="titan: Run `fsck` first."' in page


async def test_groups_are_of_a_type_and_a_rack(runtime: Runtime, browsing: SignedIn) -> None:
    nodes = {f"{rack}-n{number}": ("h100", 8) for rack in ("r1", "r2") for number in range(4)}
    await add_nodes(runtime, **nodes)
    await execute(runtime, """UPDATE nodes SET labels = '{"topology.kubernetes.io/rack": "B 7"}' WHERE name < 'r2'""")
    browser = await browsing("alice")
    page = await browser.get("/now?view=map&free=1")
    assert 'href="?type=h100&amp;rack=r2&amp;free=1&amp;view=map"' in page
    assert 'href="?type=h100&amp;rack=B+7&amp;free=1&amp;view=map"' in page
    assert cells(await browser.get("/now?view=map&type=h100&rack=r2")).keys() == {f"r2-n{n}" for n in range(4)}
    assert cells(await browser.get("/now?view=map&rack=B+7")).keys() == {f"r1-n{n}" for n in range(4)}


async def test_an_open_heat_map_is_told_what_differs(
    runtime: Runtime, browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    await add_nodes(runtime, titan=("h100", 2), rhea=("a100", 2))
    browser = await browsing("bob")
    page = await browser.get("/now?view=map")
    await booked_now(alice, gpu_type="a100")
    answer = await changes(browser, since(page), "&view=map")
    assert cells(answer.text) == {"rhea": "1"}
    assert answer.text.count('hx-swap-oob="morph" id=') == 1
    assert 'id="cards"' not in answer.text
    assert "1 of 2 free" in words(answer.text)  # the heading of its group
    # A change can move a node that is sorted or filtered by it.
    for query in ("&view=map&free=1", "&view=map&sort=free"):
        version = since(await browser.get(f"/now?{query[1:]}"))
        await booked_now(alice, gpu_type="h100")
        assert 'id="cards"' in (await changes(browser, version, query)).text


async def test_strangers_are_asked_to_sign_in(app: FastAPI, people: People, browsing: SignedIn) -> None:
    stranger = await browsing("anonymous")
    assert app is not None
    assert people.secrets["anonymous"] is None
    answers: list[Any] = [await stranger.client.get(path) for path in ("/now", "/queue", "/now/changes?since=1")]
    assert [answer.status_code for answer in answers] == [303, 303, 303]
    assert (await stranger.client.get("/now/card?card=a/0", headers=PARTS)).status_code == 401
