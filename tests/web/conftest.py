"""A real browser, where there is one, and the whole system to look at with it.

All of it lives in one event loop, the session's: a browser is started once.
GPU_DEV_TESTS_BROWSER=required lets what would be skipped for want of a browser fail instead.
GPU_DEV_TESTS_CHROMIUM names a browser, GPU_DEV_TESTS_SCREENSHOTS the folder that screenshots are put into.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NoReturn

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.web.browser import AXE, BUILT, Person, assert_fits, find_chromium, let_in, open_browser, open_person, sign_in
from tests.web.browser import screenshot as take_screenshot
from tests.web.scripted_site import ScriptedSite, scripted_site
from tests.web.web_system import WebSystem

HERE = Path(__file__).parent
People = Callable[..., Awaitable[Person]]
Screenshot = Callable[[Page, str], Awaitable[None]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that is asynchronous here runs in the session's loop, where the browser is."""
    in_session = pytest.mark.asyncio(loop_scope="session")
    for item in items:
        # As text: of Path objects, each of thousands of tests would make all its parents.
        if str(item.path).startswith(f"{HERE}/") and pytest_asyncio.is_async_test(item):
            item.add_marker(in_session, append=False)


def _without(what: str) -> NoReturn:
    if os.environ.get("GPU_DEV_TESTS_BROWSER") == "required":
        pytest.fail(f"{what} (GPU_DEV_TESTS_BROWSER=required)")
    pytest.skip(what)


@pytest.fixture(scope="session")
def chromium() -> Path:
    """The browser's program; pages that were not built are no pages to look at."""
    found = find_chromium()
    if found is None:
        _without("no Chromium is there; Debian, Ubuntu: apt install chromium")
    if not BUILT.exists() or not AXE.exists():
        _without("the pages' scripts are not built; make web builds them")
    return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(chromium: Path, session_folder: Path) -> AsyncIterator[Browser]:
    """The browser of this session."""
    folder = session_folder / "browser"
    folder.mkdir()
    async with open_browser(chromium, folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def system(
    chromium: Path, request: pytest.FixtureRequest, module_database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WebSystem]:
    """The system that a module's tests share; the module's SETTINGS, where it has these, are its environment."""
    settings = getattr(request.module, "SETTINGS", {})
    running = WebSystem(tmp_path_factory.mktemp("system") / "home", module_database_url, settings)
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def people(browser: Browser, system: WebSystem) -> AsyncIterator[People]:
    """`await people("alice")`: her, signed in, at a browser of her own, where no page is open yet.

    `await people(None)` is somebody unknown.

    The test fails at its end when something was wrong with a page that they saw, see `tests.web.browser.Watch`.
    """
    async with AsyncExitStack() as stack:

        async def come(name: str | None, **options: Any) -> Person:
            person = await stack.enter_async_context(open_person(browser, system.url, **options))
            if name is not None and options.keys().isdisjoint({"timezone_id", "java_script_enabled"}):
                await let_in(person.context, system.tokens[name])
            elif name is not None:
                await sign_in(person.page, system.tokens[name])
            return person

        yield come


@pytest_asyncio.fixture(loop_scope="session")
async def scripted() -> AsyncIterator[ScriptedSite]:
    """A site whose answers the test decides."""
    async with scripted_site() as site:
        yield site


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots are put."""
    given = os.environ.get("GPU_DEV_TESTS_SCREENSHOTS")
    folder = Path(given).absolute() if given else tmp_path_factory.getbasetemp() / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def screenshot(screenshots: Path) -> Screenshot:
    """`await screenshot(page, "now")`: light, dark and on a phone, where nothing may stick out at the side.

    Without a folder for them no pictures are taken: nobody would look at these, and each costs a redrawn page.
    """

    async def take(page: Page, name: str) -> None:
        if "GPU_DEV_TESTS_SCREENSHOTS" in os.environ:
            await take_screenshot(page, name, screenshots)
        await assert_fits(page)

    return take
