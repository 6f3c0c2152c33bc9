"""Printing what was measured: the median, the spread, and the target beside it."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report. `at_least` says whether more or less is better than `target`."""

    name: str
    unit: str
    samples: Sequence[float]
    target: float
    at_least: bool
    detail: str = ""

    @property
    def median(self) -> float:
        """The middle of the samples."""
        return statistics.median(self.samples)

    @property
    def met(self) -> bool:
        """Whether the median is on the right side of the target."""
        return self.median >= self.target if self.at_least else self.median <= self.target

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        spread = f"{min(self.samples):.3g}–{max(self.samples):.3g} in {len(self.samples)}"
        verdict = "met" if self.met else "MISSED"
        line = (
            f"{self.name}: {self.median:.3g}{self.unit} ({spread} rounds); "
            f"target {sign} {self.target:g}{self.unit}: {verdict}"
        )
        return f"{line}\n    {self.detail}" if self.detail else line
