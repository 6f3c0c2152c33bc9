"""The binding of NVML, with a library in its place that is built here."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pynvml
import pytest
from structlog.testing import capture_logs

from reservation_core.adapters.local.gpu_use.nvml_sampler import NvmlSampler
from reservation_core.domain.gpu_use.samples import GpuProcess, GpuSample
from tests.nvml.driver import Driver, build, in_place

AT = datetime(2030, 1, 1, 12, tzinfo=UTC)
GPU_IS_LOST, NOT_SUPPORTED, NO_PERMISSION, UNKNOWN, DRIVER_NOT_LOADED = 15, 3, 4, 999, 9
PATIENT_S, HASTY_S = 30.0, 1.0
POWER_LIMIT, HOT = 0x4, 0x40

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler builds the library")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    copy = shutil.copy(built, tmp_path / "libnvidia-ml.so.1")  # a library's variables are its own
    with in_place(copy, monkeypatch) as driver:
        yield driver


async def look(sampler: NvmlSampler) -> dict[str, GpuSample]:
    return {sample.uuid: sample for sample in await sampler.look(AT)}


async def test_a_look_at_two_gpus(driver: Driver) -> None:
    sampler = NvmlSampler(PATIENT_S)
    found = await look(sampler)
    assert list(found) == ["GPU-test-0", "GPU-test-1"]
    processes = (GpuProcess(5000017, 2**30), GpuProcess(5000018, None))
    # This library lacks the count of ECC errors, clocks and reasons of throttling.
    assert found["GPU-test-0"] == GpuSample(
        "GPU-test-0", AT, 0.87, 20 * 2**30, 80 * 2**30, 312.5, 61, None, None, processes
    )
    assert driver.get("initialised") == 1
    await sampler.close()
    assert driver.get("initialised") == 0


@pytest.mark.parametrize("error", [NOT_SUPPORTED, NO_PERMISSION])
async def test_values_that_the_driver_does_not_give_are_unknown(driver: Driver, error: int) -> None:
    driver.put("missing", 0, error)
    found = await look(NvmlSampler(PATIENT_S))
    assert found["GPU-test-0"] == GpuSample("GPU-test-0", AT)
    assert found["GPU-test-1"].utilisation == 0.87


@pytest.mark.parametrize("error", [GPU_IS_LOST, UNKNOWN])
async def test_a_lost_gpu_has_no_sample_and_the_log_says_so_once(driver: Driver, error: int) -> None:
    sampler = NvmlSampler(PATIENT_S)
    driver.put("lost", 1, error)
    with capture_logs() as logs:
        assert list(await look(sampler)) == ["GPU-test-0"]
        assert list(await look(sampler)) == ["GPU-test-0"]
        driver.put("lost", 1, 0)
        assert list(await look(sampler)) == ["GPU-test-0", "GPU-test-1"]
    assert [(entry["event"], entry["gpu"]) for entry in logs] == [
        ("there is no sample of its use", "GPU 1"),
        ("a GPU has samples again", "GPU 1"),
    ]


async def test_an_implausible_answer_is_no_sample(driver: Driver) -> None:
    driver.set("load", 101)
    with capture_logs() as logs:
        assert await look(NvmlSampler(PATIENT_S)) == {}
    assert "`utilisation`" in logs[0]["why"]


async def test_a_gpu_that_hangs_has_no_sample_and_costs_one_thread(driver: Driver) -> None:
    sampler = NvmlSampler(HASTY_S)
    driver.hang(0)
    assert list(await look(sampler)) == ["GPU-test-1"]
    [hanging] = [thread for thread in sampler._calls._hanging.values() if thread.is_alive()]
    assert hanging.daemon
    assert list(await look(sampler)) == ["GPU-test-1"]
    assert [thread for thread in sampler._calls._hanging.values() if thread.is_alive()] == [hanging]
    await sampler.close()  # waits for nothing
    assert driver.get("initialised") == 1
    driver.hang(0, 0)
    hanging.join(PATIENT_S)
    assert list(await look(sampler)) == ["GPU-test-0", "GPU-test-1"]


async def test_a_driver_that_hangs_at_its_start_gives_no_samples(driver: Driver) -> None:
    sampler = NvmlSampler(HASTY_S)
    driver.set("driver_hangs", 1)
    with capture_logs() as logs:
        assert await look(sampler) == {}
        assert await look(sampler) == {}
    assert [(entry["gpu"], entry["why"]) for entry in logs] == [("the driver", "no answer in time")]
    [hanging] = sampler._calls._hanging.values()
    driver.set("driver_hangs", 0)
    hanging.join(PATIENT_S)
    assert len(await look(sampler)) == 2


async def test_without_a_driver_there_are_no_samples(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_flags: int) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInitWithFlags", fail)
    assert await look(NvmlSampler(PATIENT_S)) == {}


async def test_the_last_xid_since_the_look_before(driver: Driver) -> None:
    sampler = NvmlSampler(PATIENT_S)

    async def xid() -> Any:
        return (await look(sampler))["GPU-test-0"].xid

    assert await xid() is None
    driver.put("xids", 0, 79)
    assert await xid() == 79
    assert await xid() is None


async def test_a_gpu_that_is_lost_in_the_middle_of_a_look_has_no_sample(driver: Driver) -> None:
    driver.put("missing", 0, GPU_IS_LOST)
    assert list(await look(NvmlSampler(PATIENT_S))) == ["GPU-test-1"]


@pytest.mark.parametrize(
    ("reported", "kept"), [((48, 45), 48), ((45, 48), 48), ((13, 45), 45), ((48, 79), 79), ((0, 31), 31)]
)
async def test_a_fault_of_the_gpu_goes_before_that_of_a_program(
    driver: Driver, reported: tuple[int, int], kept: int
) -> None:
    sampler = NvmlSampler(PATIENT_S)
    await look(sampler)
    driver.put("xids", 0, reported[0])
    driver.put("later_xids", 0, reported[1])
    assert (await look(sampler))["GPU-test-0"].xid == kept


async def test_clocks_and_throttling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_place(build(tmp_path, "-DHEALTH"), monkeypatch) as driver:
        sampler = NvmlSampler(PATIENT_S)
        driver.put("throttle_reasons", 0, POWER_LIMIT)
        driver.put("throttle_reasons", 1, POWER_LIMIT | HOT)
        driver.put("clocks", 1, 1200)
        driver.put("ecc", 1, 3)
        found = await look(sampler)
    assert [(sample.clock_mhz, sample.throttled, sample.ecc_uncorrected) for sample in found.values()] == [
        (1980, False, 0),
        (1200, True, 3),
    ]
