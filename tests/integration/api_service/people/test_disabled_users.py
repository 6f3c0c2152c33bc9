"""Disabling users over REST: what waits is cancelled, what is left is told, and one call ends all of it."""

import httpx

from api_service.app import create_app
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.people.disable_user import cancel_belongings
from tests.integration.api_service.bookings.calendars import add_nodes, at, booked, said
from tests.integration.api_service.callers import People, submitted


async def test_what_is_left_is_told_and_ended_by_one_call(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    await add_nodes(runtime, a=("h100", 1))
    job = await submitted(bob)
    booking = await booked(bob, at(2))
    request = await bob.post(
        "/v1/bookings", json={"gpus": 1, "start": at(2).isoformat(), "duration": "PT1H", "wait": True}
    )
    assert request.status_code == 202
    first = await root.delete("/v1/users/bob")
    assert first.status_code == 200
    answer = first.json()
    assert (answer["name"], answer["cancelled"], answer["left_in_all"]) == ("bob", 2, 1)
    assert answer["disabled_at"] is not None
    assert answer["left"] == [
        {
            "id": booking["id"],
            "kind": "booking",
            "status": "confirmed",
            "name": None,
            "starts_at": said(at(2)),
            "ends_at": said(at(3)),
        }
    ]
    assert (await bob.get("/v1/jobs")).status_code == 401
    seen = (await root.get(f"/v1/jobs/{job['id']}")).json()
    assert (seen["status"], seen["reason"]["code"]) == ("cancelled", "cancelled_by_admin")
    assert "bob is disabled" in seen["reason"]["detail"]
    waited = (await root.get(f"/v1/bookings/{request.json()['id']}")).json()
    assert (waited["status"], waited["reason"]["code"]) == ("cancelled", "cancelled_by_admin")
    last = (await root.delete("/v1/users/bob", params={"end": "true"})).json()
    assert (last["cancelled"], last["left"], last["left_in_all"]) == (1, [], 0)
    assert last["disabled_at"] == answer["disabled_at"]
    assert (await root.get(f"/v1/bookings/{booking['id']}")).json()["status"] == "cancelled"
    # Nobody else's.
    assert (await alice.get("/v1/users/me")).status_code == 200


async def test_what_is_no_word_is_refused(root: httpx.AsyncClient) -> None:
    assert (await root.delete("/v1/users/bob", params={"end": "perhaps"})).status_code == 422
    assert (await root.delete("/v1/users/bob", params={"all": "true"})).status_code == 422
    assert (await root.get("/v1/users/bob")).json()["disabled_at"] is None
    assert (await root.delete("/v1/users/nobody", params={"end": "true"})).status_code == 404


async def test_who_is_let_in_again_meanwhile_loses_nothing(
    root: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime
) -> None:
    """The cleaning process has read that the user is disabled, and works on when that is no longer so."""
    assert (await root.delete("/v1/users/bob")).status_code == 200
    async with runtime.uow() as uow:
        [disabled] = await uow.identities.unsettled()
    assert (await root.post("/v1/users/bob/enable")).status_code == 200
    job = await submitted(bob)
    assert await cancel_belongings(runtime.uow, disabled, "root", end=True) == 0
    assert (await bob.get(f"/v1/jobs/{job['id']}")).json()["status"] == "queued"


async def test_who_was_disabled_may_be_let_in_again(
    bob: httpx.AsyncClient, alice: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    waiting = await submitted(bob)
    spare = (await bob.post("/v1/tokens", json={})).json()
    await bob.delete(f"/v1/tokens/{spare['id']}")
    await root.delete("/v1/users/bob")
    assert (await alice.post("/v1/users/bob/enable")).status_code == 403
    enabled = await root.post("/v1/users/BOB/enable")
    assert (enabled.status_code, enabled.json()["disabled_at"]) == (200, None)
    assert (await bob.get("/v1/users/me")).status_code == 200
    assert (await bob.get(f"/v1/jobs/{waiting['id']}")).json()["status"] == "cancelled"
    assert (await submitted(bob))["status"] == "queued"
    header = {"Authorization": f"Bearer {spare['token']}"}
    assert (await bob.get("/v1/users/me", headers=header)).status_code == 401
    assert (await root.post("/v1/users/bob/enable")).status_code == 200
    assert (await root.post("/v1/users/nobody/enable")).status_code == 404
    kinds = [event["kind"] for event in (await root.get("/v1/events?subject=user:bob")).json()["items"]]
    assert kinds == ["user_enabled", "user_disabled"]


async def test_names_are_short_names_and_addresses(root: httpx.AsyncClient, runtime: Runtime) -> None:
    longest = "a" * 64 + "@" + "b" * 185 + ".org"
    for typed, name in (("ann+b@x.org", "ann+b@x.org"), ("Ann.Lee@Lab.ORG", "ann.lee@lab.org"), (longest, longest)):
        made = await root.post("/v1/users", json={"name": typed})
        assert (made.status_code, made.json()["name"]) == (201, name)
        assert (await root.get(f"/v1/users/{typed.replace('+', '%2B')}")).json()["name"] == name
        secret = (await root.post("/v1/tokens", json={"user": typed})).json()["token"]
        theirs = {"Authorization": f"Bearer {secret}"}
        job = await root.post(
            "/v1/jobs", json={"gpus": 1, "duration": 60, "workload": {"command": ["true"]}}, headers=theirs
        )
        assert job.status_code == 202
        found = (await root.get("/v1/jobs", params={"user": typed})).json()["items"]
        assert [event["user"] for event in found] == [name]
        assert (await root.put(f"/v1/policy/user:{typed.replace('+', '%2B')}", json={"max_gpus": 8})).status_code == 200
        assert (await root.put("/v1/projects/vision/members/nobody")).status_code == 404
        events = (await root.get("/v1/events", params={"actor": name})).json()["items"]
        assert events
    assert (await root.post("/v1/users", json={"name": "ANN+B@x.org"})).status_code == 409
    for wrong in ("+ann", "ann+", "a b", "ann@x.org\n", "\u00e4nn", "x" * 255):
        assert (await root.post("/v1/users", json={"name": wrong})).status_code == 422, wrong


async def test_another_process_that_believes_the_token_takes_nothing_in(
    people: People, root: httpx.AsyncClient, runtime: Runtime, settings: ApiSettings
) -> None:
    """To who asks it is as if it had heard of it."""
    other = create_app(runtime, settings)
    authorized = {"Authorization": f"Bearer {people.secrets['bob']}"}
    async with (
        other.router.lifespan_context(other),
        httpx.AsyncClient(transport=httpx.ASGITransport(other), base_url="http://api", headers=authorized) as bob,
    ):
        assert (await bob.get("/v1/users/me")).status_code == 200
        assert (await root.delete("/v1/users/bob", params={"end": "true"})).status_code == 200
        assert (await bob.get("/v1/users/me")).status_code == 200
        job = {"gpus": 1, "duration": 60, "workload": {"command": ["true"]}}
        refused = await bob.post("/v1/jobs", json=job)
        booking = await bob.post("/v1/bookings", json={"gpus": 1, "start": at(2).isoformat(), "duration": "PT1H"})
        unknown = await bob.get("/v1/users/me", headers={"Authorization": "Bearer gpudev_never-was"})
    assert unknown.status_code == 401
    for answer in (refused, booking):
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, unknown.headers["www-authenticate"])
        assert {**answer.json(), "instance": None} == {**unknown.json(), "instance": None}
    assert (await root.get("/v1/jobs", params={"user": "bob"})).json()["items"] == []
