"""How long a job will really run: the share of its time that jobs like it needed."""

from collections import deque
from datetime import timedelta

from reservation_core.domain.planning.predictions.newest_numbers import NewestNumbers
from reservation_core.domain.planning.run_times import RunTime

OWN = 2
"""How many of an owner's last jobs of a kind say how long the next one runs."""

_NEWEST = 200
_ENOUGH = 5
_OWNERS = 20_000
_KINDS = 1000

_Kind = tuple[int, int]
"""GPUs in all, and the power of two below the seconds that were asked for."""


class RunTimeShares:
    """Shares (run time / asked time) of jobs that ended: of each owner and kind the last two, else of everybody's.

    Of everybody's newest jobs of the kind, or else of all kinds, it is the median that counts. Asked times include
    `allowance`, as a waiting job's length does.
    """

    def __init__(self, allowance: timedelta = timedelta(0)) -> None:
        self._allowance = allowance.total_seconds()
        self._own: dict[tuple[int, _Kind], deque[float]] = {}
        self._kinds: dict[_Kind, NewestNumbers] = {}
        self._all = NewestNumbers(_NEWEST)

    def learn(self, run_time: RunTime) -> None:
        """Learn from a job that ended."""
        asked = run_time.asked + self._allowance
        if asked <= 0:
            return
        share = min(1.0, run_time.ran / asked)
        kind = _kind(run_time.gpus * run_time.nodes, asked)
        # The newest is put last; when there are too many, the first goes.
        own = self._own.pop((run_time.owner, kind), deque[float](maxlen=OWN))
        own.append(share)
        self._own[run_time.owner, kind] = own
        of_kind = self._kinds.pop(kind, NewestNumbers(_NEWEST))
        of_kind.add(share)
        self._kinds[kind] = of_kind
        self._all.add(share)
        if len(self._own) > _OWNERS:
            del self._own[next(iter(self._own))]
        if len(self._kinds) > _KINDS:
            del self._kinds[next(iter(self._kinds))]

    def __len__(self) -> int:
        return len(self._all)

    def predict(self, owner: int | None, gpus: int, asked: float, ran: float = 0) -> float:
        """How many seconds a job of so many GPUs in all will run, of those it asked for, if it has run for so long.

        All of them where nothing is known. An owner of None is not known.
        """
        if asked <= 0:
            return 0
        own = None if owner is None else self._own.get((owner, _kind(gpus, asked)))
        if own is not None and len(own) == OWN and (share := sum(own) / OWN) > ran / asked:
            return share * asked
        return self._of_all(0.5, gpus, asked, ran)

    def predict_long(self, gpus: int, asked: float, ran: float = 0) -> float:
        """So many seconds, or fewer, nine of ten such jobs run, see `predict`; whose job it is makes no difference."""
        if asked <= 0:
            return 0
        return self._of_all(0.9, gpus, asked, ran)

    def _of_all(self, part: float, gpus: int, asked: float, ran: float) -> float:
        for shares in (self._kinds.get(_kind(gpus, asked)), self._all):
            if shares is not None and len(shares) >= _ENOUGH:
                share = shares.quantile_above(part, ran / asked)
                if share is not None:
                    return share * asked
        return asked


def _kind(gpus: int, asked: float) -> _Kind:
    return gpus, int(asked).bit_length()
