"""Terms of requests for GPUs: CPUs, arrays, retries, preemption, signals, and in what another request differs."""

import re
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from reservation_core.domain.short_durations import written

MOST_RETRIES = 100
"""So often a job may ask to be retried."""
REQUEUES = 10
"""So often a job is requeued whose owner does not say how often."""
LARGEST_ARRAY = 10_000
"""So many elements an array may have."""
_WRITTEN = re.compile(r"([0-9]{1,9})-([0-9]{1,9})(?:%([0-9]{1,9}))?")
_MEANT = re.compile(r"(?:([0-9]{1,9})(?:-|:|\.\.))?([0-9]{1,9})(?:%([0-9]{1,9}))?")
_FORMS = "Write 0-N for N + 1 elements, or 0-N%M to run at most M of them at once, such as 0-99%8."


class RetryCause(StrEnum):
    """Ends that a job may be retried after: its command failed, its node was lost, or its GPUs were taken away."""

    FAILED = "failed"
    NODE_LOST = "node_lost"
    PREEMPTED = "preempted"


class Retries(NamedTuple):
    """How often a job is retried at most, and after which ends."""

    max: int
    on: frozenset[RetryCause]


LONGEST_SIGNAL_LEAD = timedelta(hours=1)
"""So long before its end a job gets its signal at most."""


class SignalName(StrEnum):
    """The signals that a job may get before its end. The end itself is SIGTERM, then SIGKILL."""

    USR1 = "USR1"
    USR2 = "USR2"
    INT = "INT"
    HUP = "HUP"
    QUIT = "QUIT"
    ALRM = "ALRM"
    CONT = "CONT"
    TERM = "TERM"


class EndSignal(NamedTuple):
    """The signal that a job gets so long before it is ended."""

    signal: SignalName
    before: timedelta


def read_end_signal(text: str) -> tuple[SignalName, int] | None:
    """A signal and seconds from `USR1@300`, `SIGUSR1@300` or `USR1` (a minute before); None for other text."""
    name, at, seconds = text.strip().upper().removeprefix("SIG").partition("@")
    if name not in SignalName.__members__ or (at and not (seconds.isascii() and seconds.isdecimal())):
        return None
    return SignalName[name], int(seconds) if at else 60


def written_end_signal(signal: SignalName, before: timedelta) -> str:
    """A signal as `read_end_signal` reads it."""
    return f"{signal.value}@{int(before.total_seconds())}"


LONGEST_MIN_RUNTIME = timedelta(hours=4)
"""So long a preemptible job keeps its GPUs at most, beside all quotas and whoever waits for them."""


def fault_of_preemption(
    preemptible: bool, min_runtime: timedelta | None, duration: timedelta, booking_id: str | None
) -> str | None:
    """Why a job can't be asked for like this; None where it can."""
    if min_runtime is not None and not preemptible:
        return "min_runtime: only a preemptible job has one; make the job preemptible, or leave it out"
    if min_runtime is not None and min_runtime > duration:
        return f"min_runtime: must be at most the duration, {written(duration)}"
    if min_runtime is not None and min_runtime > LONGEST_MIN_RUNTIME:
        longest = written(LONGEST_MIN_RUNTIME)
        return f"min_runtime: must be at most {longest}, as it counts for no quota; leave preemption out for longer"
    if preemptible and booking_id is not None:
        return (
            "preemptible: a job in a booking has the booking's GPUs and gives them to nobody; leave out one of the two"
        )
    return None


MILLI = 1000
"""CPUs are counted in thousandths."""
MOST_CPUS = 10_000
MOST_MEMORY = 2**50
_BYTES = re.compile(r"([0-9]{1,16})(?:\.([0-9]{1,3}))? ?([kKMGTP]i?)?B?")
_PREFIXES = "KMGTP"


def read_bytes(text: str) -> int | None:
    """Bytes from text such as `64Gi`, `64 GiB`, `1.5G` or `1000`; None where it is no amount."""
    match = _BYTES.fullmatch(text)
    if match is None or (match[2] and not match[3]):
        return None
    unit = match[3] or ""
    power = _PREFIXES.index(unit[0].upper()) + 1 if unit else 0
    size = int((1024 if unit.endswith("i") else 1000) ** power)
    thousandths = int(f"{match[2] or '':0<3}")
    return int(match[1]) * size - (-thousandths * size // 1000)


def written_bytes(size: int | None) -> str | None:
    """Bytes as `read_bytes` reads them, exactly: `64Gi`, `1000`."""
    if size is None:
        return None
    power = max(power for power in range(len(_PREFIXES) + 1) if size % 1024**power == 0)
    return f"{size // 1024**power}{_PREFIXES[power - 1]}i" if power else str(size)


def size_words(size: int) -> str:
    """Bytes for people, to the tenth: `1.5 TiB`, `64 GiB`, `61 MiB`, `4 KiB`, `512 bytes`."""
    units = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
    unit, name = next((unit for unit in units if size >= unit[0]), (1, "byte" if size == 1 else "bytes"))
    return f"{size / unit:.1f}".removesuffix(".0") + f" {name}"


class Share(NamedTuple):
    """What a job asks for of each of its nodes: thousandths of a CPU, and bytes. None: the share that its GPUs are."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None


def share_words(share: Share) -> str:
    """Format a share of a node, such as `16 CPUs and 64 GiB of memory`."""
    parts = []
    if share.cpu_milli is not None:
        parts.append("1 CPU" if share.cpu_milli == MILLI else f"{share.cpu_milli / MILLI:g} CPUs")
    if share.memory_bytes is not None:
        parts.append(f"{size_words(share.memory_bytes)} of memory")
    return " and ".join(parts)


UNSAID = Share()


class Resources(NamedTuple):
    """What a job asks for on each of its nodes beside GPUs. `shm_bytes` of its memory are for /dev/shm."""

    share: Share = UNSAID
    shm_bytes: int | None = None

    @property
    def asked(self) -> Share | None:
        """Its share, if it asks for one."""
        return None if self.share == UNSAID else self.share


CPU_TYPE = "cpu"
"""The queue of jobs without GPUs; no GPU has this type."""
CPU_JOB_SHARE = Share(1000, 2 * 2**30)
"""What a job without GPUs has that does not say how much it needs."""


def fault_of_cpu_job(
    gpus: int, nodes: int, gpu_type: str | None, booking_id: str | None, *, preemptible: bool
) -> str | None:
    """Why a job without GPUs can't be asked for like this; None where it can, or has GPUs."""
    if gpus > 0:
        return "gpu_type: no GPU has the type `cpu`; ask for 0 GPUs instead" if gpu_type == CPU_TYPE else None
    if nodes > 1:
        return "nodes: a job without GPUs runs on one node; submit several, or an array"
    if gpu_type is not None:
        return "gpu_type: a job without GPUs runs on any node; leave out the type, or ask for a GPU"
    if booking_id is not None:
        return "booking_id: a booking is of GPUs, and a job without GPUs needs none; leave out the booking"
    if preemptible:
        return "preemptible: a job without GPUs takes none from others, and gives none back; leave out preemptible"
    return None


def cpu_job_resources(asked: Resources | None) -> Resources:
    """What a job without GPUs has of its node, which has no share that its GPUs are."""
    (cpu_milli, memory), shm = asked or Resources()
    least = CPU_JOB_SHARE.memory_bytes or 0
    share = Share(cpu_milli or CPU_JOB_SHARE.cpu_milli, memory or max(least, shm or 0))
    return Resources(share, shm)


class RequestChange(StrEnum):
    """In what a request differs that would start sooner: it lasts less long, has fewer GPUs, or another type."""

    SHORTER = "shorter"
    FEWER = "fewer"
    TYPE = "type"


class ArrayTerms(NamedTuple):
    """The number of an array's elements, and how many of them may hold GPUs at once; None: all."""

    size: int
    parallel: int | None = None


class ArrayCounts(NamedTuple):
    """How many elements of an array have which status; `running` are those that hold GPUs."""

    queued: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.cancelled + self.expired


def read_array(text: str) -> ArrayTerms:
    """Read `0-N` or `0-N%M`. Raises ValueError with words for people."""
    found = _WRITTEN.fullmatch(text)
    if found is None or int(found[1]) != 0:
        raise ValueError(f"Elements are numbered from 0 on, without gaps. {_array_meant(text) or _FORMS}")
    size, parallel = int(found[2]) + 1, None if found[3] is None else int(found[3])
    if size > LARGEST_ARRAY:
        raise ValueError(f"It has {size} elements; at most {LARGEST_ARRAY} are allowed, as in 0-9999.")
    if parallel is not None and not 1 <= parallel <= LARGEST_ARRAY:
        raise ValueError(f"It runs {parallel} elements at once; allowed are 1 to {LARGEST_ARRAY}.")
    return ArrayTerms(size, parallel)


def _array_meant(text: str) -> str | None:
    """The form of as many elements as `1-10`, `10` or `0..9` names, and how the command gets the other numbers."""
    found = _MEANT.fullmatch(text)
    if found is None:
        return None
    first = int(found[1] or 0)
    size = int(found[2]) - first + (found[1] is not None)
    if size > LARGEST_ARRAY:
        return f"At most {LARGEST_ARRAY} elements are allowed, as in 0-9999."
    if size < 1:
        return None
    parallel = int(found[3] or 0)
    form = written_array(ArrayTerms(size, parallel if 1 <= parallel <= LARGEST_ARRAY else None))
    elements = "1 element" if size == 1 else f"{size} elements"
    return f"Write {form} for {elements}" + (f", and add {first} to the index in the command." if first else ".")


def written_array(terms: ArrayTerms) -> str:
    """How `read_array` reads it."""
    return f"0-{terms.size - 1}" + ("" if terms.parallel is None else f"%{terms.parallel}")


def element_id(array_id: str, index: int) -> str:
    return f"{array_id}.{index}"


def array_of(job_id: str) -> tuple[str, int] | None:
    """The array and the index that the id of an element names; None for other ids."""
    array_id, dot, index = job_id.partition(".")
    return (array_id, int(index)) if dot and index.isascii() and index.isdecimal() else None
