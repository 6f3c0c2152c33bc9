"""Keep the last lines of pods that are about to be removed, if the cluster loses a log with its pod.

GPUs never wait for a log: one that can't be read within a few seconds is given up, with an event.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta

from reservation_core.adapters.postgres.unit_of_work import HeldPods
from reservation_core.domain.changes import SYSTEM
from reservation_core.domain.event_kinds import JobEventKind
from reservation_core.domain.model import PodName, PodPhase, PodStatus
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import Cluster, ClusterUnavailableError
from reservation_core.ports.jobs.pod_logs import LONGEST_TAIL, KeptLog

_AT_ONCE = 8


async def keep_tails(
    held: HeldPods, cluster: Cluster, pods: Sequence[PodStatus], clock: Clock, *, lines: int, patience: timedelta
) -> None:
    """Keep the last `lines` lines of pods that ran, unless the cluster keeps logs or they are kept already.

    A running pod's log is read once, and once more when the pod has finished.
    """
    ran = [pod for pod in pods if pod.phase in (PodPhase.RUNNING, PodPhase.FINISHED)]
    if not ran or not lines or not cluster.forgets_logs:
        return
    async with held.work(one_statement=True) as uow:
        known = await uow.pod_logs.kept([pod.name for pod in ran])
    wanted = [pod for pod in ran if pod.name not in known or (pod.phase is PodPhase.FINISHED and not known[pod.name])]
    until = asyncio.get_running_loop().time() + patience.total_seconds()
    lost: list[PodName] = []
    for first in range(0, len(wanted), _AT_ONCE):
        batch = wanted[first : first + _AT_ONCE]
        tails = await asyncio.gather(*(read_tail(cluster, pod.name, lines, until) for pod in batch))
        lost += [pod.name for pod, tail in zip(batch, tails, strict=True) if tail is None]
        logs = [
            KeptLog(pod.name, tail or b"", complete=pod.phase is PodPhase.FINISHED)
            for pod, tail in zip(batch, tails, strict=True)
        ]
        async with held.work(one_statement=True) as uow:
            await uow.pod_logs.keep(logs, clock.now())
    if lost:
        data = {"pods": [str(name) for name in lost]}
        async with held.work(one_statement=True) as uow:
            await uow.events.append(
                actor=SYSTEM, kind=JobEventKind.LOG_NOT_KEPT, at=clock.now(), subject=lost[0].reservation_id, data=data
            )


async def read_tail(cluster: Cluster, name: PodName, lines: int, until: float, *, follow: bool = False) -> bytes | None:
    """The tail of a pod's log, with `follow` until the pod has ended; None when it could not be read before `until`.

    `until` is the event loop's time.
    """
    kept = bytearray()
    cut = False
    try:
        async with asyncio.timeout_at(until), AsyncExitStack() as closing:
            chunks = cluster.pod_logs(str(name), follow=follow, tail_lines=lines)
            if isinstance(chunks, AsyncGenerator):
                closing.push_async_callback(chunks.aclose)
            async for chunk in chunks:
                kept += chunk
                if len(kept) > 2 * LONGEST_TAIL:
                    del kept[:-LONGEST_TAIL]
                    cut = True
    except (ClusterUnavailableError, TimeoutError):
        return None
    if cut or len(kept) > LONGEST_TAIL:
        del kept[:-LONGEST_TAIL]
        # Begin with a whole line, unless there is only one.
        del kept[: kept.find(b"\n", 0, -1) + 1]
    last = lines + kept.endswith(b"\n")  # a followed log has more than the cluster was asked for
    return b"\n".join(kept.rsplit(b"\n", last)[-last:])
