"""What a request without a type is told: the verdict on the type that suits it best."""

from datetime import timedelta

from reservation_core.domain.policy.any_type import judged
from reservation_core.domain.policy.limits import Policy, PolicyRule, Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.policy.rules import RuleRequest, UsageView
from reservation_core.domain.statuses import ReservationKind
from tests.unit.reservation_core.domain.planning.worlds import T0

NOTHING_HELD = UsageView((), ())


def test_of_types_that_refuse_alike_the_rules_for_all_types_speak() -> None:
    own = PolicyRule(Scope(user="ann", gpu_type="a100"), Rules(max_gpus=2))
    policy = Policy([PolicyRule(Scope(), Rules(max_gpus=4, max_duration=timedelta(days=1))), own])

    def told(gpus: int, days: int) -> tuple[str | None, list[str]]:
        length = timedelta(days=days)
        request = RuleRequest(kind=ReservationKind.JOB, user="ann", gpus=gpus, duration=length, gpu_type=None)
        found = judged(request, policy, NOTHING_HELD, T0, {"a100", "h100"})
        return found.gpu_type, [rule.detail for rule in found.broken if rule.code == "max_gpus"]

    assert told(9, 5) == ("h100", ["Asked for: 9 GPUs; the limit is 4 at once (everybody). Ask for at most 4 GPUs."])
    assert told(3, 1) == ("h100", [])
    assert told(1, 1) == ("h100", [])
