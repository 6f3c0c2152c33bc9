"""The last lines of pods whose cluster deletes their logs with them."""

from dataclasses import dataclass

from reservation_core.domain.model import PodName

LONGEST_TAIL = 2**20
"""How many bytes of a pod's log are kept."""


@dataclass(frozen=True, slots=True)
class KeptLog:
    """The end of a pod's log, at most LONGEST_TAIL bytes.

    `complete`: the pod had finished when it was read, or no more is expected.
    """

    pod: PodName
    tail: bytes
    complete: bool
