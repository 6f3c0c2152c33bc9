"""One's own SSH keys, and shared jobs, on pages."""

import asyncssh
import httpx

from tests.integration.api_service.callers import submitted
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn


def fresh() -> str:
    return asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()


async def test_keys_are_added_listed_and_removed_after_a_question(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    browser, line = await browsing("alice"), fresh()
    await bob.post("/v1/keys", json={"public_key": fresh(), "name": "bobs"})
    assert "You have no SSH keys here." in words(await browser.get("/account"))
    added = await browser.send("/account/keys", public_key=f"{line} ada@laptop", key="k")
    assert added.headers["location"] == "/account#keys"
    page = await browser.get("/account")
    assert "You can enter your jobs with the key ada@laptop now." in words(page)
    [key] = (await alice.get("/v1/keys")).json()["items"]
    assert key["fingerprint"] in page
    assert "bobs" not in page
    asked = words(await browser.get(f"/account/keys/{key['id']}/remove"))
    assert "Remove the SSH key ada@laptop?" in asked
    assert key["fingerprint"] in asked
    await browser.send(f"/account/keys/{key['id']}/remove")
    assert "The key ada@laptop is removed." in words(await browser.get("/account"))
    assert (await browser.client.get(f"/account/keys/{key['id']}/remove")).status_code == 404
    assert (await browser.send(f"/account/keys/{key['id']}/remove")).status_code == 404


async def test_a_refused_key_stays_in_the_form_unless_it_is_private(browsing: SignedIn) -> None:
    browser = await browsing("alice")
    refused = await browser.send("/account/keys", public_key="ssh-ed25519 AAAAx", key_name="desk", key="k")
    assert refused.status_code == 422
    assert "incomplete or damaged" in words(refused.text)
    assert "ssh-ed25519 AAAAx</textarea>" in refused.text
    assert 'value="desk"' in refused.text
    private = asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode()
    refused = await browser.send("/account/keys", public_key=private, key="k2")
    assert "This is a private key" in words(refused.text)
    assert private.splitlines()[2] not in refused.text


async def test_a_job_is_shared_and_unshared_on_its_page(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    browser = await browsing("alice")
    job_id = (await submitted(alice, name="train"))["id"]
    address = f"/jobs/{job_id}"
    assert "Share this job" in words(await browser.get(address))
    for user, status, said in (
        ("nobody", 404, "There is no user 'nobody'"),
        ("alice", 409, "is your own job"),
        ("", 422, "Name the user to share the job with."),
    ):
        refused = await browser.send(f"{address}/shares", user=user, key=f"k{user}")
        assert (refused.status_code, said in words(refused.text)) == (status, True), refused.text
        assert f'name="user" value="{user}"' in refused.text
    await browser.send(f"{address}/shares", user="bob", key="k")
    page = words(await browser.get(address))
    assert f"{job_id} is shared with bob." in page
    assert "Shared with 1 user" in page
    assert "bob may enter it and look at it." in page  # in its life
    asked = words(await browser.get(f"{address}/shares/bob/end"))
    assert "Stop sharing train with bob?" in asked
    await browser.send(f"{address}/shares/bob/end")
    assert f"{job_id} is no longer shared with bob." in words(await browser.get(address))
    assert (await browser.client.get(f"{address}/shares/bob/end")).status_code == 404
    assert (await browser.send(f"{address}/shares/bob/end")).status_code == 404


async def test_a_shared_user_sees_the_job_without_what_would_be_refused(
    browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    job_id = (await submitted(alice, name="train"))["id"]
    bob, root = await browsing("bob"), await browsing("root")
    assert "No job is shared with you." in words(await bob.get("/jobs/shared"))
    await alice.put(f"/v1/jobs/{job_id}/shares/bob")
    assert job_id not in await bob.get("/jobs")
    listed = await bob.get("/jobs/shared")
    assert job_id in listed
    assert "alice" in words(listed)
    assert 'type="checkbox" name="job"' not in listed
    assert job_id in await bob.get("/jobs/shared?sort=user&q=train")
    assert job_id not in await bob.get("/jobs/shared?status=running")
    page = await bob.get(f"/jobs/{job_id}")
    assert "alice. Only alice can end or extend it." in words(page)
    for form in ("/extend", "/cancel", "/shares", "/submit?again"):
        assert form not in page, form
    for deed, fields in (("cancel", {}), ("extend", {"by": "1h"}), ("shares", {"user": "root"})):
        refused = await bob.send(f"/jobs/{job_id}/{deed}", **fields)
        assert refused.status_code == 403, deed
        assert "who shares it with you" in words(refused.text)
    assert "Shared with 1 user" in words(await root.get(f"/jobs/{job_id}"))
    assert 'id="share-user"' not in await root.get(f"/jobs/{job_id}")
    await root.send(f"/jobs/{job_id}/shares/bob/end")
    assert (await bob.client.get(f"/jobs/{job_id}")).status_code == 404
