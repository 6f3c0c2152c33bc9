"""What administrators do on pages, and that nobody else can."""

import html
import re

import httpx
import pytest

from api_service.web.page_list import WEB_ROUTES
from api_service.web.routes.admin import audit
from api_service.web.routing import PageAccess
from reservation_core.domain.time_words import rfc3339
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, at
from tests.integration.api_service.callers import People
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn

_MORE = re.compile(r'<a href="([^"]+)">More nodes')
ADMIN = sorted({(route.method, route.path) for route in WEB_ROUTES if route.path.startswith("/admin")})


def test_every_page_of_administration_is_for_administrators() -> None:
    assert all(route.access is PageAccess.ADMIN for route in WEB_ROUTES if route.path.startswith("/admin"))


@pytest.fixture
async def with_gpus(runtime: Runtime) -> None:
    """A node with four cards."""
    await add_nodes(runtime, node1=("h100", 4))


async def test_others_get_none_of_it(browsing: SignedIn) -> None:
    alice = await browsing("alice")
    token = await alice.token("/jobs")
    for method, path in ADMIN:
        address = path.replace("{", "").replace("}", "")
        answer = await alice.client.request(method, address, data={"csrf_token": token} if method == "POST" else None)
        assert answer.status_code == 403, (method, path)
        assert "administrators" in words(answer.text)


async def test_a_user_is_made_given_a_token_and_disabled(browsing: SignedIn, people: People, runtime: Runtime) -> None:
    root = await browsing("root")
    made = await root.send("/admin/users", name="carol", role="user", key="k")
    assert made.headers["location"] == "/admin/tokens?user=carol"
    given = await root.send("/admin/tokens", user="carol", name="laptop", expires_in="30d")
    assert given.status_code == 200
    secret = next(word for word in words(given.text).split() if word.startswith("gpudev_"))
    assert secret not in await root.get("/admin/tokens?user=carol")  # once is once
    people.secrets["carol"] = secret
    carol = await browsing("carol")
    assert "carol" in await carol.get("/jobs")
    rest = {"Authorization": f"Bearer {secret}"}
    body = {"gpus": 1, "duration": "PT1H", "workload": {"command": ["true"]}}
    job = await carol.client.post("/v1/jobs", json=body, headers=rest)
    assert job.status_code == 202, job.text
    await add_nodes(runtime, n1=("h100", 1))
    slot = {"gpus": 1, "start": at(48).isoformat(), "duration": "PT1H"}
    booking = await carol.client.post("/v1/bookings", json=slot, headers=rest)
    assert booking.status_code == 201, booking.text
    asked = words(await root.get("/admin/users/carol/disable"))
    assert "stop working at once" in asked
    assert "Jobs in the queue and requests on the waitlist, which are cancelled: 1." in asked
    assert "Running jobs and bookings, which go on unless you tick the box: 1." in asked
    done = await root.send("/admin/users/carol/disable")
    assert done.headers["location"] == "/admin/users"
    assert (await carol.client.get("/jobs")).status_code == 303
    assert "carol is disabled. 1 job or booking goes on." in words(await root.get("/admin/users"))
    asked = words(await root.get("/admin/users/carol/disable"))
    assert ("carol is disabled already." in asked, "Disable carol" in asked) == (True, False)
    await root.send("/admin/users/carol/disable", end="1")
    assert "cancelled" in words(await root.get(f"/bookings/{booking.json()['id']}"))
    again = await root.send("/admin/users/carol/enable")
    assert again.headers["location"] == "/admin/users"
    assert "carol may sign in again" in words(await root.get("/admin/users"))


async def test_what_is_wrong_is_said_where_it_was_typed(browsing: SignedIn) -> None:
    root = await browsing("root")
    for path, fields, said in (
        ("/admin/users", {"name": "Not A Name", "key": "k"}, "Name: must be a name"),
        ("/admin/users", {"name": "alice", "key": "k2"}, "already"),
        ("/admin/tokens", {"user": "nobody"}, "no user"),
        ("/admin/tokens", {"user": "alice", "expires_in": "soon"}, "Expires in: must be a time such as 90m, 4h or 7d"),
        ("/admin/tokens", {"user": "alice", "gpu_hours": "0"}, "GPU-hours: must be greater than 0"),
        ("/submit", {"gpus": "1", "duration": "1h", "env": "MY_VAR=" + "x" * 40_000}, "Variables: "),
        ("/submit", {"gpus": "1", "duration": "1h", "disks": "no-disk"}, "You have no disk no-disk."),
        ("/submit", {"gpus": "1", "duration": "1h", "disks": "data:/proc"}, "data"),
        ("/submit", {"gpus": "1", "duration": "1h", "secrets": "HF_TOKEN=1X"}, "Secrets: "),
        ("/submit", {"gpus": "1", "duration": "1h", "working_dir": "here"}, "Working folder: "),
        ("/submit", {"gpus": "1", "duration": "1h", "after": "ok:x"}, "After other jobs: "),
        ("/submit", {"gpus": "1", "duration": "1h", "after": "job-nope"}, "You have no job job-nope to wait for."),
        ("/submit", {"gpus": "1", "duration": "1h", "retries": "0"}, "Retries: must be at least 1"),
        ("/admin/maintenance/preview", {"nodes": "no-such-node", "duration": "1h", "reason": "x"}, "no-such-node"),
        ("/admin/maintenance/preview", {"nodes": "", "duration": "x", "reason": ""}, "Reason: must not be empty"),
    ):
        answer = await root.send(path, **fields)
        assert answer.status_code in (404, 409, 422), (path, answer.status_code)
        assert 'class="problem"' in answer.text
        assert said in words(answer.text)
        assert "broken_rules" not in answer.text


async def test_a_node_is_cordoned_and_taken_back(browsing: SignedIn, root: httpx.AsyncClient, with_gpus: None) -> None:
    admin = await browsing("root")
    assert "takes jobs" in words(await admin.get("/admin/nodes"))
    assert "No new job starts there" in words(await admin.get("/admin/nodes/node1/cordon"))
    await admin.send("/admin/nodes/node1/cordon", reason="a fan is loud")
    page = words(await admin.get("/admin/nodes"))
    assert "cordoned" in page
    assert "a fan is loud" in page
    [node] = [node for node in (await root.get("/v1/nodes")).json()["items"] if node["name"] == "node1"]
    assert node["cordon_reason"] == "a fan is loud"
    overview = words(await admin.get("/admin"))
    assert "Nodes 1 gets nothing new. node1: Cordoned by an administrator (root: a fan is loud)" in overview
    assert "GPUs No GPU is quarantined." in overview
    quarantined = await root.post("/v1/nodes/node1/gpus/2/quarantine", json={"reason": "Xid 79"})
    assert quarantined.status_code == 200
    overview = words(await admin.get("/admin"))
    assert "GPUs 1 quarantined: it gets nothing new. node1: " in overview
    assert "Xid 79" in overview
    await admin.send("/admin/nodes/node1/uncordon")
    assert "takes jobs" in words(await admin.get("/admin/nodes"))


async def test_a_booking_that_loses_its_middle_is_said_to_end_and_to_continue(
    browsing: SignedIn, alice: httpx.AsyncClient, with_gpus: None
) -> None:
    made = await alice.post("/v1/bookings", json={"gpus": 4, "start": rfc3339(at(30)), "duration": "PT4H"})
    assert made.status_code == 201, made.text
    fields = {"nodes": "node1", "start": f"{at(31):%Y-%m-%dT%H:%M}", "duration": "1h", "reason": "fans"}
    page = words((await (await browsing("root")).send("/admin/maintenance/preview", **fields)).text)
    assert re.search(r"ends at \w+ [^,]* UTC, and continues at \w+ [^,]* UTC as another booking", page), page


async def test_maintenance_is_planned_after_a_look_at_whom_it_affects(browsing: SignedIn, with_gpus: None) -> None:
    admin = await browsing("root")
    fields = {"nodes": "node1", "duration": "2h", "reason": "new fans"}
    page = words((await admin.send("/admin/maintenance/preview", **fields)).text)
    assert "No job or booking is affected" in page
    assert "No window was ever planned" in page
    assert (await admin.send("/admin/maintenance", **fields, key="k")).status_code == 303
    page = words(await admin.get("/admin/maintenance"))
    assert "active" not in page
    assert "open" in page
    assert "new fans" in page
    overview = words(await admin.get("/admin"))
    assert "Maintenance 1 planned or open" in overview
    assert re.search(r"new fans: \d+ GPUs from .*\d\d:\d\d to .*\d\d:\d\d UTC", overview)


async def test_the_record_is_read_by_who_and_what(browsing: SignedIn) -> None:
    admin = await browsing("root")
    await admin.send("/admin/users", name="dora", key="k")
    page = words(await admin.get("/admin/audit?actor=root&kind=user_created"))
    assert "user:dora" in page
    assert "user created" in page
    assert "user_created" not in page
    assert "user:dora" in words(await admin.get("/admin/audit?actor=root&kind=user+created"))
    assert "user:dora" not in words(await admin.get("/admin/audit?actor=alice"))
    assert "No event matches" in words(await admin.get("/admin/audit?to=2000-01-01T00:00"))
    mistyped = words(await admin.get("/admin/audit?kind=user_creatd"))
    assert "No event matches. There are no events of the kind 'user_creatd'. Did you mean user_created?" in mistyped
    assert "<h1>Not understood</h1>" in await admin.get("/admin/audit?from=yesterday", status=422)


async def test_the_record_is_sorted_by_its_address(browsing: SignedIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_PAGE", 2)
    admin = await browsing("root")
    for name in ("dora", "emil", "fred"):
        await admin.send("/admin/users", name=name, key=name)

    async def added(address: str) -> tuple[list[str], list[str], str]:
        """The users on a page, the addresses in its table and below it, and the page."""
        page = await admin.get(address)
        table = page[page.index("<table") :]
        users = [user for user in ("dora", "emil", "fred") if f">user:{user}<" in table]
        links = [html.unescape(link) for link in re.findall(r'class="(?:sort|button second)" href="([^"]*)"', table)]
        return sorted(users, key=lambda user: table.index(f">user:{user}<")), links, page

    newest, [turned, older], page = await added("/admin/audit?kind=user_created")
    assert newest == ["fred", "emil"]
    assert 'aria-sort="descending"' in page
    assert turned == "/admin/audit?kind=user_created&sort=oldest"
    oldest, [back, newer], page = await added(turned)
    assert oldest[0] == "dora"
    assert 'aria-sort="ascending"' in page
    assert '<option value="oldest" selected>Oldest first</option>' in page
    assert back == "/admin/audit?kind=user_created"
    assert newer.startswith("/admin/audit?kind=user_created&sort=oldest&cursor=")
    assert (await added(older))[0][0] == "dora"
    rest, [_, first], _ = await added(newer)
    assert rest[-1] == "fred"
    assert first == turned


async def test_dead_letters_are_looked_at_and_sent_again(browsing: SignedIn, runtime: Runtime) -> None:
    admin = await browsing("root")
    assert words(await admin.get("/admin/dead-letters")).count("Every message was handled.") == 3
    done = await admin.send("/admin/dead-letters/gpu_jobs/redrive")
    assert done.headers["location"] == "/admin/dead-letters"
    assert "0 messages are sent again." in words(await admin.get("/admin/dead-letters"))
    assert (await admin.send("/admin/dead-letters/no_queue/redrive")).status_code == 422


async def test_what_was_done_is_said_on_the_page_that_follows_and_not_to_a_script(browsing: SignedIn) -> None:
    root = await browsing("root")
    await root.send("/admin/projects", page="/admin/projects", name="vision", key="k")
    part = await root.client.get("/admin/projects", headers={"HX-Request": "true"})  # another tab has heard of it
    assert "There is a project vision now" not in part.text
    assert "There is a project vision now" in await root.get("/admin/projects/vision")
    assert "There is a project vision now" not in await root.get("/admin/projects/vision")


async def test_nodes_are_searched_and_come_in_pages(runtime: Runtime, browsing: SignedIn) -> None:
    await add_nodes(runtime, **{f"gpu-r{n // 50}-n{n:03}": ("h100" if n % 2 else "a100", 1) for n in range(120)})
    admin = await browsing("root")
    first = await admin.get("/admin/nodes")
    assert "Nodes 1 to 100 of 120" in words(first)
    assert first.count('<tr id="gpu-') == 100
    more = _MORE.search(first)
    assert more is not None
    rest = await admin.get(html.unescape(more[1]))
    assert rest.count('<tr id="gpu-') == 20
    assert "Nodes 101 to 120 of 120" in words(rest)
    for query, count in (("node=R1-", 50), ("node=a100", 60), ("state=takes+jobs", 120), ("state=cordoned", 0)):
        page = await admin.get(f"/admin/nodes?{query}")
        assert page.count('<tr id="gpu-') == min(count, 100), query
        told = f"Nodes 1 to 100 of {count}" if count > 100 else f"{count} of 120 nodes"
        assert (told in words(page)) is bool(count)
    assert "No node matches." in words(await admin.get("/admin/nodes?node=<b>"))
    await admin.send("/admin/nodes/gpu-r1-n060/cordon")
    assert (await admin.get("/admin/nodes?state=cordoned")).count('<tr id="gpu-') == 1


async def test_a_node_of_just_that_name_is_shown_alone_and_a_search_is_kept(
    runtime: Runtime, browsing: SignedIn
) -> None:
    await add_nodes(runtime, **{"gpu-1": ("h100", 1), "gpu-10": ("h100", 1), "gpu-2": ("h100", 1)})
    admin = await browsing("root")
    page = await admin.get("/admin/nodes?node=gpu-1")
    assert re.findall(r'<tr id="([^"]+)"', page) == ["gpu-1"]
    assert (await admin.get("/admin/nodes?node=gpu-")).count('<tr id="gpu-') == 3
    back = "/admin/nodes?node=gpu-1"
    link = re.search(r'href="(/admin/nodes/gpu-1/cordon[^"]*)"', page)
    assert link is not None
    part = await admin.get(html.unescape(link[1]))
    assert f'href="{back}" data-back' in part
    assert f'name="next" value="{back}"' in part
    done = await admin.send("/admin/nodes/gpu-1/cordon", reason="a fan is loud", next=back)
    assert done.headers["location"] == back
    assert f'name="next" value="{back}"' in (await admin.get(back)).partition("</main>")[0]


async def test_statuses_of_windows_are_words_in_the_audit_log(
    browsing: SignedIn, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    await add_nodes(runtime, node1=("h100", 4))
    made = await root.post(
        "/v1/maintenance", json={"nodes": ["node1"], "start": rfc3339(at(30)), "duration": "PT2H", "reason": "new fans"}
    )
    assert made.status_code == 201, made.text
    page = words(await (await browsing("root")).get("/admin/audit?kind=maintenance_planned"))
    assert "maintenance planned → planned" in page


@pytest.mark.parametrize(
    ("site", "found"),
    [
        ("http://pages", "/admin/maintenance?x=1"),
        ("http://elsewhere", "/admin/maintenance/preview"),
        ("http://[", "/admin/maintenance/preview"),
    ],
)
async def test_a_refused_form_leads_back_to_its_page(browsing: SignedIn, site: str, found: str) -> None:
    admin = await browsing("root")
    admin.client.headers["Referer"] = f"{site}/admin/maintenance?x=1"
    refused = await admin.send("/admin/maintenance/preview", nodes="none-such", duration="4h", reason="fans")
    assert refused.status_code == 404
    assert f'name="next" value="{found}"' in refused.text  # after another time zone was chosen


async def test_so_does_one_that_is_refused_again_on_the_answer(browsing: SignedIn) -> None:
    admin = await browsing("root")
    admin.client.headers["Referer"] = "http://pages/admin/maintenance/preview"
    page = {"page_of_form": "/admin/maintenance?x=1&y"}
    refused = await admin.send("/admin/maintenance/preview", nodes="none-such", duration="4h", reason="fans", **page)
    assert 'name="next" value="/admin/maintenance?x=1&amp;y"' in refused.text
    assert refused.text.count('name="page_of_form" value="/admin/maintenance?x=1&amp;y"') > 1
