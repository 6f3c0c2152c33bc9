"""Apps of jobs in a browser: opened from the job's page, and kept apart from the pages, REST and each other."""

import re
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest
from playwright.async_api import Error, Page, expect

from tests.programs.ports import own_port
from tests.waiting import eventually
from tests.web.browser import ROOT
from tests.web.conftest import People
from tests.web.web_system import WebSystem

SAMPLE = ROOT / "tests" / "sessions" / "sample_app.py"


@pytest.fixture(autouse=True)
def _free_gpus(system: WebSystem) -> Iterator[None]:
    yield
    system.end_all_jobs()


async def serving(system: WebSystem, who: str, title: str) -> tuple[str, int]:
    """A running job of somebody's with the sample app in it, and the app's port."""
    port = own_port()
    job = system.submit(who, sys.executable, str(SAMPLE), str(port), title, name="serving")
    await eventually(lambda: system.job(job)["status"] == "running")
    return job, port


async def open_app(page: Page, job: str, port: int, title: str) -> Page:
    """The tab that a click on the job's page opens."""
    await page.goto(f"/jobs/{job}")
    await page.get_by_label("Open port", exact=True).fill(str(port))
    async with page.context.expect_page() as opened:
        await page.get_by_role("button", name="Open", exact=True).click()
    app = await opened.value

    async def shown() -> bool:
        with suppress(Error):  # the page before it leads on by itself
            if await app.title() == title:
                return True
            if ".localhost:" in app.url:
                await app.reload()  # it may not listen yet
        return False

    await eventually(shown)
    return app


async def test_an_app_is_opened_and_its_web_socket_passes(people: People, system: WebSystem) -> None:
    job, port = await serving(system, "alice", "Plain app")
    alice = await people("alice")
    alice.expect_problem("elsewhere|502")
    app = await open_app(alice.page, job, port, "Plain app")
    assert app.url == f"http://{job}-{port}.localhost:{system.url.rpartition(':')[2]}/"
    await expect(app.get_by_text("heard 3000000")).to_be_visible()
    await alice.page.reload()
    await expect(alice.page.get_by_text("You: an app in the browser")).to_be_visible()


async def test_a_hostile_app_reads_and_calls_nothing_of_others(people: People, system: WebSystem) -> None:
    job, port = await serving(system, "alice", "Victim")
    hostile, hostile_port = await serving(system, "alice", "Hostile")
    alice = await people("alice")
    alice.expect_problem(r"elsewhere|40\d|502|console|failed|Refused|frame|WebSocket")
    await open_app(alice.page, job, port, "Victim")
    app = await open_app(alice.page, hostile, hostile_port, "Hostile")
    number = system.url.rpartition(":")[2]
    victim = f"http://{job}-{port}.localhost:{number}"
    # The browser has the session's cookie for the address of the pages, and the victim's for the victim's.
    names = {cookie["name"] for cookie in await alice.context.cookies()}
    assert {"gpu_dev_session", "gpu_dev_app"} <= names
    assert await app.evaluate("document.cookie") == ""
    fetches = """async ([url, options]) => {
      try { const answer = await fetch(url, options); return `${answer.type} ${answer.status} ${await answer.text()}`; }
      catch { return "refused"; }
    }"""
    credentials = {"credentials": "include"}
    for url in (f"{system.url}/v1/jobs", f"{system.url}/session", f"{system.url}/jobs/{job}", f"{victim}/headers"):
        assert await app.evaluate(fetches, [url, credentials]) == "refused"
    for url in (f"{victim}/take", f"{system.url}/jobs/{job}/cancel", f"{system.url}/jobs/{job}/open"):
        blind = {**credentials, "method": "POST", "mode": "no-cors", "body": "x"}
        assert await app.evaluate(fetches, [url, blind]) in ("opaque 0 ", "refused")
    assert system.job(job)["status"] == "running"
    sockets = """(url) => new Promise((resolve) => {
      const socket = new WebSocket(url, ["v5.channel.k8s.io"]);
      socket.onopen = () => resolve("opened");
      socket.onerror = () => resolve("refused");
    })"""
    for url in (f"{system.url}/jobs/{job}/terminal", f"{victim}/socket"):
        assert await app.evaluate(sockets, url.replace("http", "ws")) == "refused"
    frames = """(url) => new Promise((resolve) => {
      const frame = document.createElement("iframe");
      frame.src = url;
      frame.onload = () => { try { resolve(frame.contentDocument?.title ?? "closed"); } catch { resolve("closed"); } };
      document.body.append(frame);
    })"""
    for url in (f"{victim}/", f"{system.url}/jobs/{job}"):
        assert await app.evaluate(frames, url) == "closed"
        framed = [frame for frame in app.frames if frame.parent_frame is not None]
        assert await framed[-1].title() not in ("Victim", "serving · GPUs")
    # Cookies for the parent domain or the pages stay without effect.
    await app.evaluate("document.cookie = 'gpu_dev_session=x; domain=localhost; path=/'")
    await app.goto(f"{app.url}cookies")
    kept = {(cookie["name"], cookie["domain"]) for cookie in await alice.context.cookies()}
    assert ("gpu_dev_session", "localhost") not in kept
    assert {domain for name, domain in kept if name == "mine"} == {f"{hostile}-{hostile_port}.localhost"}
    await alice.page.goto("/jobs")
    await expect(alice.page.get_by_role("heading", name="Jobs")).to_be_visible()


async def test_nobody_else_opens_an_app(people: People, system: WebSystem) -> None:
    job, port = await serving(system, "alice", "Hers")
    bob = await people("bob")
    bob.expect_problem("elsewhere|401")
    await bob.page.goto(f"http://{job}-{port}.localhost:{system.url.rpartition(':')[2]}/")
    await expect(bob.page.get_by_role("heading", name="Open this app from its job")).to_be_visible()
    link = bob.page.get_by_role("link", name=re.compile(job))
    assert await link.get_attribute("href") == f"http://localhost:{system.url.rpartition(':')[2]}/jobs/{job}"
