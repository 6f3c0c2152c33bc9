"""Instances of a GPU in MIG mode, and how busy they are."""

import time
from contextlib import suppress
from functools import partial
from math import isfinite
from typing import Any

from reservation_core.adapters.local.gpu_use.nvml_answers import answer_of

_PER_CENT = 100
_LONGEST_S = 90.0
"""How long ago the counters before may have been read: a mean over a longer time says little about now."""


def is_in_mig_mode(nvml: Any, handle: Any) -> bool:
    """Whether a GPU is in MIG mode; no GPU is with a driver that does not know it. Raises nvml.NVMLError."""
    modes = answer_of(nvml, partial(nvml.nvmlDeviceGetMigMode, handle))
    return modes is not None and modes[0] == nvml.NVML_DEVICE_MIG_ENABLE


def mig_instances(nvml: Any, handle: Any) -> dict[int, Any]:
    """The handles of a GPU's instances by number, or the error of one that does not answer. Raises nvml.NVMLError."""
    found: dict[int, Any] = {}
    for number in range(answer_of(nvml, partial(nvml.nvmlDeviceGetMaxMigDeviceCount, handle)) or 0):
        try:
            found[number] = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except nvml.NVMLError as problem:
            if problem.value != nvml.NVML_ERROR_NOT_FOUND:
                found[number] = problem
    return found


class InstanceCounters:
    """How busy the instances of a GPU are, by its performance counters (GPM), which GPUs have since Hopper.

    Compute instances of one GPU instance have its counters in common: one that computes makes all of them busy.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._read: dict[int, tuple[float, Any]] = {}

    def read(self, handle: Any, instances: set[int]) -> dict[int, float]:
        """The part of the time since the last call in which each GPU instance computed; without those not known.

        Raises nothing: an error leaves the use unknown. Ask for everything else first, as some drivers answer no more
        about the memory of an instance whose counters were read.
        """
        before, self._read = self._read, {}
        if before or self._is_supported(handle):
            now = time.monotonic()
            for instance in instances:
                if (counters := self._counters(handle, instance)) is not None:
                    self._read[instance] = (now, counters)
        found: dict[int, float] = {}
        for instance, (read_at, earlier) in before.items():
            now, counters = self._read.get(instance, (0.0, None))
            if counters is not None and now - read_at <= _LONGEST_S:
                busy = self._busy(earlier, counters)
                found |= {} if busy is None else {instance: busy}
            self._free(earlier)
        return found

    def _is_supported(self, handle: Any) -> bool:
        try:
            return bool(self._nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
        except self._nvml.NVMLError:
            return False

    def _counters(self, handle: Any, instance: int) -> Any:
        nvml = self._nvml
        try:
            counters = nvml.nvmlGpmSampleAlloc()
        except nvml.NVMLError:
            return None
        try:
            return nvml.nvmlGpmMigSampleGet(handle, instance, counters)
        except nvml.NVMLError:
            self._free(counters)
            return None

    def _free(self, counters: Any) -> None:
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlGpmSampleFree(counters)

    def _busy(self, earlier: Any, counters: Any) -> float | None:
        nvml = self._nvml
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 1
        asked.sample1, asked.sample2 = earlier, counters
        # Not the part of the multiprocessors that is busy (SM_UTIL): a small program that computes all the time is not
        # idle.
        asked.metrics[0].metricId = nvml.NVML_GPM_METRIC_GRAPHICS_UTIL
        try:
            metric = nvml.nvmlGpmMetricsGet(asked).metrics[0]
        except nvml.NVMLError:
            return None
        if metric.nvmlReturn != nvml.NVML_SUCCESS or not isfinite(metric.value) or metric.value < 0:
            return None
        return min(1.0, float(metric.value) / _PER_CENT)
