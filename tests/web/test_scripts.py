"""What the scripts of every page do, on real HTTP with a server that is not always itself."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.waiting import eventually
from tests.web.browser import Person, open_person, set_hidden
from tests.web.scripted_site import ScriptedSite

CONFIG = (
    '{"responseHandling":[{"code":"[23]..","swap":true},'
    '{"code":"[45]..","swap":true,"error":true,"target":"#problems","swapOverride":"innerHTML"}]}'
)
HEAD = f"""<!doctype html><html lang=en><title>Page</title><link rel=icon href=data:,>
<meta name=htmx-config content='{CONFIG}'><script nonce=n>
window.told = [];
for (const kind of ["now", "job"]) document.addEventListener("DOMContentLoaded", () =>
  document.body.addEventListener(`live:${{kind}}`, (event) => told.push([kind, event.detail.topic])));
</script><script nonce=n src=/built/site.js defer></script>
"""
TAIL = "<div id=problems role=alert></div><span id=live-state aria-live=polite></span>"
BODY = "<body data-user=alice data-zone=UTC data-live='now job:job-abc' data-live-since=7>"
LIVE = f"{HEAD}{BODY}{TAIL}"
DOWN = r"failed: (GET|POST) .*(/live|/part|/do|/session|/take)"
SESSION = (200, '{"user": "alice", "csrf": "anew"}')
FORM = (
    f"{HEAD}<body data-user=alice data-zone=UTC><main id=main><form method=post action=/take>"
    "<input type=hidden name=csrf_token value=old><label>Name <input name=name autocomplete=off></label>"
    "<label>Code <input name=code autocomplete=off data-secret></label>"
    "<button name=way value=fast>Send</button></form></main>"
)

QUESTION = f"{HEAD}<body data-user=alice data-zone=UTC><main id=main><a href=/ask data-ask>Cancel…</a></main>"
ASKED = (200, "<h1>Cancel it?</h1><a href=/link data-back>No, go back</a>")


@pytest_asyncio.fixture(loop_scope="session")
async def person(browser: Browser, scripted: ScriptedSite) -> AsyncIterator[Person]:
    """Somebody who looks at a page that follows two topics, unless the test changes it before they do."""
    scripted.pages["/"] = LIVE
    async with open_person(browser, scripted.url) as somebody:
        yield somebody


async def told(page: Page, count: int) -> Any:
    """What the page's body has heard since it was asked last, in order, once it is so much."""

    async def so_many() -> bool:
        # Not wait_for_function: the page's policy allows no such evaluation.
        return bool(await page.evaluate("told.length") == count)

    await eventually(so_many)
    return await page.evaluate("told.splice(0)")


async def test_one_stream_carries_all_topics_and_the_body_hears_each_by_its_kind(
    person: Person, scripted: ScriptedSite
) -> None:
    await person.page.goto("/")
    await scripted.streams_are(1)
    assert scripted.live_asked == ["topics=now,job:job-abc&since=7"]
    assert await told(person.page, 0) == [], "a page that has just been made is up to date"
    await scripted.tell("now")
    await scripted.tell("job:job-abc")
    await scripted.tell("queue")
    await scripted.tell("now")
    assert await told(person.page, 3) == [["now", "now"], ["job", "job:job-abc"], ["now", "now"]]


async def test_a_page_without_topics_has_no_stream(person: Person, scripted: ScriptedSite) -> None:
    scripted.pages["/"] = HEAD + TAIL
    await person.page.goto("/", wait_until="networkidle")
    assert scripted.live_asked == []


async def test_after_a_cut_everything_is_asked_anew_once(person: Person, scripted: ScriptedSite) -> None:
    person.expect_problem(DOWN)
    await person.page.goto("/")
    await scripted.streams_are(1)
    scripted.cut()
    assert await told(person.page, 2) == [["now", "now"], ["job", "job:job-abc"]]
    await scripted.streams_are(1)
    await scripted.tell("now")
    assert await told(person.page, 1)


async def test_who_waits_for_a_connection_is_told_until_there_is_one(person: Person, scripted: ScriptedSite) -> None:
    person.expect_problem(DOWN)
    await person.page.goto("/")
    await scripted.streams_are(1)
    state, stale = person.page.locator("#live-state"), person.page.locator("body.stale")
    await expect(stale).to_have_count(0)
    await scripted.stop()
    await expect(state).to_have_text(re.compile(r"^As of \d\d:\d\d:\d\d\. Reconnecting…$"))
    await expect(stale).to_have_count(1)
    await scripted.start()
    await expect(state).to_have_text("")
    await expect(stale).to_have_count(0)
    assert await told(person.page, 2)


async def test_a_connection_on_which_nothing_comes_is_made_anew(person: Person, scripted: ScriptedSite) -> None:
    page = person.page
    await page.clock.install()
    await page.goto("/")
    await scripted.streams_are(1)
    await page.clock.run_for(40_000)
    await scripted.tell("beat")
    await scripted.tell("now")
    assert await told(page, 1)
    await page.clock.run_for(40_000)
    assert len(scripted.live_asked) == 1
    await page.clock.run_for(15_000)
    await eventually(lambda: len(scripted.live_asked) == 2)
    assert await told(page, 2), "what was missed meanwhile is asked for"


async def test_a_server_that_is_busy_is_asked_again(person: Person, scripted: ScriptedSite) -> None:
    person.expect_problem("answer: 503 GET .*/live")
    scripted.live_status = 503
    await person.page.goto("/")
    # The stream, why it was refused, and the next stream.
    await eventually(lambda: len(scripted.live_asked) >= 3)
    scripted.live_status = 200
    await scripted.streams_are(1)
    assert await told(person.page, 2)
    assert scripted.asked["/"] == 1


async def test_who_has_too_many_pages_open_is_told_and_this_one_goes_on_when_there_is_room(
    person: Person, scripted: ScriptedSite
) -> None:
    person.expect_problem("answer: 429 GET .*/live")
    scripted.live_status, scripted.live_detail = 429, "You have 20 streams open."
    page = person.page
    await page.clock.install()
    await page.goto("/")
    state = page.locator("#live-state")
    await expect(state).to_contain_text("only when you reload it. You have 20 streams open.")
    asked = len(scripted.live_asked)
    await page.clock.run_for(10_000)
    await expect(state).to_contain_text("You have 20 streams open.")
    assert len(scripted.live_asked) == asked, "it asks again and again"
    scripted.live_status = 200
    await page.clock.run_for(50_000)
    await scripted.streams_are(1)
    await expect(state).to_be_empty()
    assert await told(page, 2)


async def test_who_is_signed_out_signs_in_on_the_page_which_then_goes_on(
    person: Person, scripted: ScriptedSite
) -> None:
    person.expect_problem("answer: 401 GET .*/(live|session)")
    person.expect_problem(DOWN)
    page, dialog = person.page, person.page.get_by_role("dialog", name="Sign in again")
    await page.goto("/")
    await scripted.streams_are(1)
    scripted.live_status, scripted.parts["/session"] = 401, (401, "")
    scripted.parts["/sign-in"] = (200, "<form><label>Token <input type=password name=token></label><button>Go</button>")
    scripted.cut()
    await expect(dialog).to_contain_text("You are signed out.")
    await dialog.get_by_role("button", name="Not now").click()
    await expect(page.locator("#live-state")).to_contain_text("You are signed out.")
    await page.locator("#live-state").get_by_role("button", name="Sign in").click()
    await dialog.get_by_label("Token").fill("secret")
    scripted.live_status, scripted.parts["/session"] = 200, SESSION
    await dialog.get_by_role("button", name="Go").click()
    await scripted.streams_are(1)
    await expect(dialog).to_have_count(0)
    await expect(page.locator("#live-state")).to_be_empty()
    assert await told(page, 2)
    assert scripted.asked["/"] == 1, "the page was loaded anew"


async def test_a_form_waits_for_a_server_that_is_away_and_is_sent_when_it_is_back(
    person: Person, scripted: ScriptedSite
) -> None:
    person.expect_problem(DOWN)
    scripted.pages["/form"] = FORM
    scripted.parts |= {"/session": SESSION, "/take": (200, f"{HEAD}<body data-user=alice>taken")}
    page, dialog = person.page, person.page.get_by_role("dialog", name="The server can’t be reached")
    await page.goto("/form")
    await page.get_by_label("Name").fill("thesis")
    await scripted.stop()
    await page.get_by_role("button", name="Send").click()
    await expect(dialog).to_contain_text("What you typed is kept")
    await dialog.get_by_role("button", name="Don’t send it").click()
    await expect(page.get_by_label("Name")).to_have_value("thesis")
    await page.get_by_role("button", name="Send").click()
    await expect(dialog).to_be_visible()
    await scripted.start()
    await expect(page.get_by_text("taken")).to_be_visible()
    assert scripted.sent == [{"csrf_token": "anew", "name": "thesis", "code": "", "way": "fast"}]


async def test_a_form_can_be_sent_again_when_the_page_stays(person: Person, scripted: ScriptedSite) -> None:
    scripted.pages["/form"] = FORM
    scripted.parts |= {"/session": SESSION, "/take": (204, "")}
    page = person.page
    await page.goto("/form")
    await page.get_by_role("button", name="Send").click()
    await eventually(lambda: len(scripted.sent) == 1)
    await page.get_by_role("button", name="Send").click()
    await eventually(lambda: len(scripted.sent) == 2)


async def test_what_was_typed_is_there_again_when_no_answer_came(person: Person, scripted: ScriptedSite) -> None:
    person.expect_problem("failed: POST .*/cut")
    scripted.pages["/form"], scripted.parts["/session"] = FORM.replace("/take", "/cut"), SESSION
    page = person.page
    await page.goto("/form")
    await page.get_by_label("Name").fill("thesis")
    await page.get_by_label("Code").fill("secret")
    await page.get_by_role("button", name="Send").click()
    await eventually(lambda: page.url.startswith("chrome-error:"))
    await page.wait_for_load_state()
    await page.go_back()
    await expect(page.get_by_label("Name")).to_have_value("thesis")
    await expect(page.get_by_label("Code")).to_have_value("")
    await expect(page.get_by_role("status")).to_contain_text("is filled in again")
    assert "secret" not in await page.evaluate("JSON.stringify(sessionStorage)")
    await page.get_by_role("button", name="Clear it").click()
    await expect(page.get_by_label("Name")).to_have_value("")
    await page.reload()
    await expect(page.get_by_label("Name")).to_have_value("")


async def test_a_double_click_asks_one_question(person: Person, scripted: ScriptedSite) -> None:
    scripted.pages["/link"], page = QUESTION, person.page
    scripted.parts |= {"/session": SESSION, "/ask": ASKED}
    await page.goto("/link")
    for _ in range(2):
        await page.get_by_role("link", name="Cancel…").dblclick()
        await expect(page.get_by_role("dialog", name="Cancel it?")).to_be_visible()
        await page.get_by_role("link", name="No, go back").click()
        await expect(page.get_by_role("dialog")).to_have_count(0)
    assert scripted.asked["/ask"] == 2


async def test_a_question_waits_for_the_server_in_its_own_words(person: Person, scripted: ScriptedSite) -> None:
    person.expect_problem(DOWN)
    scripted.pages["/link"] = QUESTION
    scripted.parts |= {"/session": SESSION, "/ask": ASKED}
    page, away = person.page, person.page.get_by_role("dialog", name="The server can’t be reached")
    await page.goto("/link")
    await scripted.stop()
    await page.get_by_role("link", name="Cancel…").click()
    await expect(away).to_contain_text("The question is asked as soon as it does.")
    await away.get_by_role("button", name="Leave it").click()
    await expect(away).to_have_count(0)
    await page.get_by_role("link", name="Cancel…").click()
    await expect(away).to_be_visible()
    await scripted.start()
    await expect(page.get_by_role("dialog", name="Cancel it?")).to_be_visible()


async def test_after_not_now_only_what_a_user_sends_asks_to_sign_in(person: Person, scripted: ScriptedSite) -> None:
    person.expect_problem("answer: 401 GET .*/(part|session)")
    scripted.pages["/form"] = f"{FORM}<a hx-get=/part>Look</a>{TAIL}"
    scripted.parts |= dict.fromkeys(("/part", "/session"), (401, "")) | {"/sign-in": (200, "")}
    page, dialog = person.page, person.page.get_by_role("dialog", name="Sign in again")
    await page.goto("/form")
    await page.get_by_text("Look").click()
    await dialog.get_by_role("button", name="Not now").click()
    for _ in range(2):
        async with page.expect_response("**/part"):
            await page.get_by_text("Look").click()
    assert scripted.asked["/session"] == 1
    await page.get_by_role("button", name="Send").click()
    await expect(dialog).to_be_visible()


async def test_no_more_is_kept_than_there_is_room_for(person: Person, scripted: ScriptedSite) -> None:
    scripted.pages |= {f"/form{number}": FORM for number in range(4)}
    page = person.page
    for number in range(4):
        await page.goto(f"/form{number}")
        await page.get_by_label("Name").fill(str(number) * 60_000)
    await page.goto("/form0")
    await expect(page.get_by_label("Name")).to_have_value("")
    await page.goto("/form1")
    await expect(page.get_by_label("Name")).to_have_value("1" * 60_000)


async def test_what_one_user_typed_is_not_shown_to_another(person: Person, scripted: ScriptedSite) -> None:
    scripted.pages["/form"], page = FORM, person.page
    await page.goto("/form")
    await page.get_by_label("Name").fill("hers")
    scripted.pages["/form"] = FORM.replace("alice", "bob")
    await page.reload()
    await expect(page.get_by_label("Name")).to_have_value("")
    assert "hers" not in await page.evaluate("JSON.stringify(sessionStorage)")


async def test_who_leaves_a_page_has_no_stream_and_who_comes_back_sees_what_is_new(
    person: Person, scripted: ScriptedSite
) -> None:
    scripted.pages["/other"] = HEAD + TAIL
    await person.page.goto("/")
    await scripted.streams_are(1)
    await person.page.goto("/other")
    await scripted.streams_are(0)
    await person.page.go_back()
    await scripted.streams_are(1)


async def test_a_tab_that_nobody_looks_at_has_no_stream(person: Person, scripted: ScriptedSite) -> None:
    await person.page.goto("/")
    await scripted.streams_are(1)
    await set_hidden(person.page, hidden=True)
    await scripted.streams_are(0)
    await set_hidden(person.page, hidden=False)
    await scripted.streams_are(1)
    assert await told(person.page, 2)


async def test_a_page_that_a_browser_keeps_to_go_back_to_has_no_stream(person: Person, scripted: ScriptedSite) -> None:
    await person.page.goto("/")
    await scripted.streams_are(1)
    # What it says when it keeps one; one that is tested with keeps none.
    await person.page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))")
    await scripted.streams_are(0)
    await person.page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
    await scripted.streams_are(1)
    assert await told(person.page, 2)


async def test_a_part_is_put_in_place_when_its_topic_changes_and_what_people_did_with_it_stays(
    person: Person, scripted: ScriptedSite
) -> None:
    def part(number: int) -> str:
        return (
            f"<div id=part hx-get=/part hx-trigger='live:now from:body' hx-swap=morph hx-ext=morph><b>{number}</b>"
            f"<label>Who <input id=who></label><label>Name <input id=name value=name-{number}></label>"
            "<label>Mine <input type=checkbox id=mine></label><label>Why <textarea id=why></textarea></label>"
            "<label>Type <select id=type><option>any<option>h100</select></label>"
            "<details id=more><summary>More</summary>there</details></div>"
        )

    scripted.pages["/"] = f"{LIVE}{part(1)}"
    scripted.parts["/part"] = (200, part(2))
    page = person.page
    await page.goto("/")
    await page.get_by_label("Mine").check()
    await page.get_by_label("Type").select_option("h100")
    await page.get_by_label("Why").fill("because")
    await page.get_by_text("More").click()
    await page.get_by_label("Who").fill("alice")
    await scripted.streams_are(1)
    await scripted.tell("now")
    await expect(page.locator("b")).to_have_text("2")
    await expect(page.get_by_label("Who")).to_be_focused()
    await expect(page.get_by_label("Who")).to_have_value("alice")
    await expect(page.get_by_label("Mine")).to_be_checked()
    await expect(page.get_by_label("Type")).to_have_value("h100")
    await expect(page.get_by_label("Why")).to_have_value("because")
    await expect(page.get_by_text("there")).to_be_visible()
    await expect(page.get_by_label("Name")).to_have_value("name-2")


async def test_nothing_that_comes_with_a_part_is_run(person: Person, scripted: ScriptedSite) -> None:
    """Also where a page's policy would let it: this one has the right nonce."""
    scripted.pages["/"] = f"{LIVE}<button hx-get=/part hx-target=#place hx-vals='js:{{x: told.push(1)}}'>Go</button>"
    scripted.pages["/"] += "<div id=place></div>"
    scripted.parts["/part"] = (200, "<script nonce=n>told.push('script')</script><b>there</b>")
    person.expect_problem("htmx:evalDisallowedError")
    await person.page.goto("/")
    await person.page.get_by_role("button").click()
    await expect(person.page.locator("b")).to_have_text("there")
    assert await told(person.page, 0) == []


async def test_what_was_refused_stands_there_until_it_is_done(person: Person, scripted: ScriptedSite) -> None:
    scripted.pages["/"] = (
        f"{LIVE}<button hx-post=/do hx-target=#place>Do</button><a hx-get=/part hx-target=#place>Look</a>"
    )
    scripted.pages["/"] += "<div id=place></div>"
    scripted.parts["/do"] = (422, "<p>Four cards are too many.</p>")
    scripted.parts["/part"] = (200, "looked")
    person.expect_problem("answer: 422 POST .*/do")
    person.expect_problem(DOWN)
    problems, place = person.page.locator("#problems"), person.page.locator("#place")
    await person.page.goto("/")
    await person.page.get_by_text("Do").click()
    await expect(problems).to_have_text("Four cards are too many.")
    await person.page.get_by_text("Look").click()
    await expect(place).to_have_text("looked")
    await expect(problems).to_have_text("Four cards are too many.")
    await scripted.stop()
    await person.page.get_by_text("Do").click()
    await expect(problems).to_contain_text("could not be reached")
    scripted.parts |= {"/do": (200, "done"), "/session": SESSION}
    await scripted.start()
    await expect(place).to_have_text("done")
    await expect(problems).to_be_empty()
