"""What processor time a benchmark's processes take: its own, and all that it started."""

from collections.abc import Mapping

import psutil

CLIENT = "creating client"

_NAMES = {
    "reservation_processor": "processor",
    "benchmarks.measuring.api_process": "API service",
    "benchmarks.kubernetes.kubernetes_cluster": CLIENT,
    "kube-apiserver": "kube-apiserver",
    "etcd": "etcd",
    "postgres": "PostgreSQL",
}


def cpu_times() -> dict[str, float]:
    """Seconds of user and system time so far, by kind of process; what has ended is not counted any more."""
    times: dict[str, float] = {}
    own = psutil.Process()
    for process in [own, *own.children(recursive=True)]:
        try:
            taken = process.cpu_times()
            kind = "bench" if process == own else _kind(process)
        except psutil.NoSuchProcess:
            continue
        times[kind] = times.get(kind, 0.0) + taken.user + taken.system
    return times


def spent(before: Mapping[str, float], after: Mapping[str, float], count: int) -> dict[str, float]:
    """Milliseconds for each of `count`, by kind of process, in between."""
    return {kind: (to - before.get(kind, 0.0)) * 1000 / count for kind, to in after.items()}


def _kind(process: psutil.Process) -> str:
    words = [process.name(), *process.cmdline()]
    return next((kind for name, kind in _NAMES.items() if any(name in word for word in words)), "other")
