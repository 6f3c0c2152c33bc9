"""The smaller requests that one may ask about in place of one that waits: fewer GPUs, a shorter time."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from reservation_core.domain.short_durations import written

_MOST = 24
_STEPS_S = (5, 10, 30, 60, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800)


class Size(NamedTuple):
    """So many GPUs on each of so many nodes."""

    nodes: int
    gpus: int

    @property
    def key(self) -> str:
        """As forms and addresses have it: `2x8`."""
        return f"{self.nodes}x{self.gpus}"

    @property
    def words(self) -> str:
        """`1 GPU`, `2 nodes × 8 GPUs`."""
        cards = f"{self.gpus} GPU" if self.gpus == 1 else f"{self.gpus} GPUs"
        return f"{self.nodes} nodes × {cards}" if self.nodes > 1 else cards


class SmallerRequest(NamedTuple):
    """A request of this size for so long; `gpu_type` where it is for another type."""

    size: Size
    length: timedelta
    gpu_type: str | None = None

    @property
    def fields(self) -> dict[str, str]:
        """As the fields of the form that submits a job."""
        size = {"gpus": str(self.size.gpus), "nodes": str(self.size.nodes), "duration": written(self.length)}
        return size if self.gpu_type is None else {**size, "gpu_type": self.gpu_type}


def sizes_up_to(size: Size) -> list[Size]:
    """Smaller sizes and this one, which is the last: fewer nodes first, then fewer GPUs on one. At most 24."""
    fewer_gpus = [Size(1, gpus) for gpus in range(1, size.gpus)]
    return _thinned([*fewer_gpus, *(Size(nodes, size.gpus) for nodes in range(1, size.nodes + 1))])


def lengths_up_to(length: timedelta) -> list[timedelta]:
    """Shorter times in equal steps, and this one, which is the last. At most 24."""
    seconds = int(length.total_seconds())
    step = next((step for step in _STEPS_S if seconds <= step * _MOST), -(-seconds // _MOST))
    return [timedelta(seconds=shorter) for shorter in range(step, seconds, step)] + [length]


def chosen_among(sizes: Sequence[Size], lengths: Sequence[timedelta], size_key: str, seconds: str) -> SmallerRequest:
    """The choice that a form or an address names; the last of each where it names none of them."""
    return SmallerRequest(
        next((size for size in sizes if size.key == size_key), sizes[-1]),
        next((length for length in lengths if str(int(length.total_seconds())) == seconds), lengths[-1]),
    )


def _thinned(sizes: Sequence[Size]) -> list[Size]:
    if len(sizes) <= _MOST:
        return list(sizes)
    last = len(sizes) - 1
    return [sizes[number * last // (_MOST - 1)] for number in range(_MOST)]
