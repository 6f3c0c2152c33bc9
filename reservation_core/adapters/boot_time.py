"""The machine's monotonic clock."""

import time


def seconds_since_boot() -> float:
    """Return seconds since the boot: one clock for all processes. On Linux it counts while the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
