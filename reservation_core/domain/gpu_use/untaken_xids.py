"""Xid errors that the processor may not have yet: the driver reports each of them once, and an answer may be lost."""

from collections.abc import Sequence
from dataclasses import replace

from reservation_core.domain.gpu_use.gpu_errors import worse_xid
from reservation_core.domain.gpu_use.samples import GpuSample

_MOST = 256


class UntakenXids:
    """An agent's last look, and the Xid errors of looks before it until the asker confirms that it has them.

    Looks are counted from `first`, another number in each run of an agent: an asker then confirms nothing of this run
    that it has from another one. An asker that confirms nothing gets the errors of the last look, and those that waited
    for it: others of earlier looks may be stored already, by the leader before.
    """

    def __init__(self, first: int) -> None:
        self._first = self._look = first
        self._samples: Sequence[GpuSample] = ()
        self._xids: list[tuple[int, str, int]] = []

    @property
    def look(self) -> int:
        """The number of the last look."""
        return self._look

    def add(self, samples: Sequence[GpuSample], arrived: int | None = None) -> None:
        """Note a look. Errors since the look that has arrived, of GPUs without a sample in this one, wait for one.

        Where the asker confirms nothing, only those that wait already do: the leader before may have the others.
        """
        known = self._confirm(arrived)
        self._look += 1
        self._samples = samples
        seen = {sample.uuid for sample in samples}
        self._xids = [
            (self._look + 1 if uuid not in seen and (known or at == self._look) else at, uuid, xid)
            for at, uuid, xid in self._xids
        ]
        found = [(self._look, sample.uuid, sample.xid) for sample in samples if sample.xid is not None]
        self._xids = [*self._xids, *found][-_MOST:]

    def after(self, look: int | None) -> Sequence[GpuSample]:
        """The samples of the last look, with the errors since a look whose answer has arrived."""
        since = self._first if self._confirm(look) else self._look
        worst: dict[str, int] = {}
        for at, uuid, xid in self._xids:
            if at >= since:
                worst[uuid] = worse_xid(worst.get(uuid), xid)
        return [replace(sample, xid=worst.get(sample.uuid)) for sample in self._samples]

    def _confirm(self, look: int | None) -> bool:
        """Forget the errors up to a look whose answer has arrived; false where the look is not one of this run."""
        if look is None or not self._first <= look <= self._look:
            return False
        self._xids = [found for found in self._xids if found[0] > look]
        return True
