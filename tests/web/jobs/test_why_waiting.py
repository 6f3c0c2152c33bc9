"""Why a job waits, as a picture: what has the GPUs, the job's own slot, and what a smaller request would do."""

from collections.abc import Iterator

import pytest
from playwright.async_api import Locator, expect

from tests.waiting import eventually, eventually_sync
from tests.web.browser import PHONE, assert_accessible, assert_fits
from tests.web.conftest import People, Screenshot
from tests.web.web_system import WebSystem


@pytest.fixture
def waiting(system: WebSystem) -> Iterator[str]:
    """Alice's job of four GPUs for two hours: bob has two for 40 minutes, she herself one for 90."""
    for who, gpus, minutes, name in (("bob", 2, 40, "sweep"), ("alice", 1, 90, "notebook")):
        job = system.submit(who, "sleep", "3000", gpus=gpus, duration=60 * minutes, name=name)
        eventually_sync(lambda job=job: system.job(job)["status"] == "running")  # type: ignore[misc]
    job = system.submit("alice", "true", gpus=4, duration=7200, name="train")
    eventually_sync(lambda: system.job(job)["promised_start_at"] is not None)
    yield job
    system.end_all_jobs()


async def left_of(bar: Locator) -> float:
    """Where a bar begins, in percent of the width."""
    await expect(bar).to_have_count(1)
    return float((await bar.locator("xpath=..").get_attribute("x") or "").removesuffix("%"))


async def test_sliders_moved_by_keyboard_move_the_slot_and_say_so(
    people: People, system: WebSystem, waiting: str, screenshot: Screenshot
) -> None:
    alice = await people("alice")
    page = alice.page
    await page.goto(f"/jobs/{waiting}")
    await expect(page.locator(".lane .bar-of.slot")).to_have_count(4)
    await expect(page.locator(".lane .bar-of.job")).to_contain_text(["bob (runs), until"] * 2)
    await expect(page.locator(".lane .bar-of.mine")).to_contain_text("notebook (runs), until")
    answer, asked = page.locator("#what-if"), page.locator(".lane .bar-of.asked")
    await expect(asked).to_have_count(0)
    gpus, length = page.get_by_role("slider", name="GPUs"), page.get_by_role("slider", name="For")
    await expect(gpus).to_have_attribute("aria-valuetext", "4 GPUs")
    await gpus.focus()
    await page.keyboard.press("ArrowLeft")
    await expect(gpus).to_have_attribute("aria-valuetext", "3 GPUs")
    await expect(answer).to_contain_text("With 3 GPUs for 2 h it would start about")
    await expect(answer).to_contain_text("50 min sooner")
    later = await left_of(asked)
    assert 0 < later < await left_of(page.locator(".lane .bar-of.slot").first)
    await assert_accessible(page)
    await screenshot(page, "why-waiting")
    await page.keyboard.press("Home")
    await expect(answer).to_contain_text("With 1 GPU for 2 h it would start now (1 h")
    assert await left_of(asked) < later
    await expect(gpus).to_be_focused()
    await page.keyboard.press("End")
    await length.focus()
    await page.keyboard.press("Home")
    await expect(answer).to_contain_text("With 4 GPUs for 5 min it would start about")
    await page.keyboard.press("End")
    await expect(answer).to_be_empty()
    assert system.job(waiting)["gpus"] == 4
    assert len(system.rest("alice").get("/v1/queue").json()["items"]) == 1


async def test_a_smaller_request_takes_the_place_of_the_job(people: People, system: WebSystem, waiting: str) -> None:
    alice = await people("alice")
    page = alice.page
    await page.goto(f"/jobs/{waiting}")
    await page.get_by_role("slider", name="GPUs").press("Home")
    await page.get_by_role("link", name="Submit this smaller job").click()
    await expect(page.get_by_label("GPUs on each node")).to_have_value("1")
    await expect(page.get_by_label("For at most")).to_have_value("2h")
    await expect(page.get_by_label("Name", exact=True)).to_have_value("train")
    replaces = page.get_by_label("Cancel train")
    await expect(page.locator("#verdict")).to_contain_text("Starts now")
    await replaces.uncheck()
    await expect(page.locator("#verdict")).to_contain_text("It starts about")
    await replaces.check()
    await expect(page.locator("#verdict")).to_contain_text("Starts now")
    await assert_accessible(page)
    await page.get_by_role("button", name="Submit").click()
    await expect(page.get_by_text(f"{waiting} is cancelled.")).to_be_visible()
    assert system.job(waiting)["status"] == "cancelled"


async def test_the_picture_follows_what_happens_and_goes_when_the_job_starts(
    people: People, system: WebSystem, waiting: str
) -> None:
    alice = await people("alice")
    page = alice.page
    await page.goto(f"/jobs/{waiting}")
    for _ in range(2):
        await page.get_by_role("slider", name="GPUs").press("ArrowLeft")
    await expect(page.locator("#what-if")).to_contain_text("With 2 GPUs for 2 h it would start about")
    running = system.rest("root").get("/v1/jobs", params={"status": "running"}).json()["items"]
    jobs = {job["name"]: job["id"] for job in running}
    system.rest("alice").post(f"/v1/jobs/{jobs['notebook']}/cancel").raise_for_status()
    await expect(page.locator(".lane .bar-of.mine")).to_have_count(0)
    await expect(page.locator("#what-if")).to_contain_text("With 2 GPUs for 2 h it would start now")
    await expect(page.get_by_role("slider", name="GPUs")).to_have_attribute("aria-valuetext", "2 GPUs")
    system.rest("bob").post(f"/v1/jobs/{jobs['sweep']}/cancel").raise_for_status()
    await eventually(lambda: system.job(waiting)["started_at"] is not None)
    await expect(page.locator("#why-waiting")).to_have_count(0)


async def test_on_a_phone_and_without_scripts(people: People, waiting: str) -> None:
    phone = {"width": PHONE[0], "height": PHONE[1]}
    alice = await people("alice", viewport=phone)
    page = alice.page
    await page.goto(f"/jobs/{waiting}")
    await expect(page.get_by_role("slider", name="GPUs")).to_be_visible()
    await page.get_by_text("The same as a list").click()
    row = page.locator(".as-list tbody tr").filter(has_text="notebook")
    await expect(row).to_contain_text("until")
    await assert_accessible(page)
    await assert_fits(page)
    plain = await people("alice", viewport=phone, java_script_enabled=False)
    page = plain.page
    await page.goto(f"/jobs/{waiting}")
    await page.get_by_label("GPUs", exact=True).select_option("2 GPUs")
    await page.get_by_label("For", exact=True).select_option("1 h")
    await page.get_by_role("button", name="Ask").click()
    await expect(page.locator("#what-if")).to_contain_text("With 2 GPUs for 1 h it would start about")
    await expect(page.locator(".lane .bar-of.asked")).to_have_count(1)


async def test_a_form_that_would_wait_has_the_picture_and_takes_over_less(
    people: People, system: WebSystem, waiting: str, screenshot: Screenshot
) -> None:
    alice = await people("alice")
    page, verdict = alice.page, alice.page.locator("#verdict")
    await page.goto("/submit")
    await page.get_by_label("What to run").fill("python train.py")
    await page.get_by_label("Variables").evaluate("area => { area.closest('details').open = true }")
    await page.get_by_label("Variables").fill("SEED=7")
    await page.get_by_label("GPUs on each node").fill("4")
    await expect(verdict).to_contain_text("Accepted")
    await expect(page.locator(".lane .bar-of.slot.likely")).to_have_count(4)
    gpus, answer = page.get_by_role("slider", name="GPUs"), page.locator("#what-if")
    await expect(gpus).to_have_attribute("aria-valuetext", "4 GPUs")
    length = page.get_by_role("slider", name="For")
    for typed in ("2h", "1h"):
        await page.get_by_label("For at most").fill(typed)
        await expect(length).to_have_attribute("aria-valuetext", typed.replace("h", " h"))
        assert await length.input_value() == await length.get_attribute("max"), "nothing smaller was asked for"
        await expect(answer).to_be_empty()
    await gpus.press("ArrowLeft")
    await expect(answer).to_contain_text("With 3 GPUs for 1 h it would start about")
    await expect(page.locator(".lane .bar-of.asked")).to_have_count(1)
    await expect(gpus).to_be_focused()
    await assert_accessible(page)
    await assert_fits(page)
    await screenshot(page, "submit-why-waiting")
    await page.get_by_label("Name", exact=True).fill("later")
    await expect(verdict).to_contain_text("--name later")
    await expect(gpus).to_have_attribute("aria-valuetext", "3 GPUs")
    await page.get_by_label("GPUs on each node").fill("3")
    await expect(gpus).to_have_attribute("max", "2")
    await gpus.press("Home")
    await expect(answer).to_contain_text("With 1 GPU for 1 h it would start now")
    await page.get_by_role("button", name="Put this into the form").click()
    await expect(page.get_by_label("GPUs on each node")).to_have_value("1")
    await expect(page.get_by_label("What to run")).to_have_value("python train.py")
    await expect(page.get_by_label("Variables")).to_have_value("SEED=7")
    await expect(verdict).to_contain_text("Starts now")
    await expect(page.locator("#why-waiting")).to_be_hidden()
    assert len(system.rest("alice").get("/v1/queue").json()["items"]) == 1, "nothing was submitted"
