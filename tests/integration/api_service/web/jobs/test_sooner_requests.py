"""What would start sooner, on the form of a job, as a browser without scripts has it."""

import html
import re

import httpx
import pytest

from reservation_core.runtime.settings.components import ApiSettings
from tests.integration.api_service.bookings.calendars import booked_now
from tests.integration.api_service.policy.test_verdicts import Lab
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn
from tests.integration.api_service.web.jobs.test_why_waiting import lab, submitted

__all__ = ["lab"]
FORM = {"gpus": "3", "nodes": "1", "gpu_type": "h100", "duration": "4h", "command": "true", "name": "next"}


def choices(part: str) -> dict[str, str]:
    """What each button would put into the form, by its words."""
    found = re.findall(r'name="use" value="([^"]*)">([^<]*)</button>', part)
    return {text: html.unescape(fields) for fields, text in found}


@pytest.mark.parametrize("settings", [ApiSettings(estimates=0)])
async def test_pages_say_that_estimates_are_switched_off(lab: Lab, browsing: SignedIn) -> None:
    await lab.jobs(gpus=4, gpu_type="h100", duration="PT2H")
    job = await submitted(lab.alice, name="waits")
    browser = await browsing("alice")
    shown = words((await browser.send("/submit/verdict", **FORM | {"gpus": "1"})).text)
    assert "Its likely start is unknown. Estimates are switched off on this server." in shown
    page = words(await browser.get(f"/jobs/{job}"))
    assert "Place in the queue for h100 not estimated here Starts about not estimated here" in page
    queue = words(await browser.get("/queue"))
    assert "waits waits." in queue
    for told in (page, queue):
        assert "not known yet" not in told
        assert "waiting for its place" not in told


async def test_a_likely_start_is_said_to_be_unknown_where_one_may_come(lab: Lab, browsing: SignedIn) -> None:
    """It never does within a booking, for what fits nowhere, and while a quota holds the job back."""
    unknown = "It may start sooner; its likely start is not known yet."
    made = await booked_now(lab.alice, gpus=1, gpu_type="h100", duration="PT3H")
    await lab.jobs(gpus=3, gpu_type="h100", duration="PT2H")
    browser = await browsing("alice")

    async def said(**fields: str) -> str:
        return words((await browser.send("/submit/verdict", **FORM | {"gpus": "1"} | fields)).text)

    assert unknown in await said()
    await submitted(lab.alice, booking_id=made["id"])
    await lab.plan()
    for fields, why in (
        ({"booking": made["id"], "duration": "1h"}, "because:"),
        ({"gpus": "5"}, "It would wait, and can’t start on the nodes that are here:"),
    ):
        shown = await said(**fields)
        assert why in shown
        assert unknown not in shown
    await lab.rules(max_gpus=4)
    shown = await said()
    assert "It starts about" in shown
    assert unknown not in shown


async def test_each_change_is_a_button_that_puts_it_into_the_form(
    lab: Lab, bob: httpx.AsyncClient, browsing: SignedIn
) -> None:
    await submitted(bob, gpus=2, duration="PT1H")
    await submitted(bob, gpus=4, duration="PT2H")
    await lab.plan()
    browser = await browsing("alice")
    part = (await browser.send("/submit/verdict", **FORM)).text
    assert "Place in the queue for h100: 2." in words(part)
    assert "Would start sooner" not in words(part), "two are free for an hour, which is no use to three"
    two = (await browser.send("/submit/verdict", **FORM | {"gpus": "2"})).text
    # The slot of the four begins in an hour.
    less = "gpus=2&nodes=1&duration=50m&gpu_type=h100"
    assert choices(two) == {"For 50 min": less}
    assert "For 50 min</button> <strong>now</strong>" in two
    page = (await browser.send("/submit/check", **FORM | {"gpus": "2"}, use=less)).text
    assert "Starts now" in words(page)
    assert 'name="duration" type="text" value="50m"' in page
    assert "Would start sooner" not in words(page)
    larger = (await browser.send("/submit/verdict", **FORM | {"gpus": "5"})).text
    [(text, fields)] = choices(larger).items()
    assert (text, fields) == ("With 4 GPUs", "gpus=4&nodes=1&duration=4h&gpu_type=h100")


async def test_a_browser_whose_scripts_run_gets_the_form_before_the_verdict(lab: Lab, browsing: SignedIn) -> None:
    browser = await browsing("alice")
    assert "Starts now" in words(await browser.get("/submit"))
    browser.client.cookies.set("gpu_dev_browser_zone", "Europe/Stockholm")
    page = await browser.get("/submit?gpus=3")
    assert 'hx-trigger="load, input' in page
    assert 'name="gpus" type="number" value="3"' in page
    assert "Starts now" not in words(page)
    assert "Starts now" in words((await browser.send("/submit/verdict", **FORM)).text)
