"""Kubernetes Events about our jobs' pods: their GPUs, and why they are ended."""

import asyncio
import socket

from reservation_core.adapters.kubernetes.api_server.plain_json import format_time
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.other_objects.event_writer import EventWriter, Regarding
from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuAttach
from reservation_core.domain.model import PodSpec, Reason
from reservation_core.domain.statuses import ReasonCode
from reservation_core.ports.clock import Clock

CONTROLLER = "gpu-dev-server"
_PER_S = 5.0
"""While many jobs start at once, their pods matter more to the API server than Events about them."""
_LATE_AT_MOST_S = 30
_NORMAL_ENDS = frozenset(
    {
        ReasonCode.COMPLETED,
        ReasonCode.CANCELLED_BY_USER,
        ReasonCode.CANCELLED_BY_ADMIN,
        ReasonCode.DURATION_REACHED,
        ReasonCode.BOOKING_OVER,
    }
)


class PodEvents:
    """Writes Events in a background task. An Event that can't be written is logged and dropped."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        instance = f"{CONTROLLER}-{socket.gethostname()}"
        self._writer = EventWriter(
            transport, clock, CONTROLLER, instance, per_s=_PER_S, most_waiting=int(_PER_S * _LATE_AT_MOST_S)
        )
        self._writing: asyncio.Task[None] | None = None

    def created(self, spec: PodSpec, about: Regarding, attach: GpuAttach) -> None:
        """Write which GPUs a pod has (their number with `device-plugin`), for which user and until when.

        Not for pods that start while too many Events wait: why pods end matters more.
        """
        if self._writer.is_full():
            self._writer.left_out += 1
            return
        self._write(about, "GPUsAssigned", _assigned(spec, attach), action="Create", warning=False)

    def ending(self, about: Regarding, why: Reason) -> None:
        """Write why an unfinished pod is being ended."""
        reason = "".join(word.title() for word in why.code.value.split("_"))
        self._write(about, reason, why.detail or reason, action="End", warning=why.code not in _NORMAL_ENDS)

    async def close(self) -> None:
        """Drop Events that are not written yet."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    def _write(self, about: Regarding, reason: str, note: str, *, action: str, warning: bool) -> None:
        self._writer.add(about, reason, note, action=action, warning=warning)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._writer.write_all())


def _assigned(spec: PodSpec, attach: GpuAttach) -> str:
    indices, word = spec.gpu_indices, "GPU" if len(spec.gpu_indices) == 1 else "GPUs"
    if not indices:
        gpus = "CPUs and memory"
    elif attach is GpuAttach.DEVICE_PLUGIN:
        gpus = f"{len(indices)} {word}"
    else:
        gpus = f"{word} {','.join(str(index) for index in indices)}"
    rank = f", pod {spec.name.rank} of {spec.pods}" if spec.pods > 1 else ""
    until = "" if spec.ends_at is None else f" until {format_time(spec.ends_at)}"
    return f"{gpus} of node {spec.node}{until}, for {spec.user}'s {spec.name.reservation_id}{rank}"
