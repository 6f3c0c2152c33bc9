"""A running session of alice's, and WebSockets into it."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from urllib.parse import urlencode

import pytest
from websockets.asyncio.client import ClientConnection, connect

from reservation_core.domain.model import PodName, PodSpec, PodWorkload
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime
from tests.database.sql import sql
from tests.integration.api_service.callers import People
from tests.integration.api_service.served import Served, serving
from tests.waiting import PATIENCE_S

SUBPROTOCOL = "v5.channel.k8s.io"
Enter = Callable[..., AbstractAsyncContextManager[ClientConnection]]


@pytest.fixture
async def served(runtime: Runtime, settings: ApiSettings) -> AsyncIterator[Served]:
    async with serving(runtime, settings) as api:
        yield api


@pytest.fixture
async def job(runtime: Runtime, people: People) -> str:
    """The id of a session of alice's that runs, named `box`."""
    job_id = runtime.ids.new_id("job")
    now = runtime.clock.now()
    await runtime.cluster.create_pod(
        PodSpec(
            name=PodName(job_id, 1, 0),
            user="alice",
            node=(await runtime.cluster.list_nodes())[0].name,
            gpu_indices=(1,),
            gpu_uuids=(None,),
            workload=PodWorkload(),
            env=(("PATH", "/usr/bin:/bin"), ("CUDA_VISIBLE_DEVICES", "1")),
            deadline=now + timedelta(minutes=30),
            grace=timedelta(seconds=1),
        )
    )
    async with runtime.uow() as uow:
        await sql(
            uow,
            """INSERT INTO reservations (id, kind, user_id, name, status, reason_code, reason, gpus, nodes, duration,
                   priority, workload, created_at, changed_at, attempt, started_at, ends_at)
               VALUES (:id, 'job', :user, 'box', 'running', 'running', 'It runs.', 1, 1, interval '1 hour', 0, '{}',
                   :now, :now, 1, :now, :ends)""",
            id=job_id, user=people.principals["alice"].user_id, now=now, ends=now + timedelta(hours=1),
        )  # fmt: skip
    return job_id


@pytest.fixture
def enter(served: Served, people: People) -> Enter:
    """Open a WebSocket: `enter("box", "exec", command=["true"], by="alice")`."""

    @asynccontextmanager
    async def opened(
        reference: str, way: str, by: str = "alice", *, subprotocol: str | None = SUBPROTOCOL, **query: object
    ) -> AsyncIterator[ClientConnection]:
        secret = people.secrets[by]
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        address = f"{served.base_url.replace('http', 'ws')}/v1/jobs/{reference}/{way}?{urlencode(query, doseq=True)}"
        protocols = [subprotocol] if subprotocol and way.startswith("exec") else None
        async with connect(
            address, additional_headers=headers, subprotocols=protocols, proxy=None, open_timeout=PATIENCE_S
        ) as socket:
            yield socket

    return opened


async def results(socket: ClientConnection) -> tuple[bytes, bytes, int | str]:
    """Output, errors, and the exit code or why there is none."""
    outputs = {1: b"", 2: b""}
    async for message in socket:
        assert isinstance(message, bytes)
        if message[0] == 3:
            status = json.loads(message[1:])
            if status["status"] == "Success":
                return outputs[1], outputs[2], 0
            causes = status.get("details", {}).get("causes", [])
            return outputs[1], outputs[2], int(causes[0]["message"]) if causes else status["message"]
        outputs[message[0]] += message[1:]
    raise AssertionError(f"no status came, only {outputs}")
