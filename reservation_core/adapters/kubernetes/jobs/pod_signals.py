"""Signals to the commands of pods, by an exec of the workload's container."""

import asyncio
import json

import aiohttp
import structlog

from reservation_core.adapters.kubernetes.api_server.connections import OpenWebSocket
from reservation_core.adapters.kubernetes.api_server.errors import (
    ApiServerError,
    ApiServerForbidsError,
    ObjectNotFoundError,
)
from reservation_core.adapters.kubernetes.api_server.plain_json import as_mapping
from reservation_core.adapters.kubernetes.api_server.refusals import unavailable
from reservation_core.adapters.kubernetes.api_server.requests import Query
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.pods.built_pods import CONTAINER
from reservation_core.ports.cluster import ClusterUnavailableError

_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STATUS = 3
"""The channel of how an exec ended."""

_PATIENCE_S = 30.0
_log = structlog.get_logger(__name__)


async def send_signal(transport: Transport, pods: str, namespace: str, name: str, signal: str) -> None:
    """Signal the first process of a pod's container, which is the command, as the kubelet does at its end.

    An image without `sh` gets none, and a pod that has ended needs none. Raises ClusterUnavailableError.
    """
    command = ("sh", "-c", f"kill -{signal} 1")
    query: Query = {"container": CONTAINER, "stdin": False, "stdout": True, "stderr": True, "command": command}
    try:
        async with asyncio.timeout(_PATIENCE_S):
            problem = await _end_of(await transport.open_websocket(f"{pods}/{name}/exec", query, _PROTOCOLS))
    except ObjectNotFoundError:
        return
    except ApiServerForbidsError as error:
        raise unavailable(error, "create", "pods/exec", namespace) from error
    except ApiServerError as error:  # its container does not run, say: then there is nothing to signal
        problem = str(error)
    except TimeoutError as late:
        raise ClusterUnavailableError(f"Pod {name} did not take a signal within {_PATIENCE_S:g} s.") from late
    if problem is not None:
        _log.warning("a pod did not take its signal", pod=name, signal=signal, problem=problem)


async def _end_of(answer: OpenWebSocket) -> str | None:
    """None for a command that succeeded; else what is wrong with it."""
    try:
        while (message := await answer.raw.receive()).type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
            content = message.data if isinstance(message.data, bytes) else message.data.encode()
            if content[:1] == bytes((_STATUS,)) and len(content) > 1:
                status = as_mapping(json.loads(content[1:]))
                return None if status.get("status") == "Success" else str(status.get("message"))
    finally:
        await answer.let_go()
    return "the API server ended the connection"
