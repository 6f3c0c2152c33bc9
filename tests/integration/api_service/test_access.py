"""Access: every route × every kind of caller × whose thing it is; made from the routes: none is left out."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import asyncssh
import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import Route

from api_service.web.page_list import WEB_ROUTES
from reservation_core.domain.policy.limits import Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.ports.jobs.unknown_pods import UnknownPod
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.nodes.update_inventory import update_inventory
from tests.integration.api_service.bookings.calendars import asked, at
from tests.integration.api_service.callers import NOBODIES, PUBLIC_KEY, People, submitted

# A calendar's address carries a credential of its own (see test_calendar_feed), who signs in one (see test_login).
OPEN = {"/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/v1/bookings.ics", "/v1/login"}


# Access to pages is tested in web/test_page_access.
PAGES = {"/", "/static/{digest}/{name}", *(route.path for route in WEB_ROUTES)}


@dataclass(frozen=True)
class Call:
    """One operation on a thing of alice's; the statuses say what each caller gets."""

    owner: int
    other: int
    admin: int
    body: Any = None
    query: str = ""


WEB_SOCKETS = {"/v1/jobs/{job_id}/exec", "/v1/jobs/{job_id}/forward/{port}", "/v1/ssh"}
"""Addresses that answer ordinary requests in one way; `sessions/test_programs.py` and `test_ssh.py` have the others."""


CALLS: dict[tuple[str, str], Call] = {
    ("POST", "/v1/jobs"): Call(202, 202, 202, {"gpus": 1, "duration": 60, "workload": {}}),
    ("GET", "/v1/jobs"): Call(200, 200, 200),
    ("GET", "/v1/jobs/{job_id}"): Call(200, 404, 200),
    ("GET", "/v1/jobs/{job_id}/spec"): Call(200, 404, 200),
    ("GET", "/v1/jobs/{job_id}/elements"): Call(404, 404, 404),  # it is no array
    ("POST", "/v1/jobs/{job_id}/cancel"): Call(200, 404, 200),
    ("POST", "/v1/jobs/{job_id}/extend"): Call(200, 404, 200, {"by": 60}),
    ("POST", "/v1/jobs/{job_id}/keep"): Call(409, 404, 409),
    ("GET", "/v1/jobs/{job_id}/events"): Call(200, 404, 200),
    ("GET", "/v1/jobs/{job_id}/logs"): Call(200, 404, 200),
    ("GET", "/v1/jobs/{job_id}/exec"): Call(426, 426, 426),  # these are WebSockets: sessions/test_programs.py
    ("GET", "/v1/jobs/{job_id}/forward/{port}"): Call(426, 426, 426),
    ("GET", "/v1/jobs/{job_id}/connections"): Call(200, 404, 200),
    ("GET", "/v1/jobs/{job_id}/metrics"): Call(200, 404, 200),
    ("GET", "/v1/nodes/{node}/metrics"): Call(200, 200, 200),
    ("GET", "/v1/jobs/{job_id}/terminals"): Call(409, 404, 404),  # it has not started; administrators don't enter it
    ("PUT", "/v1/jobs/{job_id}/shares/{user}"): Call(409, 404, 403),  # it is alice's own
    ("DELETE", "/v1/jobs/{job_id}/shares/{user}"): Call(404, 404, 404),
    ("POST", "/v1/jobs/{job_id}/app-tickets"): Call(409, 404, 404, {"port": 8888}),  # it has not started
    ("POST", "/v1/keys"): Call(201, 201, 201, {"public_key": PUBLIC_KEY}),
    ("GET", "/v1/keys"): Call(200, 200, 200),
    ("DELETE", "/v1/keys/{key_id}"): Call(200, 404, 200),
    ("PUT", "/v1/uploads"): Call(415, 415, 415),  # jobs/test_job_files.py sends bytes
    ("PUT", "/v1/uploads/folders"): Call(200, 200, 200, {"entries": []}),
    ("GET", "/v1/jobs/{job_id}/files"): Call(404, 404, 404),  # it has none; jobs/test_job_files.py
    ("GET", "/v1/jobs/{job_id}/files/data"): Call(404, 404, 404),
    ("GET", "/v1/jobs/{job_id}/results"): Call(404, 404, 404),
    ("GET", "/v1/jobs/{job_id}/results/data"): Call(404, 404, 404),
    ("PUT", "/v1/jobs/{job_id}/results"): Call(404, 404, 404, {"folder": "0" * 64}),
    ("POST", "/v1/disks"): Call(201, 201, 201, {"name": "more", "size": "1Gi"}),
    ("GET", "/v1/disks"): Call(200, 200, 200),
    ("GET", "/v1/disks/{disk}"): Call(200, 404, 404),
    ("PATCH", "/v1/disks/{disk}"): Call(200, 404, 404, {"size": "2Gi"}),
    ("DELETE", "/v1/disks/{disk}"): Call(200, 404, 404),
    ("POST", "/v1/disks/{disk}/restore"): Call(404, 404, 404),
    ("GET", "/v1/disks/{disk}/snapshots"): Call(200, 404, 404),
    ("POST", "/v1/disks/{disk}/snapshots"): Call(422, 404, 404, {"name": "first"}),  # nothing is on it yet
    ("DELETE", "/v1/disks/{disk}/snapshots/{snapshot}"): Call(404, 404, 404),
    ("PUT", "/v1/secrets/{secret}"): Call(200, 201, 201, {"value": "v"}),
    ("GET", "/v1/secrets"): Call(200, 200, 200),
    ("DELETE", "/v1/secrets/{secret}"): Call(200, 404, 404),
    ("POST", "/v1/ssh-certificates"): Call(201, 201, 201, {"public_key": PUBLIC_KEY}),
    ("GET", "/v1/ssh"): Call(426, 426, 426),
    ("GET", "/v1/gpus"): Call(200, 200, 200),
    ("GET", "/v1/gpus/use"): Call(200, 200, 200),
    ("GET", "/v1/nodes"): Call(200, 200, 200),
    ("POST", "/v1/nodes/{node}/fence"): Call(403, 403, 409),  # it is ready
    ("POST", "/v1/nodes/{node}/unfence"): Call(403, 403, 409),
    ("POST", "/v1/nodes/{node}/cordon"): Call(403, 403, 200),
    ("POST", "/v1/nodes/{node}/uncordon"): Call(403, 403, 200),
    ("POST", "/v1/nodes/{node}/gpus/{index}/quarantine"): Call(403, 403, 200),
    ("POST", "/v1/nodes/{node}/gpus/{index}/release"): Call(403, 403, 200),
    ("GET", "/v1/events"): Call(403, 403, 200),
    ("GET", "/v1/events/chain"): Call(403, 403, 200),
    ("GET", "/v1/events/chain/head"): Call(403, 403, 200),
    ("GET", "/v1/pods/unknown"): Call(403, 403, 200),
    ("POST", "/v1/pods/unknown/{pod}/end"): Call(403, 403, 202),
    ("GET", "/v1/queue"): Call(200, 200, 200),
    ("GET", "/v1/search"): Call(200, 200, 200, query="?q=job"),
    ("POST", "/v1/tokens"): Call(201, 403, 201, {"user": "alice"}),
    ("GET", "/v1/tokens"): Call(200, 200, 200),
    ("POST", "/v1/tokens/renew"): Call(422, 422, 422, {"token": "short"}),
    ("DELETE", "/v1/tokens"): Call(403, 200, 200, query="?user=bob"),
    ("DELETE", "/v1/tokens/{token_id}"): Call(200, 404, 200),
    ("POST", "/v1/users"): Call(403, 403, 201, {"name": "carol"}),
    ("GET", "/v1/users"): Call(403, 403, 200),
    ("GET", "/v1/users/{name}"): Call(200, 404, 200),
    ("DELETE", "/v1/users/{name}"): Call(403, 403, 200),
    ("POST", "/v1/users/{name}/enable"): Call(403, 403, 200),
    ("POST", "/v1/bookings"): Call(201, 201, 201, asked()),
    ("GET", "/v1/bookings"): Call(200, 200, 200),
    ("GET", "/v1/bookings/{booking_id}"): Call(200, 404, 200),
    ("PATCH", "/v1/bookings/{booking_id}"): Call(200, 404, 200, {"title": "mine"}),
    ("DELETE", "/v1/bookings/{booking_id}"): Call(200, 404, 200),
    ("POST", "/v1/bookings/{booking_id}/accept"): Call(409, 404, 409),  # nothing is offered
    ("POST", "/v1/bookings/{booking_id}/decline"): Call(409, 404, 409),
    ("POST", "/v1/maintenance"): Call(403, 403, 404, {"node": "nowhere", "duration": 3600, "reason": "Fans."}),
    ("GET", "/v1/maintenance"): Call(200, 200, 200),
    ("GET", "/v1/maintenance/{window_id}"): Call(404, 404, 404),
    ("DELETE", "/v1/maintenance/{window_id}"): Call(403, 403, 404),
    ("GET", "/v1/bookings/slots"): Call(200, 200, 200, query="?gpus=1&duration=PT1H"),
    ("GET", "/v1/availability"): Call(200, 200, 200),
    ("POST", "/v1/bookings/feed"): Call(201, 201, 201),
    ("DELETE", "/v1/bookings/feed"): Call(404, 404, 404),
    ("GET", "/v1/notifications/preferences"): Call(200, 200, 200),
    ("PUT", "/v1/notifications/preferences"): Call(200, 200, 200, {"kinds": {"started": ["email"]}}),
    ("POST", "/v1/notifications/targets"): Call(
        201, 201, 201, {"channel": "slack", "address": "https://hooks.example.org/x"}
    ),
    ("GET", "/v1/notifications/targets"): Call(200, 200, 200),
    ("DELETE", "/v1/notifications/targets/{target_id}"): Call(200, 404, 200),
    # An administrator's word does not make an address wanted.
    ("POST", "/v1/notifications/targets/{target_id}/test"): Call(202, 404, 404),
    ("POST", "/v1/notifications/targets/{target_id}/verify"): Call(200, 404, 404, {"code": "code-00000000"}),
    ("POST", "/v1/policy/explain"): Call(200, 200, 200, {"gpus": 1, "duration": 60}),
    ("GET", "/v1/policy"): Call(200, 200, 200),
    ("GET", "/v1/policy/{scope}"): Call(200, 404, 200),
    ("PUT", "/v1/policy/{scope}"): Call(403, 403, 200, {"max_gpus": 8}),
    ("DELETE", "/v1/policy/{scope}"): Call(403, 403, 200),
    ("POST", "/v1/projects"): Call(403, 403, 201, {"name": "biology"}),
    ("GET", "/v1/projects"): Call(200, 200, 200),
    ("GET", "/v1/projects/{project}"): Call(200, 404, 200),
    ("DELETE", "/v1/projects/{project}"): Call(403, 403, 200),
    ("PUT", "/v1/projects/{project}/members/{user}"): Call(403, 403, 200),
    ("DELETE", "/v1/projects/{project}/members/{user}"): Call(403, 403, 200),
    ("GET", "/v1/usage"): Call(200, 200, 200),
    ("POST", "/v1/simulations"): Call(
        200,
        200,
        200,
        {
            "trace": [{"submitted_at": "2030-01-01T00:00:00Z", "duration_s": 60, "gpus": 1}],
            "cluster": {"gpus": 8},
        },
    ),
    ("POST", "/v1/schedulability"): Call(403, 403, 200, {"user": "alice", "namespace": "lab"}),
    ("POST", "/v1/schedulability/admissions"): Call(
        403,
        403,
        200,
        {"pods": [{"user": "alice", "namespace": "lab", "name": "train-0", "uid": "u-1", "gpus": 1}]},
    ),
    ("POST", "/gpu-schedulability/"): Call(403, 403, 200, {"user_email": "alice", "namespace": "lab"}),
    ("GET", "/v1/dead-letters"): Call(403, 403, 200, query="?queue=gpu_jobs"),
    ("POST", "/v1/dead-letters/{queue}/redrive"): Call(403, 403, 200),
}


def test_every_operation_is_in_the_matrix(app: FastAPI) -> None:
    routes = {
        (method, route.path)
        for route in app.router.routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if route.path not in OPEN | PAGES
    }
    assert routes == set(CALLS)


POD = "job-nobody.3-1-0"


@pytest.fixture
def settings() -> ApiSettings:
    """More wrong tokens are sent here than anybody mistypes."""
    return ApiSettings(max_body_bytes=64 * 1024, auth={"wrong_tokens_burst": 1_000})


@pytest.fixture(autouse=True)
async def things_of_nobody(runtime: Runtime, people: People) -> str:
    """A node, whose name it is, a pod that the ledger does not know, and a project that alice is in."""
    await update_inventory(runtime.uow, runtime.cluster, runtime.clock)
    pod = UnknownPod(POD, "job-nobody", None, None, "The ledger has no reservation of this name.", runtime.clock.now())
    async with runtime.uow() as uow:
        await uow.unknown_pods.report([pod])
        await uow.projects.create("vision", None, runtime.clock.now())
        alice = await uow.identities.user("alice")
        assert alice is not None
        await uow.projects.add_member("vision", alice.id)
        scope = Scope(project="vision")
        await uow.policies.replace_rule(scope, Rules(max_gpus=9), by="root", from_file=False, now=runtime.clock.now())
        [node] = await uow.inventory.nodes(after=None, limit=1)
    return node.name


async def _alices_things(alice: httpx.AsyncClient) -> dict[str, str]:
    job = await submitted(alice)
    token = (await alice.post("/v1/tokens", json={"name": "spare"})).json()
    line = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    key = (await alice.post("/v1/keys", json={"public_key": line})).json()
    await alice.post("/v1/disks", json={"name": "alices-disk", "size": "1Gi"})
    await alice.put("/v1/secrets/deploy-key", json={"value": "v"})
    hook = {"channel": "webhook", "address": "https://hooks.example.org/alice"}
    target = (await alice.post("/v1/notifications/targets", json=hook)).json()
    booking = (await alice.post("/v1/bookings", json=asked(at(5), duration=60, wait=True))).json()
    return {
        "job_id": job["id"],
        "booking_id": booking["id"],
        "token_id": token["id"],
        "key_id": key["id"],
        "secret": "deploy-key",
        "disk": "alices-disk",
        "snapshot": "none",
        "project": "vision",
        "scope": "project:vision",
        "user": "alice",
        "target_id": target["id"],
        "window_id": "mnt-zzzzzzzz",
        "name": "alice",
        "queue": "gpu_jobs",
        "port": "8888",
        "index": "0",
    }


async def test_matrix_of_reads(calling: Callable[[str], httpx.AsyncClient], things_of_nobody: str) -> None:
    """All of them look at the same things: none changes anything, or the next caller would notice."""
    things = await _made_things(calling("alice"), things_of_nobody)
    streams = [path for method, path in CALLS if method == "GET" and path.endswith("/events") and "job_id" in path]
    reads = [path for method, path in CALLS if method == "GET" and path not in streams]
    for path in reads:
        for role in (*NOBODIES, "other", "owner", "child", "admin"):
            await _one_cell(calling, "GET", path, role, things)
    await calling("alice").post(f"/v1/jobs/{things['job_id']}/cancel")  # so that the stream ends
    for path in streams:
        for role in (*NOBODIES, "other", "owner", "child", "admin"):
            await _one_cell(calling, "GET", path, role, things)


@pytest.mark.usefixtures("simulated_here")
@pytest.mark.parametrize(("method", "path"), [call for call in CALLS if call[0] != "GET"])
async def test_matrix_of_changes(
    calling: Callable[[str], httpx.AsyncClient], method: str, path: str, things_of_nobody: str
) -> None:
    if path.endswith("/accept"):
        for _ in range(4):  # all GPUs, so that alice's booking waits and nothing is offered
            assert (await calling("alice").post("/v1/bookings", json=asked(at(5), duration=60))).status_code == 201
    things = await _made_things(calling("alice"), things_of_nobody)
    for role in NOBODIES:
        await _one_cell(calling, method, path, role, things)
    # Administrators last: what they do (disable alice, say) succeeds.
    for role in ("other", "owner", "child", "admin"):
        # Calls that are refused have left these as they were, or the next caller would notice.
        if await _one_cell(calling, method, path, role, things) and role != "admin":
            await calling("alice").delete(
                f"/v1/notifications/targets/{things['target_id']}"
            )  # there may be ten of them
            things = await _made_things(calling("alice"), things_of_nobody)


async def _made_things(alice: httpx.AsyncClient, node: str) -> dict[str, str]:
    return await _alices_things(alice) | {"node": node, "pod": POD}


async def _one_cell(
    calling: Callable[[str], httpx.AsyncClient], method: str, path: str, role: str, things: dict[str, str]
) -> bool:
    """One caller's answer is as the matrix says; returns whether they could do it."""
    call = CALLS[method, path]
    who = {"owner": "alice", "other": "bob", "admin": "root"}.get(role, role)
    response = await calling(who).request(method, path.format(**things) + call.query, json=call.body)
    if path == "/v1/keys" and method == "POST" and response.is_success:
        await calling(who).delete(f"/v1/keys/{response.json()['id']}")  # the next one is new, too
    if path == "/v1/disks" and method == "POST" and response.is_success:
        await calling(who).delete("/v1/disks/more")
    if role in NOBODIES:
        assert response.status_code == 401, (method, path, role, response.text)
        assert response.headers["www-authenticate"].startswith("Bearer")
    else:
        expected = getattr(call, "owner" if role == "child" else role)
        assert response.status_code == expected, (method, path, role, response.text)
    if response.status_code >= 400:
        problem = response.json()
        assert response.headers["content-type"] == "application/problem+json"
        assert problem["type"].startswith("urn:gpu-dev:problem:")
        assert problem["detail"]
    if role == "other" and response.status_code == 404:
        await _looks_like_one_that_never_was(calling("bob"), method, path, things, call, response)
    return response.is_success


async def _looks_like_one_that_never_was(
    client: httpx.AsyncClient, method: str, path: str, things: dict[str, str], call: Call, response: httpx.Response
) -> None:
    """Others' objects and objects that never were must not be told apart."""
    never = {
        "job_id": "job-zzzzzzzz",
        "booking_id": "bkg-zzzzzzzz",
        "token_id": "tok-zzzzzzzz",
        "key_id": "key-zzzzzzzz",
        "secret": "nothing",
        "disk": "nothing",
        "snapshot": "none",
        "user": "alice",
        "project": "nothing",
        "scope": "project:nothing",
        "target_id": "ntg-zzzzzzzz",
        "window_id": "mnt-zzzzzzzz",
        "name": "nobody",
        "queue": "gpu_jobs",
    }
    missing = await client.request(method, path.format(**never) + call.query, json=call.body)
    text = response.text
    for key in ("job_id", "booking_id", "token_id", "key_id", "secret", "disk", "project", "target_id", "name"):
        text = text.replace(things[key], never[key])
    drop = {"instance"}
    assert {k: v for k, v in missing.json().items() if k not in drop} == {
        k: v for k, v in json.loads(text).items() if k not in drop
    }


async def test_lists_show_only_ones_own(alice: httpx.AsyncClient, bob: httpx.AsyncClient) -> None:
    job = await submitted(alice, name="secret plan")
    for path in ("/v1/jobs", "/v1/queue", "/v1/tokens", "/v1/gpus", "/v1/jobs?user=alice", "/v1/tokens?user=alice"):
        text = (await bob.get(path)).text
        assert job["id"] not in text, path
        assert "alice" not in text, path
        assert "secret plan" not in text, path
    queue = (await bob.get("/v1/queue")).json()
    assert queue["items"] == []
    assert queue["totals"] == [{"gpu_type": None, "jobs": 1, "gpus": 1}]
