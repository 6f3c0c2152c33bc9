"""Amounts of CPUs and memory in words."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpu_dev.display.output import memory
from reservation_core.domain.request_terms import size_words

if TYPE_CHECKING:
    from gpu_dev.wire.base import ResourcesOut
    from gpu_dev.wire.nodes import KeptOut


def resource_words(asked: "ResourcesOut | None") -> str:
    """The CPUs and memory that a job asked for, or a booking has; nothing for a job's usual share of its nodes."""
    if asked is None:
        return ""
    sizes = (("memory", asked.memory), ("shm", asked.shm))
    parts = [] if asked.cpus is None else ["1 CPU" if asked.cpus == 1 else f"{asked.cpus:g} CPUs"]
    return ", ".join(parts + [f"{size_words(size)} {name}" for name, size in sizes if size is not None])


def kept_words(kept: "KeptOut | None") -> str:
    """What a node keeps for jobs without GPUs, and how much of it is free."""
    if kept is None:
        return ""
    cpus = f"{free_words(kept.cpus_free, kept.cpus)} {'CPU' if kept.cpus == 1 else 'CPUs'}"
    return f"{cpus}, {free_words(kept.memory_bytes_free, kept.memory_bytes, memory)}"


def free_words(free: float | None, whole: float | None, words: Callable[[Any], str] = "{:g}".format) -> str:
    """`4 of 16`; nothing where it is unknown."""
    return "" if free is None or whole is None else f"{words(free)} of {words(whole)}"
