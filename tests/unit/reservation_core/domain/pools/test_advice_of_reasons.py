"""What a reason advises is what the request can still have less or other of."""

from dataclasses import replace

import pytest

from reservation_core.domain.model import Spare
from reservation_core.domain.pools.waiting_reasons import Capacity, taken_until_then, waiting_for_gpus
from reservation_core.domain.request_terms import Share
from tests.unit.reservation_core.domain.planning.worlds import node

GIB = 2**30


@pytest.mark.parametrize(
    ("gpus", "nodes", "gpu_type", "share", "now", "then"),
    [
        (1, 1, None, None, "", " A shorter duration may start sooner."),
        (2, 1, None, None, " Fewer GPUs might be free sooner.", " Fewer GPUs or a shorter duration may start sooner."),
        (1, 2, None, None, " Fewer GPUs might be free sooner.", " Fewer GPUs or a shorter duration may start sooner."),
        (
            1, 1, "h100", None, " Another type might be free sooner.",
            " Another type or a shorter duration may start sooner.",
        ),
        (
            2, 1, "h100", Share(8000, GIB),
            " Fewer GPUs, fewer CPUs, less memory or another type might be free sooner.",
            " Fewer GPUs, fewer CPUs, less memory, another type or a shorter duration may start sooner.",
        ),
        (
            1, 1, None, Share(None, GIB),
            " Less memory might be free sooner.",
            " Less memory or a shorter duration may start sooner.",
        ),
    ],
)  # fmt: skip
def test_only_what_can_be_less_is_advised(
    gpus: int, nodes: int, gpu_type: str | None, share: Share | None, now: str, then: str
) -> None:
    detail = waiting_for_gpus(gpus, nodes, gpu_type, share, first=True).detail
    assert detail.endswith(f"free for its whole duration.{now}")
    assert taken_until_then(gpus, nodes, gpu_type, share).detail.endswith(f"for its whole duration.{then}")


def test_one_gpu_per_node_can_not_be_fewer() -> None:
    capacity = Capacity([node("n0", 4)])
    of_one, of_two = capacity.unplaceable(1, 3, None), capacity.unplaceable(2, 3, None)
    assert of_one is not None
    assert of_one.detail.endswith("Only a request for one node can start.")
    assert of_two is not None
    assert of_two.detail.endswith("Only a request for one node, or for fewer GPUs per node, can start.")


@pytest.mark.parametrize(("cpus", "said"), [(8, True), (9, False)])
def test_what_is_kept_for_jobs_without_gpus_is_named_where_it_is_missing(cpus: int, said: bool) -> None:
    kept = replace(node("a", 2), cpu_milli=7000, memory_bytes=7 * GIB, spare=Spare(1, 1000, GIB))
    reason = Capacity([kept]).unplaceable(1, 1, None, Share(cpus * 1000, None))
    assert reason is not None
    assert ("GPU_DEV_CPU_JOB_SHARE" in reason.detail) is said
