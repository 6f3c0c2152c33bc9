"""What an API error means for the caller: the cluster will never run this pod, or could not be asked."""

from collections.abc import Iterator
from contextlib import contextmanager

from reservation_core.adapters.kubernetes.api_server.errors import (
    ApiServerError,
    ApiServerForbidsError,
    InvalidError,
    ObjectNotFoundError,
)
from reservation_core.domain.model import Reason
from reservation_core.domain.statuses import ReasonCode
from reservation_core.ports.cluster import ClusterUnavailableError, PodNotNowError, PodRefusedError

_QUOTA = "exceeded quota"
# Temporary refusals: the pod is not at fault.
_PASSING = (_QUOTA, "error looking up service account", "being terminated", "not yet ready to handle")


@contextmanager
def explained(verb: str, resource: str, where: str = "") -> Iterator[None]:
    """Turn API errors into ClusterUnavailableError with the remedy. `where` is a namespace; empty means all."""
    try:
        yield
    except ApiServerError as error:
        raise unavailable(error, verb, resource, where) from error


def unavailable(error: ApiServerError, verb: str, resource: str, where: str) -> ClusterUnavailableError:
    """The ClusterUnavailableError that says what is missing and how to fix it."""
    place = f"namespace {where}" if where else "all of the cluster"
    if isinstance(error, ApiServerForbidsError):
        return ClusterUnavailableError(
            f"The API server does not let us {verb} {resource} in {place}: {error.message}. Give our account a role"
            f" with the verb {verb} on {resource} there."
        )
    if isinstance(error, ObjectNotFoundError) and verb == "create":
        return ClusterUnavailableError(
            f"The API server does not know where to {verb} {resource}: {error.message}. Create {place}, or correct"
            " GPU_DEV_KUBERNETES__NAMESPACE."
        )
    return ClusterUnavailableError(
        f"The API server would not {verb} {resource} in {place}: {error}. Look at its log and at admission webhooks."
    )


def refusal_of_creation(
    error: ApiServerError, resource: str, name: str, where: str
) -> PodRefusedError | ClusterUnavailableError:
    """The error for an object of ours that was not created."""
    if isinstance(error, ApiServerForbidsError) and any(passing in error.message for passing in _PASSING):
        return _not_now(error.message.removeprefix(f'{resource} "{name}" is forbidden: '), where)
    if isinstance(error, InvalidError) or _refused_by_admission(error, resource, name):
        return refused(f"The cluster refused the job's {resource.removesuffix('s')}: {error.message}.")
    return unavailable(error, "create", resource, where)


def _not_now(why: str, where: str) -> PodNotNowError:
    if _QUOTA in why:
        detail = (
            f"The quota of namespace {where} is used up: {why}. It is tried again until the start allowance is over; an"
            " administrator of the cluster can raise the quota."
        )
    else:
        detail = (
            f"Namespace {where} takes no pod now: {why}. It is tried again until the start allowance is over; an"
            " administrator of the cluster should look at the namespace."
        )
    return PodNotNowError(Reason(ReasonCode.UNSCHEDULABLE, detail))


def refused(what: str) -> PodRefusedError:
    """The error for a pod that the cluster will never run; `what` is a sentence that says why."""
    detail = f"{what} Change the job accordingly and submit it again, or ask an administrator of the cluster."
    return PodRefusedError(Reason(ReasonCode.START_FAILED, detail))


def _refused_by_admission(error: ApiServerError, resource: str, name: str) -> bool:
    """Whether admission forbids this object: the message then has its name. Missing permissions name the kind."""
    if not isinstance(error, ApiServerForbidsError):
        return False
    return error.message.startswith(f'{resource} "{name}" is forbidden') or "denied the request" in error.message
