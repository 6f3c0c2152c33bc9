"""One's own disks on pages."""

import httpx
import pytest

from api_service.web.finding.site_pages import pages_named
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.callers import submitted
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn
from tests.integration.api_service.web.test_sent_twice import clicked_twice, keyed

DISKS = "/v1/disks"


async def created(client: httpx.AsyncClient, name: str = "data", size: str = "1Gi") -> None:
    (await client.post(DISKS, json={"name": name, "size": size})).raise_for_status()


async def test_a_disk_is_created_changed_deleted_after_a_question_and_restored(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    browser = await browsing("alice")
    await created(bob, "bobs")
    assert "You have no disks." in words(await browser.get("/disks"))
    done = await browser.send("/disks", name="data", size="10Gi", key="k1")
    assert done.headers["location"] == "/disks"
    page = words(await browser.get("/disks"))
    assert "The disk data is created." in page
    assert "data creating 10 GiB" in page
    assert "bobs" not in page
    done = await browser.send("/disks/data", name="sets", size="20Gi")
    assert done.headers["location"] == "/disks/sets"
    assert "The disk data, now sets, has 20 GiB." in words(await browser.get("/disks/sets"))
    asked = words(await browser.get("/disks/sets/delete"))
    assert "Delete the disk sets?" in asked
    await browser.send("/disks/sets/delete")
    page = words(await browser.get("/disks"))
    assert "The disk sets is deleted." in page
    assert "sets deleted 20 GiB" in page
    await browser.send("/disks/sets/restore", key="k2")
    assert "The disk sets is restored" in words(await browser.get("/disks"))
    [disk] = (await alice.get(DISKS)).json()["items"]
    assert (disk["name"], disk["size"], disk["deleted_at"]) == ("sets", 20 * 2**30, None)


async def test_the_question_names_what_is_lost(browsing: SignedIn, alice: httpx.AsyncClient, runtime: Runtime) -> None:
    browser = await browsing("alice")
    await created(alice)
    assert "nothing is on it" in words(await browser.get("/disks/data/delete"))
    async with runtime.uow() as uow:
        user = await uow.identities.user("alice")
        assert user is not None
        record = await uow.disks.named(user.id, "data")
        assert record is not None
        await uow.disks.note_made(record.id, record.size_bytes)
        await uow.disks.note_use(record.id, 5 * 2**20, runtime.clock.now())
    asked = words(await browser.get("/disks/data/delete"))
    assert "No job can use it any more. The files on it (5 MiB) can be restored until" in asked
    assert "removed then for ever" in asked
    assert "data ready 1 GiB 5 MiB" in words(await browser.get("/disks"))


async def test_a_disk_that_a_job_has_names_the_job_and_is_kept(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    browser = await browsing("alice")
    await created(alice)
    job = (await submitted(alice, disks=[{"name": "data"}]))["id"]
    for page in ("/disks", "/disks/data"):
        shown = await browser.get(page)
        assert f'href="/jobs/{job}"' in shown
        assert "/disks/data/delete" not in shown
    assert f"The job {job} has the disk data." in words(await browser.get("/disks/data/delete", status=409))
    refused = await browser.send("/disks/data/delete")
    assert (refused.status_code, job in words(refused.text)) == (409, True)


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"name": "Data", "size": "1Gi"}, 422, "lower-case letters"),
        ({"name": "more", "size": "much"}, 422, "Size: "),
        ({"name": "more", "size": ""}, 422, "Size: "),
        ({"name": "data", "size": "1Gi"}, 409, "You have a disk data already."),
        ({"name": "more", "size": "2000Gi"}, 422, "at most 1 TiB"),
    ],
)
async def test_a_refusal_is_shown_with_what_was_typed(
    browsing: SignedIn, alice: httpx.AsyncClient, fields: dict[str, str], status: int, said: str
) -> None:
    browser = await browsing("alice")
    await created(alice)
    refused = await browser.send("/disks", key="k", **fields)
    assert (refused.status_code, said in words(refused.text)) == (status, True), words(refused.text)
    assert f'name="name" value="{fields["name"]}"' in refused.text
    assert len((await alice.get(DISKS)).json()["items"]) == 1


async def test_changes_that_cannot_be_are_refused(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    browser = await browsing("alice")
    await created(alice)
    await created(alice, "other")
    for fields, status, said in (
        ({"name": "data", "size": "1Gi"}, 422, "Nothing has changed."),
        ({"name": "other", "size": "1Gi"}, 409, "You have a disk other already."),
        ({"name": "data", "size": "1Mi"}, 422, "can't be made smaller"),
        ({"name": "-", "size": "1Gi"}, 422, "lower-case letters"),
    ):
        refused = await browser.send("/disks/data", **fields)
        assert (refused.status_code, said in words(refused.text)) == (status, True), words(refused.text)
        assert f'value="{fields["size"]}"' in refused.text
    for address in ("/disks/nope", "/disks/nope/delete", "/disks/Not-A-Name"):
        assert "You have no disk" in words(await browser.get(address, status=404))


async def test_of_two_deleted_disks_of_a_name_the_last_one_is_restored(
    browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    browser = await browsing("alice")
    for size in ("1Gi", "2Gi"):
        await created(alice, size=size)
        (await alice.delete(f"{DISKS}/data")).raise_for_status()
    page = await browser.get("/disks")
    assert page.count('action="/disks/data/restore"') == 1
    assert "Restore and rename the other data first." in words(page)
    await browser.send("/disks/data/restore", key="k")
    [disk] = (await alice.get(DISKS)).json()["items"]
    assert disk["size"] == 2 * 2**30
    page = await browser.get("/disks")
    assert "/disks/data/restore" not in page
    assert "Rename your disk data first." in words(page)
    refused = await browser.send("/disks/data/restore", key="k2")
    assert (refused.status_code, "You have another disk data now." in words(refused.text)) == (409, True)
    await browser.send("/disks/data", name="other", size="2Gi")
    page = await browser.get("/disks")
    assert (page.count('action="/disks/data/restore"'), "first." in words(page)) == (1, False)


async def test_an_administrator_keeps_a_users_disks(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    await created(alice)
    await created(root, "roots")
    (await root.delete("/v1/users/alice")).raise_for_status()
    browser = await browsing("root")
    assert 'href="/disks?user=alice"' in await browser.get("/admin/users")
    page = await browser.get("/disks?user=alice")
    assert "Disks of alice" in words(page)
    assert "data creating 1 GiB" in words(page)
    assert ("roots" in page, "Create a disk" in page) == (False, False)
    assert 'href="/disks/data?user=alice"' in page
    done = await browser.send("/disks/data?user=alice", name="data", size="2Gi", owner="alice")
    assert done.headers["location"] == "/disks/data?user=alice"
    asked = await browser.get("/disks/data/delete?user=alice")
    assert "Delete the disk data of alice?" in words(asked)
    assert 'name="user" value="alice"' in asked
    done = await browser.send("/disks/data/delete", user="alice")
    assert done.headers["location"] == "/disks?user=alice"
    page = await browser.get("/disks?user=alice")
    assert "alice has no disks." in words(page)
    assert 'action="/disks/data/restore?user=alice"' in page
    await browser.send("/disks/data/restore?user=alice", key="k")
    refused = await browser.send("/disks/data?user=alice", name="data", size="2Gi", owner="nobody")
    assert (refused.status_code, 'name="owner" value="nobody"' in refused.text) == (404, True), words(refused.text)
    done = await browser.send("/disks/data?user=alice", name="data", size="2Gi", owner="bob")
    assert done.headers["location"] == "/disks/data?user=bob"
    assert "The disk data belongs to bob now." in words(await browser.get("/disks/data?user=bob"))
    assert [disk["name"] for disk in (await bob.get(DISKS)).json()["items"]] == ["data"]
    # The administrator's own disks are found by the own name, too.
    assert "Your disks" in words(await browser.get("/disks?user=root"))
    own = await browser.get("/disks/roots")
    assert ('name="owner" value="root"' in own, "?user=" in own) == (True, False)


async def test_others_see_no_disks_but_their_own(browsing: SignedIn, bob: httpx.AsyncClient) -> None:
    browser = await browsing("alice")
    await created(bob)
    for address in ("/disks?user=bob", "/disks/data?user=bob", "/disks/data/delete?user=bob"):
        await browser.get(address, status=403)
    refused = await browser.send("/disks/data/delete", user="bob")
    assert refused.status_code == 403
    await created(bob, "mine")
    assert 'name="owner"' not in await browser.get("/disks")
    assert len((await bob.get(DISKS)).json()["items"]) == 2


async def test_a_disk_is_created_once_by_two_clicks(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    browser = await browsing("alice")
    form = await keyed(browser, "/disks")
    answers = await clicked_twice(browser, "/disks", {**form, "name": "data", "size": "1Gi"})
    assert {answer.status_code for answer in answers} == {303}
    assert len((await alice.get(DISKS)).json()["items"]) == 1


async def test_the_form_says_when_a_session_has_the_disk_home(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    browser = await browsing("alice")
    await created(alice)
    page = await browser.get("/submit")
    assert "A session also has your disk home" not in words(page)
    assert 'name="no_home"' not in page
    await created(alice, "home")
    page = await browser.get("/submit")
    assert "at /home/dev, unless it names 8 other disks, or a disk or secret in that place." in words(page)
    assert 'name="no_home"' in page
    for without, disks in (("", ["home"]), ("yes", [])):
        fields = {"gpus": "1", "nodes": "1", "duration": "1h", "no_home": without}
        job = (await browser.send("/submit", **fields, key=f"k{without}")).headers["location"].rpartition("/")[2]
        spec = (await alice.get(f"/v1/jobs/{job}/spec")).json()
        assert [disk["name"] for disk in spec.get("disks", [])] == disks


async def test_a_job_gets_disks_by_its_form(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    browser = await browsing("alice")
    assert "You have none yet" in words(await browser.get("/submit"))
    await created(alice)
    page = await browser.get("/submit?disks=data")
    assert "Yours: data" in words(page)
    assert 'placeholder="data">data</textarea>' in page
    fields = {"gpus": "1", "nodes": "1", "duration": "1h", "command": "true", "disks": "data:/in:ro"}
    assert "--disk data:/in:ro" in words((await browser.send("/submit/check", **fields)).text)
    done = await browser.send("/submit", key="k", **fields)
    job = done.headers["location"].removeprefix("/jobs/")
    spec = (await alice.get(f"/v1/jobs/{job}/spec")).json()
    assert spec["disks"] == [{"name": "data", "path": "/in", "read_only": True}]
    assert "data:/in:ro</textarea>" in await browser.get(f"/submit?again={job}")


def test_the_palette_finds_the_page() -> None:
    assert [page.address for page in pages_named("disk", admin=False)] == ["/disks"]
    assert pages_named("storage", admin=False)[0].address == "/disks"


async def settled(runtime: Runtime) -> None:
    """What the leader would do: all disks and copies are made."""
    async with runtime.uow() as uow:
        while copies := await uow.snapshots.copies_to_make(runtime.clock.now(), 10):
            for copy in copies:
                await uow.snapshots.note_copied(copy, copy.size_bytes)
        for disk in await uow.disks.to_settle(runtime.clock.now(), runtime.clock.now(), 10):
            await uow.disks.note_made(disk.id, disk.size_bytes)


async def test_a_snapshot_is_taken_cloned_and_deleted_after_a_question(
    browsing: SignedIn, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    browser = await browsing("alice")
    await created(alice)
    await settled(runtime)
    assert "The disk has no snapshots." in words(await browser.get("/disks/data"))
    done = await browser.send("/disks/data/snapshots", snapshot="first", key="k1")
    assert done.headers["location"] == "/disks/data"
    page = words(await browser.get("/disks/data"))
    assert "The snapshot first of data is being taken." in page
    assert "first creating 1 GiB" in page
    await settled(runtime)
    assert "first ready 1 GiB" in words(await browser.get("/disks/data"))
    done = await browser.send("/disks/data/clone", name="then", source="first", key="k2")
    assert done.headers["location"] == "/disks/then"
    assert "The disk then is being copied from data." in words(await browser.get("/disks/then"))
    await settled(runtime)
    assert "data ready 1 GiB – 1 no job" in words(await browser.get("/disks"))
    asked = words(await browser.get("/disks/data/snapshots/first/delete"))
    assert "Delete the snapshot first of data? A snapshot can't be restored." in asked
    await browser.send("/disks/data/snapshots/first/delete")
    assert "The snapshot first of data is deleted." in words(await browser.get("/disks/data"))
    assert (await alice.get(f"{DISKS}/data/snapshots")).json()["items"] == []


async def test_copies_that_cannot_be_are_refused_with_what_was_typed(
    browsing: SignedIn, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    browser = await browsing("alice")
    await created(alice)
    refused = await browser.send("/disks/data/snapshots", snapshot="first", key="k0")
    assert (refused.status_code, "The disk data is not made yet." in words(refused.text)) == (422, True)
    await settled(runtime)
    for address, fields, status, said in (
        ("snapshots", {"snapshot": "First"}, 422, "lower-case letters"),
        ("clone", {"name": "New", "source": ""}, 422, "lower-case letters"),
        ("clone", {"name": "data", "source": ""}, 409, "You have a disk data already."),
        ("clone", {"name": "new", "source": "none"}, 404, "The disk data has no snapshot none."),
    ):
        refused = await browser.send(f"/disks/data/{address}", key=f"k-{status}-{len(said)}", **fields)
        assert (refused.status_code, said in words(refused.text)) == (status, True), words(refused.text)
        assert f'value="{next(iter(fields.values()))}"' in refused.text
    assert "has no such snapshot" in words(await browser.get("/disks/data/snapshots/none/delete", status=404))


async def test_an_administrator_takes_snapshots_of_a_users_disk(
    browsing: SignedIn, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    await created(alice)
    await settled(runtime)
    browser = await browsing("root")
    page = await browser.get("/disks/data?user=alice")
    assert "/disks/data/clone" not in page
    done = await browser.send("/disks/data/snapshots?user=alice", snapshot="first", key="k1")
    assert done.headers["location"] == "/disks/data?user=alice"
    await browser.send("/disks/data/snapshots/first/delete?user=alice")
    assert (await alice.get(f"{DISKS}/data/snapshots")).json()["items"] == []


async def test_a_disk_that_is_not_there_leads_to_those_that_are(browsing: SignedIn) -> None:
    answer = await (await browsing("alice")).client.get("/disks/nosuch")
    assert answer.status_code == 404
    assert '<p><a href="/disks">Your disks</a></p>' in answer.text
