"""Samples of the nodes' GPUs, by asking the node agents.

The API server says which pod is the agent of which node, so an agent speaks of its own node alone (see `GpuSample`).
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from ipaddress import ip_address
from typing import Annotated, Any

import aiohttp
import msgspec
import structlog

from reservation_core.adapters.kubernetes.api_server.list_and_watch import list_all
from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping
from reservation_core.adapters.kubernetes.api_server.refusals import explained
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.domain.gpu_use.samples import GpuSample
from reservation_core.ports.cluster import ClusterUnavailableError

LOOK_HEADER = "Gpu-Dev-Look"
"""Has the number of a look, which the next question confirms."""
ANSWER_S = 5.0
"""How long one look waits for the agents, which wait 3 s for their drivers."""
_PATH = "/samples"
_LOOK = re.compile(r"[0-9]{1,18}")
_AGENTS = {"labelSelector": "app.kubernetes.io/name=node-agent", "fieldSelector": "status.phase=Running"}
_LIST_EVERY_S = 60.0
_LIST_AGAIN_S = 5.0
_CONNECTIONS = 1024
_MOST_BYTES = 2**19
_MOST_GPUS = 128
_NAMED = 10
_log = structlog.get_logger(__name__)
_decoder = msgspec.json.Decoder(Annotated[list[GpuSample], msgspec.Meta(max_length=_MOST_GPUS)])


class AgentSamples:
    """Asks the agents at `port` in a namespace, all at once. A node whose agent does not answer has no samples.

    Each agent is told which of its answers arrived last: it repeats the Xid errors of those that did not.
    """

    def __init__(self, transport: Transport, namespace: str, port: int) -> None:
        self._transport = transport
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._port = port
        self._session: aiohttp.ClientSession | None = None
        self._agents: Mapping[str, str] = {}
        self._list_at = 0.0
        self._silent: frozenset[str] = frozenset()
        self._arrived: dict[str, str] = {}

    async def look(self, at: datetime) -> Sequence[GpuSample]:
        """See `ports.gpu_use`. Agents are listed once a minute; without an answer, those of the last list are asked."""
        await self._list_agents()
        answers = await asyncio.gather(*(self._ask(node, host, at) for node, host in self._agents.items()))
        self._note(frozenset(node for node, found in zip(self._agents, answers, strict=True) if found is None))
        return [sample for found in answers for sample in found or ()]

    def begin(self) -> None:
        """Confirm no look that this process had as an earlier leader: errors since may be stored by another one."""
        self._arrived.clear()

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()
        if self._session is not None:
            await self._session.close()

    async def _list_agents(self) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._list_at:
            return
        self._list_at = now + _LIST_AGAIN_S
        try:
            with explained("list", "pods"):
                # From the API server's cache: a minute more or less is of no account.
                query = {**_AGENTS, "resourceVersion": "0"}
                agents, _ = await list_all(self._transport, self._pods, _agent, query, paged=False)
        except ClusterUnavailableError as problem:
            _log.warning("the node agents could not be listed", why=str(problem))
        else:
            self._agents = dict(agents)
            self._arrived = {node: look for node, look in self._arrived.items() if node in self._agents}
            self._list_at = now + _LIST_EVERY_S

    async def _ask(self, node: str, host: str, at: datetime) -> list[GpuSample] | None:
        """The samples of a node, as of `at`; None without a good answer."""
        query = {"after": self._arrived[node]} if node in self._arrived else {}
        address = f"http://{host}:{self._port}{_PATH}"
        try:
            async with self._opened().get(address, params=query, allow_redirects=False) as answer:
                answer.raise_for_status()
                body = bytearray()
                async for chunk in answer.content.iter_any():
                    body += chunk
                    if len(body) > _MOST_BYTES:
                        return None
                look = answer.headers.get(LOOK_HEADER, "")
            samples = [replace(sample, at=at, node=node) for sample in _decoder.decode(body)]
        except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError, ValueError, RecursionError):
            return None  # whatever an agent answers: the others are not concerned
        if _LOOK.fullmatch(look):
            self._arrived[node] = look
        return samples

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS, keepalive_timeout=_LIST_EVERY_S),
                timeout=aiohttp.ClientTimeout(total=ANSWER_S),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _note(self, silent: frozenset[str]) -> None:
        """Log which agents stopped or began to answer."""
        if gone := silent - self._silent:
            _log.warning("node agents do not answer with samples", number=len(gone), nodes=sorted(gone)[:_NAMED])
        if back := (self._silent - silent) & {*self._agents}:
            _log.info("node agents answer with samples again", number=len(back), nodes=sorted(back)[:_NAMED])
        self._silent = silent


def _agent(pod: Mapping[str, Any]) -> tuple[str, str] | None:
    """An agent's node, and its host as in an address; None for one that is not ready, as on a node that is away."""
    conditions = map(as_mapping, as_list(as_mapping(pod.get("status")).get("conditions")))
    ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    if not ready or as_mapping(pod.get("metadata")).get("deletionTimestamp") is not None:
        return None
    node = as_mapping(pod.get("spec")).get("nodeName")
    address = as_mapping(pod.get("status")).get("podIP")
    if not isinstance(node, str) or not isinstance(address, str):
        return None
    try:
        host = ip_address(address)
    except ValueError:
        return None
    return node, f"[{host}]" if host.version == 6 else str(host)
