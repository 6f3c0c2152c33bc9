"""Samples of this machine's GPUs, and of their MIG instances, by NVML."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import structlog

from reservation_core.adapters.local.gpu_use.bounded_calls import BoundedCalls
from reservation_core.adapters.local.gpu_use.mig_instances import InstanceCounters, is_in_mig_mode, mig_instances
from reservation_core.adapters.local.gpu_use.nvml_answers import answer_of
from reservation_core.adapters.local.gpu_use.xid_events import XidEvents
from reservation_core.domain.gpu_use.samples import GpuProcess, GpuSample, ImplausibleSampleError

_DRIVER = -1
"""The key of calls that ask for no GPU."""
_PER_CENT = 100
_MILLI = 1000
_log = structlog.get_logger(__name__)


class NvmlSampler:
    """Asks the driver for each GPU in a thread of its own; after `limit_s` seconds the sample is missing.

    A GPU in MIG mode has a sample of its own and one of each instance. How busy the GPU is, nobody says then; of an
    instance it is known as far as the GPU has counters. An instance has the errors, the temperature and the clock of
    its GPU, as far as the driver names no other instance. Errors and hanging calls are logged when they begin and when
    they are over.
    """

    def __init__(self, limit_s: float) -> None:
        self._calls: BoundedCalls[int] = BoundedCalls(limit_s)
        self._nvml: Any = None
        self._gpus: dict[int, _Gpu] = {}
        self._troubles: dict[str, str] = {}

    async def look(self, at: datetime) -> Sequence[GpuSample]:
        """The use of each GPU that answers."""
        return await asyncio.to_thread(self._look, at)

    def begin(self) -> None:
        """Nobody else looks at this machine's driver."""

    async def close(self) -> None:
        """Release the driver, unless one of its calls hangs."""
        if self._nvml is not None and not self._calls.hanging:
            await asyncio.to_thread(self._calls.run, {_DRIVER: self._nvml.nvmlShutdown})
            self._nvml = None

    def _look(self, at: datetime) -> list[GpuSample]:
        count = self._calls.run({_DRIVER: self._count}).get(_DRIVER)
        self._note("the driver", count)
        if not isinstance(count, int):
            return []
        found = self._calls.run({index: partial(self._samples, index, at) for index in range(count)})
        samples: list[GpuSample] = []
        for index in range(count):
            answers = found.get(index)
            if not isinstance(answers, dict):
                self._note(_name(index), answers)
                continue
            for whose, answer in answers.items():
                self._note(whose, answer)
            good = [answer for answer in answers.values() if isinstance(answer, GpuSample)]
            samples += good
            if good:
                self._gpus[index].xids.forget()
        return samples

    def _count(self) -> int:
        if self._nvml is None:
            import pynvml  # noqa: PLC0415 -- not loaded for simulated GPUs

            pynvml.nvmlInit()
            self._nvml = pynvml
        return int(self._nvml.nvmlDeviceGetCount())

    def _samples(self, index: int, at: datetime) -> dict[str, GpuSample | Exception]:
        """The samples of a GPU and of its instances, or why there is none, by their names in the log."""
        nvml = self._nvml
        gpu = self._gpus.setdefault(index, _Gpu(XidEvents(nvml), InstanceCounters(nvml)))
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        gpu.xids.read(handle)
        in_mig_mode = is_in_mig_mode(nvml, handle)
        utilisation = None
        if not in_mig_mode:
            utilisation = answer_of(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        power = answer_of(nvml, partial(nvml.nvmlDeviceGetPowerUsage, handle))
        health = _health(nvml, handle)
        own: dict[str, Any] = {
            "utilisation": None if utilisation is None else utilisation / _PER_CENT,
            "power_w": None if power is None else power / _MILLI,
            "xid": gpu.xids.of_gpu(),
            **_holding(nvml, handle),
        }
        found: dict[str, GpuSample | Exception] = {_name(index): _tried(lambda: GpuSample(at=at, **own, **health))}
        if in_mig_mode:
            of_instances = self._of_instances(gpu, handle, partial(GpuSample, at=at, **health))
            found |= {f"{_name(index)}, MIG instance {number}": answer for number, answer in of_instances.items()}
        return found

    def _of_instances(
        self, gpu: "_Gpu", handle: Any, sample: Callable[..., GpuSample]
    ) -> dict[int, GpuSample | Exception]:
        """A sample of each instance by its number. An instance that does not answer takes none from the others."""
        nvml = self._nvml
        values: dict[int, dict[str, Any]] = {}
        instance_ids: dict[int, int] = {}
        found: dict[int, GpuSample | Exception] = {}
        for number, instance in mig_instances(nvml, handle).items():
            if isinstance(instance, Exception):
                found[number] = instance
                continue
            try:
                instance_ids[number] = nvml.nvmlDeviceGetGpuInstanceId(instance)
                values[number] = _holding(nvml, instance)
            except nvml.NVMLError as problem:
                found[number] = problem
        busy = gpu.counters.read(handle, {instance_ids[number] for number in values})
        for number, held in values.items():
            at_instance = instance_ids[number]
            own = {"utilisation": busy.get(at_instance), "xid": gpu.xids.of_instance(at_instance), **held}
            found[number] = _tried(partial(sample, **own))
        return found

    def _note(self, whose: str, result: object) -> None:
        """Log how a GPU, or the driver, stopped or began to answer."""
        match result:
            case None:
                trouble = "no answer in time"
            case ImplausibleSampleError():
                trouble = f"an implausible answer: {result}"
            case Exception():
                trouble = f"{type(result).__name__}: {result}"
            case _:
                if self._troubles.pop(whose, None) is not None:
                    _log.info("a GPU has samples again", gpu=whose)
                return
        if self._troubles.get(whose) != trouble:
            self._troubles[whose] = trouble
            _log.warning("there is no sample of its use", gpu=whose, why=trouble)


@dataclass(frozen=True, slots=True)
class _Gpu:
    """Knowledge of a GPU from the look before."""

    xids: XidEvents
    counters: InstanceCounters


def _name(index: int) -> str:
    return f"GPU {index}"


def _tried(sample: Callable[[], GpuSample]) -> GpuSample | Exception:
    try:
        return sample()
    except ImplausibleSampleError as problem:
        return problem


def _holding(nvml: Any, handle: Any) -> dict[str, Any]:
    """The UUID, the memory and the processes of a GPU or an instance. Raises nvml.NVMLError."""
    uuid = nvml.nvmlDeviceGetUUID(handle)
    memory = answer_of(nvml, partial(nvml.nvmlDeviceGetMemoryInfo, handle))
    processes = answer_of(nvml, partial(nvml.nvmlDeviceGetComputeRunningProcesses, handle))
    return {
        "uuid": uuid.decode() if isinstance(uuid, bytes) else uuid,
        "memory_used": None if memory is None else int(memory.used),
        "memory_total": None if memory is None else int(memory.total),
        "processes": None if processes is None else tuple(_process(process) for process in processes),
    }


def _health(nvml: Any, handle: Any) -> dict[str, Any]:
    """The values that a GPU and its instances have in common. Raises nvml.NVMLError."""
    reasons = answer_of(nvml, partial(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle))
    uncorrected = partial(
        nvml.nvmlDeviceGetTotalEccErrors, handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_AGGREGATE_ECC
    )
    return {
        "temperature_c": answer_of(nvml, partial(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)),
        "ecc_uncorrected": answer_of(nvml, uncorrected),
        "clock_mhz": answer_of(nvml, partial(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM)),
        "throttled": None if reasons is None else bool(reasons & _throttle_reasons(nvml)),
    }


def _throttle_reasons(nvml: Any) -> int:
    """Heat, power that is short, or a brake of the hardware; a power limit that someone set is none of them."""
    return int(
        nvml.nvmlClocksThrottleReasonHwSlowdown
        | nvml.nvmlClocksThrottleReasonSwThermalSlowdown
        | nvml.nvmlClocksThrottleReasonHwThermalSlowdown
        | nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown
    )


def _process(process: Any) -> GpuProcess:
    used = process.usedGpuMemory
    return GpuProcess(int(process.pid), None if used is None else int(used))
