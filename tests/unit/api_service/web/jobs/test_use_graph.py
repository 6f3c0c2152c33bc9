"""Graphs of the use of GPUs on the page of a job."""

from datetime import UTC, datetime, timedelta

from api_service.web.jobs.use_graph import MOST_GPUS, graphs_of
from reservation_core.contracts.nodes import GpuUseOut, UseLevel, UseOut, UsePointOut

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def point(minute: int, mean: float | None, samples: int = 6) -> UsePointOut:
    level = None if mean is None else UseLevel(mean=mean, max=mean)
    return UsePointOut(
        at=NOON + minute * MINUTE, samples=samples, utilisation=level, memory_bytes=None, power_w=None,
        temperature_c=None, ecc_uncorrected=None, xid=None, processes=None,
    )  # fmt: skip


def of(*points: UsePointOut, gpus: int = 1) -> UseOut:
    gpu = GpuUseOut(node="n", index=0, uuid=None, gpu_type="h100", memory_bytes=None, points=list(points))
    return UseOut(start=NOON, end=NOON + 10 * MINUTE, step=MINUTE, simulated=False, gpus=[gpu] * gpus)


def test_a_step_without_samples_is_a_gap_and_one_without_use_is_not() -> None:
    [row] = graphs_of(of(point(0, 0.0), point(1, 0.5), point(3, 1.0), point(4, None))).rows
    assert row.areas == ["0,100 0,100 10,100 10,50 20,50 20,100", "30,100 30,0 40,0 40,100"]
    assert (row.mean, row.most) == ("50%", "100%")


def test_without_samples_there_is_nothing_to_draw() -> None:
    [row] = graphs_of(of()).rows
    assert (row.areas, row.mean, row.most, row.memory, row.power, row.errors) == ([], "", "", "", "", "")


def test_a_step_that_reaches_over_an_end_is_cut() -> None:
    [row] = graphs_of(of(point(-1, 1.0), point(10, 1.0))).rows
    assert row.areas == ["0,100 0,0 0,0 0,100", "100,100 100,0 100,0 100,100"]


def test_little_memory_is_not_none() -> None:
    used = UseLevel(mean=2**20, max=443 * 2**20)
    gpu = of(point(0, 0.5).model_copy(update={"memory_bytes": used})).gpus[0]
    [row] = graphs_of(of().model_copy(update={"gpus": [gpu.model_copy(update={"memory_bytes": 80 * 2**30})]})).rows
    assert row.memory == "443 MiB of 80 GiB"


def test_errors_of_memory_are_shown_as_on_the_command_line() -> None:
    points = [
        point(0, 0.5).model_copy(update={"ecc_uncorrected": 2, "xid": 79}),
        point(1, 0.5).model_copy(update={"ecc_uncorrected": 5}),
    ]
    assert [row.errors for row in graphs_of(of(*points)).rows] == ["Xid 79, 3 new ECC"]


def test_many_gpus_are_counted() -> None:
    graphs = graphs_of(of(gpus=MOST_GPUS + 3))
    assert (len(graphs.rows), graphs.left_out, graphs.length, graphs.step) == (MOST_GPUS, 3, 10 * MINUTE, MINUTE)
