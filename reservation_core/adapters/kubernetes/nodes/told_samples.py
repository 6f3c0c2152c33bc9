"""The samples that node agents tell, with the Xid errors of earlier answers, any of which may have been lost."""

import secrets
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from typing import Annotated

import msgspec

from reservation_core.domain.gpu_use.samples import GpuSample

REPEATED_S = 900.0
"""How long an Xid error is told again: longer than the longest time between two looks, so that one may be lost."""
_MOST_XIDS = 4


@dataclass(frozen=True, slots=True)
class EarlierXid:
    """An Xid error that an answer so long ago told first; the number is one error's."""

    number: int
    xid: Annotated[int, msgspec.Meta(ge=1, lt=2**15)]
    age_s: Annotated[float, msgspec.Meta(ge=0, le=2 * REPEATED_S)]


@dataclass(frozen=True, slots=True)
class ToldSample(GpuSample):
    """A sample with the number of its Xid error, and the last errors of answers before.

    Without any value there is no sample now.
    """

    xid_number: int | None = None
    earlier_xids: Annotated[tuple[EarlierXid, ...], msgspec.Meta(max_length=_MOST_XIDS)] = ()

    @property
    def is_sample(self) -> bool:
        """Whether the GPU has a sample now."""
        return self != ToldSample(self.uuid, self.at, node=self.node, earlier_xids=self.earlier_xids)


class XidMemory:
    """An agent's: tells Xid errors again, with their age by its own count of time, until they are `REPEATED_S` old."""

    def __init__(self) -> None:
        self._numbers = count(secrets.randbits(48))  # those of another agent on this node are others
        self._xids: dict[str, deque[tuple[int, int, float]]] = {}

    def told(self, samples: Iterable[GpuSample], at: datetime, time_s: float) -> list[ToldSample]:
        """The answer of a look; also with GPUs that have no sample in it, but had errors."""
        since_s = time_s - REPEATED_S
        earlier = {
            uuid: tuple(EarlierXid(number, xid, time_s - seen_s) for number, xid, seen_s in xids if seen_s >= since_s)
            for uuid, xids in self._xids.items()
            if xids[-1][2] >= since_s
        }
        self._xids = {uuid: self._xids[uuid] for uuid in earlier}
        told = {sample.uuid: self._numbered(sample, earlier.get(sample.uuid, ()), time_s) for sample in samples}
        silent = [ToldSample(uuid, at, earlier_xids=found) for uuid, found in earlier.items() if uuid not in told]
        return [*told.values(), *silent]

    def _numbered(self, sample: GpuSample, earlier: tuple[EarlierXid, ...], time_s: float) -> ToldSample:
        number = None
        if sample.xid is not None:
            number = next(self._numbers)
            xids = self._xids.setdefault(sample.uuid, deque(maxlen=_MOST_XIDS))
            xids.append((number, sample.xid, time_s))
        values = {name: getattr(sample, name) for name in GpuSample.__dataclass_fields__}
        return ToldSample(**values, xid_number=number, earlier_xids=earlier)


class TakenXids:
    """The leader's, of one node: which Xid errors it has taken."""

    def __init__(self) -> None:
        self._taken: frozenset[int] = frozenset()

    def take(self, told: Sequence[ToldSample], at: datetime, node: str) -> list[GpuSample]:
        """The samples of an answer as of `at`, and with their own times those of Xid errors that were not taken yet."""
        samples: list[GpuSample] = [
            replace(sample, at=at, node=node, xid=self._new_xid(sample), earlier_xids=())
            for sample in told
            if sample.is_sample
        ]
        samples += [
            GpuSample(sample.uuid, (at - timedelta(seconds=one.age_s)).replace(microsecond=0), xid=one.xid, node=node)
            for sample in told
            for one in sample.earlier_xids
            if one.number not in self._taken
        ]
        numbers = {one.number for sample in told for one in sample.earlier_xids}
        # No more than the agent tells again.
        self._taken = frozenset(numbers | {sample.xid_number for sample in told if sample.xid_number is not None})
        return samples

    def _new_xid(self, sample: ToldSample) -> int | None:
        """The Xid error of a sample; None where it was taken already, as from an answer that was given again."""
        return None if sample.xid_number is not None and sample.xid_number in self._taken else sample.xid
