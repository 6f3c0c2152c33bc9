"""The drawing of the jobs around a job, in a browser."""

import re
from typing import Any

from playwright.async_api import Locator, expect

from tests.waiting import eventually_sync
from tests.web.browser import assert_accessible
from tests.web.conftest import People, Screenshot
from tests.web.web_system import WebSystem

SETTINGS = {"GPU_DEV_LOCAL_GPUS": "titan=h100:4"}

_SEEN = """(link) => {
  const [a, b] = [link, link.closest(".graph")].map((box) => box.getBoundingClientRect());
  return a.left < b.right && a.right > b.left;
}"""


def drawn(graph: Locator, name: str) -> Locator:
    return graph.get_by_role("link", name=re.compile(f"^{name}"))


def after(**needed: str) -> list[dict[str, str]]:
    return [{"job": job, "when": when} for when, jobs in needed.items() for job in jobs.split()]


def make_pipeline(system: WebSystem) -> dict[str, str]:
    """A pipeline of which the beginning is over and a part runs; returns ids by name."""
    made: dict[str, str] = {}

    def submit(name: str, *command: str, **more: Any) -> None:
        made[name] = system.submit("alice", *(command or ("sleep", "300")), name=name, **more)

    submit("fetch-data", "true")
    submit("fetch-labels", "true")
    eventually_sync(lambda: all(system.job(job)["status"] == "succeeded" for job in made.values()))
    submit("clean", "true", after=after(succeeded=f"{made['fetch-data']} {made['fetch-labels']}"))
    submit("tokenizer", "false", after=after(succeeded=made["fetch-data"]))
    eventually_sync(lambda: system.job(made["clean"])["status"] == "succeeded")
    eventually_sync(lambda: system.job(made["tokenizer"])["status"] == "failed")
    trained = after(succeeded=made["clean"], ended=made["tokenizer"])
    submit("train-with-a-name-that-is-longer-than-its-box", after=trained, duration=3600)
    train = made["train-with-a-name-that-is-longer-than-its-box"]
    eventually_sync(lambda: system.job(train)["status"] == "running")
    submit("tensorboard", "sleep", "300", after=after(started=train))
    submit("alarm", after=after(failed=train))
    submit("evaluate", after=after(succeeded=f"{train} {made['fetch-labels']}"))
    submit("publish", after=after(succeeded=made["evaluate"], ended=train))
    return made


async def test_a_pipeline_is_drawn(people: People, system: WebSystem, screenshot: Screenshot) -> None:
    made = make_pipeline(system)
    train = made["train-with-a-name-that-is-longer-than-its-box"]
    alice = await people("alice")
    page = alice.page
    await page.goto(f"/jobs/{train}")
    graph = page.get_by_role("region", name="Which job waits for which")
    links = graph.get_by_role("link")
    await expect(links).to_have_count(9)
    await expect(graph.locator("[aria-current]")).to_contain_text("running")
    for name in ("fetch-data", "clean", "publish"):
        await expect(drawn(graph, name)).to_be_visible()
    await expect(drawn(graph, "evaluate")).to_contain_text("fetch-labels succeeds")
    await assert_accessible(page)
    await graph.scroll_into_view_if_needed()
    await screenshot(page, "dependency-graph")
    # On a phone it scrolls by itself and begins at the job; from the keyboard each job is reached, and seen.
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.reload()
    assert await page.evaluate("document.documentElement.scrollWidth") == 390
    assert await graph.locator("[aria-current]").evaluate(_SEEN), "it begins at the job"
    await graph.focus()
    for number in range(9):
        await page.keyboard.press("Tab")
        await expect(links.nth(number)).to_be_focused()
        assert await links.nth(number).evaluate(_SEEN)
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"/jobs/{made['publish']}")
    system.rest("alice").post(f"/v1/jobs/{train}/cancel").raise_for_status()
    await expect(drawn(graph, "alarm")).to_have_count(0)
    await expect(drawn(graph, "evaluate")).to_contain_text("cancelled")


async def test_without_scripts(people: People, system: WebSystem) -> None:
    first = system.submit("alice", "sleep", "300", name="first")
    second = system.submit("alice", "true", name="second", after=after(ended=first))
    alice = await people("alice", java_script_enabled=False)
    await alice.page.goto(f"/jobs/{first}")
    graph = alice.page.get_by_role("region", name="Which job waits for which")
    await expect(drawn(graph, "second")).to_have_accessible_name(f"second queued {second} (waits until first ends)")
    await drawn(graph, "second").click()
    await expect(alice.page).to_have_url(f"/jobs/{second}")
