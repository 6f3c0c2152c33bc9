"""What a job used, and what would have been enough: never more than samples tell."""

from datetime import UTC, datetime, timedelta

from reservation_core.domain.gpu_use.figures import use_words
from reservation_core.domain.gpu_use.job_use import JobUse, sum_up_use
from reservation_core.domain.gpu_use.roll_ups import Level, UsePoint

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
TEN, MINUTE = timedelta(seconds=10), timedelta(minutes=1)
GIB = 2**30
MEMORY = 80 * GIB


def minutes(count: int, mean: float | None, memory: int | None = 12 * GIB, unknown: int = 0) -> list[UsePoint]:
    use = None if mean is None else Level(mean, 1.0)
    peak = None if memory is None else Level(memory / 2, memory)
    return [UsePoint(BEGIN + n * MINUTE, 6, use, peak, unknown=6 if mean is None else unknown) for n in range(count)]


def words(use: JobUse | None) -> str:
    assert use is not None
    return use_words(use.gpus, use.used, (use.memory_peak, use.memory_bytes), use.enough, use.sampled)


def summed(gpus: int, *found: list[UsePoint], held: timedelta | None = None) -> JobUse | None:
    length = sum(map(len, found)) * MINUTE if held is None else held
    return sum_up_use(gpus, [(MEMORY, points) for points in found], length, TEN)


def test_what_it_used_and_what_would_have_been_enough() -> None:
    use = summed(2, minutes(10, 0.5), minutes(10, 0.3))
    assert words(use) == "used 0.8 of 2 GPUs, peak memory 12 of 80 GiB; 1 GPU would have been enough"
    assert words(summed(2, minutes(10, 0.9), minutes(10, 0.5))) == "used 1.4 of 2 GPUs, peak memory 12 of 80 GiB"
    assert words(summed(4, *[minutes(10, 0.35)] * 4)).endswith("; 2 GPUs would have been enough")
    assert words(summed(1, minutes(10, 0.0))) == "used 0.0 of 1 GPU, peak memory 12 of 80 GiB"


def test_memory_must_fit() -> None:
    use = summed(4, *[minutes(10, 0.1, 50 * GIB)] * 4)
    assert use is not None
    assert use.enough == 3
    mixed = summed(4, minutes(10, 0.8, 61 * GIB), minutes(10, 0.8, 60 * GIB), *[minutes(10, 0.0, GIB)] * 2)
    assert words(mixed) == "used 1.6 of 4 GPUs, peak memory 61 of 80 GiB; 2 GPUs would have been enough"
    unknown = summed(4, minutes(10, 0.1, 61 * GIB), *[minutes(10, 0.1, None)] * 3)
    assert words(unknown) == "used 0.4 of 4 GPUs, peak memory 61 of 80 GiB"  # each may have needed as much
    again = summed(2, *[minutes(10, 0.1, memory * GIB) for memory in (61, 1, 61, 1)])  # of two attempts
    assert words(again) == "used 0.2 of 2 GPUs, peak memory 61 of 80 GiB"
    assert words(summed(2, *[minutes(10, 0.1, None)] * 2)) == "used 0.2 of 2 GPUs"


def test_attempts_on_other_gpus_are_not_more_gpus() -> None:
    use = summed(1, minutes(10, 1.0), minutes(10, 0.5))
    assert use is not None
    assert (use.used, use.gpus) == (0.75, 1)


def test_no_data_is_not_zero() -> None:
    assert summed(2, [], []) is None
    assert summed(2, minutes(10, None), []) is None
    use = summed(2, minutes(10, 0.1), [])  # one of the two is unknown
    assert use is not None
    assert (use.used, use.enough) == (0.2, 1)
    half = summed(2, minutes(10, 0.1), [], held=20 * MINUTE)
    assert half is not None
    assert (half.enough, half.sampled) == (None, 0.5)
    assert words(half) == "used 0.2 of 2 GPUs, peak memory 12 of 80 GiB (there are samples of 50% of the time)"


def test_samples_without_a_utilisation_do_not_weigh() -> None:
    use = summed(1, [*minutes(5, 1.0, unknown=5), *minutes(5, 0.5)], held=10 * MINUTE)
    assert use is not None
    assert round(use.used, 3) == round((5 * 1.0 + 30 * 0.5) / 35, 3)
