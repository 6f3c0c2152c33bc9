"""Terms of requests for GPUs: arrays of jobs, the retries that a job asks for, and in what another request differs."""

import re
from dataclasses import dataclass
from enum import StrEnum

MOST_RETRIES = 100
"""So often a job may ask to be retried."""
REQUEUES = 10
"""So often a job is requeued whose owner does not say how often."""
LARGEST_ARRAY = 10_000
"""So many elements an array may have."""
_WRITTEN = re.compile(r"([0-9]{1,9})-([0-9]{1,9})(?:%([0-9]{1,9}))?")
_FORMS = "Write 0-N for N + 1 elements, or 0-N%M to run at most M of them at once, such as 0-99%8."


class RetryCause(StrEnum):
    """Ends that a job may be retried after: its command failed, its node was lost, or its GPUs were taken away."""

    FAILED = "failed"
    NODE_LOST = "node_lost"
    PREEMPTED = "preempted"


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a job is retried at most, and after which ends."""

    max: int
    on: frozenset[RetryCause]


class RequestChange(StrEnum):
    """In what a request differs that would start sooner: it lasts less long, has fewer GPUs, or another type."""

    SHORTER = "shorter"
    FEWER = "fewer"
    TYPE = "type"


@dataclass(frozen=True, slots=True)
class ArrayTerms:
    """The number of an array's elements, and how many of them may hold GPUs at once; None: all."""

    size: int
    parallel: int | None = None


@dataclass(frozen=True, slots=True)
class ArrayElement:
    """Which element of which array a job is; `index` counts from 0 to `size` - 1."""

    array_id: str
    index: int
    size: int


@dataclass(frozen=True, slots=True)
class ArrayCounts:
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
        raise ValueError(f"Elements are numbered from 0 on, without gaps. {_FORMS}")
    size, parallel = int(found[2]) + 1, None if found[3] is None else int(found[3])
    if size > LARGEST_ARRAY:
        raise ValueError(f"It has {size} elements; at most {LARGEST_ARRAY} are allowed, as in 0-9999.")
    if parallel is not None and not 1 <= parallel <= LARGEST_ARRAY:
        raise ValueError(f"It runs {parallel} elements at once; allowed are 1 to {LARGEST_ARRAY}.")
    return ArrayTerms(size, parallel)


def written_array(terms: ArrayTerms) -> str:
    """How `read_array` reads it."""
    return f"0-{terms.size - 1}" + ("" if terms.parallel is None else f"%{terms.parallel}")


def element_id(array_id: str, index: int) -> str:
    return f"{array_id}.{index}"


def array_of(job_id: str) -> tuple[str, int] | None:
    """The array and the index that the id of an element names; None for other ids."""
    array_id, dot, index = job_id.partition(".")
    return (array_id, int(index)) if dot and index.isascii() and index.isdecimal() else None
