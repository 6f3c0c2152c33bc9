"""How predicted waits compare with real ones, and the quantiles that make p50 and p90 right as often as they say.

This is conformal prediction: a predicted wait is multiplied by a quantile of the ratios (real / predicted) of the waits
before it, of those that were predicted to be about as long. Which quantile follows how often the last ones were right:
each wrong p90 raises it, each right one lowers it by a ninth of that (Gibbs and Candès, "Adaptive conformal inference
under distribution shift", 2021).
"""

from bisect import bisect_right
from math import exp, log
from typing import NamedTuple

from reservation_core.domain.planning.predictions.newest_numbers import NewestNumbers

LEVELS = (0.5, 0.9)
"""How often a start is to come by p50, and by p90."""

ENOUGH = 10
"""Without so many waits that were predicted to be about as long there is no p50 and no p90."""

_CLASSES = (60.0, 3600.0)
"""Predicted waits below a minute, below an hour, and all others are compared each among themselves."""

_NEWEST = 100
_LEAST = 60.0
"""Seconds added to each wait, so that a wait of nothing has a ratio, too."""

_STEP = 0.004
_FARTHEST = 1.5
"""Beyond 1 only the promise will do; how far beyond is how long it takes to come back."""


class LearntWaits(NamedTuple):
    """All that a calibration has learnt: the quantile of each level, and the ratios of each class, oldest first."""

    quantiles: tuple[float, ...]
    ratios: tuple[tuple[float, ...], ...]


class WaitCalibration:
    """Ratios of the newest waits by class, as logarithms, and the quantile of them that is used for each level."""

    def __init__(self, learnt: LearntWaits | None = None) -> None:
        self._ratios = [NewestNumbers(_NEWEST) for _ in range(len(_CLASSES) + 1)]
        self._quantiles = {level: level for level in LEVELS}
        if learnt is not None:
            self._quantiles = dict(zip(LEVELS, learnt.quantiles, strict=True))
            for ratios, numbers in zip(self._ratios, learnt.ratios, strict=True):
                for number in numbers:
                    ratios.add(number)

    @property
    def learnt(self) -> LearntWaits:
        """All that it has learnt, for another calibration to go on with."""
        return LearntWaits(tuple(self._quantiles.values()), tuple(ratios.oldest_first for ratios in self._ratios))

    def learn(self, predicted: float, real: float) -> None:
        """Learn from a wait (seconds) that is over."""
        self._ratios[bisect_right(_CLASSES, predicted)].add(log((real + _LEAST) / (predicted + _LEAST)))

    def judge(self, level: float, *, right: bool) -> None:
        """Note that a start came by the time of a level, or did not."""
        quantile = self._quantiles[level] + _STEP * ((0 if right else 1) - (1 - level))
        self._quantiles[level] = max(0.0, min(_FARTHEST, quantile))

    def waits(self, predicted: float) -> list[float | None] | None:
        """The waits (seconds) that are right as often as LEVELS say, in order; None in it: only a promise is.

        None where too little is known of such waits.
        """
        ratios = self._ratios[bisect_right(_CLASSES, predicted)]
        if len(ratios) < ENOUGH:
            return None
        answer: list[float | None] = []
        least = 0.0
        for level in LEVELS:
            quantile = self._quantiles[level]
            if quantile >= 1 or (answer and answer[-1] is None):
                answer.append(None)
                continue
            least = max(least, (predicted + _LEAST) * exp(ratios.quantile(quantile)) - _LEAST)
            answer.append(least)
        return answer
