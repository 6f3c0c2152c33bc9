"""One node or every reason why not: row by row, and any story of pods against a count by hand."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.maps.map_placement import (
    Bind,
    BindObstacle,
    Board,
    Burden,
    DeviceUse,
    MapNode,
    MappedPod,
    Overlap,
    Reserved,
    Wait,
)
from pod_scheduling.domain.maps.scheduling_map import MapEntry
from reservation_core.domain.pods.node_choice_terms import Requirement, Taint, Terms, Tolerated
from tests.examples import examples

LABEL = "gpu-node-name"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
UUIDS = {index: f"gpu-00000000-0000-0000-0000-00000000000{index}" for index in range(4)}


def node(name: str = "worker", label: str | None = "node1", **changes: object) -> MapNode:
    labels = {} if label is None else {LABEL: label}
    made = MapNode(name, labels, ready=True, cordoned=False, taints=(), allocatable={"cpu": 8000, "pods": 10})
    return replace(made, **changes)  # type: ignore[arg-type]


def pod(devices: tuple[str, ...] = ("0",), *, word: str = "node1", group: str = "a", name: str = "ns/p-0",
        cpu: int = 1000, **changes: object) -> MappedPod:  # fmt: skip
    use = DeviceUse(devices, group, name) if devices else None
    burden = Burden({"cpu": cpu, "pods": 1}, use)
    return replace(MappedPod(name, MapEntry(0, word, devices), burden, Terms()), **changes)  # type: ignore[arg-type]


def board(*nodes: MapNode) -> Board:
    made = Board(LABEL)
    for other_node in nodes or (node(),):
        made.put_node(other_node)
    return made


def obstacle(answer: Bind | Wait) -> BindObstacle | None:
    return answer.obstacle if isinstance(answer, Wait) else None


def test_the_label_goes_before_the_name() -> None:
    here = board(node("node1", "other"), node("worker", "node1"))
    assert here.place(pod(), Overlap.DENY) == Bind("worker")
    assert here.place(pod(word="other"), Overlap.DENY) == Bind("node1")
    assert here.place(pod(word="worker"), Overlap.DENY) == Bind("worker")


def test_two_nodes_of_one_label_are_an_error_even_if_one_is_called_so() -> None:
    here = board(node("node1", "node1"), node("worker", "node1"))
    answer = here.place(pod(), Overlap.DENY)
    assert obstacle(answer) is BindObstacle.TWO_NODES
    here.put_node(node("worker", "another"))
    assert here.place(pod(), Overlap.DENY) == Bind("node1")


@pytest.mark.parametrize(
    ("there", "asked", "expected"),
    [
        (node(), pod(word="node2"), BindObstacle.NO_SUCH_NODE),
        (node(ready=False), pod(), BindObstacle.NOT_READY),
        (node(cordoned=True), pod(), BindObstacle.CORDONED),
        (node(taints=(Taint("a", "b", "NoSchedule"),)), pod(), BindObstacle.TAINTED),
        (node(taints=(Taint("a", "b", "NoExecute"),)), pod(), BindObstacle.TAINTED),
        (node(taints=(Taint("a", "b", "PreferNoSchedule"),)), pod(), None),
        (node(taints=(Taint("a", "b", "NoSchedule"),)),
         pod(terms=Terms(tolerations=(Tolerated("a", "Equal", "b", ""),))),
         None),
        (node(), pod(terms=Terms(selector=(("zone", "a"),))), BindObstacle.NOT_SELECTED),
        (node(), pod(cpu=8001), BindObstacle.NOT_ENOUGH),
        (node(), pod(cpu=8000), None),
        (node(), pod(burden=Burden({"example.com/fpga": 1})), BindObstacle.NOT_ENOUGH),
        (node(card_count=4), pod(("4",)), BindObstacle.NO_SUCH_DEVICE),
        (node(card_count=4), pod(("3",)), None),
        (
            node(card_count=4, uuids=UUIDS),
            pod(("GPU-00000000-0000-0000-0000-00000000000f",)),
            BindObstacle.NO_SUCH_DEVICE,
        ),
        (node(card_count=4, uuids=UUIDS), pod(("GPU-00000000-0000-0000-0000-000000000001",)), None),
        (node(), pod(entry=None, refused="forged"), BindObstacle.NOT_ADMITTED),
    ],
)  # fmt: skip
def test_each_obstacle(there: MapNode, asked: MappedPod, expected: BindObstacle | None) -> None:
    assert obstacle(board(there).place(asked, Overlap.DENY)) is expected


def test_every_obstacle_is_named_at_once() -> None:
    there = node(ready=False, cordoned=True, taints=(Taint("mine", "", "NoSchedule"),))
    answer = board(there).place(pod(cpu=9000), Overlap.DENY)
    assert isinstance(answer, Wait)
    for words in ("not ready", "cordoned", "mine:NoSchedule", "8000 of cpu"):
        assert words in answer.message


@pytest.mark.parametrize(
    ("theirs", "mine", "meets"),
    [
        (("0",), ("0",), True),
        (("0",), ("1",), False),
        (("0", "1"), ("1", "2"), True),
        (("0",), ("GPU-00000000-0000-0000-0000-000000000000",), True),
        (("0",), ("GPU-00000000-0000-0000-0000-000000000001",), False),
        # Whether a MIG device is a part of card 0, nobody here knows.
        (("0",), ("MIG-00000000-0000-0000-0000-000000000001",), True),
        (("MIG-00000000-0000-0000-0000-000000000001",), ("MIG-00000000-0000-0000-0000-000000000002",), False),
        # Nor whether it is a part of a card whose index is not known.
        (("GPU-00000000-0000-0000-0000-00000000000f",), ("MIG-00000000-0000-0000-0000-000000000001",), True),
        (("?",), ("0",), True),
        (("0",), (), False),
    ],
)
@pytest.mark.parametrize("overlap", list(Overlap))
def test_cards_of_two_owners(theirs: tuple[str, ...], mine: tuple[str, ...], meets: bool, overlap: Overlap) -> None:
    here = board(node(uuids=UUIDS))
    here.take("other", "worker", pod(theirs, group="b", name="ns/other").burden)
    answer = here.place(pod(mine), overlap)
    if meets and overlap is Overlap.DENY:
        assert obstacle(answer) is BindObstacle.DEVICE_IN_USE
        assert "ns/other" in str(answer)
    else:
        assert isinstance(answer, Bind)
        assert (answer.warning is not None) == (meets and overlap is Overlap.WARN)
    here.take("other", "worker", pod(theirs, group="a").burden)
    assert isinstance(here.place(pod(mine), overlap), Bind)


@pytest.mark.parametrize(
    ("ends_in_h", "booking", "waits"),
    [(None, None, True), (3, None, True), (2, None, False), (1, None, False), (None, "bkg-1", False)],
)
def test_a_promised_card(ends_in_h: int | None, booking: str | None, waits: bool) -> None:
    here = board(node(uuids=UUIDS))
    here.reserved = {"worker": {0: (Reserved("bkg-1", NOW + timedelta(hours=2), "Card 0 is bkg-1's."),)}}
    ends_at = None if ends_in_h is None else NOW + timedelta(hours=ends_in_h)
    asked = pod(ends_at=ends_at, booking_id=booking)
    # Where the webhook does not look at bookings, anybody may have written that.
    assert obstacle(here.place(asked, Overlap.ALLOW)) is BindObstacle.DEVICE_RESERVED
    here.enforce("ns", enforced=True)
    assert obstacle(here.place(asked, Overlap.ALLOW)) is (BindObstacle.DEVICE_RESERVED if waits else None)
    assert isinstance(here.place(pod(("1",), ends_at=ends_at), Overlap.ALLOW), Bind)


def test_a_host_port_is_taken_once() -> None:
    here = board()
    here.take("other", "worker", Burden({}, None, ("TCP/10.0.0.1/80",)))
    for port, free in (("TCP/0.0.0.0/80", False), ("TCP/10.0.0.2/80", True), ("UDP/10.0.0.1/80", True)):
        asked = pod(burden=Burden({"pods": 1}, None, (port,)))
        assert isinstance(here.place(asked, Overlap.DENY), Bind) is free


@pytest.mark.parametrize(
    ("operator", "values", "labels", "holds"),
    [
        ("In", ("a", "b"), {"k": "a"}, True), ("In", ("a",), {"k": "c"}, False), ("In", ("a",), {}, False),
        ("NotIn", ("a",), {"k": "b"}, True), ("NotIn", ("a",), {"k": "a"}, False), ("NotIn", ("a",), {}, True),
        ("Exists", (), {"k": ""}, True), ("Exists", (), {}, False),
        ("DoesNotExist", (), {}, True), ("DoesNotExist", (), {"k": "a"}, False),
        ("Gt", ("3",), {"k": "4"}, True), ("Gt", ("4",), {"k": "4"}, False), ("Gt", ("3",), {"k": "x"}, False),
        ("Lt", ("4",), {"k": "3"}, True), ("Lt", ("4",), {}, False), ("Nonsense", (), {"k": "a"}, False),
    ],
)  # fmt: skip
def test_requirements_as_kubernetes_has_them(
    operator: str, values: tuple[str, ...], labels: dict[str, str], holds: bool
) -> None:
    assert Requirement("k", operator, values).holds("n", labels) is holds


def test_terms_are_alternatives_and_an_empty_one_matches_nothing() -> None:
    named = Requirement("metadata.name", "In", ("n",), field=True)
    zone = Requirement("zone", "Exists", ())
    assert Terms(alternatives=((zone,), (named,))).matches("n", {})
    assert not Terms(alternatives=((zone, named),)).matches("n", {})
    assert not Terms(alternatives=((),)).matches("n", {})
    assert not Terms(alternatives=()).matches("n", {})
    assert Terms().matches("n", {})


CARDS = st.lists(st.sampled_from("0123"), unique=True, max_size=3).map(tuple)
STORY = st.lists(
    st.tuples(st.sampled_from(["take", "release", "ask"]), st.integers(0, 7), CARDS, st.sampled_from("ab"),
              st.integers(0, 5000)),
    max_size=60,
)  # fmt: skip


@examples(300)
@given(STORY)
def test_any_story_against_a_count_by_hand(story: list[tuple[str, int, tuple[str, ...], str, int]]) -> None:
    here = board()
    there: dict[str, MappedPod] = {}
    for what, number, cards, group, cpu in story:
        key = f"ns/p-{number}"
        asked = pod(cards, group=group, name=key, cpu=cpu)
        if what == "release":
            assert here.release(key) == ("worker" if there.pop(key, None) else None)
        elif what == "take":
            here.take(key, "worker", asked.burden)
            there[key] = asked
        others = list(there.values())
        room = sum(listed_pod.burden.requests["cpu"] for listed_pod in others) + cpu <= 8000 or cpu == 0
        seats = len(others) + 1 <= 10
        used = {card for listed_pod in others if listed_pod.burden.use and listed_pod.burden.use.group != group
                for card in listed_pod.burden.use.devices}  # fmt: skip
        expected = room and seats and not used & set(cards)
        assert isinstance(here.place(asked, Overlap.DENY), Bind) is expected
