"""A pod that comes back from the node that it was told alone is told another one, while there is one."""

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.usecases.extender.suggested_nodes import SuggestedNodes

NODES = ("a", "b", "c", "d")


def ask(told: SuggestedNodes, uid: str, nodes: tuple[str, ...], fits: Collection[str]) -> str | None:
    """The first of those that fit, in the first round that has one."""
    rounds = list(told.rounds(uid, nodes))
    assert rounds[-1] is nodes
    for among in rounds:
        assert [*among] == [node for node in nodes if node in among]
        for name in among:
            if name in fits:
                told.put(uid, name)
                return name
    return None


@given(st.sets(st.sampled_from(NODES)), st.integers(1, 12))
def test_whoever_comes_back_again_and_again_is_sent_to_all_that_fit_in_turn(fits: set[str], times: int) -> None:
    told = SuggestedNodes()
    been = []
    for _ in range(times):
        been.append(ask(told, "u", NODES, fits))
        if been[-1] is not None:  # asked for another resource in the same go
            assert ask(told, "u", (been[-1],), fits) == been[-1]
    for start in range(times):
        of_a_round = been[start : start + len(fits)]
        assert set(of_a_round) <= (fits or {None})
        if start % max(1, len(fits)) == 0 and fits:
            assert len({*of_a_round}) == len(of_a_round)
        assert len(fits) < 2 or len(of_a_round) < 2 or of_a_round[0] != of_a_round[1]
    assert list(told.rounds("other", NODES)) == [NODES]


def test_of_more_pods_than_may_be_those_that_were_told_last_are_known() -> None:
    told = SuggestedNodes(most=2)
    for uid in ("u", "v", "u", "w"):
        told.put(uid, "a")
    assert len(told) == 2
    assert [len(list(told.rounds(uid, NODES))) for uid in ("u", "v", "w")] == [2, 1, 2]
    told.forget("u")
    assert list(told.rounds("u", NODES)) == [NODES]
