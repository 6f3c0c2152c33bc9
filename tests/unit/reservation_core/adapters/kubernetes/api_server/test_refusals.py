"""What the API's refusals mean: never, not now, or nothing about the pod at all."""

import pytest

from reservation_core.adapters.kubernetes.api_server.errors import ApiServerError, ApiServerForbidsError, InvalidError
from reservation_core.adapters.kubernetes.api_server.refusals import refusal_of_creation
from reservation_core.domain.statuses import ReasonCode
from reservation_core.ports.cluster import ClusterUnavailableError, PodNotNowError, PodRefusedError

QUOTA = 'pods "job-a-1-0" is forbidden: exceeded quota: gpus, requested: pods=1, used: pods=8, limited: pods=8'


def said(error: ApiServerError) -> Exception:
    return refusal_of_creation(error, "pods", "job-a-1-0", "gpu-dev")


def test_a_quota_that_is_used_up_is_told_as_such() -> None:
    refusal = said(ApiServerForbidsError(403, "Forbidden", QUOTA))
    assert isinstance(refusal, PodNotNowError)
    assert refusal.reason.code is ReasonCode.UNSCHEDULABLE
    assert refusal.reason.detail == (
        "The quota of namespace gpu-dev is used up: exceeded quota: gpus, requested: pods=1, used: pods=8, limited:"
        " pods=8. It is tried again until the start allowance is over; an administrator of the cluster can raise the"
        " quota."
    )


@pytest.mark.parametrize(
    "why", ["error looking up service account gpu-dev/default", "namespace gpu-dev is being terminated"]
)
def test_what_else_may_pass_is_told_too(why: str) -> None:
    refusal = said(ApiServerForbidsError(403, "Forbidden", f'pods "job-a-1-0" is forbidden: {why}'))
    assert isinstance(refusal, PodNotNowError)
    assert f"takes no pod now: {why}." in refusal.reason.detail


def test_what_is_wrong_with_the_pod_is_refused_for_good() -> None:
    limit = 'pods "job-a-1-0" is forbidden: maximum cpu usage per Container is 1m'
    for error in (ApiServerForbidsError(403, "Forbidden", limit), InvalidError(422, "Invalid", "spec is wrong")):
        assert isinstance(said(error), PodRefusedError)


def test_what_we_may_not_do_says_nothing_about_the_pod() -> None:
    error = ApiServerForbidsError(403, "Forbidden", 'pods is forbidden: User "x" cannot create resource "pods"')
    assert type(said(error)) is ClusterUnavailableError
