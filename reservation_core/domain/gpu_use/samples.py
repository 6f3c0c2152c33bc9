"""What one look at a GPU sees. What the driver does not say is None, and never zero."""

from dataclasses import dataclass
from datetime import datetime, timedelta

SAMPLES_KEPT = timedelta(days=1)
MINUTES_KEPT = timedelta(days=30)
"""How long samples and roll-ups of a minute are kept at least; they go by whole days. Those of an hour stay."""

ERRORS_LAST = timedelta(minutes=5)
"""How long an Xid error is shown as a GPU's newest: longer than from one look of a monitor to the next."""

MOST_MEMORY = 2**41 - 2**10
MOST_POWER_W = 10_000
MOST_PROCESSES = 10_000
MOST_CLOCK_MHZ = 100_000
_TEMPERATURES = (-100, 300)
_MOST_ERRORS = 2**31 - 1
_MOST_XID = 2**15 - 1
_LEAST_FRESH = timedelta(minutes=1)
_AHEAD = timedelta(seconds=10)
"""More than clocks of processes differ by: they count the ledger's time."""


class ImplausibleSampleError(ValueError):
    """A value of a sample is out of bounds; the text names it."""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that computes on a GPU; `memory_bytes` is None where the driver does not say."""

    pid: int
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class GpuSample:
    """The use of a GPU at `at` (UTC). Raises ImplausibleSampleError.

    `utilisation` is the part of the time before `at` in which the GPU computed, from 0 to 1. `ecc_uncorrected` counts
    over the GPU's life. `xid` is the last Xid error since the sample before, one of the GPU's own before one that a
    program caused; None: none, or unknown. `throttled`: heat, power or a brake of the hardware lowers the clock. `node`
    is the node whose agent says so, which counts for GPUs of that node alone; None: the GPU is this machine's.
    """

    uuid: str
    at: datetime
    utilisation: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    ecc_uncorrected: int | None = None
    xid: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    clock_mhz: int | None = None
    throttled: bool | None = None
    node: str | None = None

    def __post_init__(self) -> None:
        if not (1 <= len(self.uuid) <= 128 and self.uuid.isascii() and self.uuid.isprintable()):
            raise ImplausibleSampleError("`uuid` must have 1 to 128 printable characters of ASCII.")
        if self.at.utcoffset() != timedelta(0):
            raise ImplausibleSampleError("`at` must be in UTC.")
        _check("utilisation", self.utilisation, 0, 1)
        _check("memory_total", self.memory_total, 0, MOST_MEMORY)
        _check("memory_used", self.memory_used, 0, MOST_MEMORY if self.memory_total is None else self.memory_total)
        _check("power_w", self.power_w, 0, MOST_POWER_W)
        _check("temperature_c", self.temperature_c, *_TEMPERATURES)
        _check("ecc_uncorrected", self.ecc_uncorrected, 0, _MOST_ERRORS)
        _check("xid", self.xid, 1, _MOST_XID)
        _check("processes", None if self.processes is None else len(self.processes), 0, MOST_PROCESSES)
        _check("clock_mhz", self.clock_mhz, 0, MOST_CLOCK_MHZ)


def timely_times(now: datetime) -> tuple[datetime, datetime]:
    """The first and the last time of samples that are taken: those that are still kept, and not of the future."""
    return now - SAMPLES_KEPT, now + _AHEAD


def sample_lasts(every_s: float) -> timedelta:
    """How long a sample says what a GPU does now: a minute, or as long as three samples take."""
    return max(_LEAST_FRESH, 3 * timedelta(seconds=every_s))


def _check(name: str, value: float | None, least: float, most: float) -> None:
    if value is not None and not least <= value <= most:
        raise ImplausibleSampleError(f"`{name}` must be from {least} to {most}, not {value}.")
