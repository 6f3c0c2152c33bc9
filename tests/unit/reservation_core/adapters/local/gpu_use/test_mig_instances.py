"""Samples of MIG instances, by the binding of NVML with a library in its place that is built here."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pynvml
import pytest
from structlog.testing import capture_logs

from reservation_core.adapters.local.gpu_use import mig_instances
from reservation_core.adapters.local.gpu_use.nvml_sampler import NvmlSampler
from reservation_core.domain.gpu_use.samples import GpuProcess, GpuSample
from tests.nvml.driver import Driver, build, in_place

AT = datetime(2030, 1, 1, 12, tzinfo=UTC)
GPU_IS_LOST, NOT_SUPPORTED, NO_PERMISSION, UNKNOWN = 15, 3, 4, 999
PATIENT_S, HASTY_S = 30.0, 1.0
WHOLE, FIRST, SECOND = "GPU-test-0", "MIG-test-0-0", "MIG-test-0-2"
ALL = [WHOLE, FIRST, SECOND, "GPU-test-1"]
GPM = ("-DHEALTH", "-DMIG", "-DGPM")

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler builds the library")
Make = Callable[..., Driver]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes a driver with a library of its own, whose GPU 0 is in MIG mode with two instances."""
    with ExitStack() as closing:

        def make(*flags: str) -> Driver:
            driver = closing.enter_context(in_place(build(tmp_path, *flags), monkeypatch))
            driver.put("mig_mode", 0, 1)
            return driver

        yield make


async def look(sampler: NvmlSampler) -> dict[str, GpuSample]:
    return {sample.uuid: sample for sample in await sampler.look(AT)}


async def test_each_instance_has_its_memory_and_processes_and_no_gpu_in_mig_mode_a_use(make: Make) -> None:
    make("-DHEALTH", "-DMIG").put("ecc", 0, 3)
    found = await look(NvmlSampler(PATIENT_S))
    assert list(found) == ALL
    health = {"temperature_c": 61, "ecc_uncorrected": 3, "clock_mhz": 1980, "throttled": False}
    for uuid, used, pid in ((FIRST, 1, 5000117), (SECOND, 3, 5000317)):
        processes = (GpuProcess(pid, 2**30), GpuProcess(5000018, None))
        assert found[uuid] == GpuSample(uuid, AT, None, used * 2**30, 10 * 2**30, processes=processes, **health)
    assert found[WHOLE].utilisation is None
    assert found[WHOLE].power_w == 312.5
    assert found["GPU-test-1"].utilisation == 0.87


async def test_an_older_driver_knows_no_instances(make: Make) -> None:
    make("-DHEALTH").put("mig_mode", 0, 0)
    found = await look(NvmlSampler(PATIENT_S))
    assert {uuid: sample.utilisation for uuid, sample in found.items()} == {WHOLE: 0.87, "GPU-test-1": 0.87}


@pytest.mark.parametrize("error", [GPU_IS_LOST, UNKNOWN])
async def test_an_instance_that_fails_takes_no_sample_from_the_others(make: Make, error: int) -> None:
    driver, sampler = make(*GPM), NvmlSampler(PATIENT_S)
    driver.put_instance("instance_lost", 0, error)
    with capture_logs() as logs:
        for _ in range(2):
            assert list(await look(sampler)) == [WHOLE, SECOND, "GPU-test-1"]
        driver.put_instance("instance_lost", 0, 0)
        assert list(await look(sampler)) == ALL
    whose = "GPU 0, MIG instance 0"
    assert [(entry["event"], entry["gpu"]) for entry in logs] == [
        ("there is no sample of its use", whose),
        ("a GPU has samples again", whose),
    ]


async def test_an_instance_that_fails_after_it_was_found_takes_no_sample_from_the_others(make: Make) -> None:
    make(*GPM).put_instance("instance_lost", 2, NOT_SUPPORTED)
    assert list(await look(NvmlSampler(PATIENT_S))) == [WHOLE, FIRST, "GPU-test-1"]


async def test_a_lost_gpu_takes_its_instances_with_it(make: Make) -> None:
    make(*GPM).put("lost", 0, GPU_IS_LOST)
    assert list(await look(NvmlSampler(PATIENT_S))) == ["GPU-test-1"]


async def test_a_gpu_in_mig_mode_that_hangs_delays_no_other(make: Make) -> None:
    driver, sampler = make(*GPM), NvmlSampler(HASTY_S)
    driver.hang(0)
    assert list(await look(sampler)) == ["GPU-test-1"]


@pytest.mark.parametrize("error", [NOT_SUPPORTED, NO_PERMISSION])
async def test_values_that_the_driver_does_not_give_are_unknown(make: Make, error: int) -> None:
    driver = make(*GPM)
    driver.put("missing", 0, error)
    found = await look(NvmlSampler(PATIENT_S))
    assert found[WHOLE] == GpuSample(WHOLE, AT)
    assert FIRST not in found  # whether it is in MIG mode is not known either


async def test_counters_tell_how_busy_an_instance_was_since_the_look_before(make: Make) -> None:
    driver, sampler = make(*GPM), NvmlSampler(PATIENT_S)
    driver.put_instance("busy", 0, 40)
    driver.put_instance("busy", 2, 101)  # more than all of the time, by rounding
    found = await look(sampler)
    assert [found[uuid].utilisation for uuid in (WHOLE, FIRST, SECOND)] == [None] * 3
    found = await look(sampler)
    assert [found[uuid].utilisation for uuid in (WHOLE, FIRST, SECOND)] == [None, 0.4, 1.0]
    assert driver.get("readings") == 2
    driver.put("mig_mode", 0, 0)
    assert (await look(sampler))[WHOLE].utilisation == 0.87


@pytest.mark.parametrize(
    ("name", "value"),
    [("counted", 0), ("counters_fail", UNKNOWN), ("counters_fail", NO_PERMISSION), ("metric_fails", NOT_SUPPORTED)],
)
async def test_counters_that_fail_leave_the_use_unknown_and_everything_else(make: Make, name: str, value: int) -> None:
    driver, sampler = make(*GPM), NvmlSampler(PATIENT_S)
    driver.put_instance("busy", 0, 40)
    driver.set(name, value)
    for _ in range(2):
        found = await look(sampler)
    assert list(found) == ALL
    assert found[FIRST].utilisation is None
    assert found[FIRST].memory_used == 2**30
    driver.set(name, {"counted": 1}.get(name, 0))
    for _ in range(2):
        found = await look(sampler)
    assert found[FIRST].utilisation == 0.4
    assert driver.get("readings") == 2


async def test_what_is_no_number_is_no_use(make: Make) -> None:
    driver, sampler = make(*GPM), NvmlSampler(PATIENT_S)
    driver.put_instance("busy", 0, -1)
    for _ in range(2):
        found = await look(sampler)
    assert found[FIRST].utilisation is None
    assert found[SECOND].utilisation == 0


async def test_the_counters_of_long_ago_say_nothing_of_now(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mig_instances, "_LONGEST_S", -1.0)
    make(*GPM)
    sampler = NvmlSampler(PATIENT_S)
    for _ in range(2):
        found = await look(sampler)
    assert found[FIRST].utilisation is None


@pytest.mark.parametrize(
    ("instance", "xid", "told"),
    [(-1, 79, {WHOLE: 79, FIRST: 79, SECOND: 79}), (5, 48, {WHOLE: 48, FIRST: 48}), (7, 48, {WHOLE: 48, SECOND: 48})],
)
async def test_an_xid_of_the_gpu_is_one_of_all_its_instances_unless_it_names_one(
    make: Make, instance: int, xid: int, told: dict[str, int]
) -> None:
    driver, sampler = make("-DMIG"), NvmlSampler(PATIENT_S)
    driver.put("xid_instances", 0, instance)
    driver.put("xids", 0, xid)
    found = await look(sampler)
    assert {uuid: sample.xid for uuid, sample in found.items() if sample.xid is not None} == told
    assert {sample.xid for sample in (await look(sampler)).values()} == {None}


async def test_an_xid_that_comes_with_a_failed_look_is_told_by_the_next(make: Make) -> None:
    driver, sampler = make("-DMIG"), NvmlSampler(PATIENT_S)
    driver.put("mig_mode", 0, 0)
    await look(sampler)
    driver.put("xids", 0, 79)
    driver.put("missing", 0, UNKNOWN)
    assert WHOLE not in await look(sampler)
    driver.put("missing", 0, 0)
    assert (await look(sampler))[WHOLE].xid == 79
    assert (await look(sampler))[WHOLE].xid is None


async def test_an_xid_is_told_once_also_where_the_whole_gpu_has_no_sample(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, sampler = make(*GPM), NvmlSampler(PATIENT_S)
    await look(sampler)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerUsage", lambda _handle: 11_000_000)
    driver.put("xids", 0, 79)
    told = [{uuid: sample.xid for uuid, sample in (await look(sampler)).items()} for _ in range(2)]
    assert told == [{FIRST: 79, SECOND: 79}, {FIRST: None, SECOND: None}]


async def test_counters_for_which_there_is_no_room_take_no_sample(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    make(*GPM)
    sampler = NvmlSampler(PATIENT_S)
    await look(sampler)

    def fail() -> None:
        raise pynvml.NVMLError(UNKNOWN)

    monkeypatch.setattr(pynvml, "nvmlGpmSampleAlloc", fail)
    assert list(await look(sampler)) == ALL
