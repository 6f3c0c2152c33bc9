"""What can't be undone names what is lost before it is done: the same page everywhere, and a part for a dialog."""

import html
import re

import httpx
import pytest

from reservation_core.domain.time_words import rfc3339
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, at, booked
from tests.integration.api_service.web.browsing import Browser, words
from tests.integration.api_service.web.calendar.calendar_pages import sent
from tests.integration.api_service.web.conftest import SignedIn
from tests.integration.api_service.web.jobs.test_job_pages import submitted

DIALOG = {"HX-Request": "true"}
_FIELD = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)"')
_ACTION = re.compile(r'<form method="post" action="([^"]+)">\s*<input type="hidden" name="csrf_token"')


@pytest.fixture
async def lab(runtime: Runtime) -> None:
    """A node."""
    await add_nodes(runtime, titan=("h100", 4))


async def asked(browser: Browser, path: str) -> str:
    """The question at an address; it is the same in a dialog."""
    part = (await browser.client.get(path, headers=DIALOG)).text
    assert "<html" not in part
    assert words(part) in words(await browser.get(path))
    return part


async def confirmed(browser: Browser, part: str) -> httpx.Response:
    """The answer to pressing the question's button."""
    action = _ACTION.search(part)
    assert action is not None
    fields = {name: html.unescape(value) for name, value in _FIELD.findall(part)}
    answer = await browser.client.post(action[1], data=fields)
    assert answer.status_code == 303, words(answer.text)
    return answer


async def test_a_waiting_job_loses_its_place(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    job_id = await submitted(alice, name="train")
    browser = await browsing("alice")
    assert f'href="/jobs/{job_id}/cancel" data-ask' in await browser.get(f"/jobs/{job_id}")
    part = await asked(browser, f"/jobs/{job_id}/cancel")
    assert "Cancel train?" in words(part)
    assert "place in the queue" in words(part)
    assert (await alice.get(f"/v1/jobs/{job_id}")).json()["status"] == "queued"
    await confirmed(browser, part)
    assert (await alice.get(f"/v1/jobs/{job_id}")).json()["status"] == "cancelled"
    assert "has ended already" in words(await browser.get(f"/jobs/{job_id}/cancel", status=409))


@pytest.mark.usefixtures("lab")
async def test_a_booking_loses_its_time_and_a_series_its_dates(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    made = await booked(alice, at(3), gpu_type="h100", gpus=2, title="runs")
    job = await submitted(alice, name="inside", booking_id=made["id"], gpus=1, gpu_type="h100", duration="PT30M")
    browser = await browsing("alice")
    part = await asked(browser, f"/bookings/{made['id']}/cancel")
    assert "Cancel runs? You lose 2 h100 GPUs from " in words(part)
    assert "This job ends with it: inside (queued)." in words(part)
    await confirmed(browser, part)
    assert (await alice.get(f"/v1/bookings/{made['id']}")).json()["status"] == "cancelled"
    assert (await alice.get(f"/v1/jobs/{job}")).json()["status"] == "cancelled"

    await sent(browser, repeats="daily", count="4", title="standup")
    items = (await alice.get("/v1/bookings?status=confirmed")).json()["items"]
    for reach, lost in (("this", "from"), ("following", "at 3 dates"), ("all", "at 4 dates")):
        assert lost in words(await asked(browser, f"/bookings/{items[1]['id']}/cancel?reach={reach}"))
    await confirmed(browser, await asked(browser, f"/bookings/{items[1]['id']}/cancel?reach=following"))
    left = (await alice.get("/v1/bookings?status=confirmed")).json()["items"]
    assert [booking["id"] for booking in left] == [items[0]["id"]]


@pytest.mark.usefixtures("lab")
async def test_an_administrator_is_told_every_date_of_a_series(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    await sent(await browsing("alice"), repeats="daily", count="4", title="standup")
    second = f"/bookings/{(await alice.get('/v1/bookings')).json()['items'][1]['id']}"
    browser = await browsing("root")
    assert "alice loses 1 h100 GPU at 3 dates" in words(await asked(browser, f"{second}/cancel?reach=following"))
    part = await asked(browser, f"{second}/cancel?reach=all")
    assert "alice loses 1 h100 GPU at 4 dates" in words(part)
    done = await confirmed(browser, part)
    assert "4 bookings are cancelled." in words(await browser.get(done.headers["location"]))


@pytest.mark.usefixtures("lab")
async def test_a_waiting_booking_loses_its_place_alone_and_others_bookings_name_their_owner(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    held = await booked(bob, at(3), gpu_type="h100", gpus=4)
    body = {"gpus": 1, "gpu_type": "h100", "start": at(3).isoformat(), "duration": "PT1H", "wait": True}
    waits = (await alice.post("/v1/bookings", json=body)).json()
    assert waits["status"] == "waiting"
    part = words(await asked(await browsing("alice"), f"/bookings/{waits['id']}/cancel"))
    assert "The place on the waitlist is lost." in part
    assert "You lose" not in part
    assert "bob loses 4 h100 GPUs from " in words(await asked(await browsing("root"), f"/bookings/{held['id']}/cancel"))
    await (await browsing("root")).get(f"/bookings/{held['id']}/cancel?reach=bogus", status=404)


async def test_a_token_names_who_uses_it_and_what_was_made_with_it(
    browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    made = (await alice.post("/v1/tokens", json={"name": "laptop"})).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    child = (await alice.post("/v1/tokens", json={"name": "cron"}, headers=headers)).json()
    browser = await browsing("alice")
    part = words(await asked(browser, f"/account/tokens/{made['id']}/revoke"))
    assert f"Revoke laptop ({made['id']})?" in part
    of_others = words(await asked(await browsing("root"), f"/admin/tokens/{made['id']}/revoke?of=alice"))
    assert f"Revoke laptop ({made['id']}) of alice?" in of_others
    assert f"revoked, too: cron ({child['id']})." in part
    assert "this browser is signed out, too" not in part
    first = words(await asked(browser, f"/account/tokens/{made['made_with']}/revoke"))
    assert "this browser is signed out, too" in first
    for lost in (made, child):
        assert f"{lost['name']} ({lost['id']})" in first
    part = await asked(browser, f"/account/tokens/{made['id']}/revoke")
    await confirmed(browser, part)
    assert "No token in use" in words(await browser.get(f"/account/tokens/{made['id']}/revoke", status=404))
    bob = await browsing("bob")
    await bob.get(f"/account/tokens/{child['id']}/revoke", status=404)


async def test_other_browsers_are_counted(browsing: SignedIn) -> None:
    here = await browsing("alice")
    await browsing("alice")
    asks = words(await asked(here, "/account/sessions/end"))
    assert re.search(r"2 other browsers are signed out at once: those signed in at \S.+? and \S.+?\. This", asks)
    await confirmed(here, await asked(here, "/account/sessions/end"))
    await here.get("/account/sessions/end", status=404)
    assert "/account/sessions/end" not in await here.get("/account")


async def test_an_address_for_notifications_is_named(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    body = {"channel": "webhook", "address": "https://hooks.example.org/x", "name": "chat"}
    target = (await alice.post("/v1/notifications/targets", json=body)).json()
    browser = await browsing("alice")
    part = await asked(browser, f"/account/targets/{target['id']}/remove")
    assert "Remove chat?" in words(part)
    await confirmed(browser, part)
    assert (await alice.get("/v1/notifications/targets")).json()["items"] == []


@pytest.mark.usefixtures("lab")
async def test_nothing_is_asked_about_what_is_not_there(browsing: SignedIn, root: httpx.AsyncClient) -> None:
    browser = await browsing("root")
    (await root.post("/v1/projects", json={"name": "vision"})).raise_for_status()
    for path, said in (
        ("/admin/nodes/nowhere/cordon", "There is no node 'nowhere'."),
        ("/admin/nodes/nowhere/fence", "There is no node 'nowhere'."),
        ("/admin/pods/nothing/end", "There is no unknown pod 'nothing'."),
        ("/admin/projects/nothing/end", "You have no project 'nothing'."),
        ("/admin/projects/vision/members/alice/remove", "alice is not a member of vision."),
        ("/admin/users/nobody/disable", "There is no user 'nobody'"),
    ):
        assert said in words(await browser.get(path, status=404)), path


@pytest.mark.usefixtures("lab")
async def test_administrators_are_told_too(
    browsing: SignedIn, alice: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    browser = await browsing("root")
    made = (await alice.post("/v1/tokens", json={"name": "laptop"})).json()
    part = await asked(browser, f"/admin/tokens/{made['id']}/revoke?user=alice")
    assert (await confirmed(browser, part)).headers["location"] == "/admin/tokens?user=alice"

    (await root.post("/v1/projects", json={"name": "vision"})).raise_for_status()
    (await root.put("/v1/projects/vision/members/alice")).raise_for_status()
    part = await asked(browser, "/admin/projects/vision/members/alice/remove")
    assert "alice can request nothing more for vision." in words(part)
    await confirmed(browser, part)
    assert (await root.get("/v1/projects/vision")).json()["members"] == []

    node = (await root.get("/v1/nodes")).json()["items"][0]["name"]
    body = {"gpus": [{"node": node, "index": 0}], "start": rfc3339(at(30)), "duration": "PT2H", "reason": "new fans"}
    window = (await root.post("/v1/maintenance", json=body)).json()
    part = await asked(browser, f"/admin/maintenance/{window['id']}/end")
    assert "new fans" in words(part)
    assert "its 1 GPU, even" in words(part)
    await confirmed(browser, part)
    await browser.get(f"/admin/maintenance/{window['id']}/end", status=404)
