"""One's own secrets, and the rules for oneself, on the account's page."""

from typing import Unpack

import httpx
import pytest

from api_service.web.rest_calls import CallParts, RestAnswer, RestCalls
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn


async def test_secrets_are_set_listed_and_deleted_after_a_question(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    browser = await browsing("alice")
    await bob.put("/v1/secrets/BOBS", json={"value": "his"})
    assert "You have no secrets." in words(await browser.get("/account"))
    added = await browser.send("/account/secrets", secret_name="HF_TOKEN", secret_value="line 1\r\nline 2", key="k")
    assert added.headers["location"] == "/account#secrets"
    page = await browser.get("/account")
    assert "The secret HF_TOKEN is set" in words(page)
    assert 'id="secret-HF_TOKEN"' in page
    assert not any(other in page for other in ("line 1", "line 2", "BOBS"))
    assert [secret["name"] for secret in (await alice.get("/v1/secrets")).json()["items"]] == ["HF_TOKEN"]
    asked = words(await browser.get("/account/secrets/HF_TOKEN/delete"))
    assert "Delete the secret HF_TOKEN?" in asked
    assert "waiting jobs that use it fail" in asked
    await browser.send("/account/secrets/HF_TOKEN/delete")
    assert "The secret HF_TOKEN is deleted." in words(await browser.get("/account"))
    assert not (await alice.get("/v1/secrets")).json()["items"]
    for name in ("HF_TOKEN", "BOBS"):
        assert (await browser.client.get(f"/account/secrets/{name}/delete")).status_code == 404
        assert (await browser.send(f"/account/secrets/{name}/delete")).status_code == 404


async def test_a_refused_secret_keeps_its_name_and_never_shows_its_value(browsing: SignedIn) -> None:
    browser = await browsing("alice")
    for name, value, said in (
        ("../x", "hunter2", "Name the secret with 1 to 63 letters"),
        ("", "hunter2", "Name the secret with 1 to 63 letters"),
        ("PASS", "", "Type the value of PASS, too."),
    ):
        refused = await browser.send(
            "/account/secrets", secret_name=name, secret_value=value, key=f"k{name}{value[:3]}"
        )
        assert refused.status_code == 422, name
        assert said in words(refused.text)
        assert f'name="secret_name" value="{name}"' in refused.text
        assert "hunter2" not in refused.text


async def test_the_rules_for_oneself_are_shown_the_most_specific_first(
    browsing: SignedIn, root: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = await browsing("alice")
    assert "No rules limit you" in words(await browser.get("/account"))
    for project, member in (("vision", "alice"), ("speech", "bob")):
        await root.post("/v1/projects", json={"name": project})
        await root.put(f"/v1/projects/{project}/members/{member}")
    for scope, most in (("default", 31), ("user:alice", 32), ("user:bob", 33), ("project:vision", 34),
                        ("project:speech", 35), ("gpu_type:h100", 36), ("user:alice,gpu_type:h100", 37)):  # fmt: skip
        assert (await root.put(f"/v1/policy/{scope}", json={"max_gpus": most})).status_code == 200
    shown = words(await browser.get("/account")).partition("The rules for you")[2].partition("Where notifications")[0]
    found = [int(word) for word in shown.split() if word.isdigit()]
    assert found == [37, 32, 34, 36, 31]
    assert "you, h100" in shown
    same = "a user’s, then a project’s, then a type’s, then everybody’s. A project’s limits on GPUs at once, GPU-hours "
    same += "and open bookings apply in addition to a user’s own: its members share them."
    assert same in shown
    assert same in words(await (await browsing("root")).get("/admin/policy"))
    asked = list[object]()
    send = RestCalls.send

    async def noted(calls: RestCalls, method: str, path: str, **parts: Unpack[CallParts]) -> RestAnswer[bytes]:
        asked.append((path, (parts.get("query") or {}).get("mine")) if "polic" in path or "project" in path else None)
        return await send(calls, method, path, **parts)

    monkeypatch.setattr(RestCalls, "send", noted)
    shown = words(await (await browsing("root")).get("/account")).partition("The rules for you")[2]
    assert [call for call in asked if call] == [("/v1/policy", True)]  # and not all rules of others
    assert not any(str(most) in shown.partition("Where notifications")[0].split() for most in (32, 33, 34, 35, 37))
