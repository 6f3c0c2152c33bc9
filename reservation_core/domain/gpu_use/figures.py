"""Figures of the use of a GPU in words, as the command line and pages show them."""

from collections.abc import Iterable

_GIB, _MIB = 2**30, 2**20


def memory_figure(used_bytes: float, total_bytes: int | None) -> str:
    """`61 of 80 GiB`; less than 1 GiB in MiB, as memory in use must not look like none."""
    if used_bytes < _GIB:
        used = f"{used_bytes / _MIB:.0f} MiB"
        return used if total_bytes is None else f"{used} of {total_bytes / _GIB:.0f} GiB"
    used = f"{used_bytes / _GIB:.0f}"
    return f"{used} GiB" if total_bytes is None else f"{used} of {total_bytes / _GIB:.0f} GiB"


def error_figures(xids: Iterable[int | None], ecc_counts: Iterable[int | None]) -> list[str]:
    """The last Xid error, and by how much the count of uncorrected ECC errors grew from first to last."""
    known = [xid for xid in xids if xid is not None]
    words = [f"Xid {known[-1]}"] if known else []
    counts = [count for count in ecc_counts if count is not None]
    return words + ([f"{counts[-1] - counts[0]} new ECC"] if counts and counts[-1] > counts[0] else [])
