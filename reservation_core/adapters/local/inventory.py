"""The GPUs of this machine: from NVML, or simulated by `GPU_DEV_LOCAL_GPUS`.

Each instance of a GPU in MIG mode is a GPU of a type of its own, with an index from 64; the GPU itself is not listed.

The setting: nodes separated by `;`, each `[name=]type:count[,type:count...]`, as in `h100:4` or `a=h100:8;b=t4:2,l4:2`.
Indices are consecutive within a node. A node without a name is named after this machine.
"""

import os
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import psutil
import structlog

from reservation_core.adapters.local.gpu_links import links_of
from reservation_core.adapters.local.gpu_use.bounded_calls import BoundedCalls
from reservation_core.adapters.local.gpu_use.mig_instances import is_in_mig_mode, mig_instances
from reservation_core.adapters.local.gpu_use.nvml_answers import answer_of
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

T = TypeVar("T")

_log = structlog.get_logger(__name__)
ANSWER_S = 10.0
"""How long one look waits for the driver, which may have to wake its GPUs."""
_DRIVER, _LINKS = -1, -2
"""The keys of calls that ask for no single GPU."""
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
        self._calls: BoundedCalls[int] = BoundedCalls(ANSWER_S)
        self._nvml: Any = None
        self._seen: dict[int, dict[int, GpuReport]] = {}
        """The driver's GPUs, or their instances, by index as they were last seen."""
        self._silent: frozenset[str] = frozenset()
        self._unlisting: frozenset[int] = frozenset()
        self._products: dict[str | None, str] = {}
        self._in_parts: bool | None = None
        self._links: Links | None = None
        self._links_missed = False

    @property
    def simulated(self) -> bool:
        """Whether the GPUs exist in the setting only."""
        return self._simulated is not None

    def nodes(self) -> list[NodeReport]:
        """Every node with its GPUs. Raises ClusterUnavailableError when the driver exists but does not answer.

        A GPU or an instance that does not answer is lost, or left out if it was never seen.
        """
        if self._simulated is not None:
            return [self._sized(node) for node in self._simulated]
        with self._lock:
            count, why = self._count()
            gpus = self._cards(count)
            self._in_parts = any(is_instance(gpu.uuid) for gpu in gpus)
            links = None if self._in_parts or len(gpus) != count else self._read_links(count)
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
        """Processes outside our pods that compute on our GPUs; none for simulated GPUs.

        A GPU that does not say what computes on it counts as used by others unless we use it: nothing is placed there.
        """
        if self._simulated is not None:
            return []
        with self._lock:
            users, unsaid = self._compute_processes(self._count()[0])
            for index, problem in unsaid.items():
                if index not in self._unlisting:
                    _log.warning("a GPU does not list its processes", gpu=index, why=str(problem))
            self._unlisting = frozenset(unsaid)
        foreign = [
            ForeignPod(self._node, f"something that the driver does not list ({problem})", 1, (index,), certain=False)
            for index, problem in sorted(unsaid.items())
        ]
        for pid, indices in sorted(users.items()):
            if not is_pod_process(pid):
                text = f"process {pid} ({_process_name(pid)})"
                foreign.append(ForeignPod(self._node, text, len(indices), tuple(sorted(indices))))
        return foreign

    def close(self) -> None:
        """Release the driver, unless one of its calls hangs."""
        with self._lock:
            if self._nvml is not None and not self._calls.hanging:
                self._calls.run({_DRIVER: self._nvml.nvmlShutdown})
                self._nvml = None

    def _count(self) -> tuple[int, str | None]:
        """How many GPUs the driver has; without a driver 0 and the reason. Raises ClusterUnavailableError."""
        if self._nvml is None:
            import pynvml  # noqa: PLC0415 -- not loaded for simulated GPUs

            started = self._calls.run({_DRIVER: pynvml.nvmlInit}).get(_DRIVER, _NO_ANSWER)
            if isinstance(started, pynvml.NVMLError) and started.value in _no_driver(pynvml):
                return 0, str(started)
            if isinstance(started, Exception):
                raise ClusterUnavailableError(
                    f"The NVIDIA driver does not answer: {started}. Look at `nvidia-smi` and the kernel's log."
                ) from started
            self._nvml = pynvml
        count = self._calls.run({_DRIVER: self._nvml.nvmlDeviceGetCount}).get(_DRIVER, _NO_ANSWER)
        if isinstance(count, Exception):
            raise _unlisted(count) from count
        return int(count), None

    def _cards(self, count: int) -> tuple[GpuReport, ...]:
        """The GPUs, or their instances. One that does not answer changes no other."""
        answers = self._of_each(count, self._card)
        failed: dict[str, Exception] = {}
        for gpu, answer in answers.items():
            seen = self._seen.get(gpu, {})
            found = dict.fromkeys(seen, answer) if isinstance(answer, Exception) else answer
            if isinstance(answer, Exception):
                failed[str(gpu)] = answer
            cards: dict[int, GpuReport] = {}
            for index, card in found.items():
                if isinstance(card, GpuReport):
                    cards[index] = card
                    continue
                failed[str(index)] = card
                if index in seen:
                    cards[index] = replace(seen[index], condition=GpuCondition.LOST)
            self._seen[gpu] = cards
        self._note(failed)
        listed = tuple(card for gpu in range(count) for card in self._seen[gpu].values())
        if failed and not listed:
            problem = next(iter(failed.values()))
            raise _unlisted(problem) from problem
        return listed

    def _of_each(self, count: int, ask: Callable[[int, Any], T]) -> dict[int, dict[int, T | Exception] | Exception]:
        """Ask each GPU, or its instances by index, side by side; a GPU that does not answer has its error."""
        calls = {gpu: partial(_asked, self._nvml, gpu, ask) for gpu in range(count)}
        found = self._calls.run(calls)
        return {gpu: found.get(gpu, _NO_ANSWER) for gpu in range(count)}

    def _note(self, failed: dict[str, Exception]) -> None:
        """Log which GPUs stopped or began to answer."""
        for gpu, problem in failed.items():
            if gpu not in self._silent:
                _log.warning("a GPU does not answer", gpu=gpu, why=str(problem))
        for gpu in self._silent - failed.keys():
            _log.info("a GPU answers again", gpu=gpu)
        self._silent = frozenset(failed)

    def _card(self, index: int, handle: Any) -> GpuReport:
        nvml = self._nvml
        product = _text(nvml.nvmlDeviceGetName(handle))
        report = GpuReport(
            index=index,
            gpu_type=normalised_gpu_type(product),
            uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        )
        self._products[report.uuid] = product
        return report

    def _read_links(self, count: int) -> Links | None:
        """The links between the GPUs, as the driver last reported them for this number of GPUs."""
        nvml = self._nvml
        found = self._calls.run({_LINKS: lambda: links_of(nvml, _whole_gpus(nvml, count))}).get(_LINKS, _NO_ANSWER)
        if not isinstance(found, Exception):
            self._links = found
        elif not self._links_missed:
            _log.info("the driver reports no links between its GPUs", why=str(found))
            self._links_missed = True
        return self._links if self._links is not None and len(self._links) == count else None

    def _compute_processes(self, count: int) -> tuple[dict[int, set[int]], dict[int, Exception]]:
        """The indices that each process computes on, and the errors of GPUs that do not say, unless they are lost."""
        users: dict[int, set[int]] = {}
        unsaid: dict[int, Exception] = {}
        for gpu, answer in self._of_each(count, self._processes).items():
            seen = self._seen.get(gpu, {})
            found = dict.fromkeys(seen, answer) if isinstance(answer, Exception) else answer
            for index, pids in found.items():
                if not isinstance(pids, Exception):
                    for pid in pids:
                        users.setdefault(pid, set()).add(index)
                elif index in seen and seen[index].condition is not GpuCondition.LOST:
                    unsaid[index] = pids
        return users, unsaid

    def _processes(self, _index: int, handle: Any) -> set[int]:
        nvml = self._nvml
        found = answer_of(nvml, partial(nvml.nvmlDeviceGetComputeRunningProcesses, handle))
        return {int(process.pid) for process in found or ()}


_NO_ANSWER = TimeoutError(f"no answer in {ANSWER_S:.0f} seconds")


def _unlisted(problem: Exception) -> ClusterUnavailableError:
    return ClusterUnavailableError(f"The NVIDIA driver could not list its GPUs: {problem}. Look at `nvidia-smi`.")


def _whole_gpus(nvml: Any, count: int) -> list[Any]:
    return [nvml.nvmlDeviceGetHandleByIndex(gpu) for gpu in range(count)]


def _asked(nvml: Any, gpu: int, ask: Callable[[int, Any], T]) -> dict[int, T | Exception]:
    """Ask a GPU, or each of its instances if it is in MIG mode, by the indices that they have with us.

    Whatever becomes of the other GPUs, an instance has the same index: it is what the ledger knows of it. An instance
    that does not answer has its error. Raises nvml.NVMLError.
    """
    handle = nvml.nvmlDeviceGetHandleByIndex(gpu)
    if not is_in_mig_mode(nvml, handle):
        return {gpu: ask(gpu, handle)}
    found: dict[int, T | Exception] = {}
    for number, instance in mig_instances(nvml, handle).items():
        index = instance_index(gpu, number)
        try:
            found[index] = instance if isinstance(instance, Exception) else ask(index, instance)
        except nvml.NVMLError as problem:
            found[index] = problem
    return found


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
