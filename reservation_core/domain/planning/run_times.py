"""How long jobs really ran: what starts of waiting jobs are predicted from."""

from datetime import datetime
from typing import NamedTuple

from reservation_core.domain.statuses import ReasonCode

OWN_ENDS = frozenset(
    {
        ReasonCode.COMPLETED,
        ReasonCode.COMMAND_FAILED,
        ReasonCode.KILLED_BY_SIGNAL,
        ReasonCode.OUT_OF_MEMORY,
        ReasonCode.CANCELLED_BY_USER,
        ReasonCode.DURATION_REACHED,
        ReasonCode.INACTIVE,
        ReasonCode.IDLE,
    }
)
"""Ends of jobs that ran as long as their owners and programs wanted, and not until something else ended them."""


class RunTime(NamedTuple):
    """An ended job of `gpus` GPUs on each of `nodes` nodes: it asked for `asked` seconds and really ran `ran` seconds.

    `owner` is the id of its user; `gpu_type` is the requested type (None: any).
    """

    owner: int
    gpus: int
    nodes: int
    gpu_type: str | None
    asked: float
    ran: float
    ended_at: datetime
