"""CPUs and memory as Slurm's options name them: for a task, a GPU, a CPU or a node. One task runs on each node here."""

import re
from collections.abc import Mapping

from gpu_dev.slurm.reading.words import Given, Remark

_CPUS = ("cpus-per-task", "cpus-per-gpu")
_MEMORY = ("mem", "mem-per-gpu", "mem-per-cpu")
AMOUNTS = frozenset({*_CPUS, *_MEMORY})
_COUNT = re.compile(r"[1-9]\d{0,5}", re.ASCII)
_SIZE = re.compile(r"([1-9]\d{0,14})(?:([KMGT])B?)?", re.ASCII | re.IGNORECASE)
_MIB = {"K": 2**-10, "": 1, "M": 1, "G": 2**10, "T": 2**20}


def read_amounts(winners: Mapping[str, Given], gpus: int | None) -> tuple[int | None, str | None, list[Remark]]:
    """CPUs and memory on each node, as of `--cpus` and `--memory` of gpu-dev, and why options can't be honoured.

    `gpus` is the number of GPUs on each node; None where it was refused.
    """
    refusals: list[Remark] = []
    cpus = _read_cpus(winners, gpus, refusals)
    return cpus, _read_memory(winners, gpus, cpus or 1, refusals), refusals


def _read_cpus(winners: Mapping[str, Given], gpus: int | None, refusals: list[Remark]) -> int | None:
    if (given := _only(winners, _CPUS, refusals)) is None:
        return None
    if not _COUNT.fullmatch(given.value or ""):
        refusals.append(Remark(given.line, given.text, "It is a number of CPUs, as in --cpus-per-task=8."))
        return None
    return int(given.value or "") * _times(given, gpus, refusals)


def _read_memory(winners: Mapping[str, Given], gpus: int | None, cpus: int, refusals: list[Remark]) -> str | None:
    if (given := _only(winners, _MEMORY, refusals)) is None:
        return None
    size = _SIZE.fullmatch(given.value or "")
    if size is None:
        text = "Name an amount, as in --mem=64G. Without one the job has the share of the node that its GPUs are."
        refusals.append(Remark(given.line, given.text, text))
        return None
    of_each = int(int(size[1]) * _MIB[(size[2] or "").upper()] * 2**20)
    return str(of_each * (cpus if given.option.name == "mem-per-cpu" else _times(given, gpus, refusals)))


def _only(winners: Mapping[str, Given], names: tuple[str, ...], refusals: list[Remark]) -> Given | None:
    given = [winners[name] for name in names if name in winners]
    if len(given) > 1:
        text = "These options exclude each other. Keep one of them."
        refusals.append(Remark(None, ", ".join(one.text for one in given), text))
    return given[0] if len(given) == 1 else None


def _times(given: Given, gpus: int | None, refusals: list[Remark]) -> int:
    if gpus is None or not given.option.name.endswith("per-gpu"):
        return 1
    if gpus == 0:
        refusals.append(Remark(given.line, given.text, "The job has no GPU. Use --cpus-per-task and --mem."))
    return gpus
