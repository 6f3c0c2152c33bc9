"""Waking processes, and waiting to be woken."""

from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from enum import StrEnum
from typing import Protocol


class Channel(StrEnum):
    """What a process can be woken for. Wake-ups are hints: whoever waits also sweeps."""

    GPU_JOBS = "gpu_dev_gpu_jobs"
    POD_OPERATIONS = "gpu_dev_pod_operations"
    EVENTS = "gpu_dev_events"
    RESYNC = "gpu_dev_resync"
    NOTIFICATIONS = "gpu_dev_notifications"


class Wakeups(Protocol):
    """Waiting for a channel."""

    def subscribe(self, channel: Channel) -> AbstractAsyncContextManager["Subscription"]:
        """Listen while the block runs."""
        ...


class Subscription(Protocol):
    """One listener's view of a channel. Wake-ups that come while nobody waits are remembered (as one)."""

    async def wait(self, timeout: timedelta) -> bool:
        """True when woken, false when the time ran out."""
        ...
