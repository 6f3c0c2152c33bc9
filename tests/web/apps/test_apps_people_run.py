"""JupyterLab, TensorBoard and code-server in jobs: started as the guide says, and used in a browser behind this server.

`make apps` installs them. GPU_DEV_TESTS_APPS=required lets what would be skipped for want of them fail instead.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Error, Page, expect

from tests.programs.ports import own_port
from tests.waiting import PATIENCE_S, eventually, eventually_sync
from tests.web.browser import DESKTOP, ROOT
from tests.web.web_system import WebSystem

GUIDE = ROOT / "docs" / "guides" / "sessions.md"
FOLDERS = [ROOT / ".apps" / "python" / "bin", ROOT / ".apps" / "code-server" / "node_modules" / ".bin"]
APPS = ("jupyter", "tensorboard", "code-server")
CELL = 'import os; print(6 * 7, "in", os.environ["GPU_DEV_JOB_ID"])'
WRITE_SCALARS = """
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter("runs/first")
for step in range(5):
    loss = Summary.Value(tag="loss", simple_value=10 / 2**step)
    writer.add_event(Event(wall_time=1_800_000_000 + step, step=step, summary=Summary(value=[loss])))
writer.close()
"""


# The canvas itself is drawn by a worker.
IS_DRAWN = """(canvas) => {
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
  copy.drawImage(canvas, 0, 0);
  return copy.getImageData(0, 0, canvas.width, canvas.height).data.some((part) => part > 0);
}"""
# Nothing takes the focus from the terminal, and its text is in the page.
CODE_SETTINGS = {
    "chat.disableAIFeatures": True,
    "security.workspace.trust.enabled": False,
    "terminal.integrated.gpuAcceleration": "off",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.startupEditor": "none",
}


class Tab(NamedTuple):
    """A page of a browser that knows nothing of this server, and the addresses of the WebSockets that it opened."""

    page: Page
    sockets: list[str]


class RunningApp(NamedTuple):
    """An app in a job of alice's, and the tab that it is open in."""

    job: str
    page: Page
    sockets: list[str]


Start = Callable[..., Awaitable[RunningApp]]


@pytest.fixture(scope="session", autouse=True)
def _apps_are_installed() -> None:
    missing = [app for app in APPS if not any((folder / app).exists() for folder in FOLDERS)]
    if not missing:
        return
    why = f"not installed for tests: {', '.join(missing)}; make apps installs them"
    if os.environ.get("GPU_DEV_TESTS_APPS") == "required":
        pytest.fail(f"{why} (GPU_DEV_TESTS_APPS=required)")
    pytest.skip(why)


@pytest.fixture
def variables(system: WebSystem, session_folder: Path) -> Iterator[dict[str, str]]:
    """The variables of a job that has the apps and a home. After the test no process is left that has this home."""
    home = session_folder / f"home-{own_port()}"
    settings = home / ".local" / "share" / "code-server" / "User" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps(CODE_SETTINGS))
    yield {"PATH": ":".join([*map(str, FOLDERS), "/usr/bin:/bin"]), "HOME": str(home), "TMPDIR": str(home)}
    system.end_all_jobs()
    eventually_sync(lambda: not processes_of(home))


def processes_of(home: Path) -> list[psutil.Process]:
    def belongs(process: psutil.Process) -> bool:
        try:
            return process.status() != psutil.STATUS_ZOMBIE and process.environ().get("HOME") == str(home)
        except (psutil.Error, OSError):
            return False

    return [process for process in psutil.process_iter() if belongs(process)]


@pytest_asyncio.fixture(loop_scope="session")
async def tab(browser: Browser) -> AsyncIterator[Tab]:
    """See `Tab`."""
    width, height = DESKTOP
    context = await browser.new_context(viewport={"width": width, "height": height}, locale="en-GB")
    context.set_default_timeout(PATIENCE_S * 1000)
    opened = Tab(await context.new_page(), [])
    opened.page.on("websocket", lambda socket: opened.sockets.append(socket.url))
    try:
        yield opened
    finally:
        await context.close()


@pytest.fixture
def start(system: WebSystem, variables: dict[str, str], tab: Tab) -> Start:
    """`await start("JupyterLab")`: the app, by the guide's commands and the address that `gpu-dev open` prints.

    `leaving_out`: words of these commands that are not typed.
    """

    async def begin(app: str, leaving_out: str = "") -> RunningApp:
        job, port = system.submit("alice", workload={"command": [], "env": variables}, name="box"), own_port()
        await eventually(lambda: system.job(job)["status"] == "running")
        address = type_in_shell(system, recipe(app, job, port).replace(leaving_out, "")).strip()
        assert address.startswith(f"http://{job}-{port}.localhost:"), address
        await tab.page.goto(address)
        await open_when_it_listens(tab, address.partition("/.gpu-dev/")[0])
        return RunningApp(job, *tab)

    return begin


def recipe(app: str, job: str, port: int) -> str:
    """What the guide says to type for an app, for this job and port."""
    found = re.search(rf"\n### {app}\n\n```sh\n(.+?\ngpu-dev open box (\d+)\n)```", GUIDE.read_text(), re.DOTALL)
    assert found is not None, f"{GUIDE.name} does not say how to start {app}"
    return re.sub(r"\bbox\b", job, found[1]).replace(found[2], str(port))


def type_in_shell(system: WebSystem, script: str) -> str:
    """What a script with `gpu-dev` in it prints for alice."""
    command = ["sh", "-ec", script]
    done = subprocess.run(
        command, env=shell_of_alice(system), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shell_of_alice(system: WebSystem) -> dict[str, str]:
    """The variables of a shell where alice uses the command line, without a browser."""
    taken = ("GPU_DEV_", "DISPLAY", "WAYLAND_")
    others = {name: value for name, value in os.environ.items() if not name.startswith(taken)}
    ours = {"GPU_DEV_SERVER": system.url, "GPU_DEV_TOKEN": system.tokens["alice"], "PYTHONPATH": str(ROOT)}
    return {**others, **ours, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


async def open_when_it_listens(tab: Tab, address: str) -> None:
    async def listens() -> bool:
        with suppress(Error):
            answer = await tab.page.goto(address)
            return answer is not None and answer.status == 200
        return False

    await eventually(listens)


async def test_jupyterlab_runs_a_cell(start: Start, screenshots: Path) -> None:
    lab = await start("JupyterLab")
    await run_a_cell(lab)
    await lab.page.screenshot(path=screenshots / "jupyterlab.png")


async def test_jupyterlab_asks_for_its_token(start: Start, system: WebSystem) -> None:
    lab = await start("JupyterLab", leaving_out="--IdentityProvider.token=")
    await expect(lab.page.get_by_text("Token authentication is enabled")).to_be_visible()
    listed = type_in_shell(system, f"gpu-dev exec {lab.job} -- jupyter lab list")
    token = re.search("token=([0-9a-f]+)", listed)
    assert token is not None, listed
    await lab.page.locator("#password_input").fill(token[1])
    await lab.page.get_by_role("button", name="Log in", exact=True).click()
    await run_a_cell(lab)


async def test_dev_runs_jupyterlab_at_an_address_of_this_machine(
    system: WebSystem, variables: dict[str, str], tab: Tab
) -> None:
    command = ["gpu-dev", "dev", "--gpus", "1", "--for", "10m", "--name", "lab", "--ide", "jupyter"]
    command += [f"--env={name}={value}" for name, value in variables.items()]
    with subprocess.Popen(
        command, env=shell_of_alice(system), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stdout is not None
            await open_when_it_listens(tab, running.stdout.readline().strip())
            [job] = (
                system.rest("alice").get("/v1/jobs", params={"status": "running"}).raise_for_status().json()["items"]
            )
            await run_a_cell(RunningApp(job["id"], *tab))
        finally:
            running.send_signal(signal.SIGINT)


async def run_a_cell(lab: RunningApp) -> None:
    """Have a new notebook's kernel print something, which takes a WebSocket."""
    page = lab.page
    await page.locator(".jp-LauncherCard[data-category=Notebook]").first.click()
    await expect(page.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible()  # the page is loaded to its end
    cell = page.locator(".jp-NotebookPanel .jp-CodeCell .cm-content").first
    await cell.click()
    await page.keyboard.insert_text(CELL)
    await expect(cell).to_have_text(CELL)
    await page.keyboard.press("Shift+Enter")
    await expect(page.locator(".jp-OutputArea-output").first).to_have_text(f"42 in {lab.job}\n")
    assert [url for url in lab.sockets if "/api/kernels/" in url]


async def test_tensorboard_draws_a_scalar(start: Start, system: WebSystem, screenshots: Path) -> None:
    board = await start("TensorBoard")
    page = board.page
    nothing, card = page.get_by_text("No dashboards are active"), page.locator("card-view").filter(has_text="loss")
    await expect(nothing).to_be_visible()
    type_in_shell(system, f"gpu-dev exec {board.job} -- python -c {shlex.quote(WRITE_SCALARS)}")

    async def listed() -> bool:
        await page.reload()  # it looks for files every few seconds
        await expect(nothing.or_(card)).to_be_visible()
        return await card.is_visible()

    await eventually(listed)
    await expect(card.locator("tb-data-table")).to_contain_text("first")
    await expect(card.locator("tb-data-table")).to_contain_text("0.625")
    await eventually(lambda: card.locator("canvas").evaluate(IS_DRAWN))
    await page.screenshot(path=screenshots / "tensorboard.png")


async def test_code_server_has_a_terminal_the_jobs_files_and_previews(start: Start, screenshots: Path) -> None:
    code = await start("code-server")
    await use_a_terminal(code)
    await code.page.keyboard.press("Control+Shift+KeyV")
    preview = code.page.frame_locator("iframe.webview").frame_locator("iframe")  # served by a service worker
    await expect(preview.get_by_role("heading", name=f"42 in {code.job}")).to_be_visible()
    await code.page.screenshot(path=screenshots / "code-server.png")


async def test_code_server_asks_for_its_password(start: Start, system: WebSystem) -> None:
    code = await start("code-server", leaving_out="--auth=none")
    config = type_in_shell(system, f"gpu-dev exec {code.job} -- sh -c 'cat ~/.config/code-server/config.yaml'")
    password = re.search("^password: (.+)$", config, re.MULTILINE)
    assert password is not None, config
    await code.page.get_by_placeholder("PASSWORD").fill(password[1])
    await code.page.get_by_role("button", name="Submit").click()
    await use_a_terminal(code)


async def use_a_terminal(code: RunningApp) -> None:
    """Write a file by a terminal of the workbench, and see it in the job's folder and in an editor."""
    page = code.page
    files = page.get_by_role("tree", name="Files Explorer")
    await expect(files.get_by_text("code-server.log")).to_be_visible()
    await page.keyboard.press("Control+Backquote")
    terminal = page.locator(".terminal-wrapper.active")
    await expect(terminal.locator(".xterm-rows")).to_contain_text(re.compile("[$#]"))
    await terminal.locator(".xterm-helper-textarea").focus()
    await page.keyboard.type("echo \\# $((6 * 7)) in $GPU_DEV_JOB_ID >made-here.md\n")
    await files.get_by_text("made-here.md").dblclick()
    await expect(page.locator(".editor-instance .view-lines")).to_have_text(f"#\xa042\xa0in\xa0{code.job}")
    assert len(code.sockets) >= 2  # one is for its files, and one for its extensions
