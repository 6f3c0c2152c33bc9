"""The earliest fit in a pool against one that looks at all calendars, while places are taken and given back."""

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.calendar import FOREVER, GpuCalendar, Row, earliest_start, is_free_during, node_windows
from reservation_core.domain.model import Gpu
from reservation_core.domain.pools.pool import Pool
from reservation_core.domain.pools.pool_profile import Fit, PoolProfile
from tests.examples import ledger_examples

NOW = 1_000_000_000
STEP = 1_000_000

Sizes = st.lists(st.integers(1, 4), min_size=1, max_size=6)
Question = tuple[int, int, int, int, int]
Questions = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 9), st.integers(0, 63), st.integers(0, 40)),
    min_size=1,
    max_size=25,
)
"""Cards, nodes, length, the mask of nodes not to use, and if it is small whose place is given back instead."""


class Played:
    """A pool in which everybody gets the earliest fit and is checked for it."""

    def __init__(self, sizes: list[int]) -> None:
        ids = iter(range(100))
        gpus = [
            [Gpu(next(ids), f"n{number}", index, "h100") for index in range(size)] for number, size in enumerate(sizes)
        ]
        self.calendars = {gpu.id: GpuCalendar() for gpus_of_node in gpus for gpu in gpus_of_node}
        self.pool = Pool("h100", gpus, self.calendars)
        self.profile = PoolProfile(self.pool)
        self.fits: dict[str, Fit] = {}
        self.rows: dict[str, Row] = {}

    def expected(self, gpus: int, nodes: int, length: int, never: int, after: int) -> int | None:
        """The oracle's answer."""
        able = [node for node in self.pool.nodes if not never >> node.position & 1]
        busy = [[card.calendar.busy(after) for card in node.cards] for node in able]
        return earliest_start([node_windows(cards, gpus, length, after) for cards in busy], nodes, after)

    def check(self, fit: Fit | None, question: Question, never: int, after: int = NOW) -> None:
        """Whether it is lawful, and as early as can be."""
        gpus, nodes, length, *_ = question
        assert (None if fit is None else fit.start) == self.expected(gpus, nodes, length * STEP, never, after)
        if fit is not None:
            assert len({node.position for node, _ in fit.spots}) == nodes
            for node, mask in fit.spots:
                assert mask.bit_count() == gpus
                assert not never >> node.position & 1
                for bit, card in node.by_bit.items():
                    busy = card.calendar.busy(NOW)
                    assert not bit & mask or is_free_during(busy, fit.start, fit.start + length * STEP)

    def take(self, name: str, fit: Fit, length: int) -> None:
        """Give somebody a place."""
        row: Row = (fit.start, fit.start + length * STEP, False, name)
        for node, mask in fit.spots:
            for bit, card in node.by_bit.items():
                if bit & mask:
                    card.calendar.add(row)
        self.profile.take(fit.spots, row[0], row[1])
        self.fits[name] = fit
        self.rows[name] = row

    def give_back(self, name: str) -> None:
        """Take it away again."""
        for node, _ in self.fits.pop(name).spots:
            for card in node.cards:
                card.calendar.remove(name)
            self.profile.forget(node.position, freed=True)


@ledger_examples(500)
@given(Sizes, Questions, st.integers(0, 40))
def test_everybody_gets_the_earliest_fit_whatever_was_taken_and_given_back(
    sizes: list[int], questions: list[Question], later: int
) -> None:
    after = NOW + later * STEP
    played = Played(sizes)
    for number, question in enumerate(questions):
        gpus, nodes, length, avoided, back = question
        never = avoided & ((1 << len(sizes)) - 1)
        if f"r{back}" in played.fits:
            own = played.fits[f"r{back}"]
            instead = {
                node.position: played.profile.without(node.position, mask, played.rows[f"r{back}"], NOW)
                for node, mask in own.spots
            }
            there = played.profile.earliest(gpus, nodes, length * STEP, NOW, never=never, instead=instead)
            played.give_back(f"r{back}")
            played.check(there, question, never)
        played.check(played.profile.earliest(gpus, nodes, length * STEP, NOW, never=never), question, never)
        found = played.profile.earliest(gpus, nodes, length * STEP, NOW, never=never, after=after)
        played.check(found, question, never, after)
        fit = played.profile.earliest(gpus, nodes, length * STEP, NOW)
        played.check(fit, question, 0)
        if fit is not None:
            assert played.profile.earliest(gpus, nodes, length * STEP, NOW, before=fit.start) is None
            found = played.profile.earliest(gpus, nodes, length * STEP, NOW, before=fit.start + 1)
            assert found is not None
            assert found.start == fit.start < FOREVER
            played.take(f"r{number}", fit, length)


def test_what_fits_only_after_many_gaps_is_found() -> None:
    played = Played([1])
    start = NOW
    for gap in range(1, 8):
        # Gaps of one step, two, three …, and then for ever.
        fit = Fit(start + gap * STEP, ((played.pool.nodes[0], 1),))
        played.take(f"b{gap}", fit, 1)
        start += (gap + 1) * STEP
    for length in range(1, 10):
        found = played.profile.earliest(1, 1, length * STEP, NOW)
        assert found is not None
        played.check(found, (1, 1, length, 0, 0), 0)


Times = st.sampled_from(((1, 1, 1), (1, 1, 1), (3, 0, 0), (2, 0, 1), (1, 1, 2)))
"""How long a node's card is taken from now on, free, and taken once more."""


@ledger_examples(500)
@given(st.lists(Times, min_size=18, max_size=24), st.integers(1, 4), st.integers(1, 2), st.sets(st.integers(0, 23)))
def test_the_choice_of_nodes_does_not_hang_on_what_was_read_before(
    taken: list[tuple[int, int, int]], nodes: int, length: int, read: set[int]
) -> None:
    """Many nodes become free at once: only some of them are compared."""
    fits = []
    for known in (set(), read):
        played = Played([1] * len(taken))
        for position, (first, free, second) in enumerate(taken):
            for start, end in ((0, first), (first + free, first + free + second)):
                if start < end:
                    row = (NOW + start * STEP, NOW + end * STEP, False, "other")
                    played.pool.nodes[position].cards[0].calendar.add(row)
        while not played.profile.learn(1, NOW):
            pass
        for position in known.intersection(range(len(taken))):
            played.profile.windows(position, 1, NOW)
        fit = played.profile.earliest(1, nodes, length * STEP, NOW)
        fits.append(None if fit is None else [(node.position, mask) for node, mask in fit.spots])
    assert fits[0] == fits[1]
