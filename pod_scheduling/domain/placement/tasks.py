"""Tasks for one node, and what nodes have for them: the words that every placement policy speaks."""

from dataclasses import dataclass

WHOLE = 1000
"""A whole card in thousandths."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one pod asks of a node: processor time (thousandths of cores), memory (MiB), and cards.

    `cards` whole ones, each with `card_milli` = 1000; or one card of which `card_milli` thousandths (1-999) and
    `card_memory` units of its memory are wanted; or none. `gpu_types` are normalised; None takes any.
    """

    cpu_milli: int
    memory_mib: int
    cards: int
    card_milli: int = WHOLE
    card_memory: int = 0
    gpu_types: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.cards < 0 or not 0 < self.card_milli <= WHOLE or (self.card_milli < WHOLE and self.cards > 1):
            raise ValueError(f"nobody can ask for this: {self}")


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What a node has when nobody is on it: `card_memory` units on each of its `cards`, all of one `gpu_type`.

    `links` says how well cards are joined, as `links[i][j]`, larger is better; None where the node does not say.
    """

    name: str
    cpu_milli: int
    memory_mib: int
    cards: int
    gpu_type: str
    card_memory: int = 0
    links: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class Spot:
    """A place for a task: a node, and indices of its cards in ascending order."""

    node: str
    cards: tuple[int, ...]
