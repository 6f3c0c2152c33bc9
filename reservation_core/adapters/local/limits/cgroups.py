"""Control groups (cgroup v2) that keep pods on this machine to the CPUs and memory that their jobs asked for.

They need a folder below /sys/fs/cgroup that this user may write and in which no process runs itself, as systemd makes
for a service with `Delegate=yes`. Without one, what jobs ask for is counted and not kept, which is logged once.
"""

from pathlib import Path

import structlog

from reservation_core.domain.request_terms import Resources

_log = structlog.get_logger(__name__)
_CONTROLLERS = frozenset({"cpu", "memory"})
_PERIOD_US = 100_000
_LEAST_US = 1000
"""The kernel refuses less."""


class PodCgroups:
    """The control groups of pods below one folder. `root` is None where nothing can be kept."""

    def __init__(self, root: Path | None, why_not: str | None = None) -> None:
        self.root = root
        self.why_not = why_not
        self._said = False

    @classmethod
    def open(cls, folder: Path | None) -> "PodCgroups":
        """Prepare a folder of GPU_DEV_LOCAL_CGROUP; what hinders that is said when a job asks for something."""
        if folder is None:
            return cls(None, "GPU_DEV_LOCAL_CGROUP names no control group")
        try:
            missing = _CONTROLLERS - set((folder / "cgroup.controllers").read_text().split())
            if missing:
                return cls(None, f"{folder} has no controllers for {' and '.join(sorted(missing))}")
            enabled = set((folder / "cgroup.subtree_control").read_text().split())
            if not enabled >= _CONTROLLERS:
                (folder / "cgroup.subtree_control").write_text("+cpu +memory")
        except OSError as problem:
            return cls(None, f"{folder} can't be used as a control group: {problem}")
        return cls(folder)

    def make(self, pod: str, asked: Resources | None) -> Path | None:
        """The control group for a pod whose job asked for CPUs or memory; None for others, and where none is kept.

        Raises OSError.
        """
        if asked is None or asked.share == (None, None):
            return None
        if self.root is None:
            if not self._said:
                _log.warning("CPUs and memory of jobs are counted, and not kept", why=self.why_not)
            self._said = True
            return None
        group = self.root / pod
        group.mkdir(exist_ok=True)
        if asked.share.cpu_milli is not None:
            quota_us = max(_LEAST_US, asked.share.cpu_milli * _PERIOD_US // 1000)
            (group / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}")
        if asked.share.memory_bytes is not None:
            (group / "memory.max").write_text(str(asked.share.memory_bytes))
        return group

    def remove_empty(self) -> None:
        """Remove the control groups of pods that have ended."""
        for group in () if self.root is None else self.root.iterdir():
            if group.is_dir():
                try:
                    group.rmdir()
                except OSError:
                    continue  # its pod runs
