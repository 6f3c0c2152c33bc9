"""Waking processes."""

from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from enum import StrEnum
from typing import Protocol


class Channel(StrEnum):
    """What a process can be woken for. Wake-ups are hints: every receiver also polls."""

    GPU_JOBS = "gpu_dev_gpu_jobs"
    POD_OPERATIONS = "gpu_dev_pod_operations"
    EVENTS = "gpu_dev_events"
    RESYNC = "gpu_dev_resync"
    NOTIFICATIONS = "gpu_dev_notifications"


class Wakeups(Protocol):
    """Subscriptions to channels."""

    def subscribe(self, channel: Channel) -> AbstractAsyncContextManager["Subscription"]:
        """Subscribe while the block runs."""


class Subscription(Protocol):
    """One subscriber of a channel. Wake-ups between waits are remembered as one."""

    async def wait(self, timeout: timedelta) -> bool:
        """True when woken, false after the timeout."""
