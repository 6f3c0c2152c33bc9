"""Every call of REST, one after the other, as a story with the same answers each time."""

from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from http import HTTPStatus
from typing import Any

import httpx

from reservation_core.domain.changes import GpusIdle
from reservation_core.domain.gpu_use.idle_rules import IdleWarning
from reservation_core.domain.gpu_use.samples import GpuProcess, GpuSample
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.model import PodName
from reservation_core.domain.sync.frames import framed
from reservation_core.ports.jobs.unknown_pods import UnknownPod
from reservation_core.ports.queues import QueueName
from reservation_core.ports.sessions.pod_streams import Program, Terminal
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.gpu_use.store_samples import store_samples
from tests.integration.api_service.callers import PUBLIC_KEY
from tests.integration.api_service.rest_examples import Recorder
from tests.network.receivers import MailBox, Receiver
from tests.waiting import eventually

Client = Callable[[str], httpx.AsyncClient]


POD = "job-nobody-1-0"


SIMULATION: dict[str, Any] = {
    "trace": [
        {"submitted_at": "2030-01-31T09:00:00Z", "duration_s": 7200, "gpus": 8, "asked_s": 14400, "user": "ann"},
        {"submitted_at": "2030-01-31T10:00:00Z", "duration_s": 3600, "gpus": 8, "asked_s": 14400, "user": "bo"},
    ],
    "cluster": {"gpus": 8, "node_size": 8},
    "nodes_added": {"gpu": 1},
}


class Story:
    """What alice, bob and root call, subject by subject; each call is recorded."""

    def __init__(self, calling: Client, recorder: Recorder, runtime: Runtime) -> None:
        self.alice, self.bob, self.root = calling("alice"), calling("bob"), calling("root")
        self.call = recorder.call
        self.runtime = runtime
        self.today = recorder.now + timedelta(days=1)

    def at(self, hours: int) -> str:
        """A whole hour from tomorrow on."""
        return (self.today + timedelta(hours=hours)).isoformat().replace("+00:00", "Z")

    async def people(self) -> None:
        await self.call(self.root, "POST /v1/users", {"name": "carol", "role": "user"})
        await self.call(self.root, "GET /v1/users", query="?limit=2")
        await self.call(self.root, "GET /v1/users/{name}", name="carol")
        made = {"user": "carol", "name": "laptop", "expires_in": "P30D"}
        token = await self.call(self.root, "POST /v1/tokens", made)
        await self.call(self.root, "GET /v1/tokens", query="?user=carol&limit=1")
        await self.call(self.root, "DELETE /v1/tokens/{token_id}", token_id=token["id"])
        await self.root.post("/v1/tokens", json=made)
        await self.call(self.root, "DELETE /v1/tokens", query="?user=carol")
        await self.call(self.root, "DELETE /v1/users/{name}", name="carol")
        await self.call(self.root, "POST /v1/users/{name}/enable", name="carol")
        spare = (await self.alice.post("/v1/tokens", json={"name": "spare"})).json()["token"]
        headers = {"Authorization": f"Bearer {spare}"}
        async with httpx.AsyncClient(transport=self.alice._transport, base_url="http://api", headers=headers) as other:
            await self.call(other, "POST /v1/tokens/renew", {"token": f"gpudev_{'a' * 43}"})

    async def ssh_keys(self) -> None:
        key = await self.call(self.alice, "POST /v1/keys", {"public_key": PUBLIC_KEY, "name": "laptop"})
        await self.call(self.alice, "GET /v1/keys")
        await self.call(self.alice, "DELETE /v1/keys/{key_id}", key_id=key["id"])
        await self.call(self.alice, "POST /v1/ssh-certificates", {"public_key": PUBLIC_KEY})

    async def secrets(self) -> None:
        await self.call(self.alice, "PUT /v1/secrets/{secret}", {"value": "hf_4f1cf0"}, secret="HF_TOKEN")
        await self.call(self.alice, "GET /v1/secrets")
        await self.call(self.alice, "DELETE /v1/secrets/{secret}", secret="HF_TOKEN")

    async def disks(self) -> None:
        await self.call(self.alice, "POST /v1/disks", {"name": "data", "size": "100Mi"})
        await self.call(self.alice, "GET /v1/disks")
        await self.call(self.alice, "PATCH /v1/disks/{disk}", {"size": "200Mi"}, disk="data")
        await self.call(self.alice, "GET /v1/disks/{disk}", disk="data")
        await eventually(self._is_ready)
        await self.call(self.alice, "POST /v1/disks/{disk}/snapshots", {"name": "before-cleaning"}, disk="data")
        await self.call(self.alice, "GET /v1/disks/{disk}/snapshots", disk="data")
        await self.call(
            self.alice, "DELETE /v1/disks/{disk}/snapshots/{snapshot}", disk="data", snapshot="before-cleaning"
        )
        await self.call(self.alice, "DELETE /v1/disks/{disk}", disk="data")
        await self.call(self.alice, "POST /v1/disks/{disk}/restore", disk="data")

    async def _is_ready(self) -> bool:
        return (await self.alice.get("/v1/disks/data")).json()["state"] == "ready"

    async def files(self) -> None:
        program = b"print('hello')\n"
        digest = sha256(program)
        await self.call(self.alice, "PUT /v1/uploads", framed(digest.digest(), program))
        entry = {"path": "train.py", "kind": "file", "size": len(program), "chunks": [digest.hexdigest()]}
        folder = await self.call(self.alice, "PUT /v1/uploads/folders", {"entries": [entry]})
        body = {"gpus": 1, "duration": 60, "workload": {"command": ["true"]}}
        sync = {"folder": folder["id"], "fetch": ["out"]}
        job = (await self.alice.post("/v1/jobs", json={**body, "sync": sync})).json()["id"]
        await self.call(self.alice, "GET /v1/jobs/{job_id}/files", job_id=job)
        await self.call(self.alice, "GET /v1/jobs/{job_id}/files/data", job_id=job)
        results = {"entries": [{**entry, "path": "out/train.py"}]}
        kept = (await self.alice.put("/v1/uploads/folders", json=results)).json()["id"]
        await self.call(self.alice, "PUT /v1/jobs/{job_id}/results", {"folder": kept}, job_id=job)
        await self.call(self.alice, "GET /v1/jobs/{job_id}/results", job_id=job)
        await self.call(self.alice, "GET /v1/jobs/{job_id}/results/data", query="?skip=0", job_id=job)
        await self.alice.post(f"/v1/jobs/{job}/cancel")

    async def policy(self) -> None:
        await self.call(self.root, "POST /v1/projects", {"name": "vision", "title": "Seeing robots"})
        await self.call(self.root, "PUT /v1/projects/{project}/members/{user}", project="vision", user="alice")
        await self.call(self.root, "GET /v1/projects")
        await self.call(self.root, "GET /v1/projects/{project}", project="vision")
        await self.call(self.root, "PUT /v1/policy/{scope}", {"max_gpus": 4, "max_duration": "P1D"}, scope="default")
        await self.call(self.root, "GET /v1/policy/{scope}", scope="default")
        await self.call(self.root, "GET /v1/policy")
        await self.call(self.alice, "POST /v1/policy/explain", {"gpus": 8, "duration": "P3D"})
        await self.call(self.root, "DELETE /v1/policy/{scope}", scope="default")

    async def jobs(self) -> None:
        body = {
            "gpus": 2,
            "duration": "PT4H",
            "workload": {"command": ["sh", "-c", "echo GPUs $CUDA_VISIBLE_DEVICES; sleep 1h"]},
        }
        job = (await self.call(self.alice, "POST /v1/jobs", {"name": "train", **body}))["id"]

        async def printed() -> bool:
            runs = (await self.alice.get(f"/v1/jobs/{job}")).json()["status"] == "running"
            return runs and bool((await self.alice.get(f"/v1/jobs/{job}/logs")).text)

        await eventually(printed)
        await self.call(self.alice, "GET /v1/jobs/{job_id}", job_id=job)
        await self.call(self.alice, "GET /v1/jobs/{job_id}/logs", job_id=job)
        await self.call(self.alice, "GET /v1/jobs/{job_id}/spec", job_id=job)
        await self.call(self.alice, "POST /v1/jobs/{job_id}/extend", {"by": "PT1H"}, job_id=job)
        await self.call(self.alice, "PUT /v1/jobs/{job_id}/shares/{user}", job_id=job, user="bob")
        await self.call(self.alice, "DELETE /v1/jobs/{job_id}/shares/{user}", job_id=job, user="bob")
        await self.call(self.alice, "GET /v1/jobs/{job_id}/connections", job_id=job)
        array = (await self.alice.post("/v1/jobs", json={"name": "sweep", **body, "array": {"size": 2}})).json()["id"]
        await self.call(self.alice, "GET /v1/jobs/{job_id}/elements", job_id=array)
        await self.alice.post(f"/v1/jobs/{array}/cancel")
        await self._use_gpus(job)
        await self._leave_gpus_idle(job)
        sleeping = Program(("sleep", "1h"), Terminal(), person="alice")
        program = await self.runtime.pod_streams.run(PodName(job, 1, 0), sleeping)
        await self.call(self.alice, "GET /v1/jobs/{job_id}/terminals", job_id=job)
        await program.close()
        socket = HTTPStatus.UPGRADE_REQUIRED  # an ordinary request can't ask for one
        await self.call(self.alice, "GET /v1/jobs/{job_id}/exec", job_id=job, query="?command=hostname", status=socket)
        await self.call(self.alice, "GET /v1/jobs/{job_id}/forward/{port}", job_id=job, port="8888", status=socket)
        await self.call(self.alice, "GET /v1/ssh", status=socket)
        async with httpx.AsyncClient(
            transport=self.alice._transport, base_url="http://localhost:8080", headers=self.alice.headers
        ) as here:
            here.headers["Host"] = "localhost:8080"
            await self.call(here, "POST /v1/jobs/{job_id}/app-tickets", {"port": 8888}, job_id=job)
        await self.call(self.alice, "GET /v1/gpus", query="?limit=1")
        waiting = await self.alice.post("/v1/jobs", json={**body, "gpus": 4, "nodes": 2})

        async def has_place() -> bool:
            return bool((await self.alice.get(f"/v1/jobs/{waiting.json()['id']}")).json()["promised_start_at"])

        await eventually(has_place)
        await self.call(self.alice, "GET /v1/queue")
        await self.call(self.alice, "GET /v1/jobs", query="?limit=1")
        await self.call(self.alice, "POST /v1/jobs/{job_id}/cancel", job_id=waiting.json()["id"])
        await self.call(self.alice, "GET /v1/jobs/{job_id}/events", job_id=waiting.json()["id"])
        await self.alice.post(f"/v1/jobs/{job}/cancel")

        async def ended() -> bool:
            return (await self.alice.get(f"/v1/jobs/{job}")).json()["status"] == "cancelled"

        await eventually(ended)

    async def _use_gpus(self, job: str) -> None:
        """As if the GPUs of a running job had been sampled now."""
        now = self.runtime.clock.now()
        [allocation] = (await self.alice.get(f"/v1/jobs/{job}")).json()["allocations"]
        processes = (GpuProcess(4711, None),)
        samples = [
            GpuSample(uuid, now, 0.87, 61 * 2**30, 80 * 2**30, 412.5, 64, 0, None, processes)
            for uuid in allocation["gpu_uuids"][:1]
        ]
        await store_samples(self.runtime.uow, samples)
        await self.call(self.alice, "GET /v1/jobs/{job_id}/metrics", job_id=job, query="?step=60")
        await self.call(self.alice, "GET /v1/gpus/use", query="?limit=1")
        query = f"?from={self.at(-48)}&step=3600"
        await self.call(self.alice, "GET /v1/nodes/{node}/metrics", node=allocation["node"], query=query)

    async def _leave_gpus_idle(self, job: str) -> None:
        """As if it had been warned."""
        async with self.runtime.uow() as uow:
            row = (await uow.reservations.lock([job]))[job]
            now = self.runtime.clock.now()
            warning = IdleWarning(now - timedelta(hours=1), now, now + timedelta(minutes=30))
            change = decide(row, GpusIdle(warning), now)
            assert change is not None
            await uow.reservations.apply([change])
        await self.call(self.alice, "POST /v1/jobs/{job_id}/keep", job_id=job)

    async def bookings(self) -> None:
        body = {"gpus": 4, "nodes": 2, "start": self.at(0), "duration": "PT4H", "title": "thesis"}
        booking = (await self.call(self.alice, "POST /v1/bookings", body))["id"]
        await self.call(self.alice, "GET /v1/bookings", query="?limit=1")
        await self.call(self.alice, "GET /v1/bookings/{booking_id}", booking_id=booking)
        await self.call(self.alice, "PATCH /v1/bookings/{booking_id}", {"title": "my thesis"}, booking_id=booking)
        span = f"from={self.at(0)}&to={self.at(8)}"
        await self.call(self.alice, "GET /v1/bookings/slots", query=f"?gpus=2&duration=PT2H&{span}&limit=1")
        await self.call(self.alice, "GET /v1/availability", query=f"?{span}&step=PT4H")
        feed = await self.call(self.alice, "POST /v1/bookings/feed")
        await self.call(self.alice, "GET /v1/bookings.ics", query=f"?{feed['path'].partition('?')[2]}")
        await self.call(self.alice, "DELETE /v1/bookings/feed")
        offers = [await self._offered({**body, "gpus": 1, "nodes": 1, "wait": True, "title": title}) for title in "ab"]
        await self.call(self.alice, "DELETE /v1/bookings/{booking_id}", booking_id=booking)
        for offer in offers:
            await eventually(lambda offer=offer: self._is_offered(offer))
        await self.call(self.bob, "POST /v1/bookings/{booking_id}/accept", booking_id=offers[0])
        await self.call(self.bob, "POST /v1/bookings/{booking_id}/decline", booking_id=offers[1])

    async def _offered(self, body: dict[str, Any]) -> str:
        return str((await self.bob.post("/v1/bookings", json=body)).raise_for_status().json()["id"])

    async def _is_offered(self, booking: str) -> bool:
        return bool((await self.bob.get(f"/v1/bookings/{booking}")).json()["status"] == "offered")

    async def nodes(self) -> None:
        await self.call(self.alice, "GET /v1/nodes", query="?limit=1")
        await self.call(self.root, "POST /v1/nodes/{node}/cordon", {"reason": "A fan is loud."}, node="node1")
        await self.call(self.root, "POST /v1/nodes/{node}/uncordon", node="node1")
        await self.call(
            self.root,
            "POST /v1/nodes/{node}/gpus/{index}/quarantine",
            {"reason": "Xid 79 again."},
            node="node1",
            index="0",
        )
        await self.call(self.root, "POST /v1/nodes/{node}/gpus/{index}/release", node="node1", index="0")
        window = {"node": "node1", "start": self.at(6), "duration": "PT2H", "reason": "New fans."}
        made = await self.call(self.root, "POST /v1/maintenance", window)
        await self.call(self.alice, "GET /v1/maintenance")
        await self.call(self.alice, "GET /v1/maintenance/{window_id}", window_id=made["id"])
        await self.call(self.root, "DELETE /v1/maintenance/{window_id}", window_id=made["id"])
        pod = UnknownPod(
            POD, "job-nobody", "node1", (0,), "The ledger has no reservation of this name.", self.runtime.clock.now()
        )
        async with self.runtime.uow() as uow:
            await uow.unknown_pods.report([pod])
        await self.call(self.root, "GET /v1/pods/unknown")
        await self.call(self.root, "POST /v1/pods/unknown/{pod}/end", pod=POD)

    async def silent_node(self) -> None:
        await self.call(self.root, "POST /v1/nodes/{node}/fence", {"reason": "The fuse blew."}, node="node2")
        await self.call(self.root, "POST /v1/nodes/{node}/unfence", node="node2")

    async def notifications(self, mails: MailBox, receiver: Receiver) -> None:
        targets = "POST /v1/notifications/targets"
        hook = await self.call(self.alice, targets, {"channel": "webhook", "address": receiver.url("/hook")})
        mail = await self.call(self.alice, targets, {"channel": "email", "address": "alice@lab.example"})
        await eventually(lambda: mails.mails)
        code = next(word for word in str(mails.mails[0]).split() if word.startswith("code-"))
        one = "/v1/notifications/targets/{target_id}"
        await self.call(self.alice, f"POST {one}/verify", {"code": code}, target_id=mail["id"])
        await self.call(self.alice, f"POST {one}/test", target_id=hook["id"])
        await self.call(self.alice, "GET /v1/notifications/targets")
        await self.call(self.alice, f"DELETE {one}", target_id=hook["id"])
        await self.call(self.alice, "PUT /v1/notifications/preferences", {"kinds": {"started": ["email"]}})
        await self.call(self.alice, "GET /v1/notifications/preferences")

    async def services(self) -> None:
        asked = {"user": "alice", "namespace": "lab"}
        await self.call(self.root, "POST /v1/schedulability", asked)
        pods = [{**asked, "name": "train-0", "uid": "4c7d0b9e", "gpus": 1}]
        await self.call(self.root, "POST /v1/schedulability/admissions", {"pods": pods})
        await self.call(self.root, "POST /gpu-schedulability/", {"user_email": "alice", "namespace": "lab"})
        for path in ("/healthz", "/readyz", "/metrics"):
            await self.call(self.root, f"GET {path}")

    async def history(self) -> None:
        await self.call(self.root, "GET /v1/usage")
        await self.call(self.root, "POST /v1/simulations", SIMULATION)
        await self.call(self.root, "GET /v1/search", query="?q=train")
        await self.call(self.root, "GET /v1/events", query="?limit=1")
        await self.call(self.root, "GET /v1/events/chain", query="?limit=1")
        await self.call(self.root, "GET /v1/events/chain/head")
        async with self.runtime.uow() as uow:
            await uow.queue.send(QueueName.GPU_JOBS, [{"v": 1, "kind": "changed"}])

        async def given_up() -> bool:
            return bool((await self.root.get("/v1/dead-letters?queue=gpu_jobs")).json()["items"])

        await eventually(given_up)
        await self.call(self.root, "GET /v1/dead-letters", query="?queue=gpu_jobs")
        await self.call(self.root, "POST /v1/dead-letters/{queue}/redrive", queue="gpu_jobs")
        await self.call(self.root, "DELETE /v1/projects/{project}/members/{user}", project="vision", user="alice")
        await self.call(self.root, "DELETE /v1/projects/{project}", project="vision")
