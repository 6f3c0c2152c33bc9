"""What the inventory should say after a report: which conditions stand or change, and what the planner must hear."""

from dataclasses import replace

import pytest

from reservation_core.domain.cards.gpu_types import instance_index
from reservation_core.domain.cards.inventory import KnownGpu, KnownNode, Reconciliation, reconcile
from reservation_core.domain.cards.node_reports import GpuReport, NodeReport
from reservation_core.domain.model import ForeignPod, GpuCondition

NODE = KnownNode("node-a", ready=True, schedulable=True, detail=None, labels={"zone": "1"}, removed=False)
CARDS = [KnownGpu("node-a", index, "h100", f"GPU-{index}", 80, GpuCondition.USABLE) for index in (0, 1)]
REPORT = NodeReport(
    "node-a",
    ready=True,
    schedulable=True,
    gpus=tuple(GpuReport(index, "h100", f"GPU-{index}", 80) for index in (0, 1)),
    labels=(("zone", "1"),),
)


def conditions(result: Reconciliation) -> dict[int, str]:
    return {gpu.index: gpu.condition.value for gpu in result.gpus}


def test_an_unchanged_report_changes_nothing() -> None:
    assert reconcile([NODE], CARDS, [REPORT], []) == Reconciliation()


def test_a_new_node_comes_with_its_cards() -> None:
    result = reconcile([], [], [REPORT], [])
    assert [(c.kind, c.subject) for c in result.changes] == [
        ("node_added", "node-a"),
        ("gpu_added", "node-a/0"),
        ("gpu_added", "node-a/1"),
    ]
    assert result.replan


def test_a_node_that_is_not_reported_is_removed_and_its_cards_lost() -> None:
    result = reconcile([NODE], CARDS, [], [])
    assert [(n.name, n.removed, n.ready) for n in result.nodes] == [("node-a", True, False)]
    assert conditions(result) == {0: "lost", 1: "lost"}
    assert result.replan
    again = reconcile(result.nodes, result.gpus, [], [])
    assert again == Reconciliation()


def test_a_removed_node_can_return() -> None:
    gone = reconcile([NODE], CARDS, [], [])
    back = reconcile(gone.nodes, gone.gpus, [REPORT], [])
    assert [c.kind for c in back.changes] == ["node_returned", "gpu_changed", "gpu_changed"]
    assert back.nodes == [NODE]
    assert conditions(back) == {0: "usable", 1: "usable"}


def test_a_card_that_vanishes_is_lost_and_usable_when_it_is_back() -> None:
    gone = reconcile([NODE], CARDS, [replace(REPORT, gpus=REPORT.gpus[:1])], [])
    assert conditions(gone) == {1: "lost"}
    assert gone.gpus[0].uuid == "GPU-1"
    back = reconcile([NODE], [CARDS[0], *gone.gpus], [REPORT], [])
    assert conditions(back) == {1: "usable"}


def test_another_card_in_the_place_is_a_change() -> None:
    swapped = replace(REPORT, gpus=(GpuReport(0, "a100", "GPU-9", 40), REPORT.gpus[1]))
    (change,) = reconcile([NODE], CARDS, [swapped], []).changes
    assert change.before == {"gpu_type": "h100", "uuid": "GPU-0", "memory_bytes": 80}
    assert change.after == {"gpu_type": "a100", "uuid": "GPU-9", "memory_bytes": 40}
    assert change.replan


def test_a_card_in_use_that_is_counted_anew_is_not_given_out_again_until_its_user_lets_go() -> None:
    """The driver leaves card 0 out, so that card 1, which a job of ours has by its UUID, becomes card 0."""
    cards = [CARDS[0], replace(CARDS[1], in_use=True)]
    fewer = replace(REPORT, gpus=(GpuReport(0, "h100", "GPU-1", 80),))
    anew = reconcile([NODE], cards, [fewer], [])
    assert conditions(anew) == {0: "foreign", 1: "lost"}
    three = replace(REPORT, gpus=(*fewer.gpus, GpuReport(1, "h100", "GPU-2", 80)))
    again = reconcile([NODE], anew.gpus, [three], [])
    assert {gpu.index: (gpu.uuid, gpu.condition.value) for gpu in again.gpus} == {1: ("GPU-1", "usable")}
    assert reconcile([NODE], [anew.gpus[0], *again.gpus], [three], []) == Reconciliation()
    let_go = reconcile([NODE], [anew.gpus[0], replace(again.gpus[0], in_use=False)], [three], [])
    assert {gpu.index: (gpu.uuid, gpu.condition.value) for gpu in let_go.gpus} == {
        0: ("GPU-1", "usable"),
        1: ("GPU-2", "usable"),
    }


def test_what_mig_mode_makes_of_a_card_in_use_is_not_given_out_until_its_user_lets_go() -> None:
    whole = [GpuReport(0, "h100", "GPU-0", 1), GpuReport(1, "h100", "GPU-1", 1)]
    first, second, other = (
        GpuReport(index, "h100-mig-1g.10gb", f"MIG-{index}", 1)
        for index in (instance_index(0, 0), instance_index(0, 2), instance_index(1, 0))
    )

    def found(held: GpuReport, *now: GpuReport) -> dict[int, str]:
        known = KnownGpu("a", held.index, held.gpu_type, held.uuid, 1, GpuCondition.USABLE, in_use=True)
        return conditions(reconcile([], [known], [NodeReport("a", ready=True, schedulable=True, gpus=now)], []))

    cut = found(whole[0], first, second, other)
    assert cut == {0: "lost", 64: "foreign", 66: "foreign", 72: "usable"}
    assert found(first, *whole) == {0: "foreign", 1: "usable", 64: "lost"}
    assert found(first, first, second, whole[1]) == {1: "usable", 66: "usable"}


@pytest.mark.parametrize("set_by_hand", [GpuCondition.QUARANTINED, GpuCondition.MAINTENANCE])
def test_what_an_administrator_set_stands(set_by_hand) -> None:
    cards = [replace(CARDS[0], condition=set_by_hand), CARDS[1]]
    pod = ForeignPod("node-a", "theirs/pod", 1, (0,))
    for reports, foreign in (([REPORT], []), ([REPORT], [pod]), ([replace(REPORT, gpus=REPORT.gpus[1:])], [])):
        assert reconcile([NODE], cards, reports, foreign) == Reconciliation()
    assert conditions(reconcile([NODE], cards, [], [])) == {1: "lost"}


def test_a_foreign_pod_with_known_cards_takes_just_these() -> None:
    pod = ForeignPod("node-a", "theirs/pod", 1, (1,))
    result = reconcile([NODE], CARDS, [REPORT], [pod])
    assert conditions(result) == {1: "foreign"}
    assert result.nodes == []
    over = reconcile([NODE], [CARDS[0], *result.gpus], [REPORT], [])
    assert conditions(over) == {1: "usable"}


def test_a_foreign_pod_with_unknown_cards_takes_what_is_free_and_the_node_says_so() -> None:
    cards = [replace(CARDS[0], in_use=True), CARDS[1]]
    pod = ForeignPod("node-a", "theirs/pod", 1, None)
    result = reconcile([NODE], cards, [replace(REPORT, detail="Warm.")], [pod])
    assert conditions(result) == {1: "foreign"}
    (node,) = result.nodes
    assert node.detail is not None
    assert node.detail == (
        "Warm. theirs/pod uses 1 GPU here: which ones is not known, so nothing new is placed here until it ends."
    )
    assert not node.schedulable, "a card that one of ours gives back must not be given out again"
    assert result.replan
    over = reconcile(result.nodes, [cards[0], *result.gpus], [REPORT], [])
    assert conditions(over) == {1: "usable"}
    assert over.nodes == [NODE]


def test_a_foreign_pod_that_is_only_counted_takes_as_many_free_cards_and_leaves_the_node_open() -> None:
    cards = [replace(CARDS[0], index=index, uuid=f"GPU-{index}", in_use=index in (1, 4)) for index in range(5)]
    report = replace(REPORT, gpus=tuple(GpuReport(index, "h100", f"GPU-{index}", 80) for index in range(5)))
    pods = [ForeignPod("node-a", "theirs/one", 1, None, counted=True), ForeignPod("node-a", "x/y", 1, None, True)]
    result = reconcile([NODE], cards, [report], pods)
    assert conditions(result) == {2: "foreign", 3: "foreign"}
    (node,) = result.nodes
    assert node.schedulable
    assert node.detail is not None
    assert "theirs/one uses 1 GPU here: that many fewer are given out until it ends." in node.detail
    # One of ours ends: what was taken stays, whatever else has become free. One of theirs ends: one card is back.
    known = {gpu.index: replace(gpu, in_use=gpu.index == 1) for gpu in [*cards, *result.gpus]}
    assert conditions(reconcile(result.nodes, known.values(), [report], pods)) == {}
    assert conditions(reconcile(result.nodes, known.values(), [report], pods[:1])) == {2: "usable"}


def test_what_may_be_used_from_outside_takes_nothing_that_we_use() -> None:
    cards = [replace(CARDS[0], in_use=True), CARDS[1]]
    unsure = [ForeignPod("node-a", "no list", 1, (index,), certain=False) for index in (0, 1)]
    assert conditions(reconcile([NODE], cards, [REPORT], unsure)) == {1: "foreign"}
    sure = [replace(pod, certain=True) for pod in unsure]
    assert conditions(reconcile([NODE], cards, [REPORT], sure)) == {0: "foreign", 1: "foreign"}


def test_counted_foreign_pods_never_take_what_we_use_nor_what_is_no_use() -> None:
    cards = [
        replace(CARDS[0], in_use=True),
        CARDS[1],
        KnownGpu("node-a", 2, "h100", "GPU-2", 80, GpuCondition.MAINTENANCE),
    ]
    report = replace(REPORT, gpus=(*REPORT.gpus, GpuReport(2, "h100", "GPU-2", 80)))
    one, many = (ForeignPod("node-a", "theirs/pod", count, None, counted=True) for count in (1, 9))
    assert conditions(reconcile([NODE], cards, [report], [one])) == {1: "foreign"}
    assert conditions(reconcile([NODE], cards, [report], [many])) == {1: "foreign"}


def test_foreign_pods_elsewhere_are_nothing() -> None:
    assert reconcile([NODE], CARDS, [REPORT], [ForeignPod("node-z", "x", 1, None)]) == Reconciliation()


@pytest.mark.parametrize(
    ("report", "replan"),
    [
        (replace(REPORT, ready=False), True),
        (replace(REPORT, schedulable=False), True),
        (replace(REPORT, detail="Warm."), False),
        (replace(REPORT, labels=(("zone", "2"),)), False),
        (replace(REPORT, gpus=(replace(REPORT.gpus[0], memory_bytes=79), REPORT.gpus[1])), False),
    ],
)
def test_the_planner_hears_only_of_what_it_decides_by(report, replan) -> None:
    result = reconcile([NODE], CARDS, [report], [])
    assert len(result.changes) == 1
    assert result.replan is replan


@pytest.mark.parametrize(
    ("has", "kept"),
    [
        ((64_000, 2**38), (6400, 2**38 // 10)),
        ((8000, 2**33), (1000, 2**31)),
        ((1000, 2**31), (None, None)),
        ((4000, 3 * 2**30), (None, None)),
        ((None, 2**36), (None, 2**36 // 10)),
    ],
)
def test_a_node_keeps_a_tenth_or_enough_for_one_job_without_gpus(
    has: tuple[int | None, int], kept: tuple[int | None, int]
) -> None:
    report = replace(REPORT, cpu_milli=has[0], memory_bytes=has[1])
    [node] = reconcile([], [], [report], [], None).nodes
    assert (node.spare_cpu_milli, node.spare_memory_bytes) == kept
    left = [None if whole is None else whole - (aside or 0) for whole, aside in zip(has, kept, strict=True)]
    assert [node.cpu_milli, node.memory_bytes] == left
