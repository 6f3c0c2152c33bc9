"""Rules and projects on pages: read, tried on whom they would affect, said, and taken back."""

import re

import httpx

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, booked
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn

_ETAG = re.compile(r'name="etag" value="([^"]*)"')


def etag(page: str) -> str:
    found = _ETAG.search(page)
    assert found is not None
    return found[1].replace("&#34;", '"')


async def test_nothing_is_said_at_first(browsing: SignedIn) -> None:
    root = await browsing("root")
    page = words(await root.get("/admin/policy"))
    assert "everybody may use all GPUs" in page
    of_all = words(await root.get("/admin/policy/default"))
    assert "Rules for everybody" in of_all
    assert "less specific" not in of_all, "nothing is less specific than the rules for everybody"
    assert "the next less specific scope" in words(await root.get("/admin/policy/gpu_type:h100"))


async def test_a_rule_is_tried_said_changed_and_dropped(
    browsing: SignedIn, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    await add_nodes(runtime, node1=("h100", 4))
    booking = await booked(alice, gpus=4)
    root = await browsing("root")
    fields = {"max_gpus": "2", "max_duration": "7d", "within_0": "1m", "lifts_0": "max_gpus", "etag": ""}
    tried = await root.send("/admin/policy/default/preview", **fields)
    assert tried.status_code == 200
    page = words(tried.text)
    assert "GPUs at once not set 2" in page
    assert "Users 1 : alice" in page
    assert f"Bookings, which stay 1 : {booking['id']}" in page
    assert "GPUs at once (1)" in page
    assert "Nothing is said" not in page
    assert "everybody may use all GPUs" in words(await root.get("/admin/policy"))  # only tried
    assert (await root.send("/admin/policy/default", **fields)).headers["location"] == "/admin/policy"
    page = words(await root.get("/admin/policy"))
    assert "GPUs at once: 2" in page
    assert "Longest job or booking: 7d" in page
    assert "Bookings that start within 1m are not bound by: GPUs at once" in page
    drawn = await root.get("/admin/policy/default")
    changed = await root.send("/admin/policy/default", max_gpus="unlimited", etag=etag(drawn))
    assert changed.status_code == 303
    assert "GPUs at once: no limit" in words(await root.get("/admin/policy"))
    asked = await root.get("/admin/policy/default/drop")
    assert "Deleted: GPUs at once: no limit." in words(asked)
    gone = await root.send("/admin/policy/default/drop", etag=etag(asked))
    assert gone.headers["location"] == "/admin/policy"
    assert "There are no rules for everybody any more." in words(await root.get("/admin/policy"))
    assert (await root.client.get("/admin/policy/default/drop")).status_code == 303


async def test_the_order_of_waiting_jobs_is_chosen_for_everybody_and_for_projects(
    browsing: SignedIn, root: httpx.AsyncClient
) -> None:
    await root.post("/v1/projects", json={"name": "vision"})
    browser = await browsing("root")
    chosen = {"order": "arrival", "etag": ""}
    tried = words((await browser.send("/admin/policy/project:vision/preview", **chosen)).text)
    assert "Order of waiting jobs not set first come, first served" in tried
    assert (await browser.send("/admin/policy/project:vision", **chosen)).status_code == 303
    assert "Order of waiting jobs: first come, first served" in words(await browser.get("/admin/policy"))
    drawn = await browser.get("/admin/policy/project:vision")
    assert '<option value="arrival" selected>' in drawn
    for scope in ("user:alice", "gpu_type:h100", "project:vision,gpu_type:h100"):
        assert 'name="order"' not in await browser.get(f"/admin/policy/{scope}")
    refused = await browser.send("/admin/policy/user:alice", **chosen)
    assert refused.status_code == 422
    assert "a user or a GPU type has no order of its own" in words(refused.text)


async def test_what_somebody_else_has_changed_is_looked_at_anew(browsing: SignedIn, root: httpx.AsyncClient) -> None:
    admin = await browsing("root")
    await admin.get("/admin/policy/default")
    assert (await root.put("/v1/policy/default", json={"max_gpus": 3})).status_code == 200
    for path in ("/admin/policy/default", "/admin/policy/default/preview"):
        for old in ("", '"7"'):
            answer = await admin.send(path, max_gpus="5", etag=old)
            assert answer.status_code == 412, path
            assert "See the rules that apply now" in words(answer.text)
            assert 'value="5"' in answer.text  # what was typed is there
    assert (await root.get("/v1/policy/default")).json()["rules"]["max_gpus"] == 3
    drawn = await admin.get("/admin/policy/default/drop")
    await root.put("/v1/policy/default", json={"max_gpus": 4})
    assert (await admin.send("/admin/policy/default/drop", etag=etag(drawn))).status_code == 412


async def test_who_it_is_for_is_chosen(browsing: SignedIn) -> None:
    root = await browsing("root")
    led = await root.client.get("/admin/policy/choose?owner=user&name=alice&gpu_type=h100")
    assert led.status_code == 303
    page = await root.get(led.headers["location"])
    assert "Rules for user alice, h100" in words(page)
    for wrong in ("owner=user", "owner=everybody&name=alice", "owner=user&name=<b>", "owner=nobody", ""):
        answer = await root.client.get(f"/admin/policy/choose?{wrong}")
        assert answer.status_code == 422, wrong
        assert 'class="problem"' in answer.text
        assert "<b>" not in answer.text


async def test_what_is_wrong_is_said_beside_what_was_typed(browsing: SignedIn) -> None:
    root = await browsing("root")
    for scope, fields, status, told in (
        ("default", {"max_gpus": "many"}, 422, "write a whole number"),
        ("default", {}, 422, "No rule is set here"),
        ("default", {"within_0": "2h", "lifts_0": "<script>"}, 422, "Lifts: must be"),
        ("user:nobody", {"max_gpus": "2"}, 404, "no user"),
        ("project:none", {"max_gpus": "2"}, 404, "no project"),
    ):
        for path in (f"/admin/policy/{scope}/preview", f"/admin/policy/{scope}"):
            answer = await root.send(path, etag="", **fields)
            assert answer.status_code == status, (path, answer.status_code)
            assert told in words(answer.text)
            assert "<script>" not in answer.text.replace("<script nonce", "")
    for path in ("/admin/policy/nonsense", "/admin/policy/user:ann,user:bob"):
        assert (await root.client.get(path)).status_code == 422
        assert (await root.send(f"{path}/preview", max_gpus="many")).status_code == 404


async def test_a_form_that_is_forged_says_nothing(browsing: SignedIn, root: httpx.AsyncClient) -> None:
    admin = await browsing("root")
    for path in ("/admin/policy/default", "/admin/policy/default/drop", "/admin/projects", "/admin/projects/x/end"):
        answer = await admin.client.post(path, data={"max_gpus": "1", "name": "forged", "csrf_token": "x"})
        assert answer.status_code == 403
    assert (await root.get("/v1/policy")).json()["items"] == []
    assert (await root.get("/v1/projects")).json()["items"] == []


async def test_a_project_is_made_given_members_and_ended(browsing: SignedIn, root: httpx.AsyncClient) -> None:
    admin = await browsing("root")
    assert "There are no projects yet" in words(await admin.get("/admin/projects"))
    made = await admin.send("/admin/projects", name="vision", title="<script>Seeing</script>", key="k")
    assert made.headers["location"] == "/admin/projects/vision"
    page = await admin.get("/admin/projects/vision")
    assert "It has no members yet" in words(page)
    assert "&lt;script&gt;Seeing" in page
    assert "<script>Seeing" not in await admin.get("/admin/projects")
    for _ in range(2):  # twice is once
        assert (await admin.send("/admin/projects/vision/members", user="alice")).status_code == 303
    assert "Remove alice" in words(await admin.get("/admin/projects/vision"))
    for user, status in (("nobody", 404), ("Not A Name", 422), ("", 422)):
        answer = await admin.send("/admin/projects/vision/members", user=user)
        assert answer.status_code == status
        assert 'class="problem"' in answer.text
        assert '<form method="post" action="/admin/projects/vision/members"' in answer.text  # it can be sent again
    assert (await admin.send("/admin/projects/vision/members/alice/remove")).status_code == 303
    assert (await admin.send("/admin/projects/vision/members/alice/remove")).status_code == 404
    await root.put("/v1/policy/project:vision", json={"max_gpus": 3})
    assert "project:vision" in words(await admin.get("/admin/projects/vision/end"))
    assert (await admin.send("/admin/projects/vision/end")).headers["location"] == "/admin/projects"
    assert "vision has ended." in words(await admin.get("/admin/projects"))
    assert (await root.get("/v1/policy")).json()["items"] == []
    await admin.get("/admin/projects/vision", status=404)


async def test_many_projects_and_rules_are_all_there(browsing: SignedIn, root: httpx.AsyncClient) -> None:
    for number in range(101):
        assert (await root.post("/v1/projects", json={"name": f"p{number:03}"})).status_code == 201
        assert (await root.put(f"/v1/policy/project:p{number:03}", json={"max_gpus": number})).status_code == 200
    admin = await browsing("root")
    page = await admin.get("/admin/projects")
    assert "p099" in page
    assert "p100" not in page
    more = re.search(r'href="(/admin/projects\?cursor=[^"]+)"', page)
    assert more is not None
    assert "p100" in await admin.get(more[1])
    page = words(await admin.get("/admin/policy"))
    assert "project p000" in page
    assert "project p100" in page
