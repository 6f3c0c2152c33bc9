"""The prospects of a job if it were submitted now: the verdict on it, and its share of quotas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api_service.web.rest_calls import RestCalls, RestProblemError
from api_service.web.words import amount
from reservation_core.contracts.jobs import SoonerRequest
from reservation_core.contracts.policy import ExplainRequest, Explanation, LimitOut
from reservation_core.domain.jobs.smaller_requests import Size, SmallerRequest
from reservation_core.domain.policy.nouns import RuleName
from reservation_core.domain.statuses import ReasonCode, RequestVerdict

_TOLD_BY_SERVER = (400, 403, 404, 409, 422)
_QUOTAS = {
    RuleName.MAX_GPUS.value: ("At once", "GPUs"),
    RuleName.MAX_GPU_HOURS_PER_WEEK.value: ("In a week", "GPU-hours"),
}


@dataclass(frozen=True, slots=True)
class QuotaShare:
    """How much of a quota is used now and with the job. `after` is None where the job's length is not known."""

    words: str
    unit: str
    used: float
    after: float | None
    limit: float

    @property
    def counted(self) -> float:
        """With the job, as far as is known."""
        return self.used if self.after is None else self.after

    @property
    def percent(self) -> int:
        """Of the limit, at most 100."""
        return min(100, round(100 * self.counted / self.limit)) if self.limit else 100

    @property
    def is_over(self) -> bool:
        """Whether more is counted than is allowed."""
        return self.counted > self.limit

    @property
    def sentence(self) -> str:
        """`9 of 6 GPUs`."""
        return f"{amount(self.counted)} of {amount(self.limit)} {self.unit}"

    @property
    def now(self) -> str:
        """The current use, in words."""
        return f"{amount(self.used)} now"


@dataclass(frozen=True, slots=True)
class JobProspects:
    """`problem`: why REST can't even judge the request; `answer`: its verdict. Neither before REST was asked."""

    problem: RestProblemError | None = None
    answer: Explanation | None = None
    shares: Sequence[QuotaShare] = ()
    gpu_type: str | None = None
    booking_id: str | None = None
    needs_no_gpu: bool = False

    @property
    def may_be_foretold(self) -> bool:
        """Whether a likely start comes with more history: not within bookings, nor while a quota holds the job back."""
        answer = self.answer
        if self.booking_id is not None or answer is None or answer.verdict is not RequestVerdict.ACCEPTED:
            return False
        codes = {reason.code for reason in answer.reasons}
        return answer.starts_at is not None and ReasonCode.QUOTA_REACHED not in codes

    @property
    def sooner(self) -> Sequence[tuple[SoonerRequest, SmallerRequest]]:
        """What would start sooner, and its size and length as the form has them."""
        found = () if self.answer is None else self.answer.instead
        return [
            (sooner, SmallerRequest(Size(sooner.nodes, sooner.gpus), sooner.duration, sooner.gpu_type))
            for sooner in found
        ]


def question_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """What decides a start, of a job's request: no secrets and retries, for instance."""
    return {name: value for name, value in body.items() if name in ExplainRequest.model_fields}


async def prospects_of(rest: RestCalls, body: Mapping[str, Any]) -> JobProspects:
    """Ask REST about a job's request, without submitting."""
    try:
        explained = await rest.post(Explanation, "/v1/policy/explain", question_of(body))
    except RestProblemError as problem:
        if problem.status not in _TOLD_BY_SERVER:
            raise
        return JobProspects(problem=problem)
    wanted = body.get("gpu_type"), body.get("booking_id")
    return JobProspects(None, explained, shares_of(explained.limits, body), *wanted, needs_no_gpu=body.get("gpus") == 0)


def shares_of(limits: Sequence[LimitOut], body: Mapping[str, Any]) -> list[QuotaShare]:
    """The quotas with a counted use, with what the job would add."""
    gpus = int(body.get("gpus", 1)) * int(body.get("nodes", 1))
    duration = body.get("duration")
    found = []
    for limit in limits:
        value, used = limit.value, limit.used
        if limit.rule not in _QUOTAS or not isinstance(value, int | float) or used is None:
            continue
        after: float | None = used + gpus
        if limit.rule == RuleName.MAX_GPU_HOURS_PER_WEEK:
            after = used + gpus * duration / 3600 if isinstance(duration, int) else None
        found.append(QuotaShare(*_QUOTAS[limit.rule], used, after, value))
    return found
