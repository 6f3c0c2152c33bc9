"""Secrets over REST: values go in, never out."""

import asyncio
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from api_service.app import create_app
from api_service.requests.idempotency import request_hash
from reservation_core.contracts.jobs import JobSubmit
from reservation_core.contracts.people import SecretSet
from reservation_core.domain.sessions.secret_uses import LONGEST_SECRET, MOST_SECRETS
from reservation_core.runtime.settings.components import ApiSettings, StandaloneSettings
from reservation_core.runtime.wiring import Runtime, open_runtime
from tests.database.sql import sql
from tests.integration.api_service.callers import JOB, People, submitted

VALUE = "hunter2-in-confidence"
SECRETS = "/v1/secrets"


async def put(client: httpx.AsyncClient, name: str = "HF_TOKEN", value: str = VALUE) -> httpx.Response:
    return await client.put(f"{SECRETS}/{name}", json={"value": value})


async def names(client: httpx.AsyncClient) -> list[str]:
    return [secret["name"] for secret in (await client.get(SECRETS)).json()["items"]]


async def test_a_secret_is_set_replaced_listed_and_deleted(alice: httpx.AsyncClient, bob: httpx.AsyncClient) -> None:
    first = await put(alice)
    assert (first.status_code, first.json()["name"]) == (201, "HF_TOKEN")
    assert first.json()["created_at"] == first.json()["updated_at"]
    second = await put(alice, value="other")
    assert (second.status_code, second.json()["created_at"]) == (200, first.json()["created_at"])
    assert second.json()["updated_at"] >= first.json()["updated_at"]
    await put(alice, "b")
    page = (await alice.get(SECRETS, params={"limit": 1})).json()
    assert [secret["name"] for secret in page["items"]] == ["HF_TOKEN"]
    rest = (await alice.get(SECRETS, params={"limit": 1, "cursor": page["next_cursor"]})).json()
    assert ([secret["name"] for secret in rest["items"]], rest["next_cursor"]) == (["b"], None)
    assert await names(bob) == []
    assert (await bob.delete(f"{SECRETS}/HF_TOKEN")).status_code == 404
    deleted = await alice.delete(f"{SECRETS}/HF_TOKEN")
    assert (deleted.status_code, deleted.json()) == (200, second.json())
    assert (await alice.delete(f"{SECRETS}/HF_TOKEN")).status_code == 404
    assert await names(alice) == ["b"]


async def test_no_answer_and_no_event_has_a_value(alice: httpx.AsyncClient, root: httpx.AsyncClient) -> None:
    answers = [
        await put(alice),
        await put(alice, "x" * 99),
        await alice.put(f"{SECRETS}/a", json={"value": VALUE, "more": 1}),
        await alice.put(f"{SECRETS}/a", json={"value": [VALUE]}),
        await alice.put(f"{SECRETS}/a", json=VALUE),
        await alice.get(SECRETS),
        await alice.delete(f"{SECRETS}/HF_TOKEN"),
        await root.get("/v1/events"),
    ]
    assert [answer.status_code for answer in answers] == [201, 422, 422, 422, 422, 200, 200, 200]
    assert not any(VALUE in answer.text for answer in answers)
    kinds = [(event["kind"], event["actor"], event["data"]) for event in answers[-1].json()["items"]]
    data = {"user": "alice", "secret": "HF_TOKEN"}
    assert ("secret_set", "alice", data) in kinds
    assert ("secret_deleted", "alice", data) in kinds


@pytest.mark.parametrize("value", ["", "a\x00b"])
async def test_values_that_are_refused(alice: httpx.AsyncClient, value: str) -> None:
    refused = await put(alice, value=value)
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:gpu-dev:problem:invalid_request")
    assert "value" in refused.json()["broken_rules"][0]["detail"]
    assert await names(alice) == []


@pytest.mark.parametrize("value", ["x" * (LONGEST_SECRET + 1), "ä" * (LONGEST_SECRET // 2 + 1)])
def test_values_that_are_too_long(value: str) -> None:
    with pytest.raises(ValidationError, match="at most 65536"):
        SecretSet(value=value)
    assert value[:99] not in repr(SecretSet(value=value[: LONGEST_SECRET // 2]))


async def test_the_longest_value_is_stored(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    value = "ä" * (LONGEST_SECRET // 2)
    # The tests' settings have a smaller bound on bodies than a server has.
    longest = value[:15_000]
    assert (await put(alice, value=longest)).status_code == 201
    async with runtime.uow() as uow:
        user = await uow.identities.user("alice")
        assert user is not None
        await uow.secrets.put(user.id, "longest", value, most=2, now=runtime.clock.now())
        assert await uow.secrets.values(user.id, ["longest", "HF_TOKEN"]) == {"longest": value, "HF_TOKEN": longest}


async def test_a_user_has_so_many_at_most(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    async with runtime.uow() as uow:
        user = await uow.identities.user("alice")
        assert user is not None
        for number in range(MOST_SECRETS - 1):
            await uow.secrets.put(user.id, f"s{number}", VALUE, most=MOST_SECRETS, now=runtime.clock.now())
    answers = await asyncio.gather(*(put(alice, f"n{number}") for number in range(5)))
    assert sorted(answer.status_code for answer in answers) == [201, 422, 422, 422, 422]
    assert (await put(alice, "s0", "new")).status_code == 200


async def test_without_a_key_no_secret_is_stored(
    alice: httpx.AsyncClient, people: People, database_url: str, tmp_path: Path, settings: ApiSettings
) -> None:
    keyless = StandaloneSettings(home=tmp_path / "keyless", local_gpus="h100:4")
    async with open_runtime(keyless, database_url) as without:
        app = create_app(without, settings)
        headers = {"Authorization": f"Bearer {people.secrets['alice']}"}
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://api", headers=headers) as client,
        ):
            refused = await put(client)
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:gpu-dev:problem:no_secrets_key")
    assert "GPU_DEV_SECRETS_KEY_FILE" in refused.json()["detail"]
    assert await names(alice) == []


async def test_a_key_of_a_repeated_request_keeps_no_digest_of_the_value(
    alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    headers = {"Idempotency-Key": "once"}
    for status in (201, 200):
        answer = await alice.put(f"{SECRETS}/a", json={"value": VALUE}, headers=headers)
        assert answer.status_code == status
    async with runtime.uow() as uow:
        assert (await sql(uow, "SELECT count(*) FROM idempotency_keys")).scalar_one() == 0


async def test_a_job_names_its_secrets_and_its_request_says_them_again(alice: httpx.AsyncClient) -> None:
    await put(alice)
    uses = [{"name": "HF_TOKEN", "env": "TOKEN"}, {"name": "HF_TOKEN", "path": "/run/secrets/hf"}]
    job = await submitted(alice, secrets=uses)
    spec = (await alice.get(f"/v1/jobs/{job['id']}/spec")).json()
    assert spec["secrets"] == [{"path": None, **uses[0]}, {"env": None, **uses[1]}]
    assert VALUE not in str(spec)
    again = await alice.post("/v1/jobs", json=spec)
    assert again.status_code == 202, again.text


@pytest.mark.parametrize(
    ("secrets", "said"),
    [
        ([{"name": "HF_TOKEN"}], "needs either `env` or `path`"),
        ([{"name": "HF_TOKEN", "env": "A", "path": "/a"}], "needs either `env` or `path`"),
        ([{"name": "HF_TOKEN", "env": "CUDA_VISIBLE_DEVICES"}], "CUDA_VISIBLE_DEVICES is set by the server"),
        ([{"name": "HF_TOKEN", "env": "GPU_DEV_TOKEN"}], "GPU_DEV_TOKEN is set by the server"),
        ([{"name": "HF_TOKEN", "env": "1A"}], "not begin with a digit"),
        ([{"name": "HF_TOKEN", "env": "A"}] * 2, "secrets: the variable A is set twice"),
        ([{"name": "HF_TOKEN", "env": "MINE"}], "the variable MINE is set twice"),
        ([{"name": "HF_TOKEN", "path": "/a/../b"}], "must be an absolute path"),
        ([{"name": "HF_TOKEN", "path": "/proc/x"}], "must not be in"),
        ([{"name": "HF_TOKEN", "path": "/a"}, {"name": "HF_TOKEN", "path": "/a/b"}], "a folder of another"),
        ([{"name": "../x", "env": "A"}], "secrets.0.name"),
        ([{"name": "HF_TOKEN", "env": f"A{number}"} for number in range(17)], "secrets"),
        ([{"name": "HF_TOKEN", "env": "A", "value": "x"}], "secrets.0.value"),
    ],
)
async def test_uses_that_are_refused(alice: httpx.AsyncClient, secrets: list[dict[str, str]], said: str) -> None:
    await put(alice)
    workload = {"command": ["true"], "env": {"MINE": "1"}}
    refused = await alice.post("/v1/jobs", json={**JOB, "workload": workload, "secrets": secrets})
    assert refused.status_code == 422
    assert said in str(refused.json()["broken_rules"])
    assert (await alice.get("/v1/jobs")).json()["items"] == []


async def test_secrets_that_do_not_exist_are_refused_before_anything_is_stored(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime
) -> None:
    await put(alice)
    body = {**JOB, "secrets": [{"name": "HF_TOKEN", "env": "A"}, {"name": "other", "env": "B"}]}
    for client, missing in ((alice, "other"), (bob, "HF_TOKEN or other")):
        for query in ("", "?dry_run=true"):
            refused = await client.post(f"/v1/jobs{query}", json=body, headers={"Idempotency-Key": "k"})
            assert (refused.status_code, refused.json()["type"]) == (422, "urn:gpu-dev:problem:no_such_secret")
            assert f"You have no secret {missing}." in refused.json()["detail"]
            named = [rule["detail"].partition(":")[0] for rule in refused.json()["broken_rules"]]
            assert named == (["secrets.1.name"] if client is alice else ["secrets.0.name", "secrets.1.name"])
    async with runtime.uow() as uow:
        for table in ("reservations", "idempotency_keys", "pgmq.q_gpu_jobs"):
            assert (await sql(uow, f"SELECT count(*) FROM {table}")).scalar_one() == 0


async def test_a_request_without_secrets_is_stored_as_servers_did_that_knew_none(
    alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    """Else a request that is repeated while the server is upgraded would be refused as another one."""
    await alice.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "k"})
    before = JobSubmit.model_validate(JOB).model_dump_json(exclude={"secrets"}).encode()
    async with runtime.uow() as uow:
        stored = (await sql(uow, "SELECT request_hash FROM idempotency_keys")).scalar_one()
    assert stored == request_hash("POST /v1/jobs", before)


async def test_a_job_that_is_stored_is_answered_again_when_its_secret_is_gone(alice: httpx.AsyncClient) -> None:
    await put(alice)
    body, headers = {**JOB, "secrets": [{"name": "HF_TOKEN", "env": "A"}]}, {"Idempotency-Key": "k"}
    first = await alice.post("/v1/jobs", json=body, headers=headers)
    await alice.delete(f"{SECRETS}/HF_TOKEN")
    again = await alice.post("/v1/jobs", json=body, headers=headers)
    assert (first.status_code, again.status_code, again.json()) == (202, 202, first.json())
