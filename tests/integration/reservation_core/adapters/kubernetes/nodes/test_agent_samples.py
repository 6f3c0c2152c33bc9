"""How node agents tell the use of their GPUs, and how the processor asks them, over HTTP and an API server."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import Response
from starlette.middleware.base import RequestResponseEndpoint
from starlette.requests import Request
from structlog.testing import capture_logs

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server.retries import MERGE_PATCH, Transport
from reservation_core.adapters.kubernetes.nodes import agent_samples
from reservation_core.adapters.kubernetes.nodes.agent_samples import AgentSamples
from reservation_core.domain.gpu_use.samples import GpuProcess, GpuSample
from reservation_core.runtime.http.serving import open_socket, serve_beside
from reservation_core.runtime.pods import sample_server
from reservation_core.runtime.pods.node_agent import serving_samples
from reservation_core.runtime.pods.sample_server import create_app
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.settings.components import NodeAgentSettings
from reservation_core.runtime.settings.http import HttpSettings
from tests.clocks import START
from tests.kubernetes.api_server import ApiServer
from tests.programs.ports import own_port
from tests.waiting import eventually

READY = {"type": "Ready", "status": "True"}
LATER = START.replace(year=2030)


class Seen:
    """A driver that sees these GPUs, and how often it was asked."""

    def __init__(self, *uuids: str) -> None:
        self.uuids = uuids
        self.looks = 0

    async def look(self, at: datetime) -> Sequence[GpuSample]:
        self.looks += 1
        return [GpuSample(uuid, at, 0.5, 2**30, 2**36, processes=(GpuProcess(7, None),)) for uuid in self.uuids]

    def begin(self) -> None:
        """Nothing is remembered."""

    async def close(self) -> None:
        """Nothing is open."""


class Agents:
    """Agents of nodes as the API server lists them, one at each loopback address and all at one port."""

    def __init__(self, server: ApiServer, transport: Transport, namespace: str, closing: AsyncExitStack) -> None:
        self._server, self._closing, self._namespace = server, closing, namespace
        self.port = own_port()
        self.samples = AgentSamples(transport, namespace, self.port)

    async def add(self, node: str, host: str, app: FastAPI | None, *, phase: str = "Running") -> None:
        """A pod of an agent; nobody listens there without an application."""
        if app is not None:
            opened = open_socket(f"{host}:{self.port}")
            work = serve_beside(app, opened, "samples", HttpSettings())
            await self._closing.enter_async_context(beside(work, name=node))
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        metadata = {"name": f"agent-{node}", "labels": {"app.kubernetes.io/name": "node-agent"}}
        spec = {"nodeName": node, "containers": [{"name": "agent", "image": "registry.test/agent:1"}]}
        async with self._server.client() as client:
            await client.call("POST", path, {"metadata": metadata, "spec": spec})
            status = {"phase": phase, "podIP": host, "podIPs": [{"ip": host}], "conditions": [READY]}
            await client.call("PATCH", f"{path}/agent-{node}/status", {"status": status}, content_type=MERGE_PATCH)


@pytest.fixture
async def agents(api_server: ApiServer, transport: Transport, namespace: str) -> AsyncIterator[Agents]:
    async with AsyncExitStack() as closing:
        agents = Agents(api_server, transport, namespace, closing)
        yield agents
        await agents.samples.close()


def answering(content: bytes, status: int = 200) -> FastAPI:
    app = FastAPI()

    @app.get("/samples")
    async def samples() -> Response:
        return Response(content, status)

    return app


async def test_each_agent_speaks_of_its_own_node_as_of_the_look(agents: Agents) -> None:
    await agents.add("node-a", "127.0.0.2", create_app(Seen("GPU-a0", "GPU-a1"), SystemClock()))
    await agents.add("node-b", "127.0.0.3", create_app(Seen("GPU-b0"), SystemClock()))
    await agents.add("node-c", "127.0.0.4", create_app(None, SystemClock()))
    await agents.add("node-d", "127.0.0.5", None, phase="Pending")
    found = await agents.samples.look(LATER)
    assert {(sample.uuid, sample.node) for sample in found} == {
        ("GPU-a0", "node-a"), ("GPU-a1", "node-a"), ("GPU-b0", "node-b"),
    }  # fmt: skip
    assert {sample.at for sample in found} == {LATER}
    assert found[0].processes == (GpuProcess(7, None),)


@pytest.mark.parametrize(
    "app",
    [
        None,
        answering(b"nothing that is JSON"),
        answering(b'[{"uuid": "GPU-b0", "at": "2030-01-01T00:00:00Z", "utilisation": 7}]'),
        answering(b'[{"uuid": "GPU-\xff", "at": "2030-01-01T00:00:00Z"}]'),
        answering(b'[{"uuid": "GPU-\\u0000", "at": "2030-01-01T00:00:00Z"}]'),
        answering(b'[{"x": ' + b"[" * 10_000),
        answering(b"[" + b" " * agent_samples._MOST_BYTES + b"]"),
        answering(b"[" + b",".join([b'{"uuid": "GPU-b", "at": "2030-01-01T00:00:00Z"}'] * 129) + b"]"),
        answering(b"[]", 500),
    ],
    ids=["nobody", "no JSON", "implausible", "no UTF-8", "no text", "too deep", "too long", "too many", "an error"],
)
async def test_an_agent_without_a_good_answer_has_no_samples_and_the_log_says_so_once(
    agents: Agents, app: FastAPI | None
) -> None:
    await agents.add("node-a", "127.0.0.2", create_app(Seen("GPU-a0"), SystemClock()))
    await agents.add("node-b", "127.0.0.3", app)
    with capture_logs() as logs:
        for _ in range(2):
            assert [sample.uuid for sample in await agents.samples.look(LATER)] == ["GPU-a0"]
    assert [(line["event"], line["nodes"]) for line in logs] == [("node agents do not answer with samples", ["node-b"])]


class Failing(Seen):
    """A driver that reports an Xid error once, at the second look. At the `silent` look no GPU answers."""

    def __init__(self, *uuids: str, silent: int | None = None) -> None:
        super().__init__(*uuids)
        self.silent = silent

    async def look(self, at: datetime) -> Sequence[GpuSample]:
        found = await super().look(at)
        if self.looks == self.silent:
            return []
        return [replace(sample, xid=79) for sample in found] if self.looks == 2 else found


def losing(number: int | None, driver: Seen) -> FastAPI:
    """An agent whose answer of this number is lost."""
    app, questions = create_app(driver, SystemClock()), 0

    @app.middleware("http")
    async def lose(request: Request, answer: RequestResponseEndpoint) -> Response:
        nonlocal questions
        questions += 1
        found = await answer(request)
        return Response(b"lost", 502) if questions == number else found

    return app


@pytest.mark.parametrize(
    ("lost", "silent", "told"),
    [
        (2, None, [[None], [], [79], [None], [None]]),
        (2, 3, [[None], [], [], [79], [None]]),
        (None, 3, [[None], [79], [], [None], [None]]),
    ],
    ids=["an answer is lost", "an answer is lost and the GPU is silent then", "the GPU is silent then"],
)
async def test_an_xid_error_arrives_once(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, lost: int | None, silent: int | None, told: list[list[int | None]]
) -> None:
    monkeypatch.setattr(sample_server, "_LASTS_S", 0.0)
    await agents.add("node-a", "127.0.0.2", losing(lost, Failing("GPU-a0", silent=silent)))
    found = [[sample.xid for sample in await agents.samples.look(LATER)] for _ in range(5)]
    assert found == told


async def test_a_leader_that_leads_again_gets_no_xid_error_that_another_one_has(
    agents: Agents, transport: Transport, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_server, "_LASTS_S", 0.0)
    await agents.add("node-a", "127.0.0.2", create_app(Failing("GPU-a0"), SystemClock()))
    again, other = agents.samples, AgentSamples(transport, namespace, agents.port)
    found = []
    for sampler in (again, other, again):
        sampler.begin()
        found += [sample.xid for sample in await sampler.look(LATER)]
    await other.close()
    assert found == [None, 79, None]


async def test_an_agent_that_hangs_delays_a_look_by_its_limit_alone(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_samples, "ANSWER_S", 1.0)
    app, over = FastAPI(), asyncio.Event()

    @app.get("/samples")
    async def samples() -> Response:
        await over.wait()
        return Response(b"[]")

    await agents.add("node-a", "127.0.0.2", app)
    await agents.add("node-b", "127.0.0.3", create_app(Seen("GPU-b0"), SystemClock()))

    async def the_other_is_seen() -> bool:
        """On a busy machine it may take several looks until it answers within the limit, too."""
        return [sample.uuid for sample in await agents.samples.look(LATER)] == ["GPU-b0"]

    await eventually(the_other_is_seen)
    over.set()


async def test_while_agents_can_not_be_listed_those_of_the_last_list_are_asked(
    agents: Agents, transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_samples, "_LIST_EVERY_S", 0.0)
    await agents.add("node-a", "127.0.0.2", create_app(Seen("GPU-a0"), SystemClock()))
    assert len(await agents.samples.look(LATER)) == 1
    await transport.close()
    with capture_logs() as logs:
        assert len(await agents.samples.look(LATER)) == 1
    assert [line["event"] for line in logs] == ["the node agents could not be listed"]


async def test_the_driver_is_not_asked_more_often_whoever_asks(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_server, "_LASTS_S", 600)
    driver = Seen("GPU-a0")
    await agents.add("node-a", "127.0.0.2", create_app(driver, SystemClock()))
    for _ in range(3):
        assert len(await agents.samples.look(LATER)) == 1
    assert driver.looks == 1


async def test_an_agent_plays_a_recording_back_for_its_simulated_gpus(agents: Agents, tmp_path: Path) -> None:
    recording = tmp_path / "use.csv"
    recording.write_text("at_s,gpu,utilisation\n0,0,0.25\n1,0,0.25\n")
    said: dict[str, Any] = {"NODE_NAME": "node-a", "local_gpus": "h100:2", "local_use": recording}
    settings = NodeAgentSettings(**said, samples_listen=f"127.0.0.2:{agents.port}")
    async with serving_samples(settings, "node-a"):
        await agents.add("node-a", "127.0.0.2", None)
        [sample] = await agents.samples.look(LATER)
    assert (sample.uuid, sample.utilisation, sample.node) == ("GPU-sim-node-a-0", 0.25, "node-a")
