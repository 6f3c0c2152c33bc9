"""Whether the errors of a GPU are reason enough for its quarantine. No data is never a reason."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

ERRORS_KEPT = timedelta(days=7)
"""How long errors are kept, and the longest window of a rule."""
PROGRAM_XIDS = frozenset({13, 31, 43, 45, 68, 69, 94})
"""Xid errors that programs cause, or that end a program and leave the GPU as it is, by NVIDIA's catalogue."""
GAP = timedelta(minutes=1)
"""Errors less than this after the first of an occasion belong to it: one fault is reported several times."""
ECC_FROM = timedelta(minutes=5)
"""How old the count before may be from which the growth of ECC errors is told."""
_NAMED = 5


@dataclass(frozen=True, slots=True)
class GpuError:
    """An error of a GPU: an Xid error, or by how much its count of uncorrected ECC errors grew, or both."""

    at: datetime
    xid: int | None = None
    ecc_errors: int | None = None

    @property
    def is_gpus_own(self) -> bool:
        """Whether the GPU is at fault: a program that failed says nothing about it."""
        return bool(self.ecc_errors) or (self.xid is not None and self.xid not in PROGRAM_XIDS)

    def __str__(self) -> str:
        words = [] if self.xid is None else [f"Xid {self.xid}"]
        return " and ".join(words + ([f"{self.ecc_errors} uncorrected ECC"] if self.ecc_errors else []))


@dataclass(frozen=True, slots=True)
class QuarantineRule:
    """A GPU is quarantined after so many occasions of errors within `window`."""

    occasions: int
    window: timedelta


def worse_xid(before: int | None, xid: int) -> int:
    """Which of two Xid errors to keep: the later one, but one of the GPU's own before one that a program caused.

    A fault of the GPU also ends its programs, which the driver reports after it.
    """
    return xid if before is None or xid not in PROGRAM_XIDS or before in PROGRAM_XIDS else before


def quarantine_reason(errors: Iterable[GpuError], rule: QuarantineRule, now: datetime) -> str | None:
    """Why a GPU is to be quarantined; None where its errors are too few."""
    firsts = _occasions(error for error in errors if now - rule.window < error.at <= now and error.is_gpus_own)
    if len(firsts) < rule.occasions:
        return None
    named = firsts[-_NAMED:]
    more = f"{len(firsts) - len(named)} more, " if len(firsts) > len(named) else ""
    told = ", ".join(f"{error} at {error.at:%Y-%m-%dT%H:%M:%SZ}" for error in named)
    return f"{len(firsts)} errors within {_hours(rule.window)}: {more}{told}"


def _occasions(errors: Iterable[GpuError]) -> Sequence[GpuError]:
    """The first error of each occasion, in order."""
    firsts: list[GpuError] = []
    for error in sorted(errors, key=lambda error: error.at):
        if not firsts or error.at - firsts[-1].at >= GAP:
            firsts.append(error)
    return firsts


def _hours(window: timedelta) -> str:
    return f"{window.total_seconds() / 3600:g} h"
