"""Users with whom jobs are shared."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShareUser:
    id: int
    name: str
    disabled: bool
