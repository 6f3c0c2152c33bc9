"""Read a pod's log through the API: whole, its last lines, or as it is written."""

import asyncio
from collections.abc import AsyncGenerator
from urllib.parse import quote

from reservation_core.adapters.kubernetes.api_server.errors import InvalidError, ObjectNotFoundError
from reservation_core.adapters.kubernetes.api_server.requests import Query
from reservation_core.adapters.kubernetes.api_server.retries import SilentStreamError, Transport
from reservation_core.adapters.kubernetes.jobs.log_positions import LogPosition
from reservation_core.adapters.kubernetes.pods.built_pods import CONTAINER
from reservation_core.adapters.kubernetes.pods.pod_statuses import is_finished
from reservation_core.ports.cluster import ClusterUnavailableError

_SILENCE_S = 60.0  # a silent job looks like a broken network: reconnect at the same position
_STALLED_S = 10.0  # a finished log arrives without pauses
_STALLS = 2  # in a row, before an error is raised
_FAILURES = 3  # in a row, without a byte between them
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


async def read_log(
    transport: Transport, pods_path: str, name: str, *, follow: bool, tail_lines: int | None
) -> AsyncGenerator[bytes, None]:
    """A pod's output in chunks; with `follow` from its start until the pod has finished or is gone.

    Empty for a missing pod. Raises ClusterUnavailableError when retries fail or the log of a finished pod stalls, and
    ApiServerError where reading is not allowed.
    """
    path = f"{pods_path}/{quote(name, safe='')}"
    position = LogPosition()
    since: str | None = None
    failures, stalls, pause = 0, 0, _FIRST_PAUSE_S
    while True:
        over = broken = False
        try:
            # The pod is read first: once it has finished, its log is complete.
            over = not follow or await _is_over(transport, path)
            query: Query = {
                "container": CONTAINER,
                "follow": follow and not over,
                "timestamps": True,
                "sinceTime": since,
                "tailLines": tail_lines if since is None else None,
            }
            # With `follow` a kubelet sends the head with the job's first line.
            idle_s = _STALLED_S if over else _SILENCE_S
            async with transport.stream(f"{path}/log", query=query, idle_s=idle_s, begins_late=not over) as chunks:
                async for chunk in chunks:
                    text = position.feed(chunk)
                    if text:
                        failures, stalls, pause = 0, 0, _FIRST_PAUSE_S
                        yield text
        except ObjectNotFoundError:
            return
        except InvalidError:
            pass  # 400: no container has started yet, so there is nothing to read
        except SilentStreamError as silence:
            broken = True
            stalls += over  # a running job may be silent
            if stalls >= _STALLS:
                raise ClusterUnavailableError(
                    f"The log of pod {name} sent nothing for {_STALLS * _STALLED_S:g} s, although it has not ended."
                    " Ask again; if that does not help, check the kubelet of its node."
                ) from silence
        except ClusterUnavailableError:
            failures += 1
            broken = True
            if failures >= _FAILURES or transport.closed:
                raise
        if over and not broken:
            return
        since = position.resume()
        await asyncio.sleep(pause)
        pause = min(_LONGEST_PAUSE_S, pause * 1.5)


async def _is_over(transport: Transport, path: str) -> bool:
    try:
        return is_finished(await transport.request("GET", path))
    except ObjectNotFoundError:
        return True
