"""What can never be on a node: of one container, and of all together; and never of what there is a way for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.extender.asked_cards import AskedCards, CardResources, asked_cards
from pod_scheduling.domain.extender.card_footprints import FreeOnNode, lay_out, place
from pod_scheduling.domain.extender.cards_in_use import CardNode
from pod_scheduling.domain.extender.model_usage import model_of
from pod_scheduling.domain.extender.refusal_reasons import never_fits

CORE, MEMORY, WHOLE = "tencent.com/vcuda-core", "tencent.com/vcuda-memory", "nvidia.com/gpu"
TOGETHER = "too few for all of the pod's containers together"


def asks(
    *containers: dict[str, int], beside: dict[str, int] | None = None, init: dict[str, int] | None = None
) -> AskedCards:
    """What a pod of these containers asks for, each so much of `core`, `memory` and `gpu`; `beside` is a sidecar's."""
    names = {"core": CORE, "memory": MEMORY, "gpu": WHOLE}

    def made(amounts: dict[str, int]) -> dict[str, object]:
        return {"name": "c", "resources": {"limits": {names[key]: str(amount) for key, amount in amounts.items()}}}

    inits = [] if beside is None else [made(beside) | {"restartPolicy": "Always"}]
    inits += [] if init is None else [made(init)]
    return asked_cards(
        {"containers": [made(container) for container in containers], "initContainers": inits}, CardResources()
    )


def node(shares: int = 2, plugin: int = 0, memory: int = 8) -> CardNode:
    return CardNode("n", model_of("Tesla-T4"), share_cards=shares, plugin_cards=plugin, card_memory=memory)


@pytest.mark.parametrize(
    ("asked", "on", "words"),
    [
        (asks({"core": 60}, {"core": 60}, {"core": 60}), node(), TOGETHER),
        (asks({"core": 40}, {"core": 50}, {"core": 60}, {"core": 60}), node(), TOGETHER),
        (asks({"core": 200}, {"core": 10}), node(), TOGETHER),
        (asks({"core": 100}, {"core": 10}, beside={"core": 100}), node(), TOGETHER),
        (asks({"core": 10}, beside={"core": 60}, init={"core": 200}), node(), TOGETHER),
        (asks({"core": 10}, {"gpu": 2}), node(plugin=2), TOGETHER),
        (
            asks({"core": 10, "memory": 6}, {"core": 10, "memory": 6}, {"core": 10, "memory": 6}),
            node(),
            "units of memory, and the pod's containers ask for",
        ),
        (
            asks({"core": 100}, {"core": 10, "memory": 6}, {"core": 10, "memory": 6}),
            node(),
            "units of memory, and the pod's containers ask for",
        ),
        (asks({"core": 60}, {"core": 60}), node(), None),
        (asks({"core": 50}, {"core": 50}, {"core": 50}, {"core": 50}), node(), None),
        (asks({"core": 100}, {"core": 100}, init={"core": 200}), node(), None),
        (asks({"core": 10}, {"gpu": 1}), node(plugin=2), None),
    ],
)
def test_what_all_containers_together_can_never_have_is_told(
    asked: AskedCards, on: CardNode, words: str | None
) -> None:
    found = never_fits(asked, on)
    assert (found is None) if words is None else (words in str(found))


AMOUNTS = st.one_of(
    st.builds(lambda core, memory: {"core": core, "memory": memory}, st.integers(1, 100), st.integers(0, 8)),
    st.builds(lambda cards: {"core": 100 * cards}, st.integers(1, 3)),
    st.builds(lambda cards: {"gpu": cards}, st.integers(1, 2)),
)


@given(
    st.lists(AMOUNTS, min_size=1, max_size=4), st.none() | AMOUNTS, st.none() | AMOUNTS,
    st.lists(st.tuples(st.sampled_from([0, 300, 500, 999, 1000]), st.integers(0, 8)), min_size=1, max_size=4),
)  # fmt: skip
def test_nothing_is_called_impossible_that_finds_room(
    containers: list[dict[str, int]],
    beside: dict[str, int] | None,
    init: dict[str, int] | None,
    free: list[tuple[int, int]],
) -> None:
    asked = asks(*containers, beside=beside, init=init)
    there = FreeOnNode([milli for milli, _ in free], [memory for _, memory in free], 8)
    if len(there.whole()) < asked.plugin:
        return
    lay_out(AskedCards(plugin=asked.plugin), there, (), ())
    if not asked.shares or place(asked, there) is not None:
        assert never_fits(asked, node(len(free), len(free))) is None
