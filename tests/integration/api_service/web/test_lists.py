"""Lists without scripts: filter and order are the address, and every page is bounded."""

import html
import re

import httpx
import pytest

from api_service.web import listing
from api_service.web.finding.list_order import A_PAGE
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, asked, at
from tests.integration.api_service.callers import JOB
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn


async def jobs(client: httpx.AsyncClient, **gpus_of: int) -> None:
    for name, gpus in gpus_of.items():
        answer = await client.post("/v1/jobs", json={**JOB, "name": name, "gpus": gpus})
        assert answer.status_code == 202, answer.text


def names(page: str, kind: str = "jobs") -> list[str]:
    """What the links of a table's rows say, in their order."""
    return re.findall(rf'<a href="/{kind}/[a-z]+-[^"]+">([^<]+)</a>', page)


@pytest.mark.parametrize("path", ["/jobs", "/queue"])
async def test_jobs_and_the_queue_are_filtered_and_sorted(
    browsing: SignedIn, alice: httpx.AsyncClient, path: str
) -> None:
    await jobs(alice, train_b=1, evaluate=2, train_a=4)
    browser = await browsing("alice")
    arrived = ["train_b", "evaluate", "train_a"]
    assert names(await browser.get(path)) == (arrived if path == "/queue" else arrived[::-1])
    assert names(await browser.get(f"{path}?sort=gpus")) == ["train_a", "evaluate", "train_b"]
    assert names(await browser.get(f"{path}?sort=-gpus")) == arrived
    page = await browser.get(f"{path}?q=TRAIN&sort=name")
    assert names(page) == ["train_a", "train_b"]
    assert 'aria-sort="ascending"' in page
    assert f'href="{path}?q=TRAIN&amp;sort=-name"' in page
    assert "1 to 2 of 2" in words(page)
    assert re.search(r'name="q"[^>]*value="TRAIN"', page)
    assert '<option value="name" selected>' in page
    assert "match" in words(await browser.get(f"{path}?q=nothing+of+it")) or path == "/jobs"
    part = await browser.client.get(f"{path}?q=eval", headers={"HX-Request": "true"})
    assert names(part.text) == ["evaluate"]


async def test_a_list_is_looked_through_so_far_and_says_so(
    browsing: SignedIn, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LOOKED_AT", 2)
    await jobs(alice, first=1, second=1, third=1)
    browser = await browsing("alice")
    page = await browser.get("/jobs?sort=name")
    assert names(page) == ["second", "third"]
    assert "among the first 2 rows" in words(page)
    assert names(await browser.get("/jobs")) == ["third", "second", "first"]


async def test_a_long_list_has_pages(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    await jobs(alice, **{f"n{number:03}": 1 for number in range(A_PAGE + 5)})
    browser = await browsing("alice")
    for address in ("/jobs", "/jobs?sort=name", "/jobs?status=queued", "/queue", "/queue?sort=name&q=n"):
        first = await browser.get(address)
        assert len(names(first)) == A_PAGE
        [link] = re.findall(r'<a class="button second" href="([^"]+)">(?:Older ones|Next page|Further back)</a>', first)
        rest = await browser.get(link.replace("&amp;", "&"))
        assert len(names(rest)) == 5
        assert not set(names(rest)) & set(names(first))
        assert re.search(r'aria-label="Pages of the list"><a class="button second" href="[^"]+">', rest)
        assert f'href="#more-rows">Show all {A_PAGE} on this page' in first


def pages_of(page: str) -> dict[str, str]:
    """The links between the pages of a list, by their words."""
    [links] = re.findall(r'aria-label="Pages of the list">(.*?)</nav>', page)
    return {words: html.unescape(href) for href, words in re.findall(r'href="([^"]+)">([^<]+)</a>', links)}


async def test_links_between_pages_say_where_they_lead(browsing: SignedIn, root: httpx.AsyncClient) -> None:
    """From any page of what REST gives page by page, the way back leads to the first one, and is called so."""
    for number in range(2 * A_PAGE + 5):
        (await root.post("/v1/users", json={"name": f"u{number:03}", "role": "user"})).raise_for_status()
        await root.post("/v1/projects", json={"name": f"p{number:03}"})
    browser = await browsing("root")
    for path, size, back, on in (
        ("/admin/users", A_PAGE, "First page", "Next page"),
        ("/admin/projects", 100, "First page", "Next page"),
        ("/admin/audit?actor=root", 100, "Newest", "Older"),
        ("/admin/users?sort=-name", A_PAGE, "Previous page", "Next page"),
    ):
        first = await browser.get(path)
        assert list(pages_of(first)) == [on], path
        second = await browser.get(pages_of(first)[on])
        assert back in pages_of(second), path
        assert pages_of(second)[back].split("?")[0] == path.split("?")[0]
        assert len(re.findall("<tr", first)) == size + 1
        assert await browser.get(pages_of(second)[back]) != second


@pytest.mark.parametrize(
    "path", ["/jobs?status=queued", "/queue", "/bookings", "/admin/users", "/admin/tokens", "/admin/projects",
             "/admin/audit?kind=submitted"],
)  # fmt: skip
async def test_a_page_that_a_list_has_not_leads_to_its_first_one(browsing: SignedIn, path: str) -> None:
    """With the filters, and no words of REST."""
    root = await browsing("root")
    answer = await root.client.get(f"{path}{'&' if '?' in path else '?'}cursor=gone")
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    assert "That page of the list is gone. It begins here." in words(await root.get(path))


async def test_filters_of_rest_stay_from_page_to_page(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    await jobs(alice, of_alice=1)
    await jobs(bob, **{f"b{number:03}": 1 for number in range(A_PAGE + 1)})
    root = await browsing("root")
    page = await root.get("/jobs?user=bob&status=queued&status=failed&sort=name")
    assert 'href="/jobs?status=queued&amp;' in page or 'href="/jobs?user=bob&amp;status=queued' in page
    assert "of_alice" not in page
    assert names(await root.get("/jobs?user=bob&status=queued&sort=name&page=2")) == [f"b{A_PAGE:03}"]


async def test_bookings_are_filtered_and_sorted(browsing: SignedIn, alice: httpx.AsyncClient, runtime: Runtime) -> None:
    await add_nodes(runtime, node1=("h100", 4))
    for number, (title, gpus) in enumerate((("class", 1), ("demo", 3), ("demo two", 2))):
        answer = await alice.post("/v1/bookings", json=asked(at(2 * number + 5), duration=3600, title=title, gpus=gpus))
        assert answer.status_code == 201, answer.text
    browser = await browsing("alice")
    assert names(await browser.get("/bookings"), "bookings") == ["class", "demo", "demo two"]
    assert names(await browser.get("/bookings?sort=gpus"), "bookings") == ["demo", "demo two", "class"]
    assert names(await browser.get("/bookings?q=DEMO&sort=-from"), "bookings") == ["demo two", "demo"]
    none = await browser.get("/bookings?status=active")
    assert "No booking matches" in none
    assert '<option value="active" selected>now</option>' in none, "in the words of the list's badges"


async def test_users_are_filtered_and_sorted(browsing: SignedIn) -> None:
    root = await browsing("root")
    for name in ("zoe", "yan"):
        await root.send("/admin/users", name=name, role="user", key=name)
    found = re.compile(r'<tr id="user-([^"]+)">')
    assert found.findall(await root.get("/admin/users?sort=since"))[:2] == ["yan", "zoe"]
    assert found.findall(await root.get("/admin/users?q=YA")) == ["yan"]
    assert "No user matches" in await root.get("/admin/users?q=nobody")


async def test_usage_is_filtered_and_sorted(browsing: SignedIn) -> None:
    root = await browsing("root")
    page = await root.get("/usage?by=user&span=week&q=none&sort=name")
    assert "Nothing was held" in page or "Usage by person" in page


async def test_days_of_usage_are_enough_to_choose_them(browsing: SignedIn) -> None:
    root = await browsing("root")
    for address, first in (("from=2026-01-05&to=2026-01-09", "2026-01-05"), ("from=2026-01-05", "2026-01-05")):
        page = await root.get(f"/usage?{address}")
        assert '<option value="dates" selected>' in page
        assert f'value="{first}"' in page
    assert "Give the first and the last day" in await root.get("/usage?to=2026-01-09", 422)


@pytest.mark.parametrize(
    ("address", "said", "link"),
    [
        ("/jobs?sort=colour", "The list has no such order", '<a href="/jobs">Jobs</a>'),
        ("/bookings?status=gone", "The list has no such status", '<a href="/bookings">Your bookings</a>'),
        ("/bookings?when=soon", "The list has no such view", '<a href="/bookings">Your bookings</a>'),
        ("/usage?by=nobody", "Usage has no such view", '<a href="/usage">Usage</a>'),
        ("/usage?span=age", "Usage has no such view", '<a href="/usage">Usage</a>'),
        ("/calendar?view=decade", "The calendar has no such view", '<a href="/calendar">Calendar</a>'),
        ("/bookings/bkg-0000000000/offer", "no page at this address", '<a href="/bookings">Your bookings</a>'),
    ],
)
async def test_an_address_that_makes_no_sense_is_said_and_leads_to_its_page(
    browsing: SignedIn, address: str, said: str, link: str
) -> None:
    browser = await browsing("alice")
    page = await browser.get(address, 404 if "offer" in address else 422)
    assert said in words(page)
    assert link in page.partition("<h1>")[2]
