"""The terminal on a job's page, in a browser."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.async_api import Page, WebSocketRoute, expect

from tests.waiting import eventually
from tests.web.browser import assert_accessible, assert_fits
from tests.web.conftest import People, Screenshot
from tests.web.web_system import WebSystem

ROWS = "document.querySelector('.xterm-rows')?.innerText ?? ''"


@pytest.fixture(autouse=True)
def _free_gpus(system: WebSystem) -> Iterator[None]:
    yield
    system.end_all_jobs()


def holding(system: WebSystem, who: str = "alice") -> str:
    """A running job of somebody's that does nothing."""
    return system.submit(who, "sleep", "3000", name="holding")


async def running(system: WebSystem, job: str) -> None:
    await eventually(lambda: system.job(job)["status"] == "running")


async def open_terminal(page: Page, job: str) -> None:
    await page.goto(f"/jobs/{job}")
    await page.get_by_role("button", name="Open a terminal").click()
    await expect(page.locator(".job-terminal .xterm")).to_be_visible()
    await expect(page.locator("#terminal-part > [role=status]")).to_have_text("")


async def shows(page: Page, pattern: str) -> None:
    async def there() -> bool:
        return re.search(pattern, (await page.evaluate(ROWS)).replace("\xa0", " ")) is not None

    await eventually(there)


async def type_line(page: Page, line: str) -> None:
    await page.keyboard.type(f"{line}\n")


async def test_a_shell_is_typed_in_resized_and_ended(people: People, system: WebSystem, screenshot: Screenshot) -> None:
    job = holding(system)
    await running(system, job)
    alice = await people("alice")
    page = alice.page
    await open_terminal(page, job)
    await type_line(page, "echo $((6 * 7)) in $GPU_DEV_JOB_ID; stty size")
    await shows(page, f"42 in {job}")
    await screenshot(page, "terminal")
    await type_line(page, "clear; before=$(stty size); echo size-is-$((40 + 2))")
    await shows(page, "size-is-42")
    await page.get_by_role("button", name="Full size").click()
    await expect(page.locator("#terminal-part")).to_have_class(re.compile("full"))
    # The page measures itself when it is drawn next, which may be after these keys.
    await type_line(page, 'until [ "$(stty size)" != "$before" ]; do sleep 0.1; done; echo resized-$((40 + 2))')
    await shows(page, "resized-42")
    await screenshot(page, "terminal-full")
    await assert_accessible(page)
    await type_line(page, "printf '\\033[38;2;200;90;40mtrue colours\\033[0m and \\033[31mred\\033[0m\\n'; exit 7")
    await expect(page.get_by_text("The shell has ended with exit code 7.")).to_be_visible()
    await page.get_by_role("button", name="Close").click()
    await expect(page.locator("#terminal-part")).to_be_hidden()
    await page.get_by_role("button", name="Open a terminal").click()
    await shows(page, r"[$#%>]")


async def test_the_terminal_is_left_by_keys_and_read_by_screen_readers(people: People, system: WebSystem) -> None:
    job = holding(system)
    await running(system, job)
    alice = await people("alice")
    page = alice.page
    await open_terminal(page, job)
    await type_line(page, "echo spoken-$((40 + 2))")
    await shows(page, "spoken-42")
    await expect(page.locator(".xterm-accessibility-tree")).to_contain_text("spoken-42")
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.className") == "xterm-helper-textarea"
    await page.keyboard.press("Control+Shift+Enter")
    await expect(page.get_by_role("button", name="Full size")).to_be_focused()
    await assert_accessible(page)


async def test_a_page_that_is_loaded_again_is_in_the_same_shell(people: People, system: WebSystem) -> None:
    job = holding(system)
    await running(system, job)
    alice = await people("alice")
    page = alice.page
    await open_terminal(page, job)
    await type_line(page, "kept=still-here")
    await type_line(page, "echo first-$kept")
    await shows(page, "first-still-here")
    await page.reload()
    await shows(page, "first-still-here")  # what it showed last
    await page.locator(".job-terminal").click()
    await type_line(page, "echo second-$kept")
    await shows(page, "second-still-here")
    await page.get_by_role("button", name="End the shell").click()
    await page.reload()
    await expect(page.get_by_role("button", name="Open a terminal")).to_be_visible()
    await expect(page.locator("#terminal-part")).to_be_hidden()


async def test_a_connection_that_breaks_off_is_made_again(people: People, system: WebSystem) -> None:
    job = holding(system)
    await running(system, job)
    alice = await people("alice")
    page = alice.page
    opened: list[WebSocketRoute] = []

    async def remember(route: WebSocketRoute) -> None:
        route.connect_to_server()
        opened.append(route)

    await page.route_web_socket(re.compile("/terminal"), remember)
    await open_terminal(page, job)
    await type_line(page, "kept=still-here")
    another = await page.context.new_page()
    await open_terminal(another, job)  # the newest one
    await type_line(another, "kept=elsewhere; echo opened-$kept")
    await shows(another, "opened-elsewhere")
    await opened[0].close(code=3000)
    await eventually(lambda: len(opened) == 2)
    await expect(page.locator("#terminal-part > [role=status]")).to_have_text("")
    await type_line(page, "echo again-$kept")
    await shows(page, "again-still-here")


async def test_the_page_says_why_a_terminal_is_over(people: People, system: WebSystem) -> None:
    job = holding(system)
    await running(system, job)
    alice = await people("alice")
    page = alice.page
    alice.expect_problem(r"(409|failed|console).*/terminal|WebSocket")
    await open_terminal(page, job)
    system.rest("alice").post(f"/v1/jobs/{job}/cancel").raise_for_status()
    await expect(page.locator("#terminal-part > [role=status]")).to_contain_text("is over")


async def test_output_waits_for_a_page_that_is_slow(people: People, system: WebSystem) -> None:
    job = holding(system)
    await running(system, job)
    alice = await people("alice")
    page = alice.page
    received: list[int] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda data: received.append(len(data))))
    await open_terminal(page, job)
    # Ctrl-C is heard in the midst of it, because only so much is under way.
    await type_line(page, "yes 'a long line that is printed again and again without an end'")
    await eventually(lambda: sum(received) > 4_000_000)
    await page.keyboard.press("Control+c")
    await type_line(page, "clear; echo stopped-$((40 + 2))")
    await shows(page, "stopped-42")


async def test_connections_are_listed_on_the_page(people: People, system: WebSystem) -> None:
    job = holding(system)
    await running(system, job)
    alice = await people("alice")
    await open_terminal(alice.page, job)
    other = await alice.context.new_page()
    await other.goto(f"/jobs/{job}")
    await expect(other.get_by_text("1 connection")).to_be_visible()
    await expect(other.get_by_text("You: a terminal on this page")).to_be_visible()
    found: dict[str, Any] = system.rest("alice").get(f"/v1/jobs/{job}/connections").raise_for_status().json()
    assert [connection["way"] for connection in found["items"]] == ["terminal"]


async def test_without_scripts_the_page_names_the_command(people: People, system: WebSystem) -> None:
    job = holding(system)
    await running(system, job)
    alice = await people("alice", java_script_enabled=False)
    await alice.page.goto(f"/jobs/{job}")
    await expect(alice.page.get_by_text(f"gpu-dev shell {job}")).to_be_visible()
    await expect(alice.page.get_by_role("button", name="Open a terminal")).to_be_hidden()


async def test_an_administrator_sees_no_way_into_anothers_job(people: People, system: WebSystem) -> None:
    job = holding(system)
    await running(system, job)
    root = await people("root")
    await root.page.goto(f"/jobs/{job}")
    await expect(root.page.get_by_text("running").first).to_be_visible()
    await expect(root.page.get_by_role("button", name="Open a terminal")).to_have_count(0)


async def test_the_terminal_is_used_on_a_phone(people: People, system: WebSystem, screenshot: Screenshot) -> None:
    job = holding(system)
    await running(system, job)
    alice = await people("alice", viewport={"width": 390, "height": 780}, has_touch=True)
    page = alice.page
    await open_terminal(page, job)
    await type_line(page, "sleep 1000")
    await page.get_by_role("button", name="Control C").click()
    await type_line(page, "echo phone-$((40 + 2))")
    await shows(page, "phone-42")
    await page.get_by_role("button", name="Up").click()
    await page.get_by_role("button", name="Full size").click()
    await assert_fits(page)
    await screenshot(page, "terminal-phone")
