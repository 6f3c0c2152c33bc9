"""What pods ask for: whole cards and shares, container by container, as the kubelet counts them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.extender.asked_cards import AskedCards, CardResources, Earlier, Part, asked_cards

NAMES = {"gpu": "nvidia.com/gpu", "core": "tencent.com/vcuda-core", "memory": "tencent.com/vcuda-memory"}
RESOURCES = CardResources()


def box(name: str = "main", *, sidecar: bool = False, **amounts: object) -> dict[str, Any]:
    limits = {NAMES[key]: str(amount) for key, amount in amounts.items()}
    goes_on = {"restartPolicy": "Always"} if sidecar else {}
    return {"name": name, "resources": {"limits": limits}, **goes_on}


def asked(*containers: dict[str, Any], inits: tuple[dict[str, Any], ...] = ()) -> AskedCards:
    return asked_cards({"containers": list(containers), "initContainers": list(inits)}, RESOURCES)


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([box()], AskedCards()),
        ([box(gpu=0, core=0)], AskedCards()),
        ([box(gpu=2)], AskedCards(plugin=2, milli=2000)),
        ([box(gpu=1), box(gpu=3)], AskedCards(plugin=4, milli=4000)),
        ([box(core=100)], AskedCards(parts=(Part(0, 1),), milli=1000)),
        ([box(core=300, memory=9)], AskedCards(parts=(Part(0, 3),), milli=3000)),
        ([box(core=1)], AskedCards(parts=(Part(0, 1, 10),), milli=10)),
        ([box(), box(core=30, memory=4)], AskedCards(parts=(Part(1, 1, 300, 4),), milli=300)),
        ([box(core=30), box(core=99)], AskedCards(parts=(Part(0, 1, 300), Part(1, 1, 990)), milli=1290)),
        ([box(gpu=1), box(core=50)], AskedCards(plugin=1, parts=(Part(1, 1, 500),), milli=1500)),
    ],
)
def test_containers_are_added_up(containers: list[dict[str, Any]], expected: AskedCards) -> None:
    assert asked(*containers) == expected


def test_init_containers_count_as_the_kubelet_counts_them() -> None:
    both = asked(box(gpu=2), inits=(box(gpu=1, sidecar=True), box(gpu=3), box(gpu=1, sidecar=True)))
    assert both.plugin == 4  # the second beside the first; at the end 2 + 1 + 1
    shares = asked(box(core=20), inits=(box(core=30, sidecar=True), box(core=90), box(core=10, sidecar=True)))
    assert shares.parts == (Part(None, 1, 300), Part(None, 1, 100), Part(0, 1, 200))
    assert shares.sidecars == 2
    assert shares.earlier == (Earlier(Part(None, 1, 900), 1),)
    assert shares.milli == 1200


@pytest.mark.parametrize(
    ("amounts", "advice"),
    [
        ({"core": 150}, "ask for 100 or 200"),
        ({"core": 101}, "ask for 100 or 200"),
        ({"core": 250}, "ask for 200 or 300"),
        ({"memory": 4}, "ask for both"),
    ],
)
@pytest.mark.parametrize("init", [False, True])
def test_what_cannot_be_given_is_refused_with_what_to_ask_for(amounts: dict[str, int], advice: str, init: bool) -> None:
    found = asked(box("train", **amounts)) if not init else asked(box(), inits=(box("train", **amounts),))
    assert found.refused is not None
    assert "Container train" in found.refused
    assert advice in found.refused
    assert not found.none


def test_who_is_refused_and_on_a_node_all_the_same_counts_rounded_up() -> None:
    assert asked(box(core=150)).milli == 2000
    assert asked(box(core=150)).parts == (Part(0, 2),)


def test_requests_count_as_limits_do_and_parts_of_cards_as_cards() -> None:
    spec = {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}}]}
    assert asked_cards(spec, RESOURCES).plugin == 1
    spec = {"containers": [{"resources": {"limits": {"nvidia.com/mig-1g.10gb": 2, "nvidia.com/gpu.shared": "1"}}}]}
    assert asked_cards(spec, RESOURCES).plugin == 3
    spec = {"containers": [{"resources": {"limits": {"example.com/card": "2", "example.com/part": "150"}}}]}
    other = CardResources(("example.com/card",), "example.com/part", "example.com/memory")
    assert asked_cards(spec, other).plugin == 2
    assert "example.com/part: 150" in (asked_cards(spec, other).refused or "")


@pytest.mark.parametrize(
    ("amount", "cards"),
    [("1k", 10), ("1e3", 10), ("0", 0), ("2E", 1024), ("-1", 1024), ("500m", 1024), ("1" * 40, 1024)],
)
def test_amounts_are_read_as_the_api_server_writes_them(amount: str, cards: int) -> None:
    assert sum(part.cards for part in asked(box(core=amount)).parts) == cards


def test_units_of_memory_may_be_thousands() -> None:
    assert asked(box(core=50, memory="10k")).parts == (Part(0, 1, 500, 10_000),)
    assert asked(box(core=50, memory="2Ki")).parts == (Part(0, 1, 500, 2048),)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.sampled_from(["9" * 5000, "2k", "-1", "١"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*NAMES.values(), "limits"]), inner),
    max_leaves=8,
)


@given(ANYTHING, ANYTHING)
def test_nonsense_raises_nothing_and_has_bounds(containers: object, resources: object) -> None:
    spec = {"containers": containers, "initContainers": [{"name": 3, "resources": resources}, {"resources": resources}]}
    found = asked_cards(spec, RESOURCES)
    assert 0 <= found.plugin <= 1024
    assert found.milli >= 0
