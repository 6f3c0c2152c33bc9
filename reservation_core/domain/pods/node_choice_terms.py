"""Which nodes a pod accepts: its node selector, its required node affinity, its tolerations.

The rules are those of Kubernetes (`core/v1` NodeSelector, Toleration): terms are alternatives, all requirements of a
term have to hold, an empty term matches nothing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
FORBIDDING: Final = frozenset({"NoSchedule", "NoExecute"})
"""The effects of taints that keep a pod from a node; `PreferNoSchedule` is only a preference."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Tolerated:
    """A pod's toleration. Without a key, `Exists` tolerates every key; without an effect, every effect."""

    key: str
    operator: str
    value: str
    effect: str

    def covers(self, taint: Taint) -> bool:
        """Whether it tolerates the taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.operator == "Exists":
            return self.key in ("", taint.key)
        return self.key == taint.key and self.value == taint.value


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement on a label, or on the field `metadata.name` (`field`)."""

    key: str
    operator: str
    values: tuple[str, ...]
    field: bool = False

    def holds(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node meets it. No node meets an unknown operator."""
        value = (name if self.key == "metadata.name" else None) if self.field else labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compare(value)
            case _:
                return False

    def _compare(self, value: str | None) -> bool:
        numbers = [value or "", *self.values]
        if len(numbers) != 2 or not all(_INTEGER.fullmatch(number) for number in numbers):
            return False
        left, right = map(int, numbers)
        return left > right if self.operator == "Gt" else left < right


@dataclass(frozen=True, slots=True)
class Terms:
    """A pod's demands on its node. `alternatives` is None without a required affinity."""

    selector: tuple[tuple[str, str], ...] = ()
    alternatives: tuple[tuple[Requirement, ...], ...] | None = None
    tolerations: tuple[Tolerated, ...] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the pod's selector and affinity allow a node."""
        if any(labels.get(key) != value for key, value in self.selector):
            return False
        if self.alternatives is None:
            return True
        return any(term and all(requirement.holds(name, labels) for requirement in term) for term in self.alternatives)

    def untolerated(self, taints: Sequence[Taint]) -> list[Taint]:
        """The taints that keep the pod from the node."""
        forbidding = [taint for taint in taints if taint.effect in FORBIDDING]
        return [taint for taint in forbidding if not any(toleration.covers(taint) for toleration in self.tolerations)]
