"""Ports of a job on its page, in a browser."""

import re
import sys
from collections.abc import Iterator

import pytest
from playwright.async_api import Page, expect

from tests.waiting import eventually
from tests.web.browser import assert_accessible
from tests.web.conftest import People, Screenshot
from tests.web.web_system import WebSystem

_SERVER = """
import http.server, socket, threading
servers = [http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) for _ in range(2)]
print("ports", *sorted(server.server_port for server in servers), flush=True)
for server in servers:
    threading.Thread(target=server.serve_forever).start()
"""


@pytest.fixture(autouse=True)
def _free_gpus(system: WebSystem) -> Iterator[None]:
    yield
    system.end_all_jobs()


async def serving(system: WebSystem, who: str = "alice") -> tuple[str, list[str]]:
    """A running job of somebody's that listens at two ports, and these."""
    job = system.submit(who, sys.executable, "-I", "-c", _SERVER, name="serving")

    def printed() -> str:
        return system.rest(who).get(f"/v1/jobs/{job}/logs").text

    await eventually(lambda: "\n" in printed())
    return job, printed().split()[1:]


async def ports_on(page: Page) -> list[str]:
    return [re.split(r"\s+", text.strip())[0] for text in await page.locator("#ports li").all_inner_texts()]


async def test_ports_are_shown_and_opened(people: People, system: WebSystem, screenshot: Screenshot) -> None:
    job, ports = await serving(system)
    alice = await people("alice")
    alice.expect_problem(rf"elsewhere: GET http://{job}-{ports[1]}\.")  # the app's own address
    await alice.page.goto(f"/jobs/{job}")
    assert await ports_on(alice.page) == ports
    await screenshot(alice.page, "ports")
    await assert_accessible(alice.page)
    async with alice.context.expect_page() as opening:
        await alice.page.get_by_role("button", name=f"Open port {ports[1]}").click()
    opened = await opening.value
    await expect(opened).to_have_url(re.compile(rf"http://{job}-{ports[1]}\."))
    await expect(opened.get_by_text("Directory listing for /").first).to_be_visible()


async def test_new_ports_appear_and_closed_ones_go(people: People, system: WebSystem) -> None:
    job = system.submit("alice", "sleep", "3000", name="holding")
    await eventually(lambda: system.job(job)["status"] == "running")
    alice = await people("alice")
    await alice.page.clock.install()
    await alice.page.goto(f"/jobs/{job}")
    assert await ports_on(alice.page) == []
    await alice.page.get_by_role("button", name="Open a terminal").click()
    await expect(alice.page.locator(".job-terminal .xterm")).to_be_visible()
    await expect(alice.page.locator("#terminal-part > [role=status]")).to_have_text("")
    await alice.page.keyboard.type(f"{sys.executable} -m http.server --bind 127.0.0.1 0\n")

    async def appears() -> bool:
        await alice.page.clock.run_for(10_000)
        return len(await ports_on(alice.page)) == 1

    await eventually(appears)
    await alice.page.locator(".job-terminal .xterm-helper-textarea").focus()
    await alice.page.keyboard.press("Control+c")

    async def goes() -> bool:
        await alice.page.clock.run_for(10_000)
        return await ports_on(alice.page) == []

    await eventually(goes)


async def test_ports_are_asked_for_no_more_often_than_every_ten_seconds(people: People, system: WebSystem) -> None:
    job, ports = await serving(system)
    alice = await people("alice")
    asked: list[str] = []
    alice.page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/ports") else None)
    await alice.page.clock.install()
    await alice.page.goto(f"/jobs/{job}")
    await alice.page.clock.run_for(5_000)  # beside what really goes by meanwhile
    assert await ports_on(alice.page) == ports
    assert asked == []  # they came with the page
    await alice.page.clock.run_for(35_000)
    await eventually(lambda: len(asked) >= 3)
    assert len(asked) <= 4


async def test_ports_are_for_those_who_may_enter(people: People, system: WebSystem) -> None:
    job, ports = await serving(system)
    root = await people("root")
    await root.page.goto(f"/jobs/{job}")
    assert await ports_on(root.page) == []
    assert (
        ports[0] not in await (await root.page.request.get(f"/jobs/{job}/ports", headers={"HX-Request": "true"})).text()
    )
    bob = await people("bob")
    assert (await bob.page.request.get(f"/jobs/{job}/ports", headers={"HX-Request": "true"})).status == 404
    system.rest("alice").put(f"/v1/jobs/{job}/shares/bob").raise_for_status()
    await bob.page.goto(f"/jobs/{job}")
    assert await ports_on(bob.page) == ports
