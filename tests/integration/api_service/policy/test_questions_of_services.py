"""What services ask: who may use GPUs, until when, and with which booking."""

from datetime import UTC, datetime

import httpx
from fastapi import FastAPI

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import (
    at,
    booked,
    booked_now,
    kinds_of,
    said,
)
from tests.integration.api_service.callers import People
from tests.integration.api_service.policy.rules_set import earlier, lab, put

__all__ = ["lab"]


async def service(root: httpx.AsyncClient, app: FastAPI) -> httpx.AsyncClient:
    """A caller with a service's token."""
    assert (await root.post("/v1/users", json={"name": "gate", "role": "service"})).status_code == 201
    token = (await root.post("/v1/tokens", json={"user": "gate"})).json()["token"]
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api", headers=headers)


async def test_a_service_asks_who_may_use_gpus_and_nothing_else(
    alice: httpx.AsyncClient, root: httpx.AsyncClient, app: FastAPI, runtime: Runtime
) -> None:
    booking = await booked_now(alice, gpus=2, gpu_type="h100")
    question = {"user": "alice", "namespace": "lab"}
    async with await service(root, app) as gate:
        for path in ("/v1/jobs", "/v1/users/me", "/v1/policy", "/v1/bookings", "/v1/gpus"):
            assert (await gate.get(path)).status_code == 403
        assert (await gate.post("/v1/jobs", json={"gpus": 1, "duration": 60, "workload": {}})).status_code == 403
        yes = (await gate.post("/v1/schedulability", json=question)).json()
        assert (yes["schedulable"], yes["until"], yes["booking_id"]) == (True, booking["end"], booking["id"])
        assert (yes["gpu_type"], yes["gpus"]) == ("h100", 2)
        assert yes["nodes"] == ["a"]
        for more in ({"gpus": 3}, {"gpu_type": "t4"}, {"user": "bob"}, {"user": "nobody"}):
            no = (await gate.post("/v1/schedulability", json={**question, **more})).json()
            assert (no["schedulable"], no["until"], no["booking_id"], no["nodes"]) == (False, None, None, None)
            assert no["reason"]
        # A policy that asks for no booking says yes within its quotas.
        await put(root, "gpu_type:t4", booking_required=False, max_gpus=2)
        free = (await gate.post("/v1/schedulability", json={**question, "user": "bob", "gpu_type": "t4"})).json()
        assert (free["schedulable"], free["until"], free["gpus"], free["nodes"]) == (True, None, 2, None)
        over = {**question, "user": "bob", "gpu_type": "t4", "gpus": 3}
        assert (await gate.post("/v1/schedulability", json=over)).json()["schedulable"] is False
        # After its end it is over.
        await earlier(runtime, 2, booking["id"])
        assert (await gate.post("/v1/schedulability", json=question)).json()["schedulable"] is False
    assert (await alice.post("/v1/schedulability", json=question)).status_code == 403


async def test_until_when_one_may_without_a_booking(
    alice: httpx.AsyncClient, root: httpx.AsyncClient, app: FastAPI
) -> None:
    """Until the next booking or maintenance of cards that they would need; not longer, and null only without one."""
    await put(root, "gpu_type:t4", booking_required=False)
    question = {"user": "bob", "namespace": "lab", "gpu_type": "t4"}
    async with await service(root, app) as gate:

        async def asks(gpus: int, **other: object) -> tuple[bool, str | None, str | None]:
            response = await gate.post("/v1/schedulability", json={**question, "gpus": gpus, **other})
            answer = response.json()
            assert answer["reason"]
            return answer["schedulable"], answer["until"], answer["gpu_type"]

        assert await asks(2) == (True, None, "t4")
        assert (await asks(3))[0] is False  # there are two
        assert (await asks(1, gpu_type="a100"))[0] is False
        await booked(alice, at(5), gpu_type="t4")
        assert await asks(1) == (True, None, "t4")
        assert await asks(2) == (True, said(at(5)), "t4")
        # Of any type it may be one that has to be booked; where none has to be, the first that ends bounds it.
        assert (await asks(2, gpu_type=None))[0] is False
        await put(root, "default", booking_required=False)
        assert await asks(2, gpu_type=None) == (True, said(at(5)), None)
        assert await asks(3, gpu_type=None) == (True, None, None)
        window = {"node": "b", "start": said(at(3)), "duration": 3600, "reason": "Fans."}
        assert (await root.post("/v1/maintenance", json=window)).status_code == 201
        assert await asks(1) == (True, said(at(3)), "t4")
        # What somebody has booked now is not free for others.
        await booked_now(alice, gpu_type="t4")
        assert await asks(1) == (True, said(at(3)), "t4")
        no = (await gate.post("/v1/schedulability", json={**question, "gpus": 2})).json()
        assert (no["schedulable"], no["until"]) == (False, None)
        assert "1 of 2 t4" in no["reason"]


async def test_a_service_reports_pods_that_use_bookings(
    alice: httpx.AsyncClient, root: httpx.AsyncClient, app: FastAPI, runtime: Runtime
) -> None:
    booking = await booked_now(alice, gpus=2, gpu_type="h100")
    pod = {"user": "alice", "namespace": "lab", "name": "train-0", "uid": "u-1", "gpus": 2, "node": "a"}
    path = "/v1/schedulability/admissions"
    async with await service(root, app) as gate:
        first = await gate.post(path, json={"pods": [pod, {**pod, "uid": "u-2", "user": "bob"}]})
        assert first.status_code == 200, first.text
        used, nobodys = first.json()["items"]
        assert (used["uid"], used["outcome"], used["booking_id"]) == ("u-1", "recorded", booking["id"])
        assert used["until"] == booking["end"]
        assert (nobodys["uid"], nobodys["outcome"], nobodys["booking_id"]) == ("u-2", "no_booking", None)
        assert nobodys["reason"]
        again = (await gate.post(path, json={"pods": [{**pod, "booking_id": booking["id"]}]})).json()
        assert [admission["outcome"] for admission in again["items"]] == ["unchanged"]
        asks = {"user": "alice", "namespace": "lab", "pod": {"uid": "u-1"}}
        assert (await gate.post("/v1/schedulability", json=asks)).json()["nodes"] == ["a"]
        ended = (await gate.post(path, json={"pods": [{**pod, "ended_at": said(datetime.now(UTC))}]})).json()
        assert [admission["outcome"] for admission in ended["items"]] == ["ended"]
        for wrong in (
            {"gpus": 0},
            {"uid": ""},
            {"node": ""},
            {"booking_id": "job-1"},
            {"since": "2030-01-01T09:00:00"},
            {"since": "2030-01-02T09:00:00Z", "ended_at": "2030-01-01T09:00:00Z"},
        ):
            assert (await gate.post(path, json={"pods": [{**pod, **wrong}]})).status_code == 422, wrong
        assert (await gate.post(path, json={"pods": []})).status_code == 422
        assert (await gate.post(path, json={"pods": [pod] * 501})).status_code in (413, 422)
    kinds = [kind for kind in await kinds_of(runtime, booking["id"]) if kind.startswith("pod_")]
    assert kinds == ["pod_admitted", "pod_ended"]


async def test_older_clients_ask_in_their_own_words(root: httpx.AsyncClient, app: FastAPI, people: People) -> None:
    assert (await root.post("/v1/users", json={"name": "ann@lab.org"})).status_code == 201
    token = (await root.post("/v1/tokens", json={"user": "ann@lab.org"})).json()["token"]
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://api", headers={"Authorization": f"Bearer {token}"}
    ) as ann:
        booking = await booked_now(ann, gpu_type="h100")
    async with await service(root, app) as gate, httpx.AsyncClient(transport=transport, base_url="http://api") as bare:
        secret = gate.headers["authorization"].removeprefix("Bearer ")
        question = {"user_email": "Ann@lab.org", "namespace": "lab"}
        expected = {"schedulable": True, "until": booking["end"], "gpu": "h100"}
        assert (await gate.post("/gpu-schedulability/", json=question)).json() == expected
        assert (await bare.post("/gpu-schedulability/", json={**question, "token": secret})).json() == expected
        wrong = await bare.post("/gpu-schedulability/", json={**question, "token": "gpudev_wrong"})
        assert wrong.status_code == 401
        assert "gpudev_wrong" not in wrong.text
        assert (await bare.post("/gpu-schedulability/", json=question)).status_code == 401
        user = people.secrets["alice"]
        assert (await bare.post("/gpu-schedulability/", json={**question, "token": user})).status_code == 403
        nobody = await gate.post("/gpu-schedulability/", json={**question, "user_email": "Nobody At All"})
        assert nobody.json() == {"schedulable": False, "until": None, "gpu": None}
