"""Xid errors of a GPU, from the driver's events."""

from functools import partial
from typing import Any

from reservation_core.adapters.local.gpu_use.nvml_answers import answer_of
from reservation_core.domain.gpu_use.gpu_errors import worse_xid

_MOST_EVENTS = 100
_NO_INSTANCE = 0xFFFFFFFF
"""The instance that NVML names with an event of a whole GPU."""


class XidEvents:
    """Keeps what the driver says once until a sample has it: a look may fail after it was read."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._asked = False
        self._events: Any = None
        self._xids: dict[int, int] = {}

    def read(self, handle: Any) -> None:
        """Take what the driver reports since the last call; nothing where it reports no events."""
        nvml = self._nvml
        if not self._asked:
            self._events = answer_of(nvml, partial(self._registered, handle))
            self._asked = True
        if self._events is None:
            return
        for _ in range(_MOST_EVENTS):
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
            except nvml.NVMLError as problem:
                if problem.value == nvml.NVML_ERROR_TIMEOUT:
                    break
                raise
            instance, xid = int(event.gpuInstanceId), int(event.eventData)
            if xid:
                self._xids[instance] = worse_xid(self._xids.get(instance), xid)

    def of_gpu(self) -> int | None:
        """An Xid error of any instance, the GPU's own before those of programs; None: none, or none are reported."""
        worst = None
        for xid in self._xids.values():
            worst = worse_xid(worst, xid)
        return worst

    def of_instance(self, instance: int) -> int | None:
        """The same of an instance: an error that names no instance concerns all."""
        own, common = self._xids.get(instance), self._xids.get(_NO_INSTANCE)
        return own if common is None else worse_xid(own, common)

    def forget(self) -> None:
        """Samples have what was read."""
        self._xids.clear()

    def _registered(self, handle: Any) -> Any:
        nvml = self._nvml
        events = nvml.nvmlEventSetCreate()
        try:
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
        except nvml.NVMLError:
            nvml.nvmlEventSetFree(events)
            raise
        return events
