"""Signals to the commands of pods, by an exec of the workload's container."""

import asyncio

import structlog

from reservation_core.adapters.kubernetes.api_server.errors import (
    ApiServerError,
    ApiServerForbidsError,
    ObjectNotFoundError,
)
from reservation_core.adapters.kubernetes.api_server.refusals import unavailable
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.sessions.channels import Channel, ChannelSocket
from reservation_core.adapters.kubernetes.sessions.program_starts import PROTOCOLS, exec_query, read_end
from reservation_core.ports.cluster import ClusterUnavailableError

_PATIENCE_S = 30.0
_log = structlog.get_logger(__name__)


async def send_signal(transport: Transport, pods: str, namespace: str, name: str, signal: str) -> None:
    """Signal the first process of a pod's container, which is the command, as the kubelet does at its end.

    An image without `sh` gets none, and a pod that has ended needs none. Raises ClusterUnavailableError.
    """
    query = exec_query(("sh", "-c", f"kill -{signal} 1"), stdin=False, terminal=False)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            socket = ChannelSocket(await transport.open_websocket(f"{pods}/{name}/exec", query, PROTOCOLS))
            try:
                while (received := await socket.receive()) is not None:
                    if received[0] == Channel.STATUS:
                        end = read_end(received[1])
                        if end.exit_code != 0:
                            _log.warning("a pod did not take its signal", pod=name, signal=signal, why=end.detail)
                        return
            finally:
                await socket.close()
    except ObjectNotFoundError:
        return
    except ApiServerForbidsError as error:
        raise unavailable(error, "create", "pods/exec", namespace) from error
    except ApiServerError as error:  # its container does not run, say: then there is nothing to signal
        _log.warning("a pod could not be signalled", pod=name, signal=signal, problem=str(error))
    except TimeoutError as problem:
        raise ClusterUnavailableError(f"Pod {name} did not take a signal within {_PATIENCE_S:g} s.") from problem
