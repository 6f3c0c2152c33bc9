"""How long jobs really ran: what starts of waiting jobs are predicted from."""

from datetime import datetime
from typing import NamedTuple


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
