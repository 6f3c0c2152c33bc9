"""The rules of the line by example, and a sentence for each reason to wait."""

from dataclasses import replace

import pytest

from reservation_core.domain.model import GpuCondition, Node
from reservation_core.domain.plan import Commitment, Waiting
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.start_decisions import plan_starts
from reservation_core.domain.planning.wait_estimates import estimate_waits
from reservation_core.domain.statuses import ReasonCode
from tests.unit.reservation_core.domain.planning.worlds import T0, World, at, held, job, node, snapshot


def state_of(nodes: list[Node], rows: list[Commitment], waiting: list[Waiting]) -> Picture:
    return World(tuple(nodes), tuple(rows), tuple(waiting)).state()


def started(state: Picture, minutes: int = 0) -> list[str]:
    return [start.id for start in plan_starts(state, at(minutes), 100)]


def reason_for(wanted: Waiting, *nodes: Node) -> tuple[ReasonCode, str]:
    (estimate,) = estimate_waits(state_of(list(nodes), [], [wanted]), T0, 10)
    assert estimate.position == 1
    assert (estimate.estimated_start_at is None) == (estimate.reason.code is not ReasonCode.WAITING_FOR_GPUS)
    return estimate.reason.code, estimate.reason.detail


def nodes_of(state: Picture, minutes: int = 0) -> dict[str, list[str]]:
    """On which nodes those who start now do so."""
    return {start.id: sorted({gpu.node for gpu in start.gpus}) for start in plan_starts(state, at(minutes), 100)}


def test_who_could_not_start_on_a_node_goes_to_another_and_waits_for_it() -> None:
    nodes = [node("a", 2), node("b", 2, first_id=10)]
    assert nodes_of(state_of(nodes, [], [job(1, avoid=["a"])])) == {"job-1": ["b"]}
    busy = [held("x", 10, -5, 3), held("y", 11, -5, 7)]
    state = state_of(nodes, busy, [job(1, avoid=["a"]), job(2)])
    # Card 0 and 1 are free; who avoids their node waits for the other, and keeps nobody from these.
    assert nodes_of(state) == {"job-2": ["a"]}
    [told] = estimate_waits(state, T0, 10)
    assert (told.id, told.estimated_start_at) == ("job-1", at(3))
    state.set_reservation("x", None, ())
    assert nodes_of(state, 3) == {"job-1": ["b"]}


def test_where_no_other_node_could_ever_run_it_a_job_goes_where_it_could_not_start() -> None:
    assert nodes_of(state_of([node("a", 2), node("b", 1, first_id=10)], [], [job(1, 2, avoid=["a"])])) == {
        "job-1": ["a"]
    }
    away = node("b", 2, first_id=10, available=False)
    state = state_of([node("a", 2), away], [], [job(1, avoid=["a"])])
    assert nodes_of(state) == {"job-1": ["a"]}
    assert nodes_of(state_of([node("a", 2)], [], [job(1, avoid=["a", "gone"])])) == {"job-1": ["a"]}


def test_another_type_is_another_node() -> None:
    nodes = [node("a", 2, "a100"), node("h", 2, "h100", first_id=10)]
    assert nodes_of(state_of(nodes, [], [job(1, gpu_type=None, avoid=["a"])])) == {"job-1": ["h"]}
    assert nodes_of(state_of(nodes, [], [job(1, gpu_type="a100", avoid=["a"])])) == {"job-1": ["a"]}


def test_a_gang_goes_to_other_nodes_or_to_as_many_others_as_there_are() -> None:
    four = [node(name, 1, first_id=10 * place) for place, name in enumerate("abcd")]
    assert nodes_of(state_of(four, [], [job(1, 1, 2, avoid=["a", "b"])])) == {"job-1": ["c", "d"]}
    assert nodes_of(state_of(four[:3], [], [job(1, 1, 2, avoid=["a", "b"])])) == {"job-1": ["a", "c"]}


def test_what_a_node_is_avoided_for_is_forgotten_with_the_inventory() -> None:
    state = state_of([node("a", 1), node("b", 1, first_id=10)], [held("x", 10, -5, 60)], [job(1, avoid=["a"])])
    assert nodes_of(state) == {}
    state.set_nodes([node("a", 1)])
    assert nodes_of(state) == {"job-1": ["a"]}


def test_a_type_that_is_not_there_names_those_that_are() -> None:
    code, detail = reason_for(job(1, gpu_type="b200"), node("a", 2, "h100"), node("b", 2, "a100", first_id=10))
    assert code is ReasonCode.NO_SUCH_TYPE
    assert "a100, h100" in detail
    assert "'b200'" in detail
    assert "Submit it" not in detail  # it may be in the queue already


def test_without_any_gpu_there_is_no_type() -> None:
    code, detail = reason_for(job(1, gpu_type=None))
    assert code is ReasonCode.NO_SUCH_TYPE
    assert "until a node with GPUs joins" in detail


def test_too_many_for_one_node_says_the_largest() -> None:
    code, detail = reason_for(job(1, 9), node("a", 8), node("b", 4, first_id=10))
    assert code is ReasonCode.LARGER_THAN_ANY_NODE
    assert "at most 8 per node can start" in detail


def test_too_many_nodes_says_how_many_there_are() -> None:
    code, detail = reason_for(job(1, 8, 3), node("a", 8), node("b", 8, first_id=10), node("c", 4, first_id=20))
    assert code is ReasonCode.NOT_ENOUGH_NODES
    assert "Only a request for at most 2 nodes" in detail


def test_a_node_that_is_away_may_come_back() -> None:
    code, detail = reason_for(job(1, 8), node("a", 8, available=False), node("b", 4, first_id=10))
    assert code is ReasonCode.NODE_UNAVAILABLE
    assert "until enough of them are back" in detail


def test_a_card_that_is_unusable_may_come_back() -> None:
    whole = node("a", 2)
    broken = replace(whole, gpus=(whole.gpus[0], replace(whole.gpus[1], condition=GpuCondition.QUARANTINED)))
    assert reason_for(job(1, 2, gpu_type=None), broken)[0] is ReasonCode.NODE_UNAVAILABLE


def test_the_first_waits_for_gpus_and_the_others_behind_it() -> None:
    rows = [held("r0", 0, -5, 30)]
    waiting = [job(1), job(2), job(3, 5), job(4, gpu_type="a100", minutes=99)]
    state = state_of([node("a", 1), node("b", 1, "a100", first_id=9)], rows, waiting)
    assert started(state) == ["job-4"]
    first, second, never = estimate_waits(state, T0, 10)
    assert (first.reason.code, first.estimated_start_at) == (ReasonCode.WAITING_FOR_GPUS, at(30))
    assert (second.reason.code, second.estimated_start_at) == (ReasonCode.BEHIND_IN_LINE, at(40))
    assert (never.position, never.reason.code) == (3, ReasonCode.LARGER_THAN_ANY_NODE)
    assert [estimate.id for estimate in estimate_waits(state, T0, 2)] == ["job-1", "job-2"]


def test_the_first_of_its_type_says_which_jobs_are_ahead() -> None:
    """Places count jobs that ask for the same type, but those for any type are ahead, too."""
    rows = [held(number, number, 0, 30) for number in range(2)]
    waiting = [job(1, 2, gpu_type=None), job(2, 2), job(3, 1)]
    anything, first, second = estimate_waits(state_of([node("n0", 2)], rows, waiting), T0, 10)
    assert (anything.position, first.position, second.position) == (1, 1, 2)
    assert anything.reason.detail.startswith("Next in the queue: ")
    assert first.reason.detail.startswith("Jobs ahead of it that ask for any type get h100 GPUs first ")
    assert second.reason.detail.startswith("Jobs ahead of it in the queue get h100 GPUs first ")


def test_only_the_first_of_the_queue_is_called_the_next() -> None:
    """A job behind one that can never start gets the next GPUs, but two jobs with places 1 and 2 are not both next."""
    rows = [held(1, 0, 0, 30), held(2, 1, 0, 40), held(3, 2, 0, 30), held(4, 3, 0, 30)]
    state = state_of([node("n0", 4)], rows, [job(1, 9), job(2, 2), job(3, 1)])
    impossible, second, third = estimate_waits(state, T0, 10)
    assert (impossible.position, impossible.reason.code) == (1, ReasonCode.LARGER_THAN_ANY_NODE)
    assert (second.position, second.reason.code) == (2, ReasonCode.WAITING_FOR_GPUS)
    assert "Next in the queue" not in second.reason.detail
    assert second.reason.detail.startswith("The jobs ahead of it can't start, or get other GPUs: it starts when 2 ")
    assert third.reason.code is ReasonCode.BEHIND_IN_LINE
    [alone, *_] = estimate_waits(state_of([node("n0", 4)], rows, [job(2, 2)]), T0, 10)
    assert alone.reason.detail.startswith("Next in the queue: it starts when 2 ")


def test_nobody_starts_before_those_of_any_type_who_may_come_first() -> None:
    """Of the line of any type only the first part is known: who stands in the rest may come before job-5."""
    waiting = [job(1), job(2, gpu_type=None), job(5)]
    state = Picture(snapshot([node("n0", 3)], (), waiting, frozenset({"h100"})))
    assert {start.id for start in plan_starts(state, T0, 10)} == {"job-1", "job-2"}
    state.refill(None, [], complete=True)
    assert [start.id for start in plan_starts(state, T0, 10)] == ["job-5"]


def test_a_greater_priority_goes_first_and_then_who_came_first() -> None:
    state = state_of([node("a", 2)], [], [job(1), job(2), job(3, priority=5)])
    assert started(state) == ["job-3", "job-1"]


def test_what_fits_before_the_heads_start_goes_in_between() -> None:
    rows = [held("r0", 0, -5, 30)]
    waiting = [job(1, 2), job(2, minutes=31), job(3, minutes=30)]
    state = state_of([node("a", 2)], rows, waiting)
    assert started(state) == ["job-3"]
    assert started(state, 29) == []
    state.set_reservation("r0", None, ())
    state.set_reservation("job-3", None, ())
    assert started(state, 30) == ["job-1"]


def test_other_cards_than_the_heads_are_free_to_take_for_any_time() -> None:
    rows = [held(f"r{card}", card, -5, 30) for card in range(3)]
    state = state_of([node("a", 4), node("b", 1, first_id=10)], rows, [job(1, 4), job(2, minutes=999)])
    (start,) = plan_starts(state, T0, 10)
    assert (start.id, start.gpus[0].node) == ("job-2", "b")


def test_a_job_that_can_never_run_holds_nobody_up() -> None:
    assert started(state_of([node("a", 2)], [], [job(1, 8), job(2, 2, 2), job(3, 2)])) == ["job-3"]


def test_a_job_starts_only_where_its_whole_length_fits_before_a_booking() -> None:
    rows = [held("b0", 0, 10, 20, is_held=False)]
    assert started(state_of([node("a", 1)], rows, [job(1, minutes=10)])) == ["job-1"]
    state = state_of([node("a", 1)], rows, [job(1, minutes=11)])
    assert started(state) == []
    assert estimate_waits(state, T0, 1)[0].estimated_start_at == at(20)
    assert started(state, 20) == ["job-1"]


def test_a_card_whose_pod_overruns_is_not_free() -> None:
    state = state_of([node("a", 1)], [held("r0", 0, -10, -1)], [job(1)])
    assert started(state) == []
    assert estimate_waits(state, T0, 1)[0].estimated_start_at == at(1)
    state.set_reservation("r0", None, ())
    assert started(state) == ["job-1"]


def test_a_row_that_is_over_and_was_never_held_is_free() -> None:
    assert started(state_of([node("a", 1)], [held("r0", 0, -10, 0, is_held=False)], [job(1)])) == ["job-1"]


def test_the_heads_place_is_found_anew_when_a_node_goes() -> None:
    rows = [held("r0", 0, -5, 30), held("r10", 10, -5, 50)]
    nodes = [node("a", 2), node("b", 2, first_id=10)]
    state = state_of(nodes, rows, [job(1, 2), job(2, minutes=40)])
    assert started(state) == ["job-2"]
    state.set_nodes([replace(nodes[0], available=False), nodes[1]])
    state.set_reservation("job-3", job(3, minutes=50), ())
    state.set_reservation("job-2", None, ())
    assert [(start.id, start.gpus[0].node) for start in plan_starts(state, at(0), 10)] == [("job-3", "b")]


def test_the_heads_place_is_found_anew_when_somebody_will_end_earlier() -> None:
    nodes = [node("a", 2), node("b", 2, first_id=10)]
    rows = [held("r0", 0, -5, 30), held("r10", 10, -5, 50)]
    state = state_of(nodes, rows, [job(1, 2), job(2, minutes=999)])
    assert [start.gpus[0].node for start in plan_starts(state, T0, 10)] == ["b"]
    state.set_reservation("job-2", None, ())
    state.set_reservation("r10", None, [held("r10", 10, -5, 10)])
    state.set_reservation("job-3", job(3, minutes=999), ())
    assert [start.gpus[0].node for start in plan_starts(state, T0, 10)] == ["a"]


def test_when_the_head_is_cancelled_the_next_one_goes() -> None:
    state = state_of([node("a", 2)], [held("r0", 0, -5, 30)], [job(1, 2), job(2, minutes=99)])
    assert started(state) == []
    state.set_reservation("job-1", None, ())
    assert started(state) == ["job-2"]


def test_any_type_takes_the_tightest_and_keeps_to_one_type() -> None:
    nodes = [node("a", 4, "h100"), node("b", 2, "a100", first_id=10)]
    (start,) = plan_starts(state_of(nodes, [], [job(1, 2, gpu_type=None)]), T0, 10)
    assert {gpu.node for gpu in start.gpus} == {"b"}
    mixed = [node("a", 2, "h100"), node("b", 2, "a100", first_id=10)]
    assert reason_for(job(1, 2, 2, gpu_type=None), *mixed)[0] is ReasonCode.NOT_ENOUGH_NODES


def test_any_type_is_the_head_where_it_could_start_first() -> None:
    nodes = [node("a", 2, "h100"), node("b", 2, "a100", first_id=10)]
    rows = [held("r0", 0, -5, 30), held("r10", 10, -5, 20)]
    later = [job(2, minutes=99, gpu_type="a100"), job(3, minutes=99)]
    assert started(state_of(nodes, rows, [job(1, 2, gpu_type=None), *later])) == ["job-3"]


def test_a_change_in_one_pool_moves_those_behind_an_any_type_head_in_another() -> None:
    nodes = [node("a", 2, "h100"), node("b", 2, "a100", first_id=10)]
    rows = [held("r0", 0, -5, 30), held("r10", 10, -5, 20)]
    state = state_of(nodes, rows, [job(1, 2, gpu_type=None), job(2, minutes=99, gpu_type="a100")])
    assert started(state) == []
    state.set_reservation("r0", None, ())
    assert started(state) == ["job-1", "job-2"]


def test_who_comes_in_before_the_head_need_not_mind_its_shadow() -> None:
    state = state_of([node("a", 2)], [held("r0", 0, -5, 30)], [job(1, 2), job(2, minutes=99)])
    assert started(state) == []
    state.set_reservation("job-3", job(3, minutes=99, priority=5), ())
    assert started(state) == ["job-3"]


def test_the_heads_shadow_moves_on_while_a_pod_overruns() -> None:
    state = state_of([node("a", 2)], [held("r0", 0, -5, -1)], [job(1, 2), job(2, minutes=99)])
    assert started(state) == []
    state.set_reservation("job-3", job(3, minutes=1), ())
    assert started(state, 5) == ["job-3"]


def test_a_gang_takes_distinct_nodes_in_the_order_of_ranks() -> None:
    nodes = [node(name, 4, first_id=first) for name, first in (("a", 0), ("b", 10), ("c", 20))]
    (start,) = plan_starts(state_of(nodes, [held("r10", 10, -1, 9)], [job(1, 3, 2)]), T0, 10)
    assert [(gpu.rank, gpu.node, gpu.index) for gpu in start.gpus] == [
        *((0, "b", index) for index in (1, 2, 3)),
        *((1, "a", index) for index in (0, 1, 2)),
    ]
    assert (start.start, start.end) == (T0, at(10))


def test_no_more_start_than_asked_for_and_the_rest_next_time() -> None:
    state = state_of([node("a", 3)], [], [job(seq) for seq in range(1, 5)])
    assert [start.id for start in plan_starts(state, T0, 2)] == ["job-1", "job-2"]
    assert [start.id for start in plan_starts(state, T0, 2)] == ["job-3"]
    assert plan_starts(state, T0, 0) == []


def test_a_clock_that_steps_back_gives_no_card_twice() -> None:
    rows = [held("r0", 0, -10, 5, is_held=False)]
    state = state_of([node("a", 1)], rows, [])
    assert started(state, 6) == []
    state.set_reservation("job-1", job(1), ())
    (start,) = plan_starts(state, at(3), 10)
    assert (start.start, start.end) == (at(6), at(16))


@pytest.mark.parametrize("gpu_type", ["h100", None])
def test_equal_priorities_never_starve(gpu_type: str | None) -> None:
    state = state_of([node("a", 2)], [held("r0", 0, -5, 5)], [job(1, 2, gpu_type=gpu_type)])
    for minute in range(6):
        state.set_reservation(f"job-{minute + 2}", job(minute + 2, minutes=6, gpu_type=gpu_type), ())
        if minute == 5:
            state.set_reservation("r0", None, ())
        assert started(state, minute) == (["job-1"] if minute == 5 else [])


def test_the_scan_gives_up_after_so_many_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reservation_core.domain.planning.start_decisions.SCAN_DEPTH", 3)
    lengths = [*range(60, 50, -1), 5]
    line = [job(1, 2), *(job(seq, minutes=length) for seq, length in enumerate(lengths, 2))]
    assert started(state_of([node("a", 2)], [held("r0", 0, -5, 30)], line)) == []
    monkeypatch.setattr("reservation_core.domain.planning.start_decisions.SCAN_DEPTH", 1000)
    assert started(state_of([node("a", 2)], [held("r0", 0, -5, 30)], line)) == ["job-12"]
