"""Figures of the use of a GPU in words, as the command line and pages show them."""

from collections.abc import Iterable

from reservation_core.domain.request_terms import size_words

MOSTLY = 0.9
"""Of which part of the time there must be samples for a word about fewer GPUs."""
_GIB, _MIB = 2**30, 2**20


def memory_figure(used_bytes: float, total_bytes: int | None) -> str:
    """`61.5 of 80 GiB`; less than 1 GiB in MiB, as memory in use must not look like none."""
    used = f"{used_bytes / _MIB:.0f} MiB" if used_bytes < _GIB else size_words(round(used_bytes))
    if total_bytes is None:
        return used
    total = size_words(total_bytes)
    return f"{used.removesuffix(total.lstrip('0123456789.'))} of {total}"


def error_figures(xids: Iterable[int | None], ecc_counts: Iterable[int | None]) -> list[str]:
    """The last Xid error, and by how much the count of uncorrected ECC errors grew from first to last."""
    known = [xid for xid in xids if xid is not None]
    words = [f"Xid {known[-1]}"] if known else []
    counts = [count for count in ecc_counts if count is not None]
    return words + ([f"{counts[-1] - counts[0]} new ECC"] if counts and counts[-1] > counts[0] else [])


def use_words(gpus: int, used: float, memory: tuple[int | None, int | None], enough: int | None, sampled: float) -> str:
    """`used 1.4 of 2 GPUs, peak memory 12 of 80 GiB; 1 GPU would have been enough`."""
    peak, memory_bytes = memory
    words = f"used {used:.1f} of {gpus} GPU{'' if gpus == 1 else 's'}"
    if peak is not None:
        words += f", peak memory {memory_figure(peak, memory_bytes)}"
    if sampled < MOSTLY:
        words += f" (there are samples of {sampled:.0%} of the time)"
    if enough is not None and enough < gpus:
        words += f"; {enough} GPU{'' if enough == 1 else 's'} would have been enough"
    return words
