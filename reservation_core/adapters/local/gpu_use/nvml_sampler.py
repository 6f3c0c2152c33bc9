"""Samples of this machine's GPUs by NVML."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import structlog

from reservation_core.adapters.local.gpu_use.bounded_calls import BoundedCalls
from reservation_core.domain.gpu_use.gpu_errors import PROGRAM_XIDS
from reservation_core.domain.gpu_use.samples import GpuProcess, GpuSample, ImplausibleSampleError

T = TypeVar("T")

_DRIVER = -1
"""The key of calls that ask for no GPU."""
_PER_CENT = 100
_MILLI = 1000
_MOST_EVENTS = 100
_log = structlog.get_logger(__name__)


class NvmlSampler:
    """Asks the driver for each GPU in a thread of its own; after `limit_s` seconds the sample is missing.

    Errors and hanging calls are logged when they begin and when they are over.
    """

    def __init__(self, limit_s: float) -> None:
        self._calls: BoundedCalls[int] = BoundedCalls(limit_s)
        self._nvml: Any = None
        self._events: dict[int, Any] = {}
        self._troubles: dict[int, str] = {}

    async def look(self, at: datetime) -> Sequence[GpuSample]:
        """The use of each GPU that answers."""
        return await asyncio.to_thread(self._look, at)

    async def close(self) -> None:
        """Release the driver, unless one of its calls hangs."""
        if self._nvml is not None and not self._calls.hanging:
            await asyncio.to_thread(self._calls.run, {_DRIVER: self._nvml.nvmlShutdown})
            self._nvml = None

    def _look(self, at: datetime) -> list[GpuSample]:
        count = self._calls.run({_DRIVER: self._count}).get(_DRIVER)
        self._note(_DRIVER, count)
        if not isinstance(count, int):
            return []
        found = self._calls.run({index: partial(self._sample, index, at) for index in range(count)})
        for index in range(count):
            self._note(index, found.get(index))
        return [found[index] for index in sorted(found) if isinstance(found[index], GpuSample)]  # type: ignore[misc]

    def _count(self) -> int:
        if self._nvml is None:
            import pynvml  # noqa: PLC0415 -- not loaded for simulated GPUs

            pynvml.nvmlInit()
            self._nvml = pynvml
        return int(self._nvml.nvmlDeviceGetCount())

    def _sample(self, index: int, at: datetime) -> GpuSample:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = nvml.nvmlDeviceGetUUID(handle)
        memory = self._asked(partial(nvml.nvmlDeviceGetMemoryInfo, handle))
        utilisation = self._asked(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        power = self._asked(partial(nvml.nvmlDeviceGetPowerUsage, handle))
        processes = self._asked(partial(nvml.nvmlDeviceGetComputeRunningProcesses, handle))
        reasons = self._asked(partial(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle))
        uncorrected = partial(
            nvml.nvmlDeviceGetTotalEccErrors,
            handle,
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_AGGREGATE_ECC,
        )
        return GpuSample(
            uuid=uuid.decode() if isinstance(uuid, bytes) else uuid,
            at=at,
            utilisation=None if utilisation is None else utilisation / _PER_CENT,
            memory_used=None if memory is None else int(memory.used),
            memory_total=None if memory is None else int(memory.total),
            power_w=None if power is None else power / _MILLI,
            temperature_c=self._asked(partial(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)),
            ecc_uncorrected=self._asked(uncorrected),
            xid=self._last_xid(index, handle),
            processes=None if processes is None else tuple(_process(process) for process in processes),
            clock_mhz=self._asked(partial(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM)),
            throttled=None if reasons is None else bool(reasons & _throttle_reasons(nvml)),
        )

    def _asked(self, call: Callable[[], T]) -> T | None:
        """An answer; None where this GPU or this driver has none. A GPU that is lost has no sample at all."""
        try:
            return call()
        except self._nvml.NVMLError as problem:
            if problem.value in self._not_known():
                return None
            raise

    def _not_known(self) -> tuple[int, ...]:
        nvml = self._nvml
        return (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND, nvml.NVML_ERROR_NO_PERMISSION)

    def _last_xid(self, index: int, handle: Any) -> int | None:
        """The last Xid error since the call before, one of the GPU's own first; None: none, or no events are reported.

        A fault of the GPU also ends its programs, which the driver reports after it.
        """
        nvml = self._nvml
        if index not in self._events:
            self._events[index] = self._asked(partial(self._registered, handle))
        events, last = self._events[index], None
        if events is None:
            return None
        for _ in range(_MOST_EVENTS):
            try:
                event = nvml.nvmlEventSetWait_v2(events, 0)
            except nvml.NVMLError as problem:
                if problem.value == nvml.NVML_ERROR_TIMEOUT:
                    break
                raise
            xid = int(event.eventData)
            if xid and (last is None or xid not in PROGRAM_XIDS or last in PROGRAM_XIDS):
                last = xid
        return last

    def _registered(self, handle: Any) -> Any:
        nvml = self._nvml
        events = nvml.nvmlEventSetCreate()
        try:
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
        except nvml.NVMLError:
            nvml.nvmlEventSetFree(events)
            raise
        return events

    def _note(self, key: int, result: object) -> None:
        """Log how a GPU, or the driver, stopped or began to answer."""
        whose = "the driver" if key == _DRIVER else f"GPU {key}"
        match result:
            case None:
                trouble = "no answer in time"
            case ImplausibleSampleError():
                trouble = f"an implausible answer: {result}"
            case Exception():
                trouble = f"{type(result).__name__}: {result}"
            case _:
                if self._troubles.pop(key, None) is not None:
                    _log.info("a GPU has samples again", gpu=whose)
                return
        if self._troubles.get(key) != trouble:
            self._troubles[key] = trouble
            _log.warning("there is no sample of its use", gpu=whose, why=trouble)


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
