"""The machine's monotonic clock."""

import time


def seconds_since_boot() -> float:
    """Seconds since boot, the same for all processes; on Linux including suspension."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
