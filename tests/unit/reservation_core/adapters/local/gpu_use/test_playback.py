"""Recordings on simulated GPUs of other sizes."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from reservation_core.adapters.local.gpu_use.playback import Playback
from reservation_core.domain.cards.node_reports import GpuReport, NodeReport

NOW = datetime(2026, 3, 1, tzinfo=UTC)
GIB = 2**30


@pytest.mark.parametrize(
    ("rows", "used"),
    [
        (f"memory_used,memory_total\n0,0,{60 * GIB},{80 * GIB}\n", 30 * GIB),
        (f"memory_used\n0,0,{60 * GIB}\n", 40 * GIB),
        (f"memory_used\n0,0,{10 * GIB}\n", 10 * GIB),
        (f"memory_used,memory_total\n0,0,,{80 * GIB}\n", None),
    ],
)
async def test_no_gpu_uses_more_memory_than_it_has(tmp_path: Path, rows: str, used: int | None) -> None:
    file = tmp_path / "recording.csv"
    file.write_text(f"at_s,gpu,{rows}")
    node = NodeReport("rhea", ready=True, schedulable=True, gpus=(GpuReport(0, "a100", "GPU-sim-rhea-0", 40 * GIB),))
    (sample,) = await Playback(file, [node]).look(NOW)
    assert (sample.memory_used, sample.memory_total) == (used, 40 * GIB)
