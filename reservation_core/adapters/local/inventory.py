"""The GPUs of this machine: from NVML, or simulated by `GPU_DEV_LOCAL_GPUS`.

Each instance of a GPU in MIG mode is a GPU of a type of its own, with an index from 64; the GPU itself is not listed.

The setting: nodes separated by `;`, each `[name=]type:count[,type:count...]`, as in `h100:4` or `a=h100:8;b=t4:2,l4:2`.
Indices are consecutive within a node. A node without a name is named after this machine.
"""

import os
import re
import socket
import threading
from dataclasses import replace
from typing import Any

import psutil
import structlog

from reservation_core.adapters.local.gpu_links import links_of
from reservation_core.adapters.local.gpu_use.mig_instances import is_in_mig_mode, mig_instances
from reservation_core.adapters.local.processes import is_pod_process
from reservation_core.domain.cards.gpu_types import (
    GPU_TYPE,
    instance_index,
    is_instance,
    normalised_gpu_type,
    usual_memory_bytes,
)
from reservation_core.domain.cards.link_words import Links
from reservation_core.domain.cards.node_reports import GpuReport, NodeReport
from reservation_core.domain.model import ForeignPod, GpuCondition
from reservation_core.domain.request_terms import MILLI, UNSAID, Share
from reservation_core.ports.cluster import ClusterUnavailableError

_log = structlog.get_logger(__name__)
MAX_NODES = 64
MAX_GPUS_PER_NODE = 1024
MAX_GPUS = 16_384
SIMULATED_LABEL = ("gpu-dev/simulated", "true")
_NODE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_EXAMPLE = "Write it like `h100:4`, or `a=h100:8;b=t4:2,l4:2` for two nodes."
NO_GPUS = (
    "No NVIDIA GPU was found on this machine ({}). Set GPU_DEV_LOCAL_GPUS, for example GPU_DEV_LOCAL_GPUS=h100:4, "
    "to go on with simulated GPUs."
)


class BadGpusSettingError(ValueError):
    """`GPU_DEV_LOCAL_GPUS` is invalid."""


def short_hostname() -> str:
    """This machine's name without its domain; `localhost` if it is no valid node name."""
    name = socket.gethostname().split(".")[0]
    return name if _NODE_NAME.fullmatch(name) else "localhost"


def parse_gpus(text: str, default_node: str) -> tuple[NodeReport, ...]:
    """Parse the setting: simulated nodes whose GPUs have stable UUIDs (`GPU-sim-<node>-<index>`).

    Raises BadGpusSettingError with the fault and an example.
    """
    nodes: dict[str, NodeReport] = {}
    parts = [part.strip() for part in text.strip().removesuffix(";").split(";")]
    if len(parts) > MAX_NODES:
        raise _bad(f"{len(parts)} nodes are more than {MAX_NODES}")
    for part in parts:
        name, given, cards = part.rpartition("=")
        name = name.strip() if given else default_node
        if not _NODE_NAME.fullmatch(name):
            raise _bad(f"{name!r} is no name for a node (letters, digits, `.`, `_` and `-`, at most 63)")
        if name in nodes:
            raise _bad(f"two nodes are called {name!r}; give each a name of its own")
        types = _types(cards)
        gpus = tuple(
            GpuReport(index, gpu_type, f"GPU-sim-{name}-{index}", usual_memory_bytes(gpu_type))
            for index, gpu_type in enumerate(types)
        )
        nodes[name] = NodeReport(name, ready=True, schedulable=True, gpus=gpus, labels=(SIMULATED_LABEL,))
    total = sum(len(node.gpus) for node in nodes.values())
    if total > MAX_GPUS:
        raise _bad(f"{total} GPUs are more than {MAX_GPUS}")
    return tuple(nodes.values())


def _types(cards: str) -> list[str]:
    types: list[str] = []
    for card in cards.split(","):
        gpu_type, _, count = (piece.strip() for piece in card.partition(":"))
        if not GPU_TYPE.fullmatch(gpu_type):
            raise _bad(f"{card.strip()!r} is not `type:count` with a type in lower-case letters, digits, `.`, `_`, `-`")
        if not re.fullmatch(r"[0-9]{1,5}", count) or int(count) < 1:
            raise _bad(f"{card.strip()!r} has no count of GPUs (a whole number from 1)")
        if len(types) + int(count) > MAX_GPUS_PER_NODE:
            raise _bad(f"one node can't have more than {MAX_GPUS_PER_NODE} GPUs")
        types += [gpu_type] * int(count)
    return types


def _bad(problem: str) -> BadGpusSettingError:
    return BadGpusSettingError(f"GPU_DEV_LOCAL_GPUS can't be understood: {problem}. {_EXAMPLE}")


class LocalInventory:
    """The nodes of the local cluster. Methods block; thread-safe. `setting` None means NVML.

    Jobs can have `has` of each node; what is None there they have of this machine.
    """

    def __init__(self, setting: str | None, default_node: str | None = None, has: Share = UNSAID) -> None:
        self._cpu_milli = has.cpu_milli or len(os.sched_getaffinity(0)) * MILLI
        self._memory_bytes = has.memory_bytes or psutil.virtual_memory().total
        self._node = default_node or short_hostname()
        self._simulated = None if setting is None or not setting.strip() else parse_gpus(setting, self._node)
        self._lock = threading.Lock()
        self._nvml: Any = None
        self._seen: dict[int, tuple[GpuReport, ...]] = {}
        """The driver's GPUs, or their instances, as they were last seen."""
        self._products: dict[str | None, str] = {}
        self._in_parts: bool | None = None
        self._links: Links | None = None
        self._links_missed = False

    @property
    def simulated(self) -> bool:
        """Whether the GPUs exist in the setting only."""
        return self._simulated is not None

    def nodes(self) -> list[NodeReport]:
        """Every node with its GPUs. Raises ClusterUnavailableError when the driver exists but does not answer."""
        if self._simulated is not None:
            return [self._sized(node) for node in self._simulated]
        with self._lock:
            nvml, why = self._driver()
            gpus = () if nvml is None else self._cards(nvml)
            self._in_parts = any(is_instance(gpu.uuid) for gpu in gpus)
            links = None if nvml is None or self._in_parts else self._read_links(nvml, len(gpus))
        detail = None if gpus else NO_GPUS.format(why or "the driver lists none")
        return [
            self._sized(NodeReport(self._node, ready=True, schedulable=True, gpus=gpus, detail=detail, links=links))
        ]

    def _sized(self, node: NodeReport) -> NodeReport:
        return replace(node, cpu_milli=self._cpu_milli, memory_bytes=self._memory_bytes)

    def node_names(self) -> frozenset[str]:
        """The names alone, without asking the driver."""
        if self._simulated is not None:
            return frozenset(node.name for node in self._simulated)
        return frozenset({self._node})

    def product(self, uuid: str | None) -> str | None:
        """The driver's product name of a GPU that `nodes` has listed; None for simulated GPUs."""
        return self._products.get(uuid)

    def is_in_parts(self) -> bool:
        """Whether there are MIG instances, as far as was seen last: CUDA then numbers GPUs otherwise than we do."""
        if self._in_parts is None:
            self._in_parts = any(is_instance(gpu.uuid) for node in self.nodes() for gpu in node.gpus)
        return self._in_parts

    def foreign(self) -> list[ForeignPod]:
        """Processes outside our pods that compute on our GPUs; none for simulated GPUs."""
        if self._simulated is not None:
            return []
        with self._lock:
            nvml, _ = self._driver()
            users = {} if nvml is None else self._compute_processes(nvml)
        foreign = []
        for pid, indices in sorted(users.items()):
            if not is_pod_process(pid):
                text = f"process {pid} ({_process_name(pid)})"
                foreign.append(ForeignPod(self._node, text, len(indices), tuple(sorted(indices))))
        return foreign

    def close(self) -> None:
        with self._lock:
            if self._nvml is not None:
                self._nvml.nvmlShutdown()
                self._nvml = None

    def _driver(self) -> tuple[Any, str | None]:
        """NVML, initialised; or None and the reason."""
        if self._nvml is None:
            import pynvml  # noqa: PLC0415 -- not loaded for simulated GPUs

            try:
                pynvml.nvmlInit()
            except pynvml.NVMLError as problem:
                if getattr(problem, "value", None) in _no_driver(pynvml):
                    return None, str(problem)
                raise ClusterUnavailableError(
                    f"The NVIDIA driver does not answer: {problem}. Look at `nvidia-smi` and the kernel's log."
                ) from problem
            self._nvml = pynvml
        return self._nvml, None

    def _cards(self, nvml: Any) -> tuple[GpuReport, ...]:
        try:
            return tuple(card for gpu in range(nvml.nvmlDeviceGetCount()) for card in self._cards_of(nvml, gpu))
        except nvml.NVMLError as problem:
            raise ClusterUnavailableError(
                f"The NVIDIA driver could not list its GPUs: {problem}. Look at `nvidia-smi`."
            ) from problem

    def _cards_of(self, nvml: Any, gpu: int) -> tuple[GpuReport, ...]:
        """A GPU of the driver, or its instances; what was seen of it before it was lost."""
        try:
            cards = tuple(self._card(nvml, index, handle) for index, handle in _handles(nvml, gpu).items())
        except nvml.NVMLError as problem:
            known = self._seen.get(gpu)
            if problem.value != nvml.NVML_ERROR_GPU_IS_LOST or known is None:
                raise
            return tuple(replace(card, condition=GpuCondition.LOST) for card in known)
        self._seen[gpu] = cards
        return cards

    def _card(self, nvml: Any, index: int, handle: Any) -> GpuReport:
        product = _text(nvml.nvmlDeviceGetName(handle))
        report = GpuReport(
            index=index,
            gpu_type=normalised_gpu_type(product),
            uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        )
        self._products[report.uuid] = product
        return report

    def _read_links(self, nvml: Any, cards: int) -> Links | None:
        """The links between the GPUs, as the driver last reported them for this number of GPUs."""
        try:
            self._links = links_of(nvml, [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(cards)])
        except nvml.NVMLError as problem:
            if not self._links_missed:
                _log.info("the driver reports no links between its GPUs", why=str(problem))
            self._links_missed = True
        return self._links if self._links is not None and len(self._links) == cards else None

    def _compute_processes(self, nvml: Any) -> dict[int, set[int]]:
        users: dict[int, set[int]] = {}
        try:
            for gpu in range(nvml.nvmlDeviceGetCount()):
                for index, handle in _handles(nvml, gpu).items():
                    for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                        users.setdefault(int(process.pid), set()).add(index)
        except nvml.NVMLError as problem:
            raise ClusterUnavailableError(
                f"The NVIDIA driver could not list the processes on its GPUs: {problem}. Look at `nvidia-smi`."
            ) from problem
        return users


def _handles(nvml: Any, gpu: int) -> dict[int, Any]:
    """A GPU, or its instances if it is in MIG mode, by the indices that they have with us.

    Whatever becomes of the other GPUs, an instance has the same index: it is what the ledger knows of it. Raises
    nvml.NVMLError, also if an instance does not answer.
    """
    handle = nvml.nvmlDeviceGetHandleByIndex(gpu)
    if not is_in_mig_mode(nvml, handle):
        return {gpu: handle}
    found = mig_instances(nvml, handle)
    for instance in found.values():
        if isinstance(instance, Exception):
            raise instance
    return {instance_index(gpu, number): instance for number, instance in found.items()}


def _no_driver(nvml: Any) -> tuple[int, ...]:
    return (
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        nvml.NVML_ERROR_DRIVER_NOT_LOADED,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        nvml.NVML_ERROR_NOT_SUPPORTED,
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _process_name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "its name can't be read"
