"""Reading a pod's log through the API: whole, its last lines, or as it is written."""

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

_SILENCE_S = 60.0  # a job that prints nothing looks like a broken network: ask again from where we are
_STALLED_S = 10.0  # what was printed already comes at once
_STALLS = 2  # in a row: then it is told, and not asked for again and again
_FAILURES = 3  # in a row, without a byte between them
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


async def read_log(
    transport: Transport, pods_path: str, name: str, *, follow: bool, tail_lines: int | None
) -> AsyncGenerator[bytes, None]:
    """A pod's output in chunks; with `follow` until the pod has finished or is gone.

    Empty for a pod that is not there. A pod that has not started is waited for with `follow`. Raises
    ClusterUnavailableError when the log can't be read for longer than retries help, or does not go on though all of it
    has been printed, and ApiError where reading is not allowed.
    """
    path = f"{pods_path}/{quote(name, safe='')}"
    position = LogPosition()
    since: str | None = None
    failures, stalls, pause = 0, 0, _FIRST_PAUSE_S
    while True:
        over = broken = False
        try:
            # Asked before reading: what is printed before the end is there to be read after it.
            over = not follow or await _is_over(transport, path)
            query: Query = {
                "container": CONTAINER,
                "follow": follow and not over,
                "timestamps": True,
                "sinceTime": since,
                "tailLines": tail_lines if since is None else None,
            }
            # A kubelet answers with the first line: with `follow`, that is when the job prints one.
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
            stalls += over  # whoever still runs may have nothing to say
            if stalls >= _STALLS:
                raise ClusterUnavailableError(
                    f"The log of pod {name} did not go on for {_STALLS * _STALLED_S:g} s though there is more of it, or"
                    " its end. Ask again; if that does not help, look at the kubelet of its node."
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
