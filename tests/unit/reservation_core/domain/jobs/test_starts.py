"""Which starts are worth another try: of what never ran, and for a reason that another node may not have."""

from dataclasses import replace

import pytest

from reservation_core.domain.jobs.starts import MAY_START_ELSEWHERE, never_started
from reservation_core.domain.model import PodName, PodPhase, PodStatus, Reason
from reservation_core.domain.statuses import ReasonCode
from tests.unit.reservation_core.domain.planning.worlds import T0

EVICTED = PodStatus(PodName("job-a", 1, 0), PodPhase.FINISHED, reason=Reason(ReasonCode.EVICTED, "Low on memory."))


@pytest.mark.parametrize("code", list(ReasonCode))
def test_only_what_another_node_may_not_have_is_tried_elsewhere(code: ReasonCode) -> None:
    assert never_started(replace(EVICTED, reason=Reason(code, "Because."))) == (code in MAY_START_ELSEWHERE)


@pytest.mark.parametrize("change", [{"started_at": T0}, {"exit_code": 0}, {"exit_code": 137}, {"reason": None}])
def test_what_has_run_is_not_run_again(change: dict[str, object]) -> None:
    assert never_started(EVICTED)
    assert not never_started(replace(EVICTED, **change))  # type: ignore[arg-type]
