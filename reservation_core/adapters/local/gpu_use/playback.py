"""Samples of simulated GPUs, played back from a recording."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from reservation_core.domain.cards.node_reports import NodeReport
from reservation_core.domain.gpu_use.recordings import BadRecordingError, Recording
from reservation_core.domain.gpu_use.samples import GpuSample

_MOST_BYTES = 256 * 2**20


class Playback:
    """Plays a file back for the simulated GPUs of these nodes; from its begin at the first look.

    Raises BadRecordingError, also for a file that can't be read.
    """

    def __init__(self, file: Path, nodes: Sequence[NodeReport]) -> None:
        try:
            if file.stat().st_size > _MOST_BYTES:
                raise BadRecordingError(f"It is larger than {_MOST_BYTES // 2**20} MiB.")
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadRecordingError(f"It can't be read: {error}") from error
        self._recording = Recording(text)
        self._gpus = [(gpu.uuid or "", node.name, gpu.index, gpu.memory_bytes) for node in nodes for gpu in node.gpus]
        self._began: datetime | None = None

    async def look(self, at: datetime) -> Sequence[GpuSample]:
        """Return the recorded use of each GPU."""
        self._began = min(at, self._began or at)
        elapsed = at - self._began
        found = (
            (self._recording.sample(uuid, node, index, at, elapsed), memory) for uuid, node, index, memory in self._gpus
        )
        return [_fitted(sample, memory) for sample, memory in found if sample is not None]

    def begin(self) -> None:
        """Nothing is remembered of looks."""

    async def close(self) -> None:
        """Nothing is open."""


def _fitted(sample: GpuSample, memory: int | None) -> GpuSample:
    """A sample of a GPU with more or less memory, for a GPU with `memory` bytes: the same share of it is used."""
    used, total = sample.memory_used, sample.memory_total
    if memory is None or (used is None and total is None):
        return sample
    if used is not None:
        used = min(used, memory) if total is None else used * memory // total
    return replace(sample, memory_used=used, memory_total=memory)
