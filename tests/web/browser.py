"""People in a real browser, and everything that their pages complain of.

The user of a test has a browser context of their own, as if on a machine of their own. `Watch` notes faults of a page
that a person would hardly see: errors of scripts, what the page's policy refused, requests that failed, whatever was
asked of another host.
"""

import os
import re
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    Response,
    WebError,
    async_playwright,
    expect,
)

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "api_service" / "web" / "built" / "LICENSES.txt"
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
DESKTOP, PHONE = (1280, 800), (360, 740)

_NAMES = (
    "chromium-headless-shell",  # the same engine without a window's own pages and pictures: half the work
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
)  # fmt: skip
_FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_SERIOUS = ("serious", "critical")
# What a policy refuses is in the console in words that change from one browser to the next: this is the event itself.
_TELL_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) => console.error(
  `policy: ${event.effectiveDirective} refuses ${event.blockedURI} (${event.sourceFile ?? ""}:${event.lineNumber})`));
"""
# Said by the browser and by htmx of an answer that is an error or never came: that is noted with what was asked.
_SAID_OF_ANSWERS = ("Failed to load resource", "Response Status Error Code", "htmx:sendError", "htmx:afterRequest")
_RUN_AXE = """
async () => {
  const found = await axe.run(document, {resultTypes: ["violations"]});
  return found.violations.map(({id, impact, help, nodes}) => ({
    id, impact, help, nodes: nodes.map(({target, failureSummary}) => `${target.join(" ")}: ${failureSummary}`)}));
}
"""


def find_chromium() -> Path | None:
    """A Chromium of this machine: the one that GPU_DEV_TESTS_CHROMIUM names, else one on the path."""
    given = os.environ.get("GPU_DEV_TESTS_CHROMIUM")
    names = (given,) if given else _NAMES
    return next((Path(found) for name in names if (found := shutil.which(name)) is not None), None)


@asynccontextmanager
async def open_browser(chromium: Path, folder: Path) -> AsyncIterator[Browser]:
    """The browser, without a window. What it writes for itself is in `folder`."""
    expect.set_options(timeout=PATIENCE_S * 1000)
    # Root has no sandbox to go into.
    flags = [*_FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium,
            args=flags,
            timeout=PATIENCE_S * 1000,
            env={**os.environ, "TMPDIR": str(folder), "HOME": str(folder)},
        )
        try:
            yield browser
        finally:
            await browser.close()


class Watch:
    """The faults of the pages of one browser context that belong to the site at `url`."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self._url = url
        self._found: list[str] = []
        self._expected: list[str] = []
        context.on("console", self._console)
        context.on("weberror", self._error)
        context.on("request", self._request)
        context.on("requestfailed", self._failed)
        context.on("response", self._response)

    def expect_problem(self, pattern: str) -> None:
        """Something like this (a regular expression) has to be found, once or more, and is right."""
        self._expected.append(pattern)

    def assert_well(self) -> None:
        """Nothing was found but what was expected, and that was."""
        found = [fault for fault in self._found if not any(re.search(pattern, fault) for pattern in self._expected)]
        assert not found, "\n".join(found)
        for pattern in self._expected:
            assert any(re.search(pattern, fault) for fault in self._found), f"nothing was like {pattern}"

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith(_SAID_OF_ANSWERS):
            self._found.append(f"console: {message.text} ({message.location.get('url')})")

    def _error(self, error: WebError) -> None:
        self._found.append(f"script: {error.error}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith((f"{self._url}/", "data:", "blob:")):
            self._found.append(f"elsewhere: {request.method} {request.url}")

    def _failed(self, request: Request) -> None:
        # A page that is left ends what it was still loading, its stream of changes above all.
        if request.failure != "net::ERR_ABORTED":
            self._found.append(f"failed: {request.method} {request.url}: {request.failure}")

    def _response(self, response: Response) -> None:
        if response.status >= 400:
            self._found.append(f"answer: {response.status} {response.request.method} {response.url}")


class Person:
    """Somebody at a browser of their own; `page` is the first of their tabs."""

    def __init__(self, context: BrowserContext, page: Page, url: str, watch: Watch) -> None:
        self.context = context
        self.page = page
        self.url = url
        self.watch = watch

    def expect_problem(self, pattern: str) -> None:
        """See `Watch`."""
        self.watch.expect_problem(pattern)


@asynccontextmanager
async def open_person(browser: Browser, url: str, **options: Any) -> AsyncIterator[Person]:
    """Somebody who is not signed in yet. Raises AssertionError at the end when something was wrong with their pages.

    `options`: what Playwright's `new_context` takes beside.
    """
    settings = {"viewport": _size(DESKTOP), "color_scheme": "light", "reduced_motion": "reduce", "timezone_id": "UTC"}
    context = await browser.new_context(base_url=url, locale="en-GB", **{**settings, **options})
    try:
        context.set_default_timeout(PATIENCE_S * 1000)
        await context.add_init_script(_TELL_VIOLATIONS)
        watch = Watch(context, url)
        yield Person(context, await context.new_page(), url, watch)
    finally:
        await context.close()
    watch.assert_well()


async def sign_in(page: Page, token: str) -> None:
    """Sign in with a token, as a person does."""
    await page.goto("/sign-in")
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(lambda url: "/sign-in" not in url)


async def let_in(context: BrowserContext, token: str) -> None:
    """Let a browser in UTC be as after `sign_in`, but that no page was opened for it."""
    answer = await context.request.post("/sign-in", form={"token": token}, max_redirects=0)
    assert answer.status == 303, await answer.text()
    await context.add_cookies([{"name": "gpu_dev_browser_zone", "value": "UTC", "url": answer.url}])


async def set_hidden(page: Page, *, hidden: bool) -> None:
    """As a browser does when somebody goes to another tab; one without windows has nothing to hide."""
    await page.evaluate(
        """(hidden) => {
          Object.defineProperty(document, "hidden", {configurable: true, get: () => hidden});
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


async def axe(page: Page) -> list[dict[str, Any]]:
    """What axe-core finds on a page that is serious or critical: its id, impact, help and the elements."""
    if not await page.evaluate("typeof axe !== 'undefined'"):
        await page.evaluate(AXE.read_text())
    found = await page.evaluate(_RUN_AXE)
    return [violation for violation in found if violation["impact"] in _SERIOUS]


async def assert_accessible(page: Page) -> None:
    """axe-core finds nothing serious, as the page is and in the dark."""
    schemes: tuple[Literal["dark", "light"], ...] = ("dark", "light")
    for scheme in schemes:
        await page.emulate_media(color_scheme=scheme)
        found = await axe(page)
        assert not found, f"{page.url} ({scheme})\n{_told(found)}"


async def assert_fits(page: Page, width: int = PHONE[0]) -> None:
    """On so narrow a screen nothing has to be reached by scrolling sideways, but in places of its own."""
    before = page.viewport_size or _size(DESKTOP)
    await page.set_viewport_size(_size((width, PHONE[1])))
    await page.wait_for_load_state()  # between two pages there is nothing to measure
    try:
        wide = await page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{page.url} is {wide} px wide at {width} px"
    finally:
        await page.set_viewport_size(before)


async def screenshot(page: Page, name: str, folder: Path) -> list[Path]:
    """`<name>-light.png`, `-dark.png` and `-phone.png`. The page is left as it was: light, and as wide as before."""
    before = page.viewport_size or _size(DESKTOP)
    made = []
    for kind, size in (("dark", DESKTOP), ("phone", PHONE), ("light", DESKTOP)):
        await page.set_viewport_size(_size(size))
        await page.emulate_media(color_scheme="dark" if kind == "dark" else "light")
        made.append(folder / f"{name}-{kind}.png")
        await page.screenshot(path=made[-1], animations="disabled", caret="hide")
    await page.set_viewport_size(before)
    return made


def _size(pixels: tuple[int, int]) -> Any:
    return {"width": pixels[0], "height": pixels[1]}


def _told(found: Iterable[dict[str, Any]]) -> str:
    return "\n".join(
        f"{violation['id']} ({violation['impact']}): {violation['help']}\n  " + "\n  ".join(violation["nodes"])
        for violation in found
    )
