"""Which preemptible pods go, held against trying everything."""

from datetime import UTC, datetime, timedelta
from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.pods.victims import NodeNeed, Preemptible, victims

START = datetime(2030, 1, 1, tzinfo=UTC)
H100 = frozenset({"h100"})


def pod(uid: str, gpus: int = 1, priority: int = 0, age_min: int | None = 10, **more: object) -> Preemptible:
    began = None if age_min is None else START - timedelta(minutes=age_min)
    return Preemptible(uid, gpus, priority, began, **more)  # type: ignore[arg-type]


def need(cards: int, needed: int, taken: int = 0) -> NodeNeed:
    return NodeNeed(cards, frozenset(range(needed)), H100, taken)


def test_nobody_goes_while_nothing_is_needed_or_there_is_room() -> None:
    assert victims(need(4, 0), [pod("a", 4)]) == ()
    assert victims(need(4, 2), [pod("a", 2)]) == ()


def test_the_lowest_priority_goes_first_then_the_youngest_and_no_more_than_needed() -> None:
    pods = [
        pod("old", age_min=60),
        pod("young", age_min=1),
        pod("low", priority=-1, age_min=600),
        pod("waits", age_min=None),
    ]
    assert victims(need(4, 1), pods) == ("low",)
    assert victims(need(4, 2), pods) == ("low", "waits")
    assert victims(need(4, 3), pods) == ("low", "waits", "young")
    assert victims(need(4, 4), pods) == ("low", "waits", "young", "old")


def test_who_is_on_a_needed_card_goes_and_who_is_on_another_stays() -> None:
    pods = [pod("on-it", cards=frozenset({1, 3}), gpus=2, priority=9), pod("beside", cards=frozenset({2}))]
    assert victims(need(4, 2), pods) == ("on-it",)


def test_another_type_and_what_cannot_be_ended() -> None:
    assert victims(need(2, 2), [pod("other", gpu_type="a100"), pod("same", gpu_type="h100")]) == ("same",)
    assert victims(need(4, 2, taken=1), [pod("a", age_min=5), pod("b", age_min=1)]) == ("b",)
    assert victims(need(2, 2, taken=2), [pod("a")]) == ("a",)


PODS = st.lists(
    st.builds(
        Preemptible,
        uid=st.uuids().map(str),
        gpus=st.integers(1, 3),
        priority=st.integers(-1, 1),
        began=st.none() | st.integers(0, 3).map(lambda hours: START - timedelta(hours=hours)),
        cards=st.none() | st.frozensets(st.integers(0, 7), min_size=1, max_size=3),
        gpu_type=st.sampled_from([None, "h100", "a100"]),
    ),
    max_size=7,
    unique_by=lambda each: each.uid,
)
NEEDS = st.builds(NodeNeed, st.just(8), st.frozensets(st.integers(0, 7), min_size=1), st.just(H100), st.integers(0, 4))


@given(NEEDS, PODS, st.randoms())
def test_as_by_trying_everything(this: NodeNeed, pods: list[Preemptible], order: object) -> None:
    """Of all sets of pods that could stay, the one that keeps who matters most; then nobody more could stay."""
    ranked = sorted(pods, key=lambda p: (-p.priority, p.began is None, p.began or START, p.uid))

    def fits(kept: tuple[Preemptible, ...]) -> bool:
        if any(pod.cards is not None and pod.cards & this.needed for pod in kept):
            return False
        unknown = sum(e.gpus for e in kept if e.cards is None and e.gpu_type in (None, "h100"))
        return unknown == 0 or unknown + this.taken + len(this.needed) <= this.cards

    sets = chain.from_iterable(combinations(ranked, size) for size in range(len(ranked) + 1))
    best = max((kept for kept in sets if fits(kept)), key=lambda kept: [listed_pod in kept for listed_pod in ranked])
    chosen = victims(this, pods)
    assert set(chosen) == {listed_pod.uid for listed_pod in pods} - {listed_pod.uid for listed_pod in best}
    order.shuffle(pods)  # type: ignore[attr-defined]
    assert victims(this, pods) == chosen
    for uid in chosen:
        assert not fits((*best, next(listed_pod for listed_pod in pods if listed_pod.uid == uid)))
