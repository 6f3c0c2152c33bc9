"""Bound the total size of local logs: remove old ones, then shorten those of running pods."""

import contextlib
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from reservation_core.adapters.local import log_reading
from reservation_core.adapters.local.bounded_log import SMALLEST_LIMIT
from reservation_core.adapters.local.output_times import MOST_RECORDS, RECORD
from reservation_core.adapters.local.pod_directories import PodDirectories
from reservation_core.adapters.local.pod_files import write_atomically
from reservation_core.ports.cluster import TrimmedLogs


@dataclass(frozen=True, slots=True)
class _Log:
    """One pod's log, the bytes of its output and of its times, and its last change."""

    path: Path
    output: int
    times: int
    written_at: datetime
    running: bool

    @property
    def size(self) -> int:
        return self.output + self.times


def trim_logs(pods: PodDirectories, written_before: datetime | None, most_bytes: int | None) -> TrimmedLogs:
    """See ports.cluster.Cluster.trim_logs. Blocks; may raise OSError."""
    logs = _logs(pods)
    total = sum(log.size for log in logs)
    removed: list[_Log] = []
    for log in sorted(logs, key=lambda log: log.written_at):
        old = written_before is not None and log.written_at < written_before
        too_much = most_bytes is not None and total > most_bytes
        if not log.running and (old or too_much):
            log_reading.remove(log.path)
            removed.append(log)
            total -= log.size
    left = [log for log in logs if log not in removed]
    if most_bytes is not None and total > most_bytes:
        # Only logs of running pods are left.
        # Times can't be cut, and grow: with room for twice as many, limits are lowered a few times in a pod's life.
        for_times = sum(min(1 << log.times.bit_length(), MOST_RECORDS * RECORD) for log in left)
        limit = max(SMALLEST_LIMIT, fair_limit([log.output for log in left], most_bytes - for_times))
        for log in left:
            if log.output > limit:
                with contextlib.suppress(FileNotFoundError):  # the pod has just ended
                    write_atomically(str(pods.pods / log.path.stem / "log_limit"), str(limit).encode())
    return TrimmedLogs(
        removed=len(removed),
        removed_bytes=sum(log.size for log in removed),
        kept_bytes=total,
        oldest_at=min((log.written_at for log in left), default=None),
    )


def fair_limit(sizes: list[int], most: int) -> int:
    """The largest bound with which sizes, cut to it, sum up to at most `most`."""
    left = most
    for number, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - number)
        if size > share:
            return share
        left -= size
    return max(sizes, default=0)


def _logs(pods: PodDirectories) -> list[_Log]:
    # Read first: a pod that ends meanwhile counts as running, and its log is trimmed the next time.
    running = set(pods.names())
    logs: list[_Log] = []
    for entry in os.scandir(pods.logs):
        if not entry.name.endswith(".log"):
            continue
        path = Path(entry.path)
        with contextlib.suppress(FileNotFoundError):
            size, written_at = log_reading.size_and_time(path)
            times = log_reading.times_size(path)
            logs.append(_Log(path, size, times, datetime.fromtimestamp(written_at, UTC), path.stem in running))
    return logs
