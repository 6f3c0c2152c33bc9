"""A job from the form to its end, watched in a browser: what it prints appears as it prints it."""

import re
from pathlib import Path

from playwright.async_api import expect

from tests.waiting import eventually
from tests.web.browser import assert_accessible, set_hidden
from tests.web.conftest import People, Screenshot
from tests.web.web_system import WebSystem

COLOURS = r"printf '\033[32mfirst <b>line</b>\033[0m\n'; until [ -e {go} ]; do sleep 0.1; done; echo the last line"


async def test_a_job_is_submitted_and_watched_to_its_end(
    people: People, system: WebSystem, screenshot: Screenshot, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    alice = await people("alice")
    page = alice.page
    await page.goto("/submit")
    await page.get_by_label("What to run").fill(COLOURS.format(go=go))
    await page.get_by_label("GPUs on each node").fill("99")
    verdict = page.locator("#verdict")
    await expect(verdict).to_contain_text("gpus", ignore_case=True)
    await expect(verdict).to_contain_text("Refused")
    await page.get_by_label("GPUs on each node").fill("2")
    await page.get_by_label("For at most").fill("20m")
    await page.get_by_label("Name", exact=True).fill("watched")
    await expect(verdict).to_contain_text("Starts now")
    await verdict.get_by_text("The same for the terminal").click()
    await expect(verdict).to_contain_text("gpu-dev run --name watched --gpus 2")
    await assert_accessible(page)
    await screenshot(page, "submit")
    await page.get_by_role("button", name="Submit").click()

    await expect(page).to_have_url(re.compile(r"/jobs/job-"))
    await expect(page.get_by_role("heading", name="watched")).to_be_visible()
    await expect(page.locator("#job-state")).to_contain_text("running")  # without a reload
    log = page.get_by_role("log")
    await expect(log).to_contain_text("first <b>line</b>")
    await expect(log.locator(".ansi-f2")).to_have_text("first <b>line</b>")
    await expect(page.get_by_text(re.compile("It ends in .* min"))).to_be_visible()  # it is to end within half an hour
    await page.get_by_label("Longer by").fill("1h")
    await page.get_by_role("button", name="Extend").click()
    await expect(page.get_by_text("may go on 1h longer")).to_be_visible()
    await assert_accessible(page)
    await screenshot(page, "job")
    go.touch()
    await expect(log).to_contain_text("the last line")
    await expect(page.locator("#job-state")).to_contain_text("succeeded")
    await page.get_by_placeholder("Find").fill("LAST")
    await expect(page.locator("#log-found")).to_have_text("1 line")
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Download").click()
    kept = await (await download.value).path()
    assert kept.read_text().endswith("the last line\n")
    await page.get_by_role("link", name="Run again").click()
    await expect(page.get_by_label("Name", exact=True)).to_have_value("watched")


async def test_a_job_that_somebody_ends_elsewhere_is_seen_to_end(
    people: People, system: WebSystem, screenshot: Screenshot
) -> None:
    job = system.submit("alice", "sleep", "300", name="long")
    alice, root = await people("alice"), await people("root")
    await alice.page.goto(f"/jobs/{job}")
    await expect(alice.page.locator("#job-state")).to_contain_text("running")
    await root.page.goto("/jobs")
    await root.page.get_by_role("link", name="long").click()
    await root.page.get_by_role("link", name="End it…").click()
    dialog = root.page.get_by_role("dialog", name="End long?")
    await expect(dialog).to_contain_text("what it has not saved is lost")
    await assert_accessible(root.page)
    await screenshot(root.page, "end-job")
    await dialog.get_by_role("button", name="End it").click()
    await expect(alice.page.locator("#job-state")).to_contain_text("cancelled")
    await expect(alice.page.get_by_role("link", name="End it…")).to_have_count(0)


async def test_a_tab_that_nobody_looks_at_holds_no_output_and_has_all_of_it_when_somebody_does(
    people: People, system: WebSystem, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    job = system.submit("alice", "sh", "-c", COLOURS.format(go=go), name="unseen")
    alice = await people("alice")
    page, log, closed = alice.page, alice.page.get_by_role("log"), list[str]()
    page.on("requestfailed", lambda request: closed.append(request.url))
    await page.goto(f"/jobs/{job}")
    await expect(log).to_contain_text("first <b>line</b>")
    await set_hidden(page, hidden=True)
    await eventually(lambda: any(url.endswith(f"{job}/log") for url in closed))
    go.touch()
    await eventually(lambda: system.job(job)["status"] == "succeeded")
    await expect(log).not_to_contain_text("the last line")
    await set_hidden(page, hidden=False)
    await expect(log.locator("> div")).to_have_text(["first <b>line</b>", "the last line"])


async def test_others_jobs_can_be_neither_seen_nor_listened_to(people: People, system: WebSystem) -> None:
    job = system.submit("alice", "echo", "for nobody else", name="hers")
    await eventually(lambda: system.job(job)["status"] == "succeeded")
    bob = await people("bob")
    await bob.page.goto("/jobs")
    await expect(bob.page.get_by_text("You have no jobs yet")).to_be_visible()
    bob.expect_problem(rf"answer: 404 GET .*/jobs/{job}")
    for path in ("", "/log", "/log.txt", "/state"):
        answer = await bob.page.request.get(f"/jobs/{job}{path}")
        assert answer.status == 404
    await bob.page.goto(f"/jobs/{job}")
    await expect(bob.page.get_by_text("no job")).to_be_visible()


async def test_the_list_is_for_phones_too(people: People, system: WebSystem, screenshot: Screenshot) -> None:
    for number in range(3):
        system.submit("alice", "true", name=f"run-{number}")
    alice = await people("alice")
    await alice.page.goto("/jobs")
    await expect(alice.page.get_by_role("link", name="run-2")).to_be_visible()
    await assert_accessible(alice.page)
    await screenshot(alice.page, "jobs")


async def test_signing_in_and_out(people: People, screenshot: Screenshot) -> None:
    nobody = await people(None)
    page = nobody.page
    await page.goto("/submit")
    await expect(page).to_have_url(re.compile(r"/sign-in\?next="))
    await assert_accessible(page)
    await screenshot(page, "sign-in")
    nobody.expect_problem("answer: 401 POST .*/sign-in")
    await page.get_by_label("Token").fill("gpudev_nobodys")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert").filter(has_text="not valid")).to_be_visible()
    alice = await people("alice")
    await alice.page.goto("/jobs")
    second = await alice.context.new_page()
    await second.goto("/jobs")
    await alice.page.get_by_role("button", name="Sign out").click()
    await expect(alice.page.get_by_text("You are signed out.")).to_be_visible()
    await expect(second).to_have_url(re.compile(r"/sign-in"))


async def test_a_verdict_is_told_by_word_and_colour(people: People, system: WebSystem, screenshot: Screenshot) -> None:
    """Over a quota now a job is accepted and waits; one that no time would allow is refused."""
    system.rest("root").put("/v1/policy/user:bob", json={"max_gpus": 2}).raise_for_status()
    running = system.submit("bob", "sleep", "300", gpus=2)
    await eventually(lambda: system.job(running)["status"] == "running")
    bob = await people("bob")
    page, verdict = bob.page, bob.page.locator("#verdict")
    await page.goto("/submit")
    await page.get_by_label("For at most").fill("10m")
    for gpus, word, colour, quota in (
        ("1", "Accepted", "warn", "3 of 2 GPUs with this job, over the quota"),
        ("3", "Refused", "bad", "5 of 2 GPUs with this job, over the quota"),
    ):
        await page.get_by_label("GPUs on each node").fill(gpus)
        await expect(verdict.locator(f".badge.{colour}")).to_have_text(word)
        await expect(verdict.locator(".share.over")).to_contain_text(quota)
        await assert_accessible(page)
        await screenshot(page, f"verdict-{word.lower()}")
    system.rest("root").delete("/v1/policy/user:bob").raise_for_status()
    await page.get_by_label("GPUs on each node").fill("1")
    await expect(verdict.locator(".badge.good")).to_have_text("Starts now")
    system.end_all_jobs()
