"""Profiles of a process: samples of stacks, tasks, counts of objects; never a value."""

import asyncio
import gc
import sys
import threading
import time
import traceback
from collections import Counter
from types import FrameType
from typing import Any

import psutil

_TYPES = 40
_DEEPEST = 200


def sample_stacks(seconds: float, every_s: float, stop: threading.Event) -> Counter[str]:
    """How often each stack of each thread was seen at work. Blocks so long, or until `stop` is set.

    A stack is written `outermost;…;innermost`, as flame graphs are made of.
    """
    found: Counter[str] = Counter()
    own = threading.get_ident()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    until = time.monotonic() + seconds
    while time.monotonic() < until and not stop.wait(every_s):
        for ident, frame in sys._current_frames().items():  # noqa: SLF001 - there is no other word for it
            if ident != own:
                found[f"{names.get(ident, ident)};{_stack(frame)}"] += 1
    return found


def describe_tasks() -> str:
    """Every task of the running loop and every thread, with where each of them is."""
    lines: list[str] = []
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    lines.append(f"{len(tasks)} tasks")
    for task in tasks:
        lines += ["", f"task {task.get_name()}:"]
        lines += _awaited(task.get_coro())
    frames = sys._current_frames()  # noqa: SLF001 - as above
    lines += ["", f"{len(frames)} threads"]
    for thread in threading.enumerate():
        lines += ["", f"thread {thread.name}:"]
        if thread.ident in frames:
            lines += _places(traceback.extract_stack(frames[thread.ident], limit=_DEEPEST))
    return "\n".join(lines) + "\n"


def describe_memory() -> str:
    """How much memory the process has, the garbage collector's counts, and of which types there are most objects."""
    memory = psutil.Process().memory_info()
    lines = [f"resident {memory.rss} bytes, virtual {memory.vms} bytes", "", "generation collections collected"]
    lines += [
        f"{generation} {stat['collections']} {stat['collected']}" for generation, stat in enumerate(gc.get_stats())
    ]
    lines += ["", f"kept for good {gc.get_freeze_count()}", "", "objects type (those that the collector follows)"]
    kinds = Counter(f"{type(candidate).__module__}.{type(candidate).__qualname__}" for candidate in gc.get_objects())
    lines += [f"{count} {name}" for name, count in kinds.most_common(_TYPES)]
    return "\n".join(lines) + "\n"


def _stack(frame: FrameType) -> str:
    names: list[str] = []
    each: FrameType | None = frame
    while each is not None and len(names) < _DEEPEST:
        names.append(f"{each.f_globals.get('__name__', '?')}.{each.f_code.co_qualname}")
        each = each.f_back
    return ";".join(reversed(names))


def _awaited(coroutine: object) -> list[str]:
    """Where a coroutine is, and where each of those is that it waits for, from the outermost in."""
    lines: list[str] = []
    each: Any = coroutine
    while each is not None and len(lines) < _DEEPEST:
        frame = getattr(each, "cr_frame", None) or getattr(each, "gi_frame", None)
        if frame is None:
            return [*lines, f"  waits for {type(each).__name__}"]
        lines += _places(traceback.extract_stack(frame, limit=1))
        each = getattr(each, "cr_await", None) or getattr(each, "gi_yieldfrom", None)
    return lines


def _places(stack: traceback.StackSummary) -> list[str]:
    return [f"  {place.filename}:{place.lineno} {place.name}" for place in stack]
