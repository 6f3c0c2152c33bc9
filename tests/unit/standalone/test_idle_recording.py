"""The recording that the demo plays back: GPUs that compute for a minute, and are left idle."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from reservation_core.domain.gpu_use.recordings import Recording
from standalone import demo

AT = datetime(2030, 1, 1, 12, tzinfo=UTC)


def test_all_gpus_of_the_demo_are_busy_and_then_idle_for_longer_than_its_rule_needs() -> None:
    recording = Recording(Path(demo.__file__).with_name("left_idle.csv").read_text())
    for index in range(4):
        samples = [recording.sample("GPU-1", "a", index, AT, timedelta(seconds=second)) for second in range(500)]
        use = [None if sample is None else sample.utilisation for sample in samples]
        assert min(of_second or 0 for of_second in use[:60]) > 0.5
        assert use[60:] == [0] * 440
